"""Episodes in environments in C: against the bare environment in Python, and what physics and network leave of them.

    python benchmarks/native.py

In turn, on one core: Gymnasium's environment stepped bare with recorded actions; 64 of EnvPool stepped together with
random ones; the episodes of a policy, stepped by Python, in C, and of CartPole in the example that Numba compiles; and
in plain C, the same physics by itself and the same network by itself. Observations are normalised and summed.
CartPole's policies balance the pole. All is processor time; a figure is the median over rounds of one run.
"""

import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from pyes import _core, networks, tasks
from pyes.bench.rollouts import record, step_bare
from pyes.config import from_mapping
from pyes.episodes.native import NativeRollout
from pyes.episodes.rollout import Rollout
from pyes.networks import ActionDecoder

ROOT = Path(__file__).parents[1]
FLAGS = ("-std=c11", "-O3", "-ffp-contract=off", "-fPIC", "-shared")
ROUNDS, SECONDS, SEEDS = 7, 0.2, range(5)
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("CartPole-v1", {"name": "linear"}),
    ("CartPole-v1", {"name": "mlp", "hidden": [64, 64]}),
    ("Pendulum-v1", {"name": "lstm", "hidden": [16]}),
)


def main() -> None:
    """Measure every case."""
    with tempfile.TemporaryDirectory() as folder:
        loops = compiled(Path(folder))
        print("million timesteps a second; outside: share of the time that is neither physics nor network")
        for env_id, network in CASES:
            report(env_id, network, loops)


def compiled(folder: Path) -> ctypes.CDLL:
    """Compile the loops; they call the kernels of the extension, whose names they find once it is loaded globally."""
    ctypes.CDLL(_core.__file__, ctypes.RTLD_GLOBAL)
    source = ROOT / "benchmarks" / "native_loops.c"
    subprocess.run(["cc", *FLAGS, str(source), "-o", str(folder / "loops.so"), "-lm"], check=True)
    return ctypes.CDLL(str(folder / "loops.so"))


def report(env_id: str, network: dict[str, Any], loops: ctypes.CDLL) -> None:
    """Print the figures of one environment and network."""
    config = from_mapping({"task": {"name": "native", "env_id": env_id}, "network": network})
    task, other = tasks.make(config.task), tasks.make(from_mapping({"task": {"env_id": env_id}}).task)
    spec, theta = networks.build(
        config.network, task.observation_size, ActionDecoder.for_space(task.action_space), 0, 5.0
    )
    if env_id.startswith("CartPole"):
        balance(theta)
    players = {"Python": Rollout(task, prepared(spec, theta)), "C": NativeRollout(task, prepared(spec, theta))}
    theirs = Rollout(other, prepared(spec, theta))
    episodes = record(theirs, other.max_timesteps)
    bare = gymnasium.make(env_id, disable_env_checker=True).unwrapped
    if env_id.startswith("CartPole"):
        players["Numba"] = NativeRollout(numba_task(), prepared(spec, theta))
    ways: dict[str, Callable[[], int]] = {
        "Gymnasium bare": lambda: step_bare(bare, episodes),
        "EnvPool": envpool(env_id),
        **{name: lambda player=player: play(player) for name, player in players.items()},
        "physics": physics(loops, task, players["Python"]),
        "network": forward(loops, spec, theta),
    }
    rounds = [{way: seconds(work) for way, work in ways.items()} for _ in range(ROUNDS)]
    speeds = {way: 1e-6 / statistics.median(each[way] for each in rounds) for way in ways}
    outside = statistics.median(1 - (each["physics"] + each["network"]) / each["C"] for each in rounds)
    ratios = {way: statistics.median(each[way] / each["C"] for each in rounds) for way in ways}
    title = f"{env_id} {network['name']} {'-'.join(map(str, network.get('hidden', [])))}"
    print(f"{title:24}" + " ".join(f"{way} {speed:.3g}" for way, speed in speeds.items()))
    beside = ", ".join(f"{ratios[way]:.0f} times {way}" for way in ("Gymnasium bare", "EnvPool", "Python"))
    numba = f"; Numba is {1 / ratios['Numba']:.2f} of C" if "Numba" in ratios else ""
    print(f"{'':24}C is {beside}; outside {outside:.0%}{numba}")


