"""CartPole in Python, compiled by Numba: episodes run without Python, as fast as in C, and with the same bits.

In this folder: pyes train task=native task.factory=cart_pole:CartPole generations=20
"""

import numba
import numpy as np

from pyes import native

MAX_ANGLE = 0.20943951023931953  # of the pole, in radians
HIGH = np.array([4.8, np.inf, 2 * MAX_ANGLE, np.inf])


@native.environment
class CartPole:
    # What changes during an episode: the state. Functions below call it self.
    x: float
    speed: float
    angle: float
    turn: float

    observation_size = 4
    observation_low, observation_high = -HIGH, HIGH
    choices = 2
    time_limit = 500

    def reset(self, observation):
        self.x = native.uniform(self.random, -0.05, 0.05)
        self.speed = native.uniform(self.random, -0.05, 0.05)
        self.angle = native.uniform(self.random, -0.05, 0.05)
        self.turn = native.uniform(self.random, -0.05, 0.05)
        observe(self, observation)

    def step(self, action, observation):
        force = 10.0 if action == 1 else -10.0
        sine, cosine = native.sin(self.angle), native.cos(self.angle)
        push = (force + 0.05 * (self.turn * self.turn) * sine) / 1.1
        turning = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * (cosine * cosine) / 1.1))
        self.x += 0.02 * self.speed
        self.speed += 0.02 * (push - 0.05 * turning * cosine / 1.1)
        self.angle += 0.02 * self.turn
        self.turn += 0.02 * turning
        observe(self, observation)
        return 1.0, abs(self.x) > 2.4 or abs(self.angle) > MAX_ANGLE


@numba.njit
def observe(state, observation):
    observation[0] = state.x
    observation[1] = state.speed
    observation[2] = state.angle
    observation[3] = state.turn
