"""Taking a game of the emulator back to its start without loading the cartridge again, which takes much longer.

Owns the state of a game at its start. Must not know what a policy sees. Invariant: a game that was restarted goes on,
bit for bit, as one whose cartridge has just been loaded, from the first frame that it draws.

A saved state leaves out some of what the emulator holds (masks of sprites, frame buffers), and a reset of the console
leaves the memory as it is; one after the other they take nearly every game back. Whether they do is found out by
playing: of 104 games, Miniature Golf and Pitfall II remember something all the same.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

_TRIAL = 200  # frames


def find_start(ale: Any, actions: Sequence[Any]) -> Any | None:
    """Return the state that `restart` goes back to; None where a game is not the same afterwards.

    Parameters
    ----------
    ale : ALEInterface
        The emulator, which has loaded the cartridge and played nothing, without sticky actions.
    actions : sequence
        Those that the game knows.
    """
    ale.reset_game()
    start = ale.cloneState(include_rng=False)
    chosen = [actions[index] for index in np.random.default_rng(0).integers(len(actions), size=_TRIAL)]
    fresh = _play(ale, chosen)
    restart(ale, start)
    return start if _play(ale, chosen) == fresh else None


def restart(ale: Any, start: Any) -> None:
    """Take the emulator back; what it shows is of before, until it draws its next frame."""
    ale.reset_game()
    ale.restoreState(start)


def _play(ale: Any, actions: Sequence[Any]) -> list[Any]:
    """Return all that can be seen of the emulator, and in the end all that it saves."""
    seen = [(ale.act(action), ale.lives(), ale.game_over(), ale.getScreen().tobytes()) for action in actions]
    return [seen, ale.cloneState(include_rng=False).serialize()]
