"""What a policy of 1, 10 and 50 million parameters costs, part by part, with each type of noise.

    python benchmarks/large_policies.py [MILLIONS ...]        default: 1 10 50 (needs 4 GB of memory and 2 GB of disk)

One network: a linear layer as wide as it is high, without bias. Times are medians on one core.

member      theta and a slice packed to a network that is ready to run, milliseconds
timestep    one forward pass, milliseconds
update      milliseconds a member: its slice's share of the weighted sum, of 64 members; Adam is in `step`
read        the time of a streaming read of as many bytes, over that of the update; above 1 where caches help
step        one step of Adam, milliseconds
snapshot    theta and Adam's moments, which a node that joins late is sent, too: megabytes, seconds to write and to read
"""

import argparse
import statistics
import sys
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path

import numpy as np
from parts import positive_float

from pyes import _core
from pyes.bench import kernels
from pyes.networks.program import Activation, Instruction, Op
from pyes.numerics.noise import NoiseTable
from pyes.system import packing
from pyes.system.files import write_file

MEMBERS, TURNS = 64, 7


def main() -> None:
    """Print a row for each size and type of noise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("millions", nargs="*", type=positive_float, default=[1, 10, 50], metavar="MILLIONS")
    millions = parser.parse_args().millions
    with tempfile.TemporaryDirectory() as folder:
        read = kernels.compiled_read(folder)
    if read is None:
        sys.exit("no C compiler: cc is needed for the streaming read")
    print("| parameters | noise | member, ms | timestep, ms | update, ms | read | step, ms | snapshot, MB | s | s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for each in millions:
        side = round((1e6 * each) ** 0.5)
        kept = snapshot(side * side)
        for dtype in ("float32", "bfloat16", "int8"):
            print(f"| {side * side:,} | {dtype} | {' | '.join([*parts(side, dtype, read), *kept])} |", flush=True)


def parts(side: int, dtype: str, read: Callable[[np.ndarray], object]) -> list[str]:
    """Return the cells of one type of noise."""
    dim, rng = side * side, np.random.default_rng(0)
    instruction = Instruction(Op.LINEAR, side, side, 0, -1, Activation.IDENTITY)
    runner = _core.PolicyRunner(np.array([instruction], np.int64), side, action="argmax")
    theta, m, v, gradient = (np.full(dim, value, np.float32) for value in (0.1, 0.0, 0.0, 0.1))
    observation = rng.standard_normal(side).astype(np.float32)
    with NoiseTable(2**27, 0, dtype) as table:  # type: ignore[arg-type]
        offsets = rng.integers(0, len(table.array) - dim, MEMBERS)
        weights = rng.standard_normal(MEMBERS).astype(np.float32)
        slices = iter(np.resize(offsets, 10_000).tolist())
        member = median(lambda: runner.load(theta, table.array, next(slices), 0.02))
        timestep = median(lambda: runner.act(observation))
        update = median(lambda: _core.weighted_sum(table.array, offsets, weights, gradient))
        reading = median(lambda: read(table.array)) * MEMBERS * dim / len(table.array)
        step = median(lambda: _core.adam_step(theta, gradient, m, v, 1, 1e-3, 0.9, 0.999, 1e-8, 0.0))
    cells = (1e3 * member, 1e3 * timestep, 1e3 * update / MEMBERS)
    return [*(f"{cell:.2f}" for cell in cells), f"{reading / update:.2f}", f"{1e3 * step:.2f}"]


def snapshot(dim: int) -> list[str]:
    """Return megabytes of a snapshot, and the seconds of writing and reading it."""
    state = {name: np.zeros(dim, np.float32) for name in ("theta", "m", "v")}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot"
        writing = median(lambda: write_file(path, packing.pack(state)), 3)
        reading = median(lambda: packing.unpack(path.read_bytes()), 3)
        return [f"{path.stat().st_size / 1e6:,.0f}", f"{writing:.2f}", f"{reading:.2f}"]


def median(function: Callable[[], object], turns: int = TURNS) -> float:
    """Return the seconds of a call."""
    return statistics.median(timeit.repeat(function, number=1, repeat=turns))


if __name__ == "__main__":
    main()