def numba_task() -> tasks.Task:
    """Return CartPole of the example, compiled by Numba."""
    sys.path.insert(0, str(ROOT / "examples"))
    return tasks.make(from_mapping({"task": {"name": "native", "factory": "cart_pole:CartPole"}}).task)


def envpool(env_id: str) -> Callable[[], int]:
    """Return a function that steps 64 environments of EnvPool in one thread, with random actions drawn before."""
    import envpool

    envs = envpool.make_gymnasium(env_id, num_envs=64, num_threads=1)
    envs.reset()
    envs.action_space.seed(0)
    actions = [np.stack([envs.action_space.sample() for _ in range(64)]) for _ in range(100)]

    def work() -> int:
        for each in actions:
            envs.step(each)
        return 64 * len(actions)

    return work


def balance(theta: Any) -> None:
    """Make a linear network, or a 64-64 one, push the cart under the pole."""
    lean = np.array([0.1, 0.2, 1.0, 0.3], np.float32)
    theta[:] *= 0.01
    if len(theta) == 10:
        theta[:8] = np.concatenate([-lean, lean])
        return
    theta[:4] = lean
    theta[4 * 64 + 64] = 1
    theta[-2 - 128], theta[-2 - 64] = -1, 1


def prepared(spec: Any, theta: Any) -> Any:
    """Return a runner that normalises and adds up."""
    runner, size = spec.runner(), spec.program.observation_size
    runner.load(theta)
    runner.normalize(np.zeros(size, np.float32), np.ones(size, np.float32), 5.0)
    runner.collect(np.zeros((2, size)))
    return runner


def play(player: Any) -> int:
    """Run whole episodes, as a worker does; return timesteps."""
    steps = 0
    for seed in SEEDS:
        player.runner.begin_episode(0, 0, 0, seed)
        steps += player.run(seed, player.task.max_timesteps)[1]
    return steps


def physics(loops: ctypes.CDLL, task: Any, player: Rollout) -> Callable[[], int]:
    """Return a function that steps the recorded actions of an episode in C many times."""
    recorded = record(player, task.max_timesteps)
    actions = [np.array(each, np.float32).reshape(len(each), -1) for each in recorded.values()]
    state, observation = np.zeros(4096, np.uint8), np.zeros(64)
    address = _core.own_environments()[task.native.name]

    def work() -> int:
        for seed, each in enumerate(actions):
            loops.physics(
                ctypes.c_void_p(address), ctypes.c_uint64(seed), ctypes.c_int64(len(each)),
                ctypes.c_int64(each.shape[1]), pointer(each), ctypes.c_int64(20), pointer(state), pointer(observation),
            )  # fmt: skip
        return 20 * sum(map(len, actions))

    return work


def forward(loops: ctypes.CDLL, spec: Any, theta: Any) -> Callable[[], int]:
    """Return a function that runs the network in C many times."""
    rows = np.ascontiguousarray(spec.program.array()[:, :8])  # the others are those of images
    level = ("baseline", "avx2", "avx512").index(_core.levels()[-1])
    given = np.full(spec.program.observation_size, 0.1, np.float32)
    blocks = [np.zeros(size + 16, np.float32) for size in (20_000, 2_000, 2_000)]
    room = [block[(-block.ctypes.data % 64) // 4 :] for block in blocks]  # aligned, as a runner's

    def work() -> int:
        loops.network(
            ctypes.c_int64(level), ctypes.c_int64(len(rows)), pointer(rows), pointer(theta), pointer(given),
            *map(pointer, room), ctypes.c_int64(20_000),
        )  # fmt: skip
        return 20_000

    return work


def pointer(array: Any) -> ctypes.c_void_p:
    """Return the address of an array."""
    return ctypes.c_void_p(array.ctypes.data)


def seconds(work: Callable[[], int]) -> float:
    """Repeat the work for a while; return the processor time of a timestep."""
    begun, steps = time.process_time(), 0
    while (elapsed := time.process_time() - begun) < SECONDS:
        steps += work()
    return elapsed / steps


if __name__ == "__main__":
    main()
