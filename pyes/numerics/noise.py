"""The noise table: standard normals, drawn once per machine and shared by its processes.

Owns the table's memory, its size and its fingerprint. Entry ``k`` depends only on ``(seed, k)``, so tables of equal
seed and dtype have equal bytes on all machines, for any number of threads.
"""

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from pyes import _core
from pyes.errors import ConfigError
from pyes.system import limits, memory
from pyes.system.lifetime import Closing

DtypeName = Literal["float32", "bfloat16", "int8"]

#: NumPy's type for each table dtype; bfloat16, which NumPy lacks, is stored as uint16.
STORAGE: dict[DtypeName, type[np.generic]] = {"float32": np.float32, "bfloat16": np.uint16, "int8": np.int8}

#: Default table: minimum entries, minimum number of disjoint slices of theta, maximum bytes.
_DEFAULT_ENTRIES, _FEW_ENTRIES, _SLICES, _DEFAULT_BYTES = 2**22, 2**20, 256, 2**30


class NoiseTable(Closing):
    """A table of standard normals.

    Parameters
    ----------
    entries : int
        Length of the table.
    seed : int
        0 <= seed < 2**64.
    dtype : str
        "float32", "bfloat16" (half the memory traffic) or "int8" (a quarter; steps of 1/32, |x| < 4).
    shared : bool
        Use shared memory, to which other processes of this machine can attach (see ``handle``).
    threads : int
        Number of threads that fill the table.

    Raises
    ------
    ConfigError
        The dtype is unknown, entries is not positive, the seed out of its range, or there is too little memory.
    """

    def __init__(
        self, entries: int, seed: int, dtype: DtypeName = "float32", shared: bool = False, *, threads: int = 1
    ) -> None:
        if dtype not in STORAGE:
            raise ConfigError(f"noise.dtype: got {dtype!r}, expected one of {', '.join(STORAGE)}")
        for name, got in (("noise.entries", entries), ("threads", threads)):
            if not isinstance(got, int | np.integer) or isinstance(got, bool) or got < 1:
                raise ConfigError(f"{name}: got {got!r}, expected an integer >= 1")
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or not 0 <= seed < 2**64:
            raise ConfigError(f"seed: got {seed!r}, expected an integer in [0, 2**64)")
        entries, threads = int(entries), int(threads)  # one of NumPy's would overflow
        self.seed = seed = int(seed)
        self.dtype = dtype
        self._block: memory.SharedBlock | None = None
        storage = np.dtype(STORAGE[dtype])
        _check_fits(entries, dtype)
        if shared:
            self._block = memory.SharedBlock(entries * storage.itemsize, what="a noise table")
            try:
                _fill(self._block.array(storage, (entries,)), seed, threads)
                self._block.seal()
            except BaseException:  # such as Ctrl-C
                self._block.close()
                raise
            self.array: NDArray[Any] = self._block.array(storage, (entries,))
        else:
            self.array = np.empty(entries, storage)
            _fill(self.array, seed, threads)
        self.array.flags.writeable = False

    @classmethod
    def attach(cls, handle: memory.Handle, seed: int, dtype: DtypeName) -> Self:
        """Attach to a shared table of another process of this machine, without copying."""
        table = cls.__new__(cls)
        table.seed, table.dtype = seed, dtype
        table._block = memory.SharedBlock.attach(handle, writable=False)
        storage = np.dtype(STORAGE[dtype])
        table.array = table._block.array(storage, (handle.size // storage.itemsize,))
        table.array.flags.writeable = False
        return table

    def __len__(self) -> int:
        return len(self.array)

    @property
    def handle(self) -> memory.Handle:
        """What another process of this machine needs to attach to a shared table."""
        if self._block is None:
            raise ValueError("the table is private: build it with shared=True")
        return self._block.handle

    def offset_bound(self, dim: int) -> int:
        """Return the number of possible offsets of a slice of ``dim`` entries: offsets are in [0, bound).

        Raises
        ------
        ConfigError
            The table is smaller than two slices: with one, all members would lie on a line.
        """
        if len(self) < 2 * dim:
            raise ConfigError(
                f"noise.entries: the table has {len(self):,} entries, theta has {dim:,} parameters; expected "
                f"noise.entries={2 * dim} or more"
            )
        return len(self) - dim + 1

    def slice(self, offset: int, dim: int) -> NDArray[np.float32]:
        """Return the slice at ``offset`` as a new array, float32 (dim,) for every dtype of the table.

        Raises
        ------
        ValueError
            The slice is not within the table.
        """
        out = np.empty(dim, np.float32)
        _core.perturb(np.zeros(dim, np.float32), self.array, offset, 1.0, out)
        return out

    @property
    def fingerprint(self) -> str:
        """Hex digest (16 characters) of the table's size, dtype, seed and 64 samples of its bytes."""
        digest = hashlib.blake2b(f"{len(self)} {self.dtype} {self.seed}".encode(), digest_size=8)
        chunk = min(4096, len(self))
        for start in np.linspace(0, len(self) - chunk, 64).astype(np.int64):
            digest.update(self.array[start : start + chunk].tobytes())
        return digest.hexdigest()

    def close(self) -> None:
        """Free the memory; the table cannot be read afterwards."""
        self.array = np.empty(0, STORAGE[self.dtype])
        if self._block is not None:
            self._block.close()


def default_entries(dim: int, dtype: DtypeName = "float32") -> int:
    """Return the length of the default table, which depends only on theta's length and the dtype.

    A power of two: at least 2**22 entries and 256 slices of theta, but at most 1 GiB unless two slices need more. So
    equal settings give equal tables on all machines; a machine with too little memory rejects the table.
    """
    wanted = max(_DEFAULT_ENTRIES, _power_of_two(_SLICES * dim))
    return max(min(wanted, _DEFAULT_BYTES // np.dtype(STORAGE[dtype]).itemsize), _power_of_two(2 * dim))


def few_entries(dim: int) -> int:
    """Return the length of a float32 table without a configuration: a shorter one, for a search that begins at once."""
    return max(min(max(_FEW_ENTRIES, _SLICES * dim), _DEFAULT_BYTES // 4), 2 * dim)


def _power_of_two(least: int) -> int:
    """Return the smallest power of two >= ``least``."""
    return 1 << (least - 1).bit_length()


def _check_fits(entries: int, dtype: DtypeName) -> None:
    """Reject a table that does not fit into the available memory, before allocating it."""
    size, free = entries * np.dtype(STORAGE[dtype]).itemsize, limits.available_memory()
    if size <= free:
        return
    smaller = _power_of_two(free // np.dtype(STORAGE[dtype]).itemsize + 1) // 4
    raise ConfigError(
        f"a noise table of {entries:,} {dtype} entries takes {size / 2**20:,.0f} MiB, {free / 2**20:,.0f} MiB of "
        f"memory are available (machine or container limit); {smaller} would fit (noise.entries of a run), if theta "
        "has no more than half as many parameters"
        + (", or noise=int8, a quarter of the bytes" if dtype == "float32" else "")
    )


def weighted_sum(
    table: NoiseTable, offsets: NDArray[np.int64], weights: NDArray[np.float32], out: NDArray[np.float32], threads: int
) -> None:
    """Sum noise slices, ``out[j] = sum_i weights[i] * table[offsets[i] + j]``, on several threads."""
    _over_ranges(_core.weighted_sum, table, offsets, weights, out, threads)


def add_slices(
    table: NoiseTable, offsets: NDArray[np.int64], weights: NDArray[np.float32], out: NDArray[np.float32], threads: int
) -> None:
    """Add weighted noise slices to ``out`` in the given order, on several threads."""
    _over_ranges(_core.add_slices, table, offsets, weights, out, threads)


def _over_ranges(
    kernel: Callable[..., None],
    table: NoiseTable,
    offsets: NDArray[np.int64],
    weights: NDArray[np.float32],
    out: NDArray[np.float32],
    threads: int,
) -> None:

    def part(start: int, stop: int) -> None:
        kernel(table.array, offsets + start, weights, out[start:stop])

    _by_parameters(part, len(out), len(offsets), threads)


def weighted_moments(
    table: NoiseTable,
    offsets: NDArray[np.int64],
    weights: NDArray[np.float32],
    spread_weights: NDArray[np.float32],
    mean: NDArray[np.float32],
    spread: NDArray[np.float32],
    threads: int,
) -> None:
    """Sum noise slices and, with other weights, their squares minus 1, in one pass on several threads."""

    def part(start: int, stop: int) -> None:
        _core.weighted_moments(
            table.array, offsets + start, weights, spread_weights, mean[start:stop], spread[start:stop]
        )

    _by_parameters(part, len(mean), len(offsets), threads)


def _by_parameters(part: Callable[[int, int], None], dim: int, slices: int, threads: int) -> None:
    """Run a sum over slices for ranges of the parameters.

    Threads share out the parameters, not the slices, so each parameter's additions have the same order and the bits do
    not depend on the number of threads.
    """
    # Below this many multiply-adds, starting threads costs more than it saves.
    if threads == 1 or dim * slices < 2**22:
        part(0, dim)
        return
    bounds = np.linspace(0, dim, threads + 1).astype(np.int64).tolist()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(part, bounds[:-1], bounds[1:]))


def _fill(out: NDArray[Any], seed: int, threads: int) -> None:
    if threads == 1:
        _core.fill_noise(out, seed)
        return
    bounds = np.linspace(0, len(out), threads + 1).astype(np.int64)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda start, stop: _core.fill_noise(out[start:stop], seed, int(start)), bounds[:-1], bounds[1:]))
