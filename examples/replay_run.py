"""Follow the best members of a run: rebuild them from its journal, and play their episodes again.

python examples/replay_run.py RUN

RUN is a run directory, as printed by `pyes train`; only its journal.bin is needed.
"""

import sys

import numpy as np

from pyes.reports import replay


def main(run: str) -> None:
    with replay.open(run) as individuals:
        every = max(1, individuals.generations // 10)
        first = individuals.theta(0)
        for generation in range(0, individuals.generations, every):
            best = int(np.nanargmax(individuals.returns(generation)))
            distance = np.linalg.norm(individuals.theta(generation) - first)
            playback = individuals.play(generation, best)
            print(
                f"generation {generation:>4}  member {best:>4}  return {playback.return_:9.2f}  "
                f"{'as recorded' if playback.exact else 'NOT as recorded'}  center moved by {distance:.2f}"
            )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
