"""`pyes bench`: kernels and rollouts against this machine's limits, compiled networks against torch."""

from pyes.bench import kernels, networks, rollouts


def run(*, full: bool = False) -> None:
    """Measure and print; every ratio is taken within this run, side by side.

    Parameters
    ----------
    full : bool    more repetitions and a larger table: 2 GB and some minutes
    """
    kernels.measure(full=full)
    networks.measure(full=full)
    rollouts.measure()
