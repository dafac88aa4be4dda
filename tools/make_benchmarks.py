"""Draw ``docs/benchmarks.md`` and the figures of ``docs/benchmarks/`` from ``results/benchmarks/``.

    python tools/make_benchmarks.py [DATA [DOCS]]

Owns the page: its words, its tables and its figures. Where pyes loses is computed from the data. Nothing is measured
here: ``benchmarks/peers.py`` does that, and a part that it has not measured is no part of the page.
"""

import argparse
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import blackbox
import peers_curves
import peers_start
from peers_learning import EPISODES
from peers_programs import CASES
from peers_records import read
from peers_speed import WORKERS_CASE

from pyes.reports import figures
from pyes.system.text import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROOT = Path(__file__).parent.parent
#: How methods are called, and their colours.
METHODS = {
    "pyes": ("pyes", "#0072b2"),
    "pyes_native": ("pyes, task in C", "#56b4e9"),
    "evotorch": ("EvoTorch, PGPE", "#cc79a7"),
    "evotorch_distributed": ("EvoTorch, PGPE, distributed", "#cc79a7"),
    "ars": ("SB3-contrib, ARS", "#009e73"),
    "gymnasium": ("Gymnasium alone", "#999999"),
    "envpool": ("EnvPool alone", "#444444"),
}
#: Those that train nothing.
ALONE = ("gymnasium", "envpool")
SEARCHES = {
    "cma_es": ("pyes.maximize", "#0072b2"),
    "pycma with restarts": ("pycma with restarts", "#d55e00"),
    "Nevergrad CMA": ("Nevergrad CMA", "#009e73"),
    "Nevergrad OnePlusOne": ("Nevergrad OnePlusOne", "#cc79a7"),
}
INTRODUCTION = """\
# Benchmarks

pyes beside other libraries, on one machine with nothing else to do: median (least to greatest) over repetitions in
which all take turns. Below each part are the command that measures it again, the machine and the versions: give it a
folder of your own (`--folder DIR`), since what is there is not measured again. Where pyes loses is computed from
the data. [Raw data](../results/benchmarks); [what is measured](../benchmarks/peers.py);
`python tools/make_benchmarks.py` draws the page.
"""
SPEED = """\
## Timesteps a second

Whole trainings, without evaluations: all processes, the update included, from the first update to the last. All have
the same network and population. They begin at zero with the same standard deviation and take steps too small to matter,
so that all play policies of the same distribution. *Task in C* is `task=native`. The last two train nothing: they take
actions drawn beforehand, Gymnasium in a process for each core, EnvPool 64 environments on a thread for each core.
"""
START = """\
## Start

Seconds from the start of the program to the end of its first update, {case}.
"""
MEMORY = """\
## Memory

The most that a training holds in all its processes, what they share counted once (proportional set size), {case}.
"""
WORKERS = """\
## Workers

Timesteps a second with all cores against one worker, {case}. With one, EvoTorch plays in its own process.
"""
WIRE = """\
## Bytes of a generation

{members:,} members on {nodes} nodes. pyes sends returns and no parameters of members, or theta where that is cheaper
([how](explanation/cluster.md)): counted at the head's sockets, both directions. EvoTorch sends actors the parameters of
their members, or, *distributed*, a distribution, and receives gradients: the arguments and results of all calls of
actors, pickled as Ray does, without what Ray adds.
"""
LEARNING = """\
## Time to a return

Trainings with the peers' published settings and the recipes of pyes, all of a task for the same time. The deterministic
policy plays {episodes} episodes every 30 seconds, outside of the clock, which begins with the program. Seconds and
timesteps to a target are medians over the seeds that reached it. The times are about what the recipes of pyes
need, which favours pyes: RL Zoo, from which PPO's and ARS's settings are, trains them for a million timesteps or more,
and here each method has as many as its timesteps/s times the time. Their settings for HalfCheetah and Hopper are those
of version 4. EvoTorch's are published for LunarLander alone: on the other three tasks it has those for Walker2d, on
Hopper without the bonus for being alive. On BipedalWalker the first seed of each method ran on a machine of half the
speed; that of pyes was of an older version too, and came to 15 million timesteps, where the other two came to 35 and
38.
"""
TARGETS = """\
Targets reached over time: {parts} of the way from the return of random actions to the target above, over
{seeds}. A line that is higher is better.
"""
BLACKBOX = """\
## Black-box functions

Ten functions of the kinds of BBOB, turned and moved, {seeds} each: the share of {targets} targets, between 100 and
0.0001 above the optimum, that were reached by any point. All begin at 0 with a standard deviation of {sigma};
everything else is the default: 40 members a generation for pyes.maximize, 8 and 12 for pycma. A line that is
higher is better.
"""


