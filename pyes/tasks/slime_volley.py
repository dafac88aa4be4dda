"""Pictures of SlimeVolley, whose rules are in csrc/environments/slime_volley.c."""

import numpy as np
from numpy.typing import NDArray

_PIXELS = 12  # per unit of length
_WIDTH, _HEIGHT, _GROUND = 48.0, 24.0, 1.5  # what is shown; the court is twice as high
_NET_WIDTH, _NET_HEIGHT = 1.0, 3.5
_SKY, _EARTH, _NET, _BALL = (226, 240, 250), (214, 178, 116), (90, 90, 90), (60, 60, 60)
_SLIMES = ((213, 94, 0), (0, 114, 178))  # left, right

_X = (np.arange(int(_WIDTH * _PIXELS)) + 0.5) / _PIXELS - _WIDTH / 2
_Y = (_HEIGHT - (np.arange(int(_HEIGHT * _PIXELS)) + 0.5) / _PIXELS)[:, None]


def draw(numbers: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return a picture of the court, uint8 (288, 576, 3).

    Parameters
    ----------
    numbers : float64 (15,)
        x, y, their speeds, and the radius; of the ball, the left slime and the right one: the beginning of the state.
    """
    frame = np.empty((len(_Y), len(_X), 3), np.uint8)
    frame[:] = _SKY
    ball, *slimes = numbers.reshape(3, 5)
    for (x, y, _, _, radius), colour in zip(slimes, _SLIMES, strict=True):
        frame[_disc(x, y, radius) & (y <= _Y)] = colour
        eye = x - 0.5 * np.sign(x) * radius  # looks at the net
        frame[_disc(eye, y + 0.55 * radius, 0.3 * radius)] = 255
        frame[_disc(eye - 0.1 * np.sign(x) * radius, y + 0.55 * radius, 0.13 * radius)] = 0
    frame[_disc(ball[0], ball[1], ball[4])] = _BALL
    frame[_Y[:, 0] <= _GROUND] = _EARTH
    frame[(_Y <= _NET_HEIGHT) & (_Y > 0.0) & (np.abs(_X) <= _NET_WIDTH / 2) | _disc(0.0, _NET_HEIGHT, 0.5)] = _NET
    return frame


def _disc(x: float, y: float, radius: float) -> NDArray[np.bool_]:
    return (_X - x) ** 2 + (_Y - y) ** 2 <= radius**2
