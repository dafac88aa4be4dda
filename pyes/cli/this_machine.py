"""``pyes info | bench``: show properties and speed of this machine and this build of pyes."""

import argparse
import sys
from collections.abc import Iterator

from pyes.cli.arguments import Add
from pyes.system.lookup import version


def add_commands(add: Add) -> None:
    """Add these commands to the program."""
    add("info", _info, "show versions, CPU, memory and the default noise table")
    bench = add("bench", _bench, "measure the speed of kernels, networks and rollouts")
    bench.add_argument("--full", action="store_true", help="more repetitions and a larger table: 2 GB, several minutes")


def _info(options: argparse.Namespace) -> None:
    for name, value in _facts():
        print(f"{name:<14}{value}")


def _facts() -> Iterator[tuple[str, str]]:
    import platform

    from pyes import _core
    from pyes.node import selftest
    from pyes.numerics import noise
    from pyes.system import limits, memory

    yield "pyes", version("pyes-rl")
    yield "python", f"{platform.python_version()} ({sys.executable})"
    for name in ("numpy", "torch", "gymnasium", "hydra-core"):
        yield name, version(name)
    yield "platform", platform.platform()
    levels = _core.levels()
    yield "cpu level", f"{levels[-1]} (of {', '.join(levels)})"
    yield "kernels", selftest.digest()
    yield "cores", str(limits.usable_cores())
    yield "memory", f"{limits.available_memory() / 2**30:.1f} GiB available to this process"
    yield "shared memory", memory.default_kind()
    entries = noise.default_entries(1)
    yield "noise table", f"{entries:,} entries by default: {entries * 4 / 2**20:,.0f} MiB as float32"


def _bench(options: argparse.Namespace) -> None:
    from pyes import bench

    bench.run(full=options.full)
