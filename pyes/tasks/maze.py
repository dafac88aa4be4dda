"""A deceptive task: a plane with a trap between the start and the goal.

Owns the environment `Maze-v0`, which is registered by importing this module: ``task.env_id=pyes.tasks.maze:Maze-v0``.
Must not know tasks. Invariant: an episode depends only on its seed and actions.

As in Lehman & Stanley (2011) and Conti et al. (2018, section 4.1), every step towards the goal is rewarded, but the
straight way ends in a dead end.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

GOAL = (8.0, 0.0)
_GOAL_RADIUS = 0.5
_SPEED = 0.4  # maximum distance per timestep along each axis
_START_RADIUS = 0.1  # maximum distance of the start from the origin along each axis
_LOW, _HIGH = (-3.0, -5.0), (10.0, 5.0)  # corners of the plane

#: Walls across the x axis: x, first y, last y.
ACROSS = ((4.0, -1.5, 1.5),)
#: Walls along the x axis: y, first x, last x.
ALONG = ((-1.5, 0.0, 4.0), (1.5, 0.0, 4.0))

_PIXELS = 40  # per unit of length
_WHITE, _BLACK, _GREEN, _GREY, _RED = (255,) * 3, (0,) * 3, (70, 170, 90), (170,) * 3, (210, 60, 50)


class Maze(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """A point on a plane with a trap, open towards the start, between it and the goal.

    Observations are float32 (2,): x / 5 and y / 5. Actions are float32 (2,) in [-1, 1]: the speed along x and y. A move
    along an axis that would cross a wall is not made, and the plane has a border. The reward is the decrease of the
    distance to the goal, so the return is about 8 at most, and 4 in the trap.

    Parameters
    ----------
    render_mode : str or None
        "rgb_array" for frames.

    Attributes
    ----------
    position : tuple of float
        x and y.
    path : list of tuple
        Positions so far in the episode.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        low, high = np.array(_LOW, np.float32) / 5, np.array(_HIGH, np.float32) / 5
        self.observation_space = spaces.Box(low, high, (2,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.position = (0.0, 0.0)
        self.path: list[tuple[float, float]] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin near the origin."""
        super().reset(seed=seed)
        x, y = self.np_random.uniform(-_START_RADIUS, _START_RADIUS, 2).tolist()
        self.position = (x, y)
        self.path = [self.position]
        return self._observe(), {}

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Move along x, then along y."""
        dx, dy = (min(max(float(part), -1.0), 1.0) * _SPEED for part in action)
        before = _distance(self.position)
        x, y = self.position
        x = _moved(x, dx, y, ACROSS, _LOW[0], _HIGH[0])
        y = _moved(y, dy, x, ALONG, _LOW[1], _HIGH[1])
        self.position = (x, y)
        self.path.append(self.position)
        left = _distance(self.position)
        return self._observe(), before - left, left < _GOAL_RADIUS, False, {}

    def _observe(self) -> NDArray[np.float32]:
        return np.array(self.position, np.float32) / np.float32(5)

    def render(self) -> Any:
        """Return the plane seen from above, with the path so far: uint8 (400, 520, 3)."""
        size = [round((high - low) * _PIXELS) for low, high in zip(_LOW, _HIGH, strict=True)]
        frame = np.full((size[1], size[0], 3), _WHITE, np.uint8)
        _paint(frame, GOAL, _GOAL_RADIUS, _GREEN)
        for x, *ends in ACROSS:
            for y in np.arange(ends[0], ends[1], 0.05):
                _paint(frame, (x, float(y)), 0.05, _BLACK)
        for y, *ends in ALONG:
            for x in np.arange(ends[0], ends[1], 0.05):
                _paint(frame, (float(x), y), 0.05, _BLACK)
        for place in self.path:
            _paint(frame, place, 0.05, _GREY)
        _paint(frame, self.position, 0.15, _RED)
        return frame


def _distance(position: tuple[float, float]) -> float:
    """Return the distance to the goal by a square root, which all machines round equally (unlike ``hypot``)."""
    dx, dy = position[0] - GOAL[0], position[1] - GOAL[1]
    return float(np.sqrt(dx * dx + dy * dy))


def _moved(
    place: float, change: float, other: float, walls: tuple[tuple[float, float, float], ...], low: float, high: float
) -> float:
    """Return a coordinate ``place`` after a move by ``change`` within the border; no move crosses a wall."""
    after = place + change
    for wall, start, end in walls:
        if start <= other <= end and (place < wall) != (after < wall):
            return place
    return min(max(after, low), high)


def _paint(frame: NDArray[np.uint8], place: tuple[float, float], radius: float, colour: tuple[int, ...]) -> None:
    """Paint a square of the plane."""
    column, row = (place[0] - _LOW[0]) * _PIXELS, (_HIGH[1] - place[1]) * _PIXELS
    reach = radius * _PIXELS
    top, left = max(0, round(row - reach)), max(0, round(column - reach))
    frame[top : max(0, round(row + reach)), left : max(0, round(column + reach))] = colour


gymnasium.register("Maze-v0", "pyes.tasks.maze:Maze", max_episode_steps=60)
