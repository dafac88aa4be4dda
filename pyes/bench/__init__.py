"""Measures and checks: kernels, networks and rollouts (`pyes bench`), environments (`pyes check-environment`)."""

from functools import partial

from pyes.bench import kernels, networks, rollouts
from pyes.errors import ConfigError


def run(*, full: bool = False) -> None:
    """Measure and print; the two sides of every ratio are measured alternately.

    Parameters
    ----------
    full : bool
        More repetitions and a larger table: 2 GB and several minutes.
    """
    for measure in (partial(kernels.measure, full=full), partial(networks.measure, full=full), rollouts.measure):
        try:
            measure()
        except ConfigError as error:  # a package is missing, which the rest does not need
            print(f"left out: {error}")
