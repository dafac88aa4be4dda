"""Evolution strategies for policies in real simulators.

    pyes.train(config) -> RunResult            train a policy
    pyes.load(run) -> Policy                   action = policy(observation)
    pyes.maximize(function, theta, ...)        any black-box function
    pyes.OpenAIES(theta, ...)                  ask / tell; so ARS, PGPE, SNES, GA, NSES, CMAES, Nevergrad ...
    pyes.NoiseTable(entries, seed, dtype)      the shared noise table

Names are imported when first used, so that ``import pyes`` is quick and needs neither torch nor a simulator.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyes.algorithms import ARS, CMAES, GA, NSES, NSRAES, NSRES, PGPE, SNES, Nevergrad, OpenAIES
    from pyes.blackbox import Maximum, maximize
    from pyes.networks import Policy
    from pyes.numerics.noise import NoiseTable
    from pyes.training.loop import RunResult, train

    load = Policy.load

_HOMES = {
    "ARS": "pyes.algorithms",
    "CMAES": "pyes.algorithms",
    "GA": "pyes.algorithms",
    "Maximum": "pyes.blackbox",
    "NSES": "pyes.algorithms",
    "NSRAES": "pyes.algorithms",
    "NSRES": "pyes.algorithms",
    "Nevergrad": "pyes.algorithms",
    "NoiseTable": "pyes.numerics.noise",
    "OpenAIES": "pyes.algorithms",
    "PGPE": "pyes.algorithms",
    "Policy": "pyes.networks",
    "RunResult": "pyes.training.loop",
    "SNES": "pyes.algorithms",
    "maximize": "pyes.blackbox",
    "train": "pyes.training.loop",
}

__all__ = [
    "ARS",
    "CMAES",
    "GA",
    "NSES",
    "NSRAES",
    "NSRES",
    "PGPE",
    "SNES",
    "Maximum",
    "Nevergrad",
    "NoiseTable",
    "OpenAIES",
    "Policy",
    "RunResult",
    "load",
    "maximize",
    "train",
]


# What a library logs is for those who ask for it: a run's train.log, or a handler of the user's.
logging.getLogger("pyes").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name == "load":
        return import_module("pyes.networks").Policy.load
    if name not in _HOMES:
        raise AttributeError(f"module 'pyes' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
