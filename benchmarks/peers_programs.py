"""One training of a peer as a program, or its simulator alone: writes a row of a CSV file after every update.

    python benchmarks/peers_programs.py METHOD CASE --workers N --seconds S --output FILE

`peers_speed.py` measures these from outside, beside `pyes train`, whose ``metrics.csv`` has the same columns. A program
ends at the first update that is S seconds after its first one. Methods: ``evotorch`` (GymNE, PGPE), ``ars``
(SB3-contrib, AsyncEval), ``gymnasium`` (random actions, no learning) and ``envpool`` (the same in 64 environments).
All begin at zero with the same standard deviation, and take steps too small to matter: all play policies of the same
distribution, so that an episode is as long for each.
"""

import argparse
import contextlib
import csv
import logging
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from typing import Any, NamedTuple

SIGMA, STEP, ENVIRONMENTS, ACTIONS = 0.3, 1e-9, 64, 4096


class Case(NamedTuple):
    """An environment, a network, and the members of a generation; the same for all methods."""

    env_id: str
    hidden: tuple[int, ...]
    normalize: bool
    population: int
    native: bool = False  # pyes has it in C

    @property
    def title(self) -> str:
        """Text of tables and figures."""
        network = "-".join(map(str, self.hidden)) if self.hidden else "linear"
        return f"{self.env_id}, {network}{', normalised' if self.normalize else ''}"


CASES = {
    "cart_pole": Case("CartPole-v1", (), False, 200, native=True),
    "lunar_lander": Case("LunarLanderContinuous-v3", (), False, 40),
    "lunar_lander_discrete": Case("LunarLander-v3", (64, 64), True, 40),
    "half_cheetah": Case("HalfCheetah-v5", (64, 64), True, 16),
    "hopper": Case("Hopper-v5", (), True, 100),
}
Updated = Callable[[int, int], None]  # told timesteps and episodes so far; raises `Over` when the time is up


class Over(Exception):
    """The time is up."""


def evotorch(case: Case, workers: int, updated: Updated) -> None:
    """Train with EvoTorch's PGPE, an actor of Ray for each worker; it takes one to mean its own process."""
    import ray
    from evotorch.algorithms import PGPE
    from evotorch.neuroevolution import GymNE

    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    ray.init(num_cpus=workers, _node_ip_address="127.0.0.1", **quiet)
    sizes = ["obs_length", *map(str, case.hidden), "act_length"]
    network = " >> Tanh() >> ".join(f"Linear({inputs}, {outputs})" for inputs, outputs in pairwise(sizes))
    problem = GymNE(case.env_id, network, observation_normalization=case.normalize, num_actors="max")
    rates = {"center_learning_rate": STEP, "stdev_learning_rate": STEP, "optimizer": "adam"}
    searcher = PGPE(problem, popsize=case.population, stdev_init=SIGMA, **rates)
    while True:
        searcher.step()
        updated(int(problem.status["total_interaction_count"]), int(problem.status["total_episode_count"]))


def ars(case: Case, workers: int, updated: Updated) -> None:
    """Train with SB3-contrib's ARS, a process for each worker."""
    from sb3_contrib import ARS
    from sb3_contrib.common.vec_env import AsyncEval
    from stable_baselines3.common.callbacks import BaseCallback
    from torch import nn

    class Watcher(BaseCallback):
        def _on_rollout_start(self) -> None:
            if self.model.num_timesteps:
                updated(self.model.num_timesteps, self.model._n_updates * case.population)

        def _on_step(self) -> bool:
            return True

    network = {"net_arch": list(case.hidden), "activation_fn": nn.Tanh} if case.hidden else {"with_bias": True}
    steps = {"n_delta": case.population // 2, "delta_std": SIGMA, "learning_rate": STEP}
    policy = "MlpPolicy" if case.hidden else "LinearPolicy"
    model = ARS(policy, stable_env(case), policy_kwargs=network, device="cpu", **steps)
    evaluators = AsyncEval([lambda: stable_env(case)] * workers, model.policy)
    try:
        model.learn(sys.maxsize, callback=Watcher(), async_eval=evaluators)
    finally:
        evaluators.close()


def stable_env(case: Case) -> Any:
    """Make an environment of Stable-Baselines3."""
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    env = make_vec_env(case.env_id)
    return VecNormalize(env, norm_reward=False) if case.normalize else env


def gymnasium(case: Case, workers: int, updated: Updated) -> None:
    """Step the bare environment with actions drawn beforehand, in a process for each worker."""
    totals = [RawArray("q", 2) for _ in range(workers)]
    processes = [multiprocessing.Process(target=step_on, args=(case.env_id, each), daemon=True) for each in totals]
    for process in processes:
        process.start()
    try:
        while all(process.is_alive() for process in processes):
            time.sleep(0.05)
            if all(timesteps for timesteps, _ in totals):
                updated(*map(sum, zip(*totals, strict=True)))
    finally:
        for process in processes:
            process.kill()
    raise SystemExit("a process with an environment has ended")


def step_on(env_id: str, totals: Any) -> None:
    """Take steps for ever, and count."""
    import gymnasium

    env = gymnasium.make(env_id)
    actions = [env.action_space.sample() for _ in range(ACTIONS)]
    env.reset()
    while True:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
                totals[1] += 1
            totals[0] += 1


def envpool(case: Case, workers: int, updated: Updated) -> None:
    """Step 64 of EnvPool's environments with actions drawn beforehand, on a thread for each worker."""
    import envpool
    import numpy as np

    envs = envpool.make_gymnasium(case.env_id, num_envs=ENVIRONMENTS, num_threads=workers)
    actions = [np.stack([envs.action_space.sample() for _ in range(ENVIRONMENTS)]) for _ in range(ACTIONS // 64)]
    timesteps = episodes = 0
    envs.reset()
    while True:
        for action in actions:
            _, _, terminated, truncated, _ = envs.step(action)
            ended = int((terminated | truncated).sum())
            # The step after an end begins the next episode: it is none of the simulator's.
            episodes, timesteps = episodes + ended, timesteps + ENVIRONMENTS - ended
        updated(timesteps, episodes)


#: The functions that run: two that train, two that only step.
METHODS: dict[str, Callable[[Case, int, Updated], None]] = {
    "evotorch": evotorch,
    "ars": ars,
    "gymnasium": gymnasium,
    "envpool": envpool,
}


def main() -> None:
    """Run one method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--workers", type=int, required=True, metavar="N")
    parser.add_argument("--seconds", type=float, required=True, metavar="S")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # two threads of torch wait for each other on networks this small
    end = math.inf
    with options.output.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("timesteps", "episodes", "seconds"))

        def updated(timesteps: int, episodes: int) -> None:
            nonlocal end
            now = time.monotonic()
            writer.writerow((timesteps, episodes, now))
            file.flush()
            end = min(end, now + options.seconds)
            if now >= end:
                raise Over

        with contextlib.suppress(Over):
            METHODS[options.method](CASES[options.case], options.workers, updated)


if __name__ == "__main__":
    main()
