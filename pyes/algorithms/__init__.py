"""Algorithms: one file each, its settings in it; an installed package adds more by the entry-point group of this name.

Owns what is asked for evaluation and what is learnt from the returns. Must not know how members are evaluated, nor what
a run is.
"""

from pyes.algorithms.base import Algorithm
from pyes.algorithms.contract import check_contract, make
from pyes.algorithms.population import Population

__all__ = [
    "Algorithm",
    "Population",
    "check_contract",
    "make",
]
