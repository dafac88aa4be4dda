"""Environments that Numba compiles, for the tests."""

import numba
import numpy as np

from pyes import native


@numba.njit
def place(walker):
    return walker.places[walker.time % 3]


@numba.njit
def write(numbers, index):
    numbers[index] = 1.0


@native.environment
class Walk:
    """A walk with fields of every kind, actions of a box, and observations in float64; `bad` makes it go wrong."""

    places: (float, 3)
    time: int
    tired: bool
    bad: np.float32

    observation_size = 2
    observation_type = float
    observation_low = -100.0
    action_size = 2
    action_low, action_high = -1.0, (1.0, 3.0)
    reward_low, reward_high = -1000, 1000
    time_limit = 30

    def reset(self, observation):
        for i in range(3):
            self.places[i] = native.uniform(self.random, -1.0, 1.0)
        self.bad = native.bits(self.random) % 8
        observation[0], observation[1] = place(self), self.bad

    def step(self, action, observation):
        self.time += 1
        self.tired = self.time > 20
        for i in range(3):
            self.places[i] = native.tanh(self.places[i]) + 0.1 * native.exp(-native.log(4.0 + action[0] * action[1]))
        if self.bad == 1.0 and self.time == 5:
            raise ValueError("tripped")
        if self.bad == 2.0 and self.time == 5:
            observation[self.time] = 1.0  # out of bounds
        if self.bad == 4.0 and self.time == 5:
            write(observation, self.time)
        observation[0], observation[1] = place(self), self.bad / (self.time - 5.0 if self.bad == 3.0 else 1.0)
        reward = native.floor(10.0 * place(self)) - native.sqrt(native.cos(self.time) ** 2)
        return reward, native.TRUNCATED if self.tired else 0

    def render(self):
        return np.full((2, 3, 3), 10 * self.time, np.uint8)


@native.environment
class Tripped:
    """One whose reset raises."""

    observation_size = 1
    choices = 2

    def reset(self, observation):
        observation[native.bits(self.random) % 1 + 1] = 1.0

    def step(self, action, observation):
        return 1.0, False
