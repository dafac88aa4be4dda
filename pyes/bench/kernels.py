"""Speed of the kernels compared with NumPy and with this machine's memory, on one thread.

Owns the measurement. Each figure is the best of several repetitions, alternating with the one it is compared with, so
that a slow moment of the machine affects both. The streaming read is the faster one of NumPy's and of a loop compiled
with ``cc``, if installed. NumPy must not use threads (the command line sets OPENBLAS_NUM_THREADS=1).
"""

import ctypes
import functools
import itertools
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes import _core

Job = Callable[[], object]

READ_SOURCE = """
#include <stdint.h>
/* Sixty-four independent sums of 64-bit words: as fast as memory delivers. */
uint64_t read_all(const uint64_t *x, int64_t n) {
    uint64_t s[64] = {0};
    for (int64_t i = 0; i + 64 <= n; i += 64)
        for (int64_t k = 0; k < 64; k++) s[k] += x[i + k];
    uint64_t total = 0;
    for (int64_t k = 0; k < 64; k++) total += s[k];
    return total;
}
"""


def best_times(jobs: dict[str, Job], repetitions: int) -> dict[str, float]:
    """Return the shortest time of each job in seconds; jobs alternate, and the first round is not measured."""
    best = dict.fromkeys(jobs, np.inf)
    for turn in range(repetitions + 1):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            if turn:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def compiled_read(folder: str) -> Callable[[NDArray[Any]], object] | None:
    """Return a function that reads an array in C, compiled for this machine; None without a compiler that does."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    source, library = Path(folder, "read.c"), Path(folder, "read.so")
    source.write_text(READ_SOURCE)
    command = [compiler, "-O3", "-march=native", "-shared", "-fPIC", str(source), "-o", str(library)]
    try:
        subprocess.run(command, check=True, capture_output=True)
        function = ctypes.CDLL(str(library)).read_all
    except (OSError, subprocess.CalledProcessError):
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    function.restype = ctypes.c_uint64
    return lambda array: function(array.ctypes.data, array.nbytes // 8)


def line(what: str, figure: str, ratio: float | None = None, against: str = "", target: float | None = None) -> None:
    """Print one result, its ratio and the target ratio."""
    text = f"{what:<44}{figure:>16}"
    if ratio is not None:
        text += f"   {ratio:6.2f} {against}"
        text += f" (aim {target:g})" if target is not None else ""
    print(text, flush=True)


def noise(repetitions: int) -> None:
    """Measure ``fill_noise`` against ``Generator.standard_normal``."""
    n = 1 << 18  # fits into the cache, to measure the kernels instead of the memory
    random, normals = np.random.default_rng(0), np.empty(n, np.float32)
    jobs: dict[str, Job] = {"NumPy": lambda: random.standard_normal(dtype=np.float32, out=normals)}
    for name, dtype in (("float32", np.float32), ("bfloat16", np.uint16), ("int8", np.int8)):
        jobs[name] = functools.partial(_core.fill_noise, np.empty(n, dtype), 0)
    times = best_times(jobs, 5 * repetitions)
    line("standard_normal float32, NumPy", f"{n / times['NumPy'] / 1e6:.0f} M/s")
    for name, target in (("float32", 8.0), ("bfloat16", None), ("int8", 12.0)):
        line(f"fill_noise {name}", f"{n / times[name] / 1e6:.0f} M/s", times["NumPy"] / times[name], "x NumPy", target)


def weighted_sum(repetitions: int, entries: int) -> None:
    """Measure ``weighted_sum`` of 1,000 slices of 1 M parameters against a streaming read of equal size."""
    n, dim = 1000, 1_000_000
    offsets = np.random.default_rng(0).integers(0, entries - dim + 1, n)
    weights, out = np.random.default_rng(1).standard_normal(n).astype(np.float32), np.empty(dim, np.float32)
    times: dict[str, float] = {}
    tables: dict[str, NDArray[Any]] = {}
    jobs: dict[str, Job] = {}
    with tempfile.TemporaryDirectory() as folder:
        read = compiled_read(folder)
        for name, dtype in (("float32", np.float32), ("bfloat16", np.uint16), ("int8", np.int8)):
            tables[name] = np.empty(entries, dtype)
            _core.fill_noise(tables[name], 0)
            jobs[name] = functools.partial(_core.weighted_sum, tables[name], offsets, weights, out)
        jobs["read, NumPy"] = tables["float32"].max
        if read is not None:
            jobs["read, C"] = lambda: read(tables["float32"])
        times = best_times(jobs, repetitions)
    reading = min(times[name] for name in jobs if name.startswith("read")) * n * dim / entries
    bytes_read = 4e-9 * n * dim
    line("streaming read", f"{bytes_read / reading:.1f} GB/s")
    line(
        "weighted_sum float32 1,000 x 1 M",
        f"{bytes_read / times['float32']:.1f} GB/s",
        reading / times["float32"],
        "x read",
        0.85,
    )
    for name, target in (("bfloat16", 1.5), ("int8", 2.0)):
        line(
            f"weighted_sum {name} 1,000 x 1 M",
            f"{times[name] * 1e3:.0f} ms",
            times["float32"] / times[name],
            "x float32",
            target,
        )


def gathered(repetitions: int, entries: int) -> None:
    """Measure ``weighted_sum`` of 1,000 slices of 166,000 parameters against NumPy on gathered batches of 500."""
    n, dim, batch = 1000, 166_000, 500
    table = np.empty(entries, np.float32)
    _core.fill_noise(table, 0)
    offsets = np.random.default_rng(0).integers(0, entries - dim + 1, n)
    weights, out = np.random.default_rng(1).standard_normal(n).astype(np.float32), np.empty(dim, np.float32)

    def numpy_sum() -> None:
        # As in OpenAI's published code: the slices of each batch are copied into one array for a matrix product.
        total = np.zeros(dim, np.float32)
        for first in range(0, n, batch):
            slices = [table[offset : offset + dim] for offset in offsets[first : first + batch]]
            total += np.dot(weights[first : first + batch], np.asarray(slices))

    times = best_times(
        {"ours": lambda: _core.weighted_sum(table, offsets, weights, out), "NumPy": numpy_sum}, repetitions
    )
    line(
        "weighted_sum float32 1,000 x 166 k",
        f"{times['ours'] * 1e3:.0f} ms",
        times["NumPy"] / times["ours"],
        "x NumPy",
        7.0,
    )


def vectors(repetitions: int) -> None:
    """Measure kernels that run once per member or generation, in GB/s read and written."""
    dim = 1_000_000
    theta, gradient, m, v, out = (np.full(dim, 0.5, np.float32) for _ in range(5))
    table = np.empty(2 * dim, np.float32)
    _core.fill_noise(table, 0)
    returns, ranks = np.random.default_rng(0).standard_normal(10_000), np.empty(10_000, np.float32)
    jobs: dict[str, tuple[Job, int]] = {
        "perturb float32": (lambda: _core.perturb(theta, table, 77, 0.1, out), 12),
        "adam_step": (lambda: _core.adam_step(theta, gradient, m, v, 9, 1e-4, 0.9, 0.999, 1e-8, 0.0), 28),
        "sgd_step": (lambda: _core.sgd_step(theta, gradient, m, 1e-4, 0.9, 0.0), 20),
        "clipup_step": (lambda: _core.clipup_step(theta, gradient, m, 1e-4, 0.9, 1.0, 0.0), 28),
    }
    times = best_times({name: job for name, (job, _) in jobs.items()}, 5 * repetitions)
    for name, (_, size) in jobs.items():
        line(f"{name} 1 M", f"{times[name] * 1e6:.0f} us", size * dim / times[name] / 1e9, "GB/s")
    ranking = best_times({"ranks": lambda: _core.centered_ranks(returns, ranks)}, 5 * repetitions)["ranks"]
    line("centered_ranks 10,000", f"{ranking * 1e6:.0f} us")


def perceptron(sizes: list[int]) -> NDArray[np.int64]:
    """Return the instructions of a tanh network with a linear last layer."""
    rows, offset = [], 0
    for k, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        rows.append([0, inputs, outputs, offset, offset + inputs * outputs, int(k < len(sizes) - 2), -1, -1])
        offset += (inputs + 1) * outputs
    return np.array(rows, np.int64)


def policy(repetitions: int) -> None:
    """Measure one call of ``PolicyRunner.act`` from Python with normalised observations; the target is 1 us."""
    calls = 20_000
    ones = np.ones(4, np.float32)
    for sizes in ([8, 2], [8, 64, 64, 4]):
        runner = _core.PolicyRunner(
            perceptron(sizes),
            8,
            action="clip",
            low=-ones[: sizes[-1]],
            high=ones[: sizes[-1]],
            action_shape=(sizes[-1],),
        )
        runner.load(np.random.default_rng(0).standard_normal(runner.dim).astype(np.float32))
        runner.normalize(np.zeros(8, np.float32), np.ones(8, np.float32), 5.0)
        observation, act = np.ones(8, np.float32), runner.act

        def loop(act: Any = act, observation: Any = observation) -> None:
            for _ in range(calls):
                act(observation)

        seconds = best_times({"act": loop}, 3 * repetitions)["act"] / calls
        line(f"PolicyRunner.act {'-'.join(map(str, sizes))}", f"{seconds * 1e6:.2f} us")


def measure(*, full: bool = False) -> None:
    """Measure and print one line per figure.

    Parameters
    ----------
    full : bool
        More repetitions and a table of 2**28 entries: 2 GB and two minutes.
    """
    repetitions, entries = (5, 1 << 28) if full else (2, 1 << 26)
    print(f"kernels: one thread, CPU level {_core.levels()[-1]} of {', '.join(_core.levels())}")
    noise(repetitions)
    weighted_sum(repetitions, entries)
    gathered(repetitions, 1 << 26)
    vectors(repetitions)
    policy(repetitions)