def main() -> None:
    """Read the data, write the page and its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, default=ROOT / "results" / "benchmarks", metavar="DATA")
    parser.add_argument("docs", nargs="?", type=Path, default=ROOT / "docs", metavar="DOCS")
    options = parser.parse_args()
    data, docs = options.data, options.docs
    if not (data / "about.json").is_file() or not docs.is_dir():
        parser.error(f"expected {data / 'about.json'}, and the folder {docs}")
    pictures = docs / "benchmarks"
    pictures.mkdir(exist_ok=True)
    about = json.loads((data / "about.json").read_text(encoding="utf-8"))
    parts = [INTRODUCTION]
    for name, sections in SECTIONS.items():
        if name in about:
            for section in sections:
                parts += [*section(data, pictures), made(about[name])]
    (docs / "benchmarks.md").write_text("\n\n".join(part.strip("\n") for part in parts) + "\n", encoding="utf-8")


def made(about: Mapping[str, Any]) -> str:
    """Return how a part was measured."""
    machine = about["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    commands = ", ".join(f"`{command}`" for command in about["commands"])
    commits = ", ".join(about["commits"])
    return f"*{commands} at {commits}; {machine['processor']}, {machine['cores']} cores; {versions}.*"


def spread(values: Iterable[float], form: str = ",.0f") -> str:
    """Return the median, and the least and greatest."""
    values = sorted(values)
    low, middle, high = (format(each, form) for each in (values[0], statistics.median(values), values[-1]))
    return f"{middle} ({low} to {high})" if len(values) > 1 else middle


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    heads = list(heads)
    lines = (f"| {' | '.join(row)} |" for row in (heads, *rows))
    return "\n".join([next(lines), "|---" * len(heads) + "|", *lines])


def losing(found: Mapping[str, Iterable[float]], what: str, form: str, less: bool, ours: str = "pyes") -> list[str]:
    """Say to whom pyes loses in the median; less is better, or more."""
    medians = {method: statistics.median(values) for method, values in found.items()}
    own, sign = medians[ours], -1 if less else 1
    told = [
        f"to {METHODS[name][0]} ({value:{form}} against {own:{form}})"
        for name, value in medians.items()
        if not name.startswith("pyes") and sign * (value - own) > 0
    ]
    return [f"{what}: {METHODS[ours][0]} loses {', '.join(told)}"] if told else []


def verdict(lost: Iterable[str]) -> str:
    """Return a list of losses, or that there are none."""
    return "\n".join(f"- {each}." for each in lost) or "pyes loses to none of them here."


# The parts of the page.


def speeds(data: Path, workers: Callable[[int, int], bool]) -> dict[str, dict[str, list[float]]]:
    """Return timesteps a second by case and method, of the rows whose workers, and the most of all, are as wanted."""
    rows = read(data / "speed.csv")
    most = max(int(row["workers"]) for row in rows)
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if workers(int(row["workers"]), most):
            found[row["case"]][row["method"]].append(int(row["timesteps"]) / float(row["seconds"]))
    return found


def speed(data: Path, pictures: Path) -> Iterator[str]:
    """Timesteps a second."""
    found = speeds(data, lambda workers, most: workers == most)
    yield SPEED
    figures.write(pictures / "speed.png", partial(draw_speed, found), height=0.9 + 0.75 * len(found))
    yield "![Timesteps a second by task and method](benchmarks/speed.png)"
    columns = [method for method in METHODS if any(method in each for each in found.values())]
    heads = ("task, network", "members", *(METHODS[method][0] for method in columns))
    rows = (
        (CASES[case].title, str(CASES[case].population), *(spread(each[m]) if m in each else "-" for m in columns))
        for case, each in found.items()
    )
    yield table(heads, rows)
    ours = ("pyes", "pyes_native")
    yield verdict(
        line
        for case, each in found.items()
        for own in ours
        if own in each
        for line in losing(each, CASES[case].title, ",.0f", less=False, ours=own)
    )
    yield "Timesteps of an episode: " + "; ".join(lengths(data)) + "."


def lengths(data: Path) -> Iterator[str]:
    """Yield how long the episodes of trainings were in each case, from one method to the other."""
    totals: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for row in read(data / "speed.csv"):
        if row["method"] in ALONE:  # these stop in the middle of episodes
            continue
        total = totals[row["case"]][row["method"]]
        total[0] += int(row["timesteps"])
        total[1] += int(row["episodes"])
    for case, methods in totals.items():
        means = [timesteps / episodes for timesteps, episodes in methods.values() if episodes]
        yield f"{CASES[case].title}, {min(means):,.0f} to {max(means):,.0f}"


def draw_speed(found: Mapping[str, Mapping[str, list[float]]], figure: "Figure") -> None:
    """Draw a line of dots for each task, the range of each as a bar."""
    axes = figure.subplots()
    axes.set_xscale("log")
    for method, (title, color) in METHODS.items():
        at = [(-line, each[method]) for line, each in enumerate(found.values()) if method in each]
        if at:
            heights, values = zip(*at, strict=True)
            hollow = {"markerfacecolor": "white"} if method in ALONE else {}
            lows, highs = [min(each) for each in values], [max(each) for each in values]
            axes.hlines(heights, lows, highs, color=color, linewidth=3, alpha=0.5)
            medians = [statistics.median(each) for each in values]
            axes.plot(medians, heights, "o", color=color, label=title, markersize=7, **hollow)
    axes.set_yticks([-line for line in range(len(found))], [CASES[case].title for case in found])
    axes.set_ylim(0.5 - len(found), 0.5)
    axes.xaxis.set_major_formatter(figures.format_number)
    axes.set_xlabel("timesteps a second")
    axes.margins(x=0.05)
    figure.legend(loc="outside lower center", ncols=3)


def start(data: Path, pictures: Path) -> Iterator[str]:
    """Seconds to the first update."""
    found = grouped(read(data / "start.csv"), "seconds")
    yield START.format(case=CASES[peers_start.START_CASE].title)
    yield table(("method", "seconds"), ((METHODS[name][0], spread(each, ".2f")) for name, each in found.items()))
    yield verdict(losing(found, "seconds", ".2f", less=True))


def memory(data: Path, pictures: Path) -> Iterator[str]:
    """Memory of a training."""
    rows = read(data / "memory.csv")
    found, processes = grouped(rows, "mebibytes"), grouped(rows, "processes")
    yield MEMORY.format(case=CASES[peers_start.MEMORY_CASE].title)
    lines = ((METHODS[name][0], spread(each), f"{max(processes[name]):.0f}") for name, each in found.items())
    yield table(("method", "MiB", "processes"), lines)
    yield verdict(losing(found, "MiB", ",.0f", less=True))


def workers(data: Path, pictures: Path) -> Iterator[str]:
    """How speed grows with workers."""
    one = speeds(data, lambda workers, most: workers == 1 < most)[WORKERS_CASE]
    all_ = speeds(data, lambda workers, most: workers == most > 1)[WORKERS_CASE]
    most = max(int(row["workers"]) for row in read(data / "speed.csv"))
    yield WORKERS.format(case=CASES[WORKERS_CASE].title)
    ratios = {name: [more / less for more, less in zip(all_[name], one[name], strict=False)] for name in one}
    lines = (
        (METHODS[name][0], spread(one[name]), spread(all_[name]), spread(each, ".2f")) for name, each in ratios.items()
    )
    yield table(("method", "1 worker", f"{most} workers", "ratio"), lines)
    yield verdict(losing(ratios, "ratio", ".2f", less=False))


def grouped(rows: Iterable[Mapping[str, str]], column: str) -> dict[str, list[float]]:
    """Return the numbers of a column by method."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        found[row["method"]].append(float(row[column]))
    return found


