"""pyes beside Stable-Baselines3 (PPO, ARS) and EvoTorch (PGPE): seconds and timesteps to a return, on this machine.

    make peers
    make peers ARGS='lunar_lander hopper --methods pyes ppo --seeds 5 --minutes 20'

Each training has all cores of the machine, one after the other, and lasts as long as all others, whatever budget its
settings come with. The clock starts with the program: interpreter, imports, simulators and worker processes count.
Every 30 seconds of it, and at the end, the deterministic policy (mean action, normalisation frozen) plays 20
episodes in Gymnasium's own environment, of the same seeds for all. That is outside of the clock: it stops meanwhile for
the peers; pyes trains without evaluations, and its policies are rebuilt from the journal afterwards. A method's own
network, normalisation and shaping of rewards belong to its settings: those of pyes are its recipes, of the peers in
``peers.yaml``. Training seeds begin at 100, since the recipes of pyes were chosen on smaller ones.

FOLDER receives ``curves.csv`` (every evaluation), ``peers.md`` (a table for each task, and where pyes loses) and
``peers.png``. A run that is there is not run again. Nothing else should run on the machine. The lengths of one folder
are equal: another ``--minutes`` needs another folder.
"""

import argparse
import contextlib
import csv
import logging
import math
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

# The peers, and pyes, are imported where they are used: imports are on the clock, and no method pays for another's.
if TYPE_CHECKING:
    from matplotlib.figure import Figure

EVERY, EPISODES, EVALUATION_SEED, FIRST_SEED = 30.0, 20, 1_000_000, 100


class Task(NamedTuple):
    """An environment, the return that counts as solved, and the recipe of pyes."""

    env_id: str
    target: float
    recipe: str


TASKS = {
    "lunar_lander": Task("LunarLanderContinuous-v3", 280, "lunar_lander"),
    "half_cheetah": Task("HalfCheetah-v5", 5000, "half_cheetah_mujoco"),
    "hopper": Task("Hopper-v5", 3400, "hopper_mujoco"),
    "bipedal_walker": Task("BipedalWalker-v3", 310, "bipedal_walker"),
}


class Point(NamedTuple):
    """One evaluation."""

    timesteps: int
    seconds: float
    mean: float
    std: float


Act = Callable[[Any], Any]


class Over(Exception):
    """The time is up."""


