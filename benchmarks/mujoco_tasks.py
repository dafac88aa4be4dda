"""MuJoCo tasks against the environments they come from: timesteps a second, and where an environment's time goes.

    python benchmarks/mujoco_tasks.py

Three ways take the same episodes in turn, those of an untrained policy with normalised observations: the environment
stepped bare with the recorded actions, a worker's rollout with the policy, and the engine alone, as the environment
calls it. A ratio is the median over rounds of one run.
"""

import statistics
from typing import Any

import gymnasium

from pyes.bench import rollouts
from pyes.networks.mlp import MLPConfig

CASES = {"HalfCheetah-v5": ((64, 64), 0.85), "Hopper-v5": ((64, 64), None), "Humanoid-v5": ((256, 256), 0.85)}
ROUNDS, SEEDS, STEPS = 15, range(5), 200


def main() -> None:
    """Print two lines a task."""
    for env_id, (hidden, wanted) in CASES.items():
        ours, bare = rollouts.compare(env_id, MLPConfig(hidden=hidden), normalize=True)
        ratio = statistics.median(first / second for first, second in zip(ours, bare, strict=True))
        asked = "" if wanted is None else f" (aim {wanted})"
        print(
            f"{env_id}: {statistics.median(ours):,.0f} steps/s with a policy {'-'.join(map(str, hidden))}, "
            f"bare environment {statistics.median(bare):,.0f}: {ratio:.2f}{asked}"
        )
        print(f"{env_id}: the engine takes {measure_engine(env_id):.2f} of the bare environment's time")


def measure_engine(env_id: str) -> float:
    """Return the share of a timestep of random actions that is spent in the engine."""
    env: Any = gymnasium.make(env_id, disable_env_checker=True).unwrapped
    env.action_space.seed(0)
    episodes = {seed: [env.action_space.sample() for _ in range(STEPS)] for seed in SEEDS}
    shares = []
    for _ in range(ROUNDS):
        whole = rollouts.speed(lambda: rollouts.step_bare(env, episodes))
        engine = rollouts.speed(lambda: step_engine(env, episodes))
        shares.append(whole / engine)
    env.close()
    return statistics.median(shares)


def step_engine(env: Any, episodes: dict[int, list[Any]]) -> int:
    """Step the engine alone through the episodes; return timesteps."""
    for seed, actions in episodes.items():
        env.reset(seed=seed)
        for action in actions:
            env._step_mujoco_simulation(action, env.frame_skip)
    return sum(map(len, episodes.values()))


if __name__ == "__main__":
    main()
