"""Handing members out to 18 to 10,000 workers: how short the batches are, and what that costs the head.

    python benchmarks/schedule.py [workers] [cases]

Real: `pyes.remote.scheduler`, and the CPU seconds of all its calls of a batch, made again with nothing in between.
Simulated, in virtual time: nodes of 18 workers, their queues and their links; members that take a drawn time
(log-normal, mean 1 s, standard deviation 0.3 s); results gathered by the rules of `pyes.remote.pace`. Nothing goes over
a wire: what encoding, decoding and sockets cost the head is not in here.

Efficiency is what one machine with all these workers would take, as a share of what the batch took: there, a worker
takes the next member at once. Work is the share of the workers' time that went into members that counted: it shows
what waiting for the longest members costs any schedule. Each figure is the mean over two batches that follow one
that made the speeds known; workers that still run a member when a batch ends finish it while the next batch waits.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from parts import run_parts

# The virtual nodes are those of the tests.
sys.path.append(str(Path(__file__).parent.parent / "tests"))
from virtual_nodes import VirtualCluster, VirtualNode, ideal_seconds, replay

WORKERS = (18, 180, 1_440, 5_040, 10_008)
BATCHES = 2


def main() -> None:
    """Run the parts that the command line names, or all."""
    run_parts(__doc__, {"workers": workers, "cases": cases})


def workers() -> None:
    """Equal nodes."""
    print("| workers | members each | round trip, ms | efficiency | work | run twice | grants | CPU, ms | of a core |")
    print("|---|---|---|---|---|---|---|---|---|")
    for count in WORKERS:
        for each in (1, 2, 5, 10) if count == 1_440 else (5,):
            for round_trip in (0.0, 0.001, 0.05) if count == 1_440 else (0.05,):
                nodes = [VirtualNode(18, round_trip) for _ in range(count // 18)]
                figures = measure(nodes, each * count, drawn)
                print(f"| {count:,} | {each} | {1e3 * round_trip:g} | {figures} |", flush=True)


def cases() -> None:
    """Other members, other nodes; 180 workers, 50 ms."""
    print("\n| case | efficiency | work | run twice | grants | CPU, ms | of a core |\n|---|---|---|---|---|---|---|")
    equal = [VirtualNode(18, 0.05) for _ in range(10)]
    single = [VirtualNode(1, 0.05) for _ in range(180)]
    slow = [*(VirtualNode(18, 0.05) for _ in range(9)), VirtualNode(18, 0.05, slowness=10.0)]
    half = [VirtualNode(18, 0.05, slowness=1.0 + each % 2) for each in range(10)]
    for name, nodes, members, draw in (
        ("standard deviation 1 s", equal, 1_800, lambda count, seed: drawn(count, seed, 1.0)),
        ("members of 10 ms", equal, 36_000, lambda count, seed: 0.01 * drawn(count, seed)),
        ("members of 1 ms", equal, 90_000, lambda count, seed: 0.001 * drawn(count, seed)),
        ("nodes of one worker", single, 1_800, drawn),
        ("a node ten times slower", slow, 1_800, drawn),
        ("every other node half as fast", half, 1_800, drawn),
    ):
        print(f"| {name} | {measure(nodes, members, draw)} |", flush=True)


def measure(nodes: list[VirtualNode], members: int, draw: Callable[[int, int], NDArray[np.float64]]) -> str:
    """Return the figures of a table's row."""
    cluster = VirtualCluster(nodes)
    cluster.evaluate(draw(members, 0))
    slots = [(0.0, node.slowness) for node in nodes for _ in range(node.workers)]
    rows = []
    for seed in range(1, BATCHES + 1):
        durations, begun, grants = draw(members, seed), cluster.now, cluster.messages
        scheduler = cluster.evaluate(durations)
        took = cluster.now - begun
        capacity = sum(1.0 / slowness for _, slowness in slots)
        head = cpu_seconds(lambda: replay(members, cluster.calls))
        efficiency, work = ideal_seconds(durations, slots) / took, durations.sum() / capacity / took
        rows.append((efficiency, work, scheduler.rerun / members, cluster.messages - grants, 1e3 * head, head / took))
    efficiency, work, twice, sent, milliseconds, share = np.mean(rows, axis=0)
    return f"{efficiency:.3f} | {work:.2f} | {twice:.1%} | {sent:,.0f} | {milliseconds:,.0f} | {share:.1%}"


def cpu_seconds(function: Callable[[], None]) -> float:
    """Return the CPU seconds of a call, the least of three."""
    found = []
    for _ in range(3):
        begun = time.process_time()
        function()
        found.append(time.process_time() - begun)
    return min(found)


def drawn(count: int, seed: int, spread: float = 0.3) -> NDArray[np.float64]:
    """Return seconds of members: log-normal, with mean 1 and this standard deviation."""
    variance = np.log(1.0 + spread**2)
    return np.random.default_rng(seed).lognormal(-variance / 2.0, np.sqrt(variance), count)


if __name__ == "__main__":
    main()
