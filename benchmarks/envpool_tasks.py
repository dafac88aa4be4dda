"""EnvPool against Gymnasium: timesteps in a second of one core's time, with a policy of 64 and 64 units.

    python benchmarks/envpool_tasks.py [NAME ...]

Both ways take whole episodes of the same members in turn, with all that belongs to them: seeds, parameters, making
environments where that is due. A ratio is the median over rounds of one run. The time is that of the processor,
EnvPool's thread included, so other programs on the machine disturb little. Pong needs the extra atari.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyes import networks, tasks
from pyes.algorithms.population import Member, Population
from pyes.config import TaskConfig
from pyes.episodes.batch import Batch, Plan
from pyes.episodes.rollout import TaskEvaluator
from pyes.episodes.vector_rollout import VectorEvaluator
from pyes.networks import ActionDecoder, PolicySpec
from pyes.networks.mlp import MLPConfig
from pyes.tasks.envpool import EnvPoolConfig
from pyes.tasks.gymnasium import GymnasiumConfig

SIZES = (16, 64)
NETWORK = MLPConfig(hidden=(64, 64))


@dataclass(frozen=True)
class Case:
    """The same environment from both packages."""

    env_id: str
    gymnasium: TaskConfig
    rounds: int = 7
    single: int = 16  # episodes of a round, one after the other
    balance: bool = False
    sizes: tuple[int, ...] = SIZES


CASES = {
    "CartPole, untrained": Case("CartPole-v1", GymnasiumConfig(env_id="CartPole-v1"), single=64, sizes=(16, 64, 256)),
    "CartPole, balanced": Case("CartPole-v1", GymnasiumConfig(env_id="CartPole-v1"), balance=True),
    "Pendulum": Case("Pendulum-v1", GymnasiumConfig(env_id="Pendulum-v1")),
    "HalfCheetah": Case("HalfCheetah-v5", GymnasiumConfig(env_id="HalfCheetah-v5"), rounds=3, single=4),
    "Pong": Case("Pong-v5", GymnasiumConfig(env_id="ALE/Pong-v5"), rounds=2, single=2, sizes=(16,)),
}


def main(names: list[str]) -> None:
    """Print one line a case and size of the vector."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for name, case in CASES.items():
        if not names or name in names:
            for size in case.sizes:
                print(f"{name + f', {size} at once:':<34}{compare(case, size)}", flush=True)


def compare(case: Case, size: int) -> str:
    """Return both speeds and their ratio as a line."""
    config = EnvPoolConfig(env_id=case.env_id)
    with tasks.make(config) as task:
        decoder = ActionDecoder.for_space(task.action_space)
        observations, limit = task.observation_size, task.max_timesteps
    spec, theta = networks.build(NETWORK, observations, decoder, seed=0, observation_clip=5.0)
    if case.balance:
        theta = balancing(spec)
    members = [
        theta + 0.02 * noise for noise in np.random.default_rng(0).standard_normal((size, len(theta)), np.float32)
    ]
    plan = Plan(0, len(theta), size, 1, observations, 0, spec, vector=size)
    batch = Batch(Population.center(0, theta, 1), np.zeros((1, 1), np.int64), limit or 0)
    vector = VectorEvaluator(tasks.make_vector(config), plan)
    single = TaskEvaluator(tasks.make(case.gymnasium), plan)
    for evaluator in (vector, single):
        evaluator.begin(batch)
    waves, singles = [], []
    for number in range(case.rounds):
        waves.append(speed(lambda first=number * size: run_wave(vector, members, first)))
        singles.append(speed(lambda first=number * size: run_singles(single, members[: case.single], first)))
    vector.close()
    single.close()
    ratio = statistics.median(wave / one for wave, one in zip(waves, singles, strict=True))
    fast, slow = statistics.median(waves), statistics.median(singles)
    return f"{fast:>10,.0f} steps/s, Gymnasium {slow:>8,.0f}: {ratio:.2f}"


def balancing(spec: PolicySpec) -> NDArray[np.float32]:
    """Return parameters that keep CartPole's pole up to the end: it is pushed to where it falls."""
    theta = np.zeros(spec.dim, np.float32)
    first, second, last = spec.program.instructions
    first.weight(theta)[0] = (0.05, 0.1, 1.0, 0.5)  # position, velocity, angle, angular velocity
    second.weight(theta)[0, 0] = 1.0
    last.weight(theta)[:, 0] = (-10.0, 10.0)
    return theta


def run_wave(evaluator: VectorEvaluator, members: list[NDArray[np.float32]], first: int) -> int:
    """Run an episode of each member side by side; return timesteps."""
    for slot, theta in enumerate(members):
        evaluator.load(slot, Member(theta), None)
    seeds = range(first, first + len(members))
    return sum(ended.length for ended in evaluator.episode(range(len(members)), 0, seeds))


def run_singles(evaluator: TaskEvaluator, members: list[NDArray[np.float32]], first: int) -> int:
    """Run an episode of each member, one after the other; return timesteps."""
    total = 0
    for member, theta in enumerate(members):
        evaluator.load(Member(theta), None)
        total += evaluator.episode(member, 0, first + member)[1]
    return total


def speed(work: Callable[[], int]) -> float:
    """Return the timesteps of some work in a second of the processor's time."""
    begun = time.process_time()
    return work() / (time.process_time() - begun)


if __name__ == "__main__":
    main(sys.argv[1:])
