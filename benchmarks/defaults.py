"""How well settings do that know nothing of their task: candidates for the defaults, over tasks of many kinds.

    python benchmarks/defaults.py [FOLDER] [--candidates NAME ...] [--tasks NAME ...] [--seeds N]

Every candidate has the same timesteps in a task. The score of a run is where its last evaluation lies between random
actions (0) and a policy that is called good (1), at most 1.2; a candidate's score is the mean over tasks of the median
over seeds. HELD_OUT are tasks that no default was chosen on; in the others, defaults were chosen on seeds below 10.
Runs use one core each, as many at once as there are cores; FOLDER keeps them (default: ``runs/defaults``), and a run
that is there is not run again.
"""

import argparse
import csv
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from pyes.run.metrics import read_rows

EVALUATION = ("evaluation.episodes=20", "evaluation.every=10")


class Setting(NamedTuple):
    """A task: its overrides, its budget of timesteps, and the returns of random actions and of a good policy."""

    overrides: str
    timesteps: float
    random: float
    good: float


TASKS = {
    "CartPole": Setting("task=native task.env_id=CartPole-v1", 1e6, 22, 500),
    "Acrobot": Setting("task=native task.env_id=Acrobot-v1", 2e6, -499, -75),
    "MountainCar": Setting("task=native task.env_id=MountainCar-v0", 2e6, -200, -105),
    "MountainCarContinuous": Setting("task=native task.env_id=MountainCarContinuous-v0", 2e6, -33, 95),
    "Pendulum": Setting("task=native task.env_id=Pendulum-v1", 4e6, -1230, -150),
    "LunarLander": Setting("task=lunar_lander_discrete", 500e3, -180, 260),
    "LunarLanderContinuous": Setting("task=lunar_lander", 500e3, -200, 280),
    "BipedalWalker": Setting("task=bipedal_walker", 1e6, -100, 300),
    "Hopper": Setting("task=hopper_mujoco", 500e3, 18, 3000),
    "Walker2d": Setting("task=walker2d_mujoco", 500e3, 2, 3000),
    "HalfCheetah": Setting("task=half_cheetah_mujoco", 500e3, -280, 4000),
    "Swimmer": Setting("task=swimmer_mujoco", 300e3, 0, 350),
    "InvertedDoublePendulum": Setting("task=inverted_double_pendulum_mujoco", 300e3, 55, 9300),
    "CartPoleSwingUp": Setting("task=cart_pole_swing_up", 10e6, 2, 900),
}
HELD_OUT = {
    "InvertedPendulum": Setting("task=inverted_pendulum_mujoco", 300e3, 6, 1000),
    "Reacher": Setting("task=reacher_mujoco", 500e3, -43, -5),
}
#: The first five are what the defaults were once, are, and are with all of a bonus for being alive, a linear policy, or
#: ReLUs.
CANDIDATES = {
    "before": "algorithm=openai_es network=linear network.init=uniform task.normalize_observations=false "
    "task.reward_offset_per_step=0",
    "defaults": "",
    "whole bonus": "task.reward_offset_per_step=0",
    "linear": "network=linear",
    "ReLU": "network.activation=relu",
    "64-64": "network.hidden=[64,64]",
    "small steps": "algorithm.sigma=0.05 algorithm.learning_rate=0.02",
    "OpenAI-ES": "algorithm=openai_es",
    "PGPE + ClipUp": "algorithm=pgpe",
    "SNES": "algorithm=snes",
    "CMA-ES": "algorithm=cma_es",
}


def main() -> None:
    """Run what is missing; print a table of tasks and candidates, and write every run's end to ``FOLDER/ends.csv``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/defaults"))
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES), metavar="NAME")
    settings = TASKS | HELD_OUT
    parser.add_argument("--tasks", nargs="+", choices=settings, default=list(settings), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="how many")
    parser.add_argument("--first-seed", type=int, default=10, metavar="N")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    jobs = [(task, name, seed) for seed in seeds for task in options.tasks for name in options.candidates]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        ends = list(threads.map(lambda job: end_of(options.folder, *job), jobs))
    found = dict(zip(jobs, ends, strict=True))
    with (options.folder / "ends.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("task", "candidate", "seed", "return"), *((*job, found[job]) for job in jobs)])
    show(found, options.tasks, options.candidates, seeds)


def end_of(folder: Path, task: str, candidate: str, seed: int) -> float:
    """Return the last evaluation of a run, which goes on to its end if it is not there yet; NaN if it fails."""
    setting = (TASKS | HELD_OUT)[task]
    run = folder / f"{task}-{candidate.replace(' ', '_')}-{seed}"
    if not ended(run, setting.timesteps):
        words = [*setting.overrides.split(), *CANDIDATES[candidate].split(), *EVALUATION]
        budget = [f"timesteps={setting.timesteps:.0f}", "generations=null", "cluster.workers=1"]
        begun = (run / "journal.bin").exists()
        chosen = [f"resume={run}"] if begun else [*words, *budget, f"seed={seed}", f"run_dir={run}"]
        command = [sys.executable, "-m", "pyes", "train", *chosen]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{run.name}: {done.stderr.splitlines()[-1]}", file=sys.stderr, flush=True)
            return math.nan
    return float(read_rows(run / "metrics.csv")[-1]["eval_return_mean"])


def ended(run: Path, timesteps: float) -> bool:
    """Return whether a run has had its timesteps, and its last evaluation, without which it may have been stopped."""
    rows = read_rows(run / "metrics.csv") if (run / "metrics.csv").exists() else []
    return bool(rows) and int(rows[-1]["timesteps"]) >= timesteps and rows[-1]["eval_return_mean"] != ""


def show(found: dict[tuple[str, str, int], float], tasks: Sequence[str], names: Sequence[str], seeds: range) -> None:
    """Print medians of returns with their ranges, and the scores."""
    print(f"| task | {' | '.join(names)} |\n|---|{'---:|' * len(names)}")
    ends = {(task, name): [found[task, name, seed] for seed in seeds] for task in tasks for name in names}
    for task in tasks:
        print(f"| {task} | {' | '.join(cell(ends[task, name]) for name in names)} |")
    for label, group in (("score", TASKS), ("score, held out", HELD_OUT)):
        kept = [task for task in tasks if task in group]
        if kept:
            scores = (statistics.mean(score(group[task], ends[task, name]) for task in kept) for name in names)
            print(f"| {label} | {' | '.join(f'{each:.2f}' for each in scores)} |")


def cell(ends: Sequence[float]) -> str:
    """Return the median over seeds, the least and the greatest, and how many failed, which are below all others."""
    returns = [value for value in ends if not math.isnan(value)]
    failed = f", {len(ends) - len(returns)} failed" if len(returns) < len(ends) else ""
    return f"{median(ends):.4g} ({min(returns):.4g} to {max(returns):.4g}{failed})" if returns else "failed"


def median(ends: Sequence[float]) -> float:
    """Return the median, where a run that failed is below all others."""
    return statistics.median(-math.inf if math.isnan(value) else value for value in ends)


def score(setting: Setting, ends: Sequence[float]) -> float:
    """Return where the median lies between random and good."""
    return min(max((median(ends) - setting.random) / (setting.good - setting.random), 0.0), 1.2)


if __name__ == "__main__":
    main()
