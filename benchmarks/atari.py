"""Atari tasks against Gymnasium's own wrappers: timesteps a second, and where the time goes.

    python benchmarks/atari.py [KEY=VALUE ...]

Keys are those of `pyes train`, for example network=mlp network.hidden=[16], or task=seaquest; without any, three games
and the default network. Four ways take the same episodes in turn, those of an untrained policy: the reference
(AtariPreprocessing and FrameStackObservation) with the recorded actions, the task with them, a worker's rollout with
the policy, and the emulator alone. Resets are timed apart. All is processor time, which others on the machine disturb
less than the wall clock; a ratio is the median over rounds of one run.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from hydra import compose, initialize_config_module
from hydra.errors import HydraException
from omegaconf import OmegaConf
from parts import record, show_speeds, timed, timed_policy, timed_steps

from pyes import tasks
from pyes.algorithms.population import Member
from pyes.cli.hydra_errors import explained
from pyes.config import TrainConfig, from_mapping
from pyes.episodes.rollout import TaskEvaluator
from pyes.errors import ConfigError, PyesError
from pyes.networks import Runner
from pyes.run.state import Setup
from pyes.tasks import Task

GAMES = ("pong", "seaquest", "beam_rider")
ROUNDS, SEEDS, STEPS = 9, range(3), 200


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="of pyes train")
    given = parser.parse_args().settings
    chosen = any(each.startswith(("task=", "experiment=")) for each in given)
    try:
        configs = [configure([*given, *game]) for game in ([()] if chosen else [(f"task={name}",) for name in GAMES])]
    except HydraException as error:
        parser.error(str(explained(error)))
    except PyesError as error:
        parser.error(str(error))
    for config in configs:
        report(config)


def configure(overrides: list[str]) -> TrainConfig:
    """Return the settings of a run of a game."""
    with initialize_config_module("pyes.conf", version_base="1.3"):
        made: Any = OmegaConf.to_container(compose("train", [*overrides, "run_dir=unused"]), resolve=True)
    config = from_mapping(made)
    if not str(getattr(config.task, "env_id", "")).startswith("ALE/"):
        raise ConfigError(f"task: got {config.task.name}, expected a game of Atari, for example task=pong")
    return config


def report(config: TrainConfig) -> None:
    """Print the figures of one game."""
    env_id = config.task.env_id
    with tasks.make(config.task) as task:
        reference = make_reference(task)
        runner, frame_skip = make_runner(config, task), task.frame_skip
        ways: dict[str, Callable[[int, list[int]], float]] = {
            "reference": lambda seed, actions: timed_steps(lambda: reference.reset(seed=seed), reference.step, actions),
            "task": lambda seed, actions: timed_steps(lambda: task.reset(seed), task.step, actions),
            "task and policy": lambda seed, actions: timed_policy(task, runner, seed, len(actions)),
            "emulator alone": lambda seed, actions: time_emulator(reference.unwrapped, seed, actions, frame_skip),
        }
        show_speeds(env_id, ways, record(task, runner, SEEDS, STEPS), ROUNDS)
        clean = statistics.median(timed(lambda: task.reset(0)) for _ in range(9))
        theirs = statistics.median(timed(lambda: reference.reset(seed=0)) for _ in range(9))
        print(f"{env_id}: a reset {clean * 1e3:.0f} ms, the reference's {theirs * 1e3:.0f} ms")
        reference.close()


def make_reference(task: Any) -> Any:
    """Return the reference with the settings of a task."""
    settings = task._config
    sticky = settings.env_kwargs.get("repeat_action_probability", 0.0)
    bare = gymnasium.make(settings.env_id, frameskip=1, repeat_action_probability=sticky, disable_env_checker=True)
    return FrameStackObservation(AtariPreprocessing(bare, frame_skip=task.frame_skip), 4)


def make_runner(config: TrainConfig, task: Task) -> Runner:
    """Return the runner of a worker, with the parameters that a run starts from."""
    setup = Setup.of(config)
    print(f"{config.task.env_id}: network {config.network.name}, {setup.theta.size:,} parameters")
    evaluator = TaskEvaluator(task, setup.plan(capacity=1))
    evaluator.load(Member(setup.theta), None)
    return evaluator._rollout.runner


def time_emulator(env: Any, seed: int, actions: list[int], frame_skip: int) -> float:
    """Return the seconds of the raw frames behind an episode's steps."""
    env.reset(seed=seed)
    act, buttons = env.ale.act, env.ale.getMinimalActionSet()
    begun = time.process_time()
    for action in actions:
        for _ in range(frame_skip):
            act(buttons[action])
    return time.process_time() - begun


if __name__ == "__main__":
    main()
