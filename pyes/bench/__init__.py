"""`pyes bench`: the kernels and the rollouts against this machine's limits."""

from pyes.bench import kernels, rollouts


def run(*, full: bool = False) -> None:
    """Measure and print; every ratio is taken within this run, side by side.

    Parameters
    ----------
    full : bool    more repetitions and a larger table: 2 GB and some minutes
    """
    kernels.measure(full=full)
    rollouts.measure()
