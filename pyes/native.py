"""Environments of your own without Python per timestep.

    environment                          decorator: Numba compiles a class with reset and step to an environment
    as_gymnasium(environment, render)    any environment behind pyes_environment.h as a gymnasium.Env
    uniform(random, low, high)           the next number of an episode: uniform(self.random, -1.0, 1.0)
    normal(random)                       the next standard normal number
    bits(random)                         the next 32 random bits
    sin cos exp log tanh sqrt floor      functions of a float with the same bits on every machine
    TERMINATED, TRUNCATED                what a step may return beside the reward, for True: the two ways to end

The numbers and the functions are for code that Numba compiles, and are the same as in C. Numba is imported when they,
or ``environment``, are used. See docs/howto/native_environment.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyes.errors import missing
from pyes.tasks.native import as_gymnasium
from pyes.tasks.numba_environment import environment

if TYPE_CHECKING:
    from pyes.numerics.compiled import bits, cos, exp, floor, log, normal, sin, sqrt, tanh, uniform

__all__ = [
    "TERMINATED", "TRUNCATED", "as_gymnasium", "bits", "cos", "environment", "exp", "floor", "log", "normal", "sin",
    "sqrt", "tanh", "uniform",
]  # fmt: skip

TERMINATED, TRUNCATED = 1, 2


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'pyes.native' has no attribute {name!r}")
    try:
        return getattr(import_module("pyes.numerics.compiled"), name)
    except ImportError as error:
        raise missing(f"pyes.native.{name}", "numba", "numba", error) from error
