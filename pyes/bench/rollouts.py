"""Speed of one worker's rollouts compared with the bare environment stepping the same actions.

The bare loop uses Gymnasium's environment without wrappers, which is the fastest way to step it. Both run the same
episodes alternately, including resets; the median of the ratios is printed.
"""

import copy
import statistics
import time
from typing import Any

import gymnasium
import numpy as np

from pyes import networks, tasks
from pyes.config import NetworkConfig
from pyes.episodes.rollout import AnyRollout, Rollout, rollout_of
from pyes.errors import ConfigError
from pyes.networks import ActionDecoder
from pyes.networks.linear import LinearConfig
from pyes.networks.mlp import MLPConfig
from pyes.networks.recurrent import LSTMConfig
from pyes.tasks.gymnasium import GymnasiumConfig

LINEAR = LinearConfig(init="uniform")
MLP, LSTM = MLPConfig(hidden=(64, 64), init="uniform"), LSTMConfig(double_bias=True, init="uniform")
CASES = {
    "LunarLander-v3, 64-64, observations normalised": ("LunarLander-v3", MLP, True, 1.80),
    "LunarLanderContinuous-v3, linear": ("LunarLanderContinuous-v3", LINEAR, False, 2.40),
    "CartPole-v1, linear": ("CartPole-v1", LINEAR, False, 0.70),
    "Pendulum-v1, 64-64": ("Pendulum-v1", MLP, False, None),
    "Pendulum-v1, LSTM-16": ("Pendulum-v1", LSTM, False, 0.75),
    "BipedalWalker-v3, 64-64, observations normalised": ("BipedalWalker-v3", MLP, True, 3.50),
}
ROUNDS, SECONDS = 15, 0.25


def measure() -> None:
    """Print one line per case: both speeds, their ratio and the target ratio."""
    print("rollouts: one worker against the bare environment")
    for name, (env_id, network, normalize, wanted) in CASES.items():
        try:
            ours, bare = compare(env_id, network, normalize)
        except ConfigError as error:  # a package is missing, which the other cases do not need
            print(f"left out: {error}")
            continue
        asked = "" if wanted is None else f" (aim {wanted})"
        print(
            f"{name:<52} {statistics.median(ours):>10,.0f} steps/s, bare {statistics.median(bare):>10,.0f}: "
            f"{ratio(ours, bare):.2f}{asked}"
        )


def compare(env_id: str, network: NetworkConfig, normalize: bool) -> tuple[list[float], list[float]]:
    """Return steps per second of our rollouts and of the bare loop, one figure per round each."""
    with tasks.make(GymnasiumConfig(env_id=env_id)) as task:
        decoder = ActionDecoder.for_space(task.action_space)
        spec, theta = networks.build(network, task.observation_size, decoder, seed=0, observation_clip=5.0)
        rollout = Rollout(task, spec.runner())
        rollout.runner.load(theta)
        if normalize:
            size = task.observation_size
            rollout.runner.normalize(np.zeros(size, np.float32), np.ones(size, np.float32), 5.0)
            rollout.runner.collect(np.zeros((2, size)))
        episodes = record(rollout, task.max_timesteps)
        worker = rollout_of(task, rollout.runner)
        env = gymnasium.make(env_id, disable_env_checker=True).unwrapped
        ours, bare = [], []
        for _ in range(ROUNDS):
            ours.append(speed(lambda: run(worker, episodes)))
            bare.append(speed(lambda: step_bare(env, episodes)))
        env.close()
    return ours, bare


def ratio(ours: list[float], bare: list[float]) -> float:
    """Return the median over rounds of how many times as fast ours is."""
    return statistics.median(first / second for first, second in zip(ours, bare, strict=True))


def record(rollout: Rollout, limit: int | None) -> dict[int, list[Any]]:
    """Return the actions of a few episodes, by seed."""
    episodes: dict[int, list[Any]] = {}
    for seed in range(5):
        policy: Any = _Recorder(rollout.runner)
        rollout.runner.begin_episode(0, 0, 0, 0)
        Rollout(rollout.task, policy).run(seed, limit)
        episodes[seed] = policy.actions
    return episodes


class _Recorder:
    """A runner that keeps its actions."""

    def __init__(self, runner: Any) -> None:
        self._runner, self.check = runner, runner.check
        self.actions: list[Any] = []

    def act(self, observation: Any) -> Any:
        action = self._runner.act(observation)
        self.actions.append(copy.copy(action))
        return action


def run(rollout: AnyRollout, episodes: dict[int, list[Any]]) -> int:
    """Run the episodes as a worker does; return timesteps."""
    total = 0
    for seed, actions in episodes.items():
        rollout.runner.begin_episode(0, 0, 0, 0)
        total += rollout.run(seed, len(actions))[1]
    return total


def step_bare(env: Any, episodes: dict[int, list[Any]]) -> int:
    """Step the recorded actions; return timesteps."""
    total = 0
    for seed, actions in episodes.items():
        env.reset(seed=seed)
        step = env.step
        for action in actions:
            step(action)
        total += len(actions)
    return total


def speed(work: Any) -> float:
    """Repeat the work for `SECONDS`; return its timesteps per second."""
    begun, steps = time.perf_counter(), 0
    while True:  # at least once, though the machine may have stood still
        steps += work()
        if (elapsed := time.perf_counter() - begun) >= SECONDS:
            return float(steps / elapsed)