class Curve:
    """The evaluations of a training that began at a reading of the monotonic clock."""

    def __init__(self, env_id: str, limit: float, begun: float) -> None:
        self._env_id, self._limit, self._begun = env_id, limit, begun
        self._due = EVERY
        self.points: list[Point] = []

    def updated(self, timesteps: int, act: Act) -> None:
        """Evaluate if it is time, with the clock stopped; raise `Over` after the last evaluation."""
        now = time.monotonic()
        seconds = now - self._begun
        last = seconds >= self._limit
        self.offer(timesteps, seconds, lambda: act, last)
        self._begun += time.monotonic() - now
        if last:
            raise Over

    def offer(self, timesteps: int, seconds: float, policy: Callable[[], Act], last: bool) -> None:
        """Evaluate a policy if it is the first one after a multiple of 30 seconds, or the last of all."""
        if seconds >= self._due or last:
            self._due = (seconds // EVERY + 1) * EVERY
            self.points.append(Point(timesteps, round(seconds, 2), *evaluated(self._env_id, policy())))


def evaluated(env_id: str, act: Act) -> tuple[float, float]:
    """Return the mean and the standard deviation of the returns of a policy."""
    import gymnasium

    returns = []
    with gymnasium.make(env_id) as env:
        for episode in range(EPISODES):
            observation, _ = env.reset(seed=EVALUATION_SEED + episode)
            total, over = 0.0, False
            while not over:
                observation, reward, terminated, truncated, _ = env.step(act(observation))
                total += float(reward)
                over = terminated or truncated
            returns.append(total)
    return statistics.fmean(returns), statistics.pstdev(returns)


# The methods. Each trains until `Over`, or for the time by itself.


def pyes(name: str, seed: int, limit: float, curve: Curve, run: Path) -> None:
    """Train with the program; evaluate centers of the journal afterwards."""
    shutil.rmtree(run, ignore_errors=True)
    budgets = ("generations=null", "timesteps=null", "target_return=null", f"time_limit={limit}", "evaluation.every=0")
    overrides = (f"experiment={TASKS[name].recipe}", *budgets, f"seed={seed}", f"run_dir={run}")
    begun, metrics = time.monotonic(), run / "metrics.csv"
    command = [sys.executable, "-m", "pyes", "train", *overrides]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        # The rows count from the first generation on: when the first row is seen tells how long the start took.
        while not (metrics.exists() and metrics.read_bytes().count(b"\n") > 1) and process.poll() is None:
            time.sleep(0.005)
        first = time.monotonic() - begun
        errors = process.communicate()[1]
    if process.returncode:
        raise RuntimeError(f"pyes train {' '.join(overrides)}: {errors.strip()}")

    from pyes.reports import replay
    from pyes.run.metrics import read_rows

    rows = read_rows(metrics)
    startup = first - float(rows[0]["seconds"])
    with replay.open(run) as history:
        for row in rows:
            updates = int(row["generation"]) + 1
            seconds = startup + float(row["seconds"])
            curve.offer(int(row["timesteps"]), seconds, lambda n=updates: history.policy(n), row is rows[-1])


def ppo(name: str, seed: int, limit: float, curve: Curve, run: Path) -> None:
    """Train with Stable-Baselines3's PPO, its environments in its own process, as the zoo does."""
    from stable_baselines3 import PPO
    from torch import nn

    settings = published("ppo", name)
    if network := settings.get("policy_kwargs"):
        network["activation_fn"] = getattr(nn, network["activation_fn"])
    normalize, n_envs = settings.pop("normalize"), settings.pop("n_envs")
    env = vector_env(TASKS[name].env_id, seed, n_envs, {"gamma": settings["gamma"]} if normalize else None)
    model = PPO("MlpPolicy", env, seed=seed, device="cpu", **settings)
    model.learn(sys.maxsize, callback=watcher(curve))


def ars(name: str, seed: int, limit: float, curve: Curve, run: Path) -> None:
    """Train with SB3-contrib's ARS, a process for each core."""
    from sb3_contrib import ARS
    from sb3_contrib.common.vec_env import AsyncEval

    settings, env_id, normalize = published("ars", name), TASKS[name].env_id, {"norm_reward": False}
    model = ARS(settings.pop("policy"), vector_env(env_id, seed, 1, normalize), seed=seed, device="cpu", **settings)
    makers = [lambda i=i: vector_env(env_id, seed + i, 1, normalize) for i in range(os.cpu_count() or 1)]
    workers = AsyncEval(makers, model.policy)
    try:
        model.learn(sys.maxsize, callback=watcher(curve), async_eval=workers)
    finally:
        workers.close()


def published(method: str, task: str) -> dict[str, Any]:
    """Return the settings of a peer."""
    import yaml

    settings: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return settings[method][task]


def vector_env(env_id: str, seed: int, n_envs: int, normalize: dict[str, Any] | None) -> Any:
    """Make an environment of Stable-Baselines3."""
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    env = make_vec_env(env_id, n_envs=n_envs, seed=seed)
    return env if normalize is None else VecNormalize(env, **normalize)


def watcher(curve: Curve) -> Any:
    """Return a callback that offers the policy between its updates."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Watcher(BaseCallback):
        def _on_rollout_start(self) -> None:
            normalizer = self.model.get_vec_normalize_env()

            def act(observation: Any) -> Any:
                seen = observation if normalizer is None else normalizer.normalize_obs(observation)
                return self.model.predict(seen, deterministic=True)[0]

            curve.updated(self.model.num_timesteps, act)

        def _on_step(self) -> bool:
            return True

    return Watcher()


def pgpe(name: str, seed: int, limit: float, curve: Curve, run: Path) -> None:
    """Train with EvoTorch's PGPE and ClipUp, an actor of Ray for each core."""
    import ray
    import torch
    from evotorch.algorithms import PGPE
    from evotorch.neuroevolution import GymNE

    settings = published("pgpe", name)
    torch.manual_seed(seed)  # GymNE takes no seed; its episodes have seeds of chance
    ray.init(_node_ip_address="127.0.0.1", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    problem = GymNE(
        TASKS[name].env_id,
        f"Linear(obs_length, act_length, bias={settings['bias']})",
        observation_normalization=settings["normalize"],
        decrease_rewards_by=settings["decrease_rewards_by"],
        num_actors="max",
    )
    searcher = PGPE(
        problem,
        popsize=settings["popsize"],
        popsize_max=settings["popsize_max"],
        num_interactions=settings["num_interactions"],
        radius_init=15 * settings["max_speed"],
        center_learning_rate=0.75 * settings["max_speed"],
        stdev_learning_rate=0.1,
        stdev_max_change=0.2,
        optimizer="clipup",
        optimizer_config={"max_speed": settings["max_speed"], "momentum": 0.9},
    )

    def act(observation: Any) -> Any:
        with torch.no_grad():
            return policy(torch.as_tensor(observation, dtype=torch.float32)).numpy()

    while True:
        searcher.step()
        policy = problem.to_policy(searcher.status["center"])
        curve.updated(int(problem.status["total_interaction_count"]), act)


#: The function that trains, how it is called in tables, and its colour.
METHODS: dict[str, tuple[Callable[[str, int, float, Curve, Path], None], str, str]] = {
    "pyes": (pyes, "pyes", "#0072b2"),
    "ppo": (ppo, "PPO, SB3", "#d55e00"),
    "ars": (ars, "ARS, SB3-contrib", "#009e73"),
    "pgpe": (pgpe, "PGPE, EvoTorch", "#cc79a7"),
}
Curves = dict[str, dict[str, dict[int, list[Point]]]]  # by task, method and seed


def main() -> None:
    """Train what is missing, one after the other, then write what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"of {', '.join(TASKS)} (default: all)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="how many")
    parser.add_argument("--minutes", type=float, default=10.0, metavar="M", help="of each training")
    parser.add_argument("--folder", type=Path, default=Path("runs/peers"))
    options = parser.parse_args()
    if unknown := set(options.tasks) - TASKS.keys():
        parser.error(f"no task {', '.join(sorted(unknown))}; expected of {', '.join(TASKS)}")
    options.folder.mkdir(parents=True, exist_ok=True)
    length = options.folder / "minutes"
    if length.exists() and float(length.read_text()) != options.minutes:
        parser.error(f"{options.folder} has trainings of {length.read_text()} minutes; choose another --folder")
    length.write_text(f"{options.minutes:g}")
    failed = [
        f"{task}, {method}, seed {seed}"
        for task in options.tasks or TASKS
        for seed in range(FIRST_SEED, FIRST_SEED + options.seeds)
        for method in options.methods
        if not there(options.folder, task, method, seed, options.minutes * 60)
    ]
    if found := read(options.folder / "curves.csv"):
        write(options.folder, found)
    if failed:
        sys.exit(f"failed, see above: {'; '.join(failed)}")


def there(folder: Path, task: str, method: str, seed: int, limit: float) -> bool:
    """Train in a process of its own, unless that was done; return whether its evaluations are there."""
    if seed in read(folder / "curves.csv").get(task, {}).get(method, {}):
        return True
    arguments = task, method, seed, limit, time.monotonic(), folder
    process = multiprocessing.get_context("spawn").Process(target=train, args=arguments)
    process.start()
    process.join()
    return process.exitcode == 0


def train(task: str, method: str, seed: int, limit: float, begun: float, folder: Path) -> None:
    """Train, and write the evaluations at the end: what is cut short is not there."""
    # One thread of torch a process: two wait for each other on networks this small, very long on a busy machine.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    curve = Curve(TASKS[task].env_id, limit, begun)
    with contextlib.suppress(Over):
        METHODS[method][0](task, seed, limit, curve, folder / task / f"{method}-{seed}")
    path = folder / "curves.csv"
    header = [] if path.exists() else [("task", "method", "seed", *Point._fields)]
    with path.open("a", newline="", encoding="utf-8") as file:
        rows = [*header, *((task, method, seed, *point) for point in curve.points)]
        csv.writer(file, lineterminator="\n").writerows(rows)
    last = curve.points[-1]
    print(f"{task}, {method}, seed {seed}: {last.mean:.1f} after {last.seconds:.0f} s", flush=True)


def read(path: Path) -> Curves:
    """Return the evaluations that were written."""
    found: Curves = {}
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            for task, method, seed, timesteps, *others in list(csv.reader(file))[1:]:
                point = Point(int(timesteps), *map(float, others))
                found.setdefault(task, {}).setdefault(method, {}).setdefault(int(seed), []).append(point)
    return found


class Summary(NamedTuple):
    """What a method comes to: medians over seeds; to the target, over the seeds that reached it, infinite if none."""

    title: str
    seeds: int
    speed: float
    reached: int
    seconds: float
    timesteps: float
    best: float


def summary(title: str, curves: Collection[Sequence[Point]], target: float) -> Summary:
    """Summarise the curves of a method, one a seed; the best is the median of each seed's highest mean."""
    firsts = [next((point for point in curve if point.mean >= target), None) for curve in curves]
    reached = [point for point in firsts if point]
    return Summary(
        title,
        len(curves),
        statistics.median(curve[-1].timesteps / curve[-1].seconds for curve in curves),
        len(reached),
        statistics.median(point.seconds for point in reached) if reached else math.inf,
        statistics.median(point.timesteps for point in reached) if reached else math.inf,
        statistics.median(max(point.mean for point in curve) for curve in curves),
    )


def table(summaries: Iterable[Summary], target: float) -> str:
    """Return a task's table in Markdown."""
    heads = ("method", "seeds", "timesteps/s", f"reached {target:g}", "seconds to it", "timesteps to it", "best mean")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for title, seeds, speed, reached, seconds, timesteps, best in summaries:
        cost = f"{seconds:,.0f} | {timesteps:,.0f}" if reached else "- | -"
        lines.append(f"| {title} | {seeds} | {speed:,.0f} | {reached}/{seeds} | {cost} | {best:,.1f} |")
    return "\n".join(lines)


def losses(ours: Summary, peers: Iterable[Summary]) -> str:
    """Say where pyes loses; seconds and timesteps are compared between methods that reach the target equally often."""
    lost = []
    for peer in peers:
        what = []
        more = peer.reached * ours.seeds - ours.reached * peer.seeds
        if more > 0:
            what.append(f"seeds that reach it ({peer.reached}/{peer.seeds} against {ours.reached}/{ours.seeds})")
        if more == 0 and peer.seconds < ours.seconds:
            what.append(f"seconds to it ({peer.seconds:,.0f} against {ours.seconds:,.0f})")
        if more == 0 and peer.timesteps < ours.timesteps:
            what.append(f"timesteps to it ({peer.timesteps:,.0f} against {ours.timesteps:,.0f})")
        if peer.best > ours.best:
            what.append(f"best mean ({peer.best:,.1f} against {ours.best:,.1f})")
        if what:
            lost.append(f"to {peer.title} in {', '.join(what)}")
    return f"pyes loses {'; '.join(lost)}." if lost else "pyes loses to none of them here."


def write(folder: Path, found: Curves) -> None:
    """Write the summaries, which are printed too, and the figure."""
    from pyes.reports import figures

    parts = []
    for name, curves in found.items():
        task = TASKS[name]
        summaries = {
            method: summary(title, curves[method].values(), task.target)
            for method, (_, title, _) in METHODS.items()
            if method in curves
        }
        parts.append(f"## {task.env_id}\n\n{table(summaries.values(), task.target)}\n")
        ours = summaries.pop("pyes", None)
        if ours and summaries:
            parts.append(f"{losses(ours, summaries.values())}\n")
    text = "\n".join(parts)
    (folder / "peers.md").write_text(text, encoding="utf-8")
    print(f"\n{text}", end="")
    height = figures.HEIGHT * 0.8 * len(found)
    figures.write(folder / "peers.png", lambda figure: draw(figure, found), height=height)


def draw(figure: "Figure", found: Curves) -> None:
    """Draw returns over seconds: a thin line for each seed, a thick one for the median of a method."""
    import numpy as np

    from pyes.reports import figures

    for axes, (task, curves) in zip(figure.subplots(len(found), squeeze=False)[:, 0], found.items(), strict=True):
        for method, seeds in curves.items():
            _, title, color = METHODS[method]
            lines = [([point.seconds for point in each], [point.mean for point in each]) for each in seeds.values()]
            for line in lines:
                axes.plot(*line, color=color, linewidth=0.6, alpha=0.6, marker=".", markersize=3)
            # The seeds' evaluations are at times of their own: between them, a line; the median, where all have one.
            common = np.linspace(max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines), 200)
            median = np.median([np.interp(common, *line) for line in lines], axis=0)
            axes.plot(common, median, color=color, linewidth=2, label=title)
        axes.axhline(TASKS[task].target, color="#888888", linewidth=0.8, linestyle="--")
        axes.set_title(TASKS[task].env_id, loc="left")
        axes.set_xlabel("seconds of training")
        axes.set_ylabel("return")
        axes.set_xlim(left=0)
        axes.yaxis.set_major_formatter(figures.format_number)
        axes.legend()


if __name__ == "__main__":
    main()
