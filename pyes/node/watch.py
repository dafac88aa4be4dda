"""Rules about time: how long a process has been in one state, and whether memory ran out recently.

Owns no process and reads no clock: callers pass observations and their times. Invariant: only time during which the
watching process itself ran counts, so that no worker is late after Ctrl-Z or on a suspended or overloaded machine.
"""

from collections.abc import Sequence

_LONGEST_GAP = 1.0  # maximum seconds counted between two looks; in a longer gap the watcher itself did not run
_RECENT = 10.0  # seconds within which a process dies after the kernel has decided to kill it


class Watch:
    """Measures how long each of several processes has been in the same state."""

    def __init__(self) -> None:
        self._last = 0.0
        self._before: Sequence[float] = ()
        self._seconds: list[float] = []

    def look(self, now: float, doing: Sequence[float]) -> list[float]:
        """Return for how many seconds each process has been in its present state.

        Parameters
        ----------
        now : float
            Monotonic seconds.
        doing : (n,)
            A number for the state of each process; 0: a state that may last forever.
        """
        gap = min(now - self._last, _LONGEST_GAP)
        if len(doing) != len(self._before):
            self._before, self._seconds = [0.0] * len(doing), [0.0] * len(doing)
        rows = zip(doing, self._before, self._seconds, strict=True)
        self._seconds = [seconds + gap if is_ and is_ == was else 0.0 for is_, was, seconds in rows]
        self._last, self._before = now, [float(number) for number in doing]
        return self._seconds


class OutOfMemory:
    """Decides whether the kernel may have killed a process because memory ran out.

    Parameters
    ----------
    kills : int or None
        Number of such kills so far; None if unknown.
    """

    def __init__(self, kills: int | None) -> None:
        self._kills = kills
        self._risen = -_RECENT

    def look(self, now: float, kills: int | None) -> bool:
        """Update the kernel's count; return whether it rose recently or is unknown."""
        if kills is None or kills != self._kills:
            self._kills, self._risen = kills, now
        return now - self._risen < _RECENT
