"""Algorithms: one file each, its settings in it; an installed package adds more by the entry-point group of this name.

Owns what is asked for evaluation and what is learnt from the returns. Must not know how members are evaluated, nor what
a run is.
"""

from pyes.algorithms.averaging import Averaging, agreement
from pyes.algorithms.base import Algorithm
from pyes.algorithms.contract import check_contract, make
from pyes.algorithms.episode_limit import EpisodeLimit
from pyes.algorithms.growth import next_population_size
from pyes.algorithms.population import Population

__all__ = [
    "Algorithm",
    "Averaging",
    "EpisodeLimit",
    "Population",
    "agreement",
    "check_contract",
    "make",
    "next_population_size",
]
