"""Bullet tasks against the environments they come from: timesteps a second, and the cost of a clean reset.

    python benchmarks/bullet.py [TASK ...]        default: ant half_cheetah

TASK is an option of conf/task without its _bullet. The same episodes, those of an untrained
64-64 policy, in turn: the environment stepped bare with the recorded actions, the task stepped bare with them, the
task with the policy, and of the environment the physics alone. Resets are timed apart. All is processor time, which
others on the machine disturb less than the wall clock; a ratio is the median over rounds of one run. The aim for the
task with the policy is 1.5.
"""

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from parts import record, show_speeds, timed, timed_policy, timed_steps

from pyes import networks, tasks
from pyes.config import TaskConfig
from pyes.networks import ActionDecoder, Runner
from pyes.networks.mlp import MLPConfig
from pyes.tasks import Task
from pyes.tasks.gymnasium import GymnasiumConfig

ROUNDS, SEEDS = 9, range(3)


def main() -> None:
    """Measure the tasks that the command line names."""
    files = (Path(__file__).parent.parent / "conf" / "task").glob("*_bullet.yaml")
    names = sorted(file.stem.removesuffix("_bullet") for file in files)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", choices=names, metavar="TASK", help="one of %(choices)s")
    chosen = parser.parse_args().tasks or ["ant", "half_cheetah"]
    with initialize_config_module("pyes.conf", version_base="1.3"):
        for name in chosen:
            settings: Any = OmegaConf.to_container(compose("train", [f"task={name}_bullet"]).task)
            report(name, GymnasiumConfig(**settings))


def report(name: str, config: TaskConfig) -> None:
    """Print the figures of one task."""
    with tasks.make(config) as task:
        runner = make_runner(task)
        bare = gymnasium.make(config.env_id, disable_env_checker=True).unwrapped
        bare.reset(seed=0)
        ways: dict[str, Callable[[int, list[Any]], float]] = {
            "environment": lambda seed, actions: timed_steps(lambda: bare.reset(seed=seed), bare.step, actions),
            "task": lambda seed, actions: timed_steps(lambda: task.reset(seed), task.step, actions),
            "task and policy": lambda seed, actions: timed_policy(task, runner, seed, len(actions)),
            "physics": lambda seed, actions: time_physics(bare, seed, actions),
        }
        show_speeds(name, ways, record(task, runner, SEEDS, task.max_timesteps or 1000), ROUNDS)
        bare.close()
        report_resets(name, config, task)


def report_resets(name: str, config: TaskConfig, task: Task) -> None:
    def rebuild() -> None:
        with tasks.make(config) as other:
            other.reset(0)

    clean = statistics.median(timed(lambda: task.reset(0)) for _ in range(50))
    anew = statistics.median(timed(rebuild) for _ in range(10))
    print(f"{name}: a clean reset {clean * 1e3:.2f} ms, building anew {anew * 1e3:.1f} ms")


def make_runner(task: Task) -> Runner:
    head = ActionDecoder.for_space(task.action_space)
    config = MLPConfig(hidden=(64, 64))
    spec, theta = networks.build(config, task.observation_size, head, seed=0, observation_clip=5.0)
    runner = spec.runner()
    runner.load(theta)
    return runner


def time_physics(env: Any, seed: int, actions: list[Any]) -> float:
    """Time the engine's own steps."""
    env.reset(seed=seed)
    total = 0.0
    for action in actions:
        env.robot.apply_action(action)
        total += timed(env._p.stepSimulation)
    return total


if __name__ == "__main__":
    main()
