"""Bytes that cross between processes in a generation: the socket cluster of pyes, and EvoTorch's actors.

pyes: what its head counts at its sockets in both directions, by `socket_cluster.py`, with the default ``cluster.sync``.
EvoTorch: the arguments of all calls of its Ray actors in a generation and what the calls return, pickled as Ray pickles
them; once as PGPE does by default, where an actor is sent the parameters of its members, and once with
``distributed=True``, where it is sent the distribution and returns a gradient. Members cost nothing in either.
"""

import logging
import multiprocessing
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peers_records as records
import socket_cluster

COLUMNS = ("method", "dim", "members", "nodes", "bytes")
MEMBERS, NODES, GENERATIONS = 1000, 3, 8
#: 18: LunarLander, linear; 6,536: two layers of 64 and many observations; 166,000: the networks of large robots.
DIMS = (18, 6_536, 166_000)
METHODS = ("pyes", "evotorch", "evotorch_distributed")


def measure(folder: Path) -> None:
    """Measure what is missing in ``wire.csv``."""
    for job in records.missing(folder / "wire.csv", jobs()):
        method, dim = job[0], int(job[1])
        sent = by_pyes(dim) if method == "pyes" else by_evotorch(dim, method == "evotorch_distributed")
        records.append(folder / "wire.csv", COLUMNS, [(method, dim, MEMBERS, NODES, sent)])
        print(f"{method}, {dim:,} parameters: {sent:,} bytes a generation", flush=True)


def jobs() -> Iterator[tuple[str, ...]]:
    """Yield method and number of parameters."""
    for dim in DIMS:
        for method in METHODS:
            yield method, str(dim)


def by_pyes(dim: int) -> int:
    """Return the median bytes of a generation of the socket cluster."""
    rows = socket_cluster.run(socket_cluster.function(dim, MEMBERS), nodes=NODES, generations=GENERATIONS)
    return int(statistics.median(int(row["bytes_sent"]) + int(row["bytes_received"]) for row in rows))


def by_evotorch(dim: int, distributed: bool) -> int:
    """Return the bytes of a generation of PGPE, in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(pickled, (dim, distributed))


def pickled(dim: int, distributed: bool) -> int:
    """Return the size of all that crosses between PGPE and its actors in a generation."""
    import ray
    from evotorch import Problem
    from evotorch.algorithms import PGPE

    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    ray.init(num_cpus=NODES, _node_ip_address="127.0.0.1", **quiet)
    bounds = {"initial_bounds": (-1e-5, 1e-5), "solution_length": dim}
    problem = Problem("max", costless, vectorized=True, num_actors=NODES, **bounds)
    rates = {"center_learning_rate": 0.1, "stdev_learning_rate": 0.1, "stdev_init": 0.1}
    searcher = PGPE(problem, popsize=MEMBERS, distributed=distributed, **rates)
    searcher.step()  # makes the actors
    sizes = counted(ray)
    searcher.step()
    ray.shutdown()
    return sum(sizes)


def counted(ray: Any) -> list[int]:
    """Return a list that receives the size of what is sent to actors and got from them from now on."""
    sizes: list[int] = []
    send, get = ray.actor.ActorMethod._remote, ray.get

    def sending(method: Any, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        sizes.append(len(ray.cloudpickle.dumps((args, kwargs))))
        return send(method, args, kwargs, **options)

    def getting(*args: Any, **kwargs: Any) -> Any:
        result = get(*args, **kwargs)
        sizes.append(len(ray.cloudpickle.dumps(result)))
        return result

    ray.actor.ActorMethod._remote, ray.get = sending, getting
    return sizes


def costless(members: Any) -> Any:
    """Return a number for each member at once."""
    return members[:, 0]