def wire(data: Path, pictures: Path) -> Iterator[str]:
    """Bytes of a generation."""
    rows = read(data / "wire.csv")
    yield WIRE.format(members=int(rows[0]["members"]), nodes=int(rows[0]["nodes"]))
    found = {}
    for dim in dict.fromkeys(row["dim"] for row in rows):
        found[f"{int(dim):,}"] = grouped([row for row in rows if row["dim"] == dim], "bytes")
    columns = list(dict.fromkeys(row["method"] for row in rows))
    lines = ((dim, *(spread(each[name]) if name in each else "-" for name in columns)) for dim, each in found.items())
    yield table(("parameters", *(METHODS[name][0] for name in columns)), lines)
    lost = (losing(each, f"{dim} parameters", ",.0f", less=True) for dim, each in found.items())
    yield verdict(line for lines in lost for line in lines)


def learning(data: Path, pictures: Path) -> Iterator[str]:
    """Trainings: returns over seconds, and targets reached."""
    found = peers_curves.read(data / "curves.csv")
    yield LEARNING.format(episodes=EPISODES)
    height = figures.HEIGHT * 0.65 * math.ceil(len(found) / 2)
    figures.write(pictures / "curves.png", partial(peers_curves.draw_curves, found), height=height)
    yield "![Return over seconds of training, by task and method](benchmarks/curves.png)"
    for task, curves in found.items():
        yield f"**{peers_curves.TASKS[task].env_id}**, {min(peers_curves.lasted(curves)) / 60:.2g} minutes each"
        yield peers_curves.told(task, curves)
    if trainings := peers_curves.common(found):
        tasks = defaultdict(int)
        for task, _ in trainings:
            tasks[peers_curves.TASKS[task].env_id] += 1
        seeds = ", ".join(f"{counted(count, 'seed')} of {task}" for task, count in tasks.items())
        yield TARGETS.format(parts=", ".join(f"{part:.0%}" for part in peers_curves.WAY), seeds=seeds)
        longest = max(seconds for curves in found.values() for seconds in peers_curves.lasted(curves))
        figures.write(pictures / "targets.png", partial(draw_targets, found, longest), height=3.5)
        yield "![Share of the targets reached over seconds of training](benchmarks/targets.png)"


