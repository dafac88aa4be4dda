"""The local node: scaling over workers, the cost of a generation, start-up, memory, recovery.

    python benchmarks/node.py [scaling] [generation] [startup] [memory] [recovery]

Linux only (it reads /proc). Figures are medians; ratios are taken within one run, side by side.
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from parts import run_parts

from pyes import networks, tasks
from pyes.algorithms.population import Population
from pyes.cluster import Cluster, open_cluster
from pyes.config import ClusterConfig, TaskConfig
from pyes.episodes.batch import Batch, Plan
from pyes.networks import ActionDecoder
from pyes.networks.linear import LinearConfig
from pyes.numerics import streams
from pyes.numerics.noise import NoiseTable
from pyes.tasks.gymnasium import GymnasiumConfig

LANDER = GymnasiumConfig()


def main() -> None:
    """Run the parts that the command line names, or all."""
    parts = {
        "scaling": scaling,
        "generation": generation,
        "startup": startup,
        "memory": memory,
        "recovery": recovery,
    }
    run_parts(__doc__, parts)


def scaling() -> None:
    """Two workers against one: LunarLander, population 256."""
    speeds: dict[int, list[float]] = {1: [], 2: []}
    with NoiseTable(2**22, 0, shared=True) as table:
        for round_ in range(5):
            for workers in (1, 2):
                with open_cluster(ClusterConfig(workers=workers), LANDER) as cluster:
                    theta = start(cluster, LANDER, table, 256)
                    cluster.evaluate(batch(theta, 256, 1000 + round_))
                    begun = time.perf_counter()
                    results = cluster.evaluate(batch(theta, 256, round_))
                    speeds[workers].append(float(results.lengths.sum()) / (time.perf_counter() - begun))
    ratio = statistics.median(two / one for one, two in zip(speeds[1], speeds[2], strict=True))
    print(
        f"LunarLander, population 256: 1 worker {statistics.median(speeds[1]):,.0f} steps/s, "
        f"2 workers {statistics.median(speeds[2]):,.0f}: {ratio:.2f}  (aim 1.9)"
    )


def generation() -> None:
    """1,000 members that cost nothing: ask, evaluate on 2 workers, tell."""
    from pyes.algorithms.openai_es import OpenAIES

    with (
        NoiseTable(2**22, 0, shared=True) as table,
        open_cluster(ClusterConfig(workers=2), lambda theta: 0.0) as cluster,
    ):
        es = OpenAIES(np.zeros(18), table, population_size=1000)
        cluster.start(Plan(0, 18, 1000, 1, 0, 0, None), table)
        times = []
        for _ in range(200):
            begun = time.perf_counter()
            population = es.ask()
            seeds = np.zeros((1000, 1), np.int64)
            work = Batch(population, seeds, 1)
            es.tell(cluster.evaluate(work).returns)
            times.append(time.perf_counter() - begun)
    print(f"generation of 1,000 costless members: {statistics.median(times) * 1e3:.2f} ms  (aim at most 10)")


def startup() -> None:
    """From the command to the first finished generation, with the default table."""
    times = []
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            metrics = Path(folder) / "run" / "metrics.csv"
            begun = time.perf_counter()
            command = [sys.executable, "-m", "pyes", "train", f"run_dir={folder}/run", "generations=1"]
            with subprocess.Popen([*command, "evaluation.every=0"], stdout=-3, stderr=-3) as process:
                while not (metrics.exists() and metrics.read_text().count("\n") > 1):
                    if process.poll() is not None:
                        raise RuntimeError(f"the run failed with exit status {process.returncode}")
                    time.sleep(0.005)
                times.append(time.perf_counter() - begun)
                process.wait()
    print(f"command to first generation, default run: {statistics.median(times):.2f} s  (aim at most 4)")


def memory() -> None:
    """Measure what a worker of a compiled policy holds of its own."""
    with (
        NoiseTable(2**22, 0, shared=True) as table,
        open_cluster(ClusterConfig(workers=2), LANDER) as cluster,
    ):
        theta = start(cluster, LANDER, table, 64)
        for round_ in range(3):
            cluster.evaluate(batch(theta, 64, round_))
        for pid in workers():
            print(f"a worker's own memory, Box2D included: {own_memory(pid) / 2**20:.1f} MiB  (aim at most 30 MB)")


def recovery() -> None:
    """From the SIGKILL of the only worker to the first member that its replacement has finished."""
    times = []
    with (
        NoiseTable(2**22, 0, shared=True) as table,
        open_cluster(ClusterConfig(workers=1), LANDER) as cluster,
    ):
        theta = start(cluster, LANDER, table, 1)
        for round_ in range(10):
            work = batch(theta, 1, round_)
            cluster.evaluate(work)
            begun = time.perf_counter()
            cluster.evaluate(work)
            alone = time.perf_counter() - begun
            (worker,) = workers()
            os.kill(worker, signal.SIGKILL)
            begun = time.perf_counter()
            cluster.evaluate(work)
            times.append(time.perf_counter() - begun - alone)
    print(f"a killed worker is back at work after {statistics.median(times):.3f} s  (aim at most 0.2)")


def start(cluster: Cluster, task: TaskConfig, table: NoiseTable, members: int) -> np.ndarray:
    """Start a cluster on a task with a linear policy; return theta."""
    with tasks.make(task) as made:
        head = ActionDecoder.for_space(made.action_space)
        size = made.observation_size
    spec, theta = networks.build(LinearConfig(), size, head, seed=0, observation_clip=5.0)
    cluster.start(Plan(0, len(theta), members, 1, size, 0, spec), table)
    return theta


def batch(theta: np.ndarray, members: int, generation: int) -> Batch:
    """Return members around theta, each with a seed of its own."""
    offsets = streams.offsets(0, generation, members, 2**22 - len(theta))
    seeds = streams.environment_seeds(0, generation, 0, members)[:, None]
    return Batch(Population.around(generation, theta, offsets, np.full(members, 0.3, np.float32)), seeds, 1000)


def workers() -> list[int]:
    """Return the processes two steps below this one."""
    return [worker for nursery in children(os.getpid()) for worker in children(nursery)]


def children(pid: int) -> list[int]:
    """Return the processes that a process started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def own_memory(pid: int) -> int:
    """Return the bytes of a process that no other process shares."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


if __name__ == "__main__":
    main()
