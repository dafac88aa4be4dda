"""MuJoCo tasks against the environments they come from: timesteps a second, and what the engine alone would allow.

    python benchmarks/mujoco_tasks.py [TASK ...]        default: all

The environment is stepped bare with the actions of an untrained policy, and a worker's rollout takes the same episodes
with the policy and normalised observations, and once more with MuJoCo's clock running, which a rollout stops. The
engine alone takes random actions until the environment ends an episode; what Python's calls of it and resets take is
measured with no timesteps at all and subtracted. A ratio is the median over rounds of one run.
"""

import argparse
import statistics
from typing import Any
from unittest import mock

import gymnasium
import mujoco

from pyes.bench import rollouts
from pyes.networks.mlp import MLPConfig
from pyes.tasks import mujoco_timestep
from pyes.tasks.mujoco import FEELS_CONTACTS

CASES = {
    "InvertedPendulum-v5": ((64, 64), 1.5),
    "Reacher-v5": ((64, 64), 1.5),
    "HalfCheetah-v5": ((64, 64), 1.2),
    "Hopper-v5": ((64, 64), 1.15),
    "InvertedDoublePendulum-v5": ((64, 64), None),
    "Swimmer-v5": ((64, 64), None),
    "Walker2d-v5": ((64, 64), None),
    "Ant-v5": ((64, 64), None),
    "Pusher-v5": ((64, 64), None),
    "Humanoid-v5": ((256, 256), None),
    "HumanoidStandup-v5": ((256, 256), None),
}
ROUNDS, SEEDS, STEPS = 7, range(5), 200


def main() -> None:
    """Print three lines a task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", choices=list(CASES), metavar="TASK", help="one of %(choices)s")
    for env_id in parser.parse_args().tasks or CASES:
        hidden, wanted = CASES[env_id]
        network = MLPConfig(hidden=hidden)
        ours, bare = rollouts.compare(env_id, network, normalize=True)
        asked = "" if wanted is None else f" (aim {wanted})"
        print(
            f"{env_id}: {statistics.median(ours):,.0f} steps/s with a policy {'-'.join(map(str, hidden))}, "
            f"bare environment {statistics.median(bare):,.0f}: {rollouts.ratio(ours, bare):.2f}{asked}"
        )
        with mock.patch.object(mujoco_timestep, "_clock", return_value=(0, 0)):
            timed = rollouts.ratio(*rollouts.compare(env_id, network, normalize=True))
        print(f"{env_id}: with MuJoCo's clock {timed:.2f}")
        print(f"{env_id}: the engine alone would allow {measure_engine(env_id):.2f}", flush=True)


def measure_engine(env_id: str) -> float:
    """Return how many times faster than the bare environment the engine alone takes random actions."""
    env: Any = gymnasium.make(env_id, disable_env_checker=True).unwrapped
    env.action_space.seed(0)
    episodes = {seed: random_episode(env, seed) for seed in SEEDS}
    ratios = []
    for _ in range(ROUNDS):
        bare = rollouts.speed(lambda: rollouts.step_bare(env, episodes))
        engine, calls = (rollouts.speed(lambda frames=frames: step_engine(env, episodes, frames)) for frames in (1, 0))
        ratios.append(1 / bare / (1 / engine - 1 / calls))
    env.close()
    return statistics.median(ratios)


def random_episode(env: Any, seed: int) -> list[Any]:
    """Return the random actions of an episode."""
    actions: list[Any] = []
    env.reset(seed=seed)
    while len(actions) < STEPS:
        actions.append(env.action_space.sample())
        if env.step(actions[-1])[2]:
            break
    return actions


def step_engine(env: Any, episodes: dict[int, list[Any]], timesteps: int) -> int:
    """Step the engine alone through the episodes, each action for so many timesteps; return timesteps."""
    model, data, frames = env.model, env.data, timesteps * env.frame_skip
    feels = timesteps and FEELS_CONTACTS[env.spec.id.partition("-")[0]]
    for seed, actions in episodes.items():
        env.reset(seed=seed)
        for action in actions:
            data.ctrl[:] = action
            mujoco.mj_step(model, data, nstep=frames)
            if feels:
                mujoco.mj_rnePostConstraint(model, data)
    return sum(map(len, episodes.values()))


if __name__ == "__main__":
    main()