def draw_targets(found: peers_curves.Curves, end: float, figure: "Figure") -> None:
    """Draw the share of the targets that each method has reached over seconds."""
    axes = figure.subplots()
    for method, (title, color) in peers_curves.METHODS.items():
        if any(method in curves for curves in found.values()):
            draw_share(axes, peers_curves.reached(found, method), 0, end, title, color)
    axes.set_xlabel("seconds of training")
    figure.legend(loc="outside lower center", ncols=len(peers_curves.METHODS))


def draw_share(axes: "Axes", sorted_costs: list[float], first: float, end: float, title: str, color: str) -> None:
    """Draw the share of costs, of which some are infinite, that are at most x: a line of steps."""
    finite = [cost for cost in sorted_costs if cost <= end]
    shares = [number / len(sorted_costs) for number in range(len(finite) + 1)]
    x, y = [first, *finite, end], [*shares, shares[-1]]
    axes.plot(x, y, drawstyle="steps-post", color=color, linewidth=2, label=title)
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("share of targets")


def functions(data: Path, pictures: Path) -> Iterator[str]:
    """Black-box functions."""
    found = blackbox.read(data / "blackbox.csv")
    dims = sorted({dim for _, dim, _, _ in found})
    seeds = counted(len({seed for *_, seed in found}), "seed")
    yield BLACKBOX.format(seeds=seeds, targets=len(blackbox.TARGETS), sigma=blackbox.SIGMA)
    figures.write(pictures / "blackbox.png", partial(draw_functions, found, dims), height=3.6)
    yield "![Share of functions and targets reached over evaluations for each parameter](benchmarks/blackbox.png)"
    heads = [f"{dim} parameters, {each:,} evaluations for each" for dim in dims for each in blackbox.PER_DIM]
    means = {search: [value for dim in dims for value in shares(found, search, dim)] for search in SEARCHES}
    yield table(("search", *heads), ((SEARCHES[name][0], *(f"{v:.3f}" for v in each)) for name, each in means.items()))
    own = means.pop("cma_es")
    yield verdict(
        f"{heads[i]}: pyes.maximize loses to {SEARCHES[name][0]} ({each[i]:.3f} against {own[i]:.3f})"
        for i in range(len(heads))
        for name, each in means.items()
        if each[i] > own[i]
    )


def shares(found: Mapping[blackbox.Job, list[int]], search: str, dim: int) -> list[float]:
    """Return the shares of targets that a search reached after each number of evaluations, over functions and seeds."""
    each = [blackbox.shares(firsts, dim) for job, firsts in found.items() if job[:2] == (search, dim)]
    return [statistics.fmean(column) for column in zip(*each, strict=True)]


def draw_functions(found: Mapping[blackbox.Job, list[int]], dims: list[int], figure: "Figure") -> None:
    """Draw the share of functions and targets over evaluations for each parameter, a panel for each number of those."""
    panels = figure.subplots(1, len(dims), squeeze=False, sharey=True)[0]
    for axes, dim in zip(panels, dims, strict=True):
        axes.set_xscale("log")
        for search, (title, color) in SEARCHES.items():
            runs = [firsts for job, firsts in found.items() if job[:2] == (search, dim)]
            costs = [first / dim for firsts in runs for first in firsts]
            missing = len(runs) * len(blackbox.TARGETS) - len(costs)
            draw_share(axes, [*sorted(costs), *[math.inf] * missing], 1 / dim, blackbox.PER_DIM[-1], title, color)
        axes.set_title(f"{dim} parameters", loc="left", fontsize=10)
        axes.set_xlabel("evaluations for each parameter")
        axes.xaxis.set_major_formatter(figures.format_number)
    for axes in panels[1:]:
        axes.set_ylabel("")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(SEARCHES))


#: The parts that are measured, and what the page makes of each.
SECTIONS: dict[str, tuple[Callable[[Path, Path], Iterator[str]], ...]] = {
    "learning": (learning,),
    "speed": (speed, workers),
    "start": (start, memory),
    "wire": (wire,),
    "blackbox": (functions,),
}


if __name__ == "__main__":
    main()
