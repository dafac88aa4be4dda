"""What Ray costs: two nodes of one worker that it starts against two that were started by hand, in turn.

    python benchmarks/ray_nodes.py

Needs root, for a network of its own in which Ray and all nodes run, and the extra `ray`. Nodes of Ray are the same
programs, and members do not pass through it, so the two should be equal. Two minutes.
"""

import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from socket_cluster import LANDER, between, function, run, speed

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from heads import until
from hosts import Program, start_server
from ray_machines import environment_of, machine, make_network

Rows = list[dict[str, str]]  # of metrics.csv


def main() -> None:
    """Train in a network of its own, and print what was found."""
    start_server()
    folder = tempfile.TemporaryDirectory(prefix="pyes-ray-", dir="/tmp")  # paths of sockets have 107 bytes
    with folder as short:
        environment = environment_of(short)
        environment["PYTHONPATH"] += f":{Path(__file__).parent}"  # nodes import the function from there
        with Program(beside_ray, environment=environment, apart=True) as program:
            until(lambda: not program.running, "the end of the runs", 900.0)
            found = [line for line in program.said.splitlines() if line.startswith("Ray: ")]
            print("\n".join(found) or program.said, flush=True)


def beside_ray() -> None:
    """Start a Ray cluster of two machines with a core each, train on it and beside it, and say what was found."""
    from ray.cluster_utils import Cluster

    make_network()
    cluster = Cluster(shutdown_at_exit=False)
    for number in (1, 2):
        cluster.add_node(**machine(number))
    nodes = {"name": "ray", "workers": 1, "address": cluster.address}
    compare("LunarLander, timesteps/s", LANDER, nodes, speed)
    compare("1,000 costless members, ms", function(18, 1000), nodes, lambda rows: 1e3 * between(rows))
    cluster.shutdown()


def compare(what: str, config: dict[str, Any], cluster: dict[str, Any], measure: Callable[[Rows], float]) -> None:
    """Train three times by hand and by Ray, in turn; say what was measured."""
    pairs = [
        (measure(run(config, nodes=2, generations=8)), measure(run(config, cluster=cluster, generations=8)))
        for _ in range(3)
    ]
    ratio = statistics.median(ray / hand for hand, ray in pairs)
    hand, ray = (statistics.median(each) for each in zip(*pairs, strict=True))
    print(f"Ray: {what}: by hand {hand:,.1f}, by Ray {ray:,.1f}; ratio {ratio:.3f}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
