"""The socket cluster on one machine: bytes and milliseconds of a generation, results and timesteps a second.

    python benchmarks/socket_cluster.py [bytes] [sync] [costless] [speed]

Head and nodes are real processes that talk over the loopback interface. Figures are medians over the generations of one
run, the first ones left out. Where members cost nothing, what is measured is the head, the wire and the nodes' hands.

Loopback is faster than any network. As root, the same over a link of 1 Gbit/s that all messages share:

    unshare -n sh -c 'ip link set lo up; tc qdisc add dev lo root tbf rate 1gbit burst 256kb limit 64mb
        python benchmarks/socket_cluster.py sync'
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from parts import free_address, rows_of, run_parts

import pyes

PYES = (sys.executable, "-m", "pyes")
SKIPPED = 3  # generations until all nodes are there and their speed is known


def costless(theta: np.ndarray) -> float:
    """Return a number at once."""
    return float(theta[0])


def main() -> None:
    """Print one table a benchmark."""
    run_parts(__doc__, BENCHMARKS)


def measure_bytes() -> None:
    """Bytes of a generation in all directions: 1,000 members, 3 nodes."""
    print("bytes a generation, 1,000 members on 3 nodes")
    for dim in (6_536, 1_000_000):
        for sync in ("replay", "params"):
            rows = run(function(dim, 1000), nodes=3, sync=sync, generations=8)
            total = statistics.median(int(row["bytes_sent"]) + int(row["bytes_received"]) for row in rows)
            print(f"  {dim:>9,} parameters, {sync:<7}{total:>14,.0f}", flush=True)


def measure_sync() -> None:
    """From one generation to the next, by how theta reaches a node; what each member's vector would take.

    Head and node have a core each, as on machines of their own: an update takes either as long. Nodes that share their
    cores with others would make it look slow that every node updates.
    """
    print("milliseconds a generation of 1,000 members, a node with a core of its own; it is sent")
    print("  parameters   returns     theta     MB as vectors of members")
    for dim in (18, 6_536, 166_000, 1_000_000):
        cells = []
        for sync in ("replay", "params"):
            rows = run(function(dim, 1000), nodes=1, sync=sync, generations=12, cores=(0, 1))
            cells.append(f"{1e3 * between(rows):,.0f}")
        print(f"{dim:>12,}{cells[0]:>10}{cells[1]:>10}{4 * dim / 1e3:>16,.1f}", flush=True)


def measure_costless() -> None:
    """Members that cost nothing: the smallest generation, and results a second in large ones."""
    rows = run(function(18, 1000), nodes=2, generations=40)
    print(f"1,000 costless members, 2 nodes: {1e3 * between(rows):.1f} ms a generation")
    rows = run(function(18, 100_000), nodes=2, generations=6)
    seconds = statistics.median(float(row["evaluate_seconds"]) for row in rows)
    print(f"100,000 costless members, 2 nodes: {100_000 / seconds:,.0f} results a second", flush=True)


LANDER: dict[str, Any] = {
    "task": {"env_id": "LunarLanderContinuous-v3"},
    "algorithm": {"population_size": 200},
    "noise": {"entries": 2**22},
}


def measure_speed() -> None:
    """Two nodes of one worker against the local cluster's two workers, in turn: pairs of some 20 seconds each."""
    ratios = []
    for _ in range(15):
        here = run(LANDER, nodes=0, generations=40)
        there = run(LANDER, nodes=2, generations=40)
        ratios.append(speed(there) / speed(here))
        print(f"  local {speed(here):,.0f}, 2 nodes {speed(there):,.0f} timesteps/s: {ratios[-1]:.3f}", flush=True)
    print(f"2 nodes with a worker each against 2 local workers: {statistics.median(ratios):.3f}")


BENCHMARKS: dict[str, Callable[[], None]] = {
    "bytes": measure_bytes,
    "sync": measure_sync,
    "costless": measure_costless,
    "speed": measure_speed,
}


def function(dim: int, members: int) -> dict[str, Any]:
    """Return the configuration of a task that costs nothing."""
    return {
        "task": {"name": "function", "factory": "socket_cluster:costless", "dim": dim},
        "network": {"name": "linear", "bias": False, "output_activation": "identity"},
        "algorithm": {"population_size": members},
        "noise": {"entries": max(2**22, 4 * dim)},
    }


def run(
    config: dict[str, Any],
    *,
    nodes: int = 0,
    generations: int,
    sync: str = "auto",
    cluster: dict[str, Any] | None = None,
    cores: tuple[int | None, int | None] = (None, None),
) -> list[dict[str, str]]:
    """Train with so many nodes of one worker (none: ``cluster``, or 2 local workers); return the rows of its metrics.

    ``cores`` are the only one of the head and the only one of the nodes; None: any.
    """
    with tempfile.TemporaryDirectory() as folder:
        address = free_address()
        used = cluster or {"name": "local", "workers": 2}
        if nodes:
            used = {"name": "socket", "workers": 0, "listen": address, "sync": sync}
        with started(address, nodes, cores[1]), bound_to(cores[0]):
            whole = {**config, "generations": generations + SKIPPED, "evaluation": {"every": 0}, "cluster": used}
            pyes.train(whole | {"run_dir": folder + "/run", "snapshot": {"every": 0}}, display=False)
        return rows_of(Path(folder) / "run")[SKIPPED:]


@contextmanager
def started(address: str, nodes: int, core: int | None) -> Iterator[None]:
    """Have nodes of one worker while the block runs."""
    command = [*PYES, "worker", address, "--workers", "1", "--allow", "socket_cluster"]
    here = Path(__file__).parent
    with bound_to(core):
        processes = [subprocess.Popen(command, cwd=here, stderr=subprocess.DEVNULL) for _ in range(nodes)]
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


@contextmanager
def bound_to(core: int | None) -> Iterator[None]:
    """Run on one core alone, as do processes that begin in the block; None: on any."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before if core is None else {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def between(rows: list[dict[str, str]]) -> float:
    """Return the median seconds from one generation to the next."""
    seconds = [float(row["seconds"]) for row in rows]
    return statistics.median(after - before for before, after in pairwise(seconds))


def speed(rows: list[dict[str, str]]) -> float:
    """Return timesteps a second over all generations."""
    steps = int(rows[-1]["timesteps"]) - int(rows[0]["timesteps"])
    return steps / (float(rows[-1]["seconds"]) - float(rows[0]["seconds"]))


if __name__ == "__main__":
    main()
