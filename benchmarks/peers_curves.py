"""What the curves of trainings come to: a table a task, where pyes loses, and figures.

Owns the tasks of `peers_learning.py`, what counts as solved in them, and everything that is computed from
``curves.csv``. Trains nothing. `tools/make_benchmarks.py` draws the page with it.
"""

import csv
import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Task(NamedTuple):
    """An environment, its return of random actions and that of a solution, the recipe of pyes, and the time."""

    env_id: str
    random: float  # mean return of random actions over 100 episodes
    target: float
    recipe: str
    minutes: float  # of each training


TASKS = {
    "lunar_lander": Task("LunarLanderContinuous-v3", -213, 280, "lunar_lander", 2),
    "half_cheetah": Task("HalfCheetah-v5", -282, 5000, "half_cheetah_mujoco", 5),
    "hopper": Task("Hopper-v5", 17, 3400, "hopper_mujoco", 6),
    "bipedal_walker": Task("BipedalWalker-v3", -103, 310, "bipedal_walker", 15),
}
#: How a method is called in tables, and its colour.
METHODS = {
    "pyes": ("pyes", "#0072b2"),
    "ppo": ("PPO, SB3", "#d55e00"),
    "ars": ("ARS, SB3-contrib", "#009e73"),
    "pgpe": ("PGPE, EvoTorch", "#cc79a7"),
}
#: Targets of `reached`: parts of the way from random actions to what counts as solved.
WAY = (0.5, 0.75, 0.9, 1.0)


class Point(NamedTuple):
    """One evaluation."""

    timesteps: int
    seconds: float
    mean: float
    std: float


Curves = dict[str, dict[str, dict[int, list[Point]]]]  # by task, method and seed


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
    """Say where pyes loses; a method's seconds and timesteps count however few of its seeds reach the target."""
    lost = []
    for peer in peers:
        what = []
        more = peer.reached * ours.seeds - ours.reached * peer.seeds
        if more > 0:
            what.append(f"seeds that reach it ({peer.reached}/{peer.seeds} against {ours.reached}/{ours.seeds})")
        seldom = f", in {peer.reached}/{peer.seeds} seeds" if more < 0 else ""
        if peer.seconds < ours.seconds:
            what.append(f"seconds to it ({peer.seconds:,.0f} against {ours.seconds:,.0f}{seldom})")
        if peer.timesteps < ours.timesteps:
            what.append(f"timesteps to it ({peer.timesteps:,.0f} against {ours.timesteps:,.0f}{seldom})")
        if peer.best > ours.best:
            what.append(f"best mean ({peer.best:,.1f} against {ours.best:,.1f})")
        if what:
            lost.append(f"to {peer.title} in {', '.join(what)}")
    return f"pyes loses {'; '.join(lost)}." if lost else "pyes loses to none of them here."


def lasted(curves: dict[str, dict[int, list[Point]]]) -> list[float]:
    """Return the seconds of each training of a task."""
    return [curve[-1].seconds for seeds in curves.values() for curve in seeds.values()]


def told(task: str, curves: dict[str, dict[int, list[Point]]]) -> str:
    """Return a task's table, and where pyes loses."""
    target = TASKS[task].target
    summaries = {
        method: summary(title, curves[method].values(), target)
        for method, (title, _) in METHODS.items()
        if method in curves
    }
    lines = table(summaries.values(), target)
    ours = summaries.pop("pyes", None)
    return f"{lines}\n\n{losses(ours, summaries.values())}\n" if ours and summaries else f"{lines}\n"


def report(found: Curves) -> str:
    """Return all tables in Markdown."""
    return "\n".join(f"## {TASKS[task].env_id}\n\n{told(task, curves)}" for task, curves in found.items())


def common(found: Curves) -> list[tuple[str, int]]:
    """Return the tasks and seeds of which there is a training of every method that has any."""
    methods = {method for curves in found.values() for method in curves}
    return [
        (task, seed)
        for task, curves in found.items()
        if methods <= curves.keys()
        for seed in sorted(set.intersection(*(set(curves[method]) for method in methods)))
    ]


def reached(found: Curves, method: str) -> list[float]:
    """Return the seconds to each target of each common training, infinite where it was not reached."""
    return sorted(
        next((point.seconds for point in found[task][method][seed] if point.mean >= target), math.inf)
        for task, seed in common(found)
        for target in (TASKS[task].random + part * (TASKS[task].target - TASKS[task].random) for part in WAY)
    )


def draw_curves(found: Curves, figure: "Figure") -> None:
    """Draw returns over seconds, a panel a task."""
    rows = math.ceil(len(found) / 2)
    panels = figure.subplots(rows, min(len(found), 2), squeeze=False).ravel().tolist()
    for axes, (task, curves) in zip(panels, found.items(), strict=False):
        draw_task(axes, TASKS[task], curves)
    for axes in panels[len(found) :]:
        axes.set_axis_off()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(METHODS))


def draw_task(axes: "Axes", task: Task, curves: dict[str, dict[int, list[Point]]]) -> None:
    """Draw a thin line for each seed, a thick one for the median of a method."""
    import numpy as np

    from pyes.reports import figures

    for method, seeds in curves.items():
        title, color = METHODS[method]
        lines = [([point.seconds for point in each], [point.mean for point in each]) for each in seeds.values()]
        for line in lines:
            axes.plot(*line, color=color, linewidth=0.6, alpha=0.6, marker=".", markersize=3)
        # The seeds' evaluations are at times of their own: between them, a line; the median, where all have one.
        times = np.linspace(max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines), 200)
        median = np.median([np.interp(times, *line) for line in lines], axis=0)
        axes.plot(times, median, color=color, linewidth=2, label=title)
    axes.axhline(task.target, color="#888888", linewidth=0.8, linestyle="--")
    axes.set_title(task.env_id, loc="left", fontsize=10)
    axes.set_xlabel("seconds of training")
    axes.set_ylabel("return")
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter(figures.format_number)
