"""Evolution strategies for policies in real simulators.

    pyes.train(config) -> RunResult            train a policy
    pyes.load(run, generation) -> Policy       action = policy(observation); its last center, or another one, or "best"
    pyes.make_env(run) -> gymnasium.Env        the environment that it was trained in
    pyes.read(runs) -> list of pyes.Run        their settings, and their metrics as NumPy arrays
    pyes.plot(runs, output), pyes.table(runs)  learning curves in a figure, final returns in a table
    pyes.maximize(function, theta, ...)        any black-box function
    pyes.OpenAIES(theta, ...)                  ask / tell; so every other algorithm: pyes.ARS, pyes.CMAES ...
    pyes.Algorithm, pyes.AlgorithmConfig       for an algorithm of your own; its members are a pyes.Population
    pyes.Logger                                for a logger of your own
    pyes.include_dir() -> str                  where the header of environments in C is
    pyes.native                                environments in Python that Numba compiles
    pyes.NoiseTable(entries, seed, dtype)      the shared noise table

Names are imported when first used, so that ``import pyes`` is quick and needs neither torch nor a simulator.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # For type checkers alone: at run time the registry knows the algorithms.
    from pyes.algorithms.ars import ARS as ARS
    from pyes.algorithms.base import Algorithm as Algorithm
    from pyes.algorithms.cma_es import CMAES as CMAES
    from pyes.algorithms.ga import GA as GA
    from pyes.algorithms.nevergrad import Nevergrad as Nevergrad
    from pyes.algorithms.novelty import NSES as NSES
    from pyes.algorithms.novelty import NSRAES as NSRAES
    from pyes.algorithms.novelty import NSRES as NSRES
    from pyes.algorithms.openai_es import OpenAIES as OpenAIES
    from pyes.algorithms.pgpe import PGPE as PGPE
    from pyes.algorithms.population import Population as Population
    from pyes.algorithms.snes import SNES as SNES
    from pyes.blackbox import Maximum as Maximum
    from pyes.blackbox import maximize as maximize
    from pyes.config.algorithm import AlgorithmConfig as AlgorithmConfig
    from pyes.networks import Policy as Policy
    from pyes.numerics.noise import NoiseTable as NoiseTable
    from pyes.reports.loggers.base import Logger as Logger
    from pyes.reports.plots import plot as plot
    from pyes.reports.replay import load as load
    from pyes.reports.replay import make_env as make_env
    from pyes.reports.runs import Run as Run
    from pyes.reports.runs import read as read
    from pyes.reports.tables import table as table
    from pyes.tasks.native import include_dir as include_dir
    from pyes.training.loop import RunResult as RunResult
    from pyes.training.loop import train as train

_HOMES = {
    "Algorithm": "pyes.algorithms.base",
    "AlgorithmConfig": "pyes.config.algorithm",
    "Logger": "pyes.reports.loggers.base",
    "Maximum": "pyes.blackbox",
    "NoiseTable": "pyes.numerics.noise",
    "Policy": "pyes.networks",
    "Population": "pyes.algorithms.population",
    "Run": "pyes.reports.runs",
    "RunResult": "pyes.training.loop",
    "include_dir": "pyes.tasks.native",
    "load": "pyes.reports.replay",
    "make_env": "pyes.reports.replay",
    "maximize": "pyes.blackbox",
    "plot": "pyes.reports.plots",
    "read": "pyes.reports.runs",
    "table": "pyes.reports.tables",
    "train": "pyes.training.loop",
}


# Log records of a library are shown where a handler is: in a run's train.log, or by one of the user's.
logging.getLogger("pyes").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    if name == "native":
        return import_module("pyes.native")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    algorithms = {} if name.startswith("_") else _algorithms()
    if name not in algorithms:
        raise AttributeError(f"module 'pyes' has no attribute {name!r}")
    return algorithms[name]


def __dir__() -> list[str]:
    return sorted(["native", *_HOMES, *_algorithms()])


def _algorithms() -> dict[str, Any]:
    """Return the classes of the algorithms, by name."""
    return import_module("pyes.config.registry").ALGORITHMS.classes()  # type: ignore[no-any-return]
