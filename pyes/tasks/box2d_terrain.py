"""The ground of BipedalWalker, laid with as few calls of Box2D as possible.

To lay it takes Gymnasium as long as a hundred timesteps, most of it around the calls that make its two hundred bodies;
colours and clouds are for pictures. Invariant: the same bodies in the same order, and the same numbers drawn, as by the
environment's own ``_generate_terrain`` and ``_generate_clouds``.
"""

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Constants of gymnasium/envs/box2d/bipedal_walker.py, which cannot be imported without Box2D.
_GROUND = SimpleNamespace(
    SCALE=30.0, TERRAIN_STEP=14 / 30.0, TERRAIN_LENGTH=200, TERRAIN_HEIGHT=400 / 30.0 / 4, TERRAIN_GRASS=10,
    TERRAIN_STARTPAD=20,
)  # fmt: skip
_STEP, _LENGTH, _HEIGHT = _GROUND.TERRAIN_STEP, _GROUND.TERRAIN_LENGTH, _GROUND.TERRAIN_HEIGHT
_GRASS, _STUMP, _STAIRS, _PIT, _KINDS = range(5)
_CLOUDS, _NUMBERS_OF_A_CLOUD = _LENGTH // 20, 11

_Point = tuple[float, float]


class Terrain:
    """Lays the ground of each episode of an environment, in place of the environment.

    Attributes
    ----------
    segments : float32 (n, 4)
        The ground of the episode: x and y of both ends of each part, from left to right.
    quads : float32 (m, 4, 4)
        What stands on it, or is a hole in it: x and y of each corner, and of the outward normal of the side that begins
        there.
    """

    segments: NDArray[np.float32]
    quads: NDArray[np.float32]

    def __init__(self, env: Any) -> None:
        import Box2D

        self._env = env
        self._part, self._box = (
            Box2D.b2BodyDef(type=Box2D.b2_staticBody, fixtures=fixture) for fixture in (env.fd_edge, env.fd_polygon)
        )
        env._generate_terrain, env._generate_clouds = self._lay, self._pass_over_clouds

    def _lay(self, hardcore: bool) -> None:
        """Make the bodies of an episode."""
        env = self._env
        heights, boxes = _drawn(env.np_random, hardcore)
        xs = [i * _STEP for i in range(_LENGTH)]
        create, bodies, quads = env.world.CreateBody, [], []
        shape = env.fd_polygon.shape
        for box in boxes:
            shape.vertices = box
            bodies.append(create(self._box))
            quads.append([(*corner, *normal) for corner, normal in zip(shape.vertices, shape.normals, strict=True)])
        shape = env.fd_edge.shape
        points = list(zip(xs, heights, strict=True))
        for ends in itertools.pairwise(points):
            shape.vertices = ends
            bodies.append(create(self._part))
        env.terrain, env.terrain_x, env.terrain_y, env.terrain_poly = bodies[::-1], xs, heights, []
        ground = np.array(points, np.float32)
        self.segments = np.concatenate([ground[:-1], ground[1:]], axis=1)
        self.quads = np.array(quads, np.float32).reshape(-1, 4, 4)

    def _pass_over_clouds(self) -> None:
        """Draw the numbers of the clouds, which nobody sees."""
        self._env.np_random.random(_CLOUDS * _NUMBERS_OF_A_CLOUD)
        self._env.cloud_poly = []


def _drawn(random: np.random.Generator, hardcore: bool) -> tuple[list[float], list[list[_Point]]]:
    """Return the heights of the ground at each step, and the corners of the boxes, as an episode draws them."""
    boxes: list[list[_Point]] = []
    heights, y, slope, kind = [_HEIGHT] * _GROUND.TERRAIN_STARTPAD, _HEIGHT, 0.0, _GRASS
    while True:
        length = int(random.integers(_GROUND.TERRAIN_GRASS // 2, _GROUND.TERRAIN_GRASS))
        kind = int(random.integers(_STUMP, _KINDS)) if hardcore and kind == _GRASS else _GRASS
        room = _LENGTH - len(heights)
        if not room:
            return heights, boxes
        x, stretch = len(heights) * _STEP, [y]
        if kind == _GRASS:
            for _ in range(min(length, room) - 1):
                slope = 0.8 * slope + 0.01 * ((y < _HEIGHT) - (y > _HEIGHT))
                slope += (-1.0 + 2.0 * random.random()) / _GROUND.SCALE
                y += slope
                stretch.append(y)
        elif kind == _STUMP:
            length = int(random.integers(1, 3))
            side = length * _STEP
            boxes.append([(x, y), (x + side, y), (x + side, y + side), (x, y + side)])
            stretch *= length
        elif kind == _STAIRS:
            up = 1 if random.random() > 0.5 else -1
            width, steps = int(random.integers(4, 5)), int(random.integers(3, 5))
            for step in range(steps):
                left, right = x + step * width * _STEP, x + (1 + step) * width * _STEP
                top, bottom = y + step * up * _STEP, y + (-1 + step * up) * _STEP
                boxes.append([(left, top), (right, top), (right, bottom), (left, bottom)])
            length = steps * width
            stretch += [y + (i - up) / width * up * _STEP for i in range(1, length)]
        else:
            gap = int(random.integers(3, 5))
            deep = y - 4 * _STEP
            wall = [(x, y), (x + _STEP, y), (x + _STEP, deep), (x, deep)]
            boxes += [wall, [(left + _STEP * gap, height) for left, height in wall]]
            length = gap + 2
            stretch += [deep] * gap + [y]
        heights += stretch[:room]
        y = heights[-1]
        if length > room:
            return heights, boxes
