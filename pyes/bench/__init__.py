"""Measures and checks: kernels, networks and rollouts (`pyes bench`), environments (`pyes check-environment`)."""

from pyes.bench import kernels, networks, rollouts


def run(*, full: bool = False) -> None:
    """Measure and print; the two sides of every ratio are measured alternately.

    Parameters
    ----------
    full : bool
        More repetitions and a larger table: 2 GB and several minutes.
    """
    kernels.measure(full=full)
    networks.measure(full=full)
    rollouts.measure()
