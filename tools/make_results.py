"""Draw ``docs/results.md`` and ``docs/results.png`` from the folders of ``results/``.

    python tools/make_results.py [RESULTS [DOCS]]

Owns the page: its words, its tables and its figure. ``results/published.yaml`` has what others have reached, and what a
reader must know about a task's score. Nothing is measured here: ``benchmarks/recipes.py`` does that.
"""

import argparse
import csv
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from pyes.reports import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROOT = Path(__file__).parent.parent
COLUMNS = 4  # of the figure
PANEL = 1.9  # inches
INTRODUCTION = """\
# Results

What the recipes reach, each by `pyes train experiment=RECIPE` and nothing else: median (least to greatest) over seeds
that no setting was chosen on, of the mean return of the last center over 100 episodes; of an even number, the lower one
of the two in the middle. These episodes are the same for all seeds, and no run has used them. A run that fails counts
as the lowest. Times are medians of the wall clock on the machine named [below](#machine), evaluations included.

In a clone, `pyes evaluate results/RECIPE --episodes 100 --seed 1000000` plays the policy of the median seed in the
episodes of the table, and `pyes video results/RECIPE -o FILE.mp4` films it (extra `video`).
`python benchmarks/recipes.py RECIPE --seeds N --first-seed SEED` redoes a row, with the seeds of its
`results/RECIPE/rows.csv`; `python tools/make_results.py` redoes this page.
"""
CAPTION = "Return of the center over million timesteps of training: every seed a line, its 100 final episodes a dot"


@dataclass(frozen=True)
class Result:
    """A folder of results: its description, a row for every seed, and its curves."""

    about: dict[str, Any]
    rows: list[dict[str, str]]
    curves: dict[str, list[tuple[float, float]]]

    @property
    def recipe(self) -> str:
        """Name of the recipe."""
        return str(self.about["recipe"])

    @property
    def returns(self) -> list[float]:
        """Final returns in order; a failure has minus infinity."""
        return sorted(-math.inf if row["return_mean"] == "nan" else float(row["return_mean"]) for row in self.rows)

    def median(self, column: str) -> float:
        """Return the median of a column over the runs that did not fail and have a number there."""
        return statistics.median(float(row[column]) for row in self.rows if row["theta_hash"] and row[column] != "nan")


def main() -> None:
    """Read the results, write the page and its figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=ROOT / "results", metavar="RESULTS")
    parser.add_argument("docs", nargs="?", type=Path, default=ROOT / "docs", metavar="DOCS")
    options = parser.parse_args()
    results, docs = options.results, options.docs
    if not (results / "published.yaml").is_file() or not docs.is_dir():
        parser.error(f"expected {results / 'published.yaml'}, and the folder {docs}")
    found = [read(file.parent) for file in sorted(results.glob("*/result.json"))]
    published = yaml.safe_load((results / "published.yaml").read_text(encoding="utf-8"))
    (docs / "results.md").write_text(page(found, published), encoding="utf-8")
    lines = math.ceil(len(found) / COLUMNS)
    figures.write(docs / "results.png", partial(draw, found), COLUMNS * PANEL * 1.25, lines * PANEL + 0.3)


def read(folder: Path) -> Result:
    """Return the result in a folder."""
    about = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    curves = defaultdict(list)
    for row in table(folder / "curves.csv"):
        curves[row["seed"]].append((float(row["timesteps"]), float(row["eval_return_mean"])))
    return Result(about, table(folder / "rows.csv"), curves)


def table(file: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def page(results: Sequence[Result], published: dict[str, Any]) -> str:
    """Return the text of the page."""
    parts = [INTRODUCTION, "\n".join(main_table(results, published)), f"![{CAPTION}](results.png)"]
    notes = [f"- `{each.recipe}`: {note}" for each in results for note in published[each.recipe].get("notes", ())]
    parts += ["## What to know about these scores", published["about"] + "\n" + "\n".join(notes)]
    parts += [
        "## The same numbers again",
        REPEAT,
        "\n".join(repeats(results)),
        "## Machine",
        "\n".join(machines(results)),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def main_table(results: Iterable[Result], published: dict[str, Any]) -> Iterable[str]:
    """Yield the lines of the table of returns."""
    yield "| recipe | return | seeds | million timesteps | time | published |"
    yield "|---|---|---|---|---|---|"
    for each in results:
        others = "; ".join(f"{score} ({source})" for source, score in published[each.recipe]["scores"].items())
        cells = (
            f"[`{each.recipe}`](../conf/experiment/{each.recipe}.yaml)",
            f"{text_of(each.returns[(len(each.returns) - 1) // 2])} "
            f"({text_of(each.returns[0])} to {text_of(each.returns[-1])})",
            str(len(each.rows)),
            f"{float(format(each.median('timesteps') / 1e6, '.3g')):,g}",
            duration(each.median("seconds")),
            others,
        )
        yield f"| {' | '.join(cells)} |"


def duration(seconds: float) -> str:
    """Return a time as text."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def text_of(value: float) -> str:
    """Return a return as text."""
    if math.isinf(value):
        return "failed"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{round(value, 1) + 0.0:.1f}"  # no -0.0


REPEAT = """\
Each command trains the median seed again; `theta_hash` in the last row of its `metrics.csv` is then the one here, with
any number of workers and, with the versions [below](#machine), on any machine whose simulator and libraries give the
same bits ([conditions](explanation/determinism.md#where-it-ends)): recipes by CMA-ES, `reacher_mujoco`, `pusher_mujoco`
and `humanoid_mujoco` need the same kind of processor, which its name does not tell: linear algebra that takes it for
another kind rounds in another way."""


def repeats(results: Iterable[Result]) -> Iterable[str]:
    """Yield a table of commands and hashes."""
    yield "| command | theta_hash | commit |"
    yield "|---|---|---|"
    for each in results:
        yield f"| `{each.about['train']}` | `{each.about['theta_hash']}` | {each.about['commit']} |"


def machines(results: Iterable[Result]) -> Iterable[str]:
    """Yield what the results were made on, each machine once."""
    yield "| processor | cores | linear algebra | versions | recipes |"
    yield "|---|---|---|---|---|"
    made = defaultdict(list)
    for each in results:
        machine = each.about["machine"]
        versions = ", ".join(f"{name} {version}" for name, version in each.about["versions"].items())
        algebra = each.about.get("linear_algebra", "not noted")
        made[machine["processor"], machine["cores"], algebra, versions].append(f"`{each.recipe}`")
    for (processor, cores, algebra, versions), names in made.items():
        yield f"| {processor} | {cores} | {algebra} | {versions} | {', '.join(names)} |"


def draw(results: Sequence[Result], figure: "Figure") -> None:
    """Draw the curves of all results, a panel each."""
    lines = math.ceil(len(results) / COLUMNS)
    panels = figure.subplots(lines, COLUMNS, squeeze=False).ravel()
    for axes, each in zip(panels, results, strict=False):
        draw_one(axes, each)
    for axes in panels[len(results) :]:
        axes.set_axis_off()


def draw_one(axes: "Axes", result: Result) -> None:
    """Draw the curves of one result."""
    for row in result.rows:
        if points := result.curves.get(row["seed"]):
            timesteps, returns = zip(*points, strict=True)
            axes.plot([each / 1e6 for each in timesteps], returns, color="#0072b2", alpha=0.45, linewidth=0.8)
            end = float(row["timesteps"]) / 1e6, float(row["return_mean"])
            axes.plot(*end, "o", color="#d55e00", markersize=3, clip_on=False)
    axes.set_title(result.recipe, fontsize=7, pad=4)
    axes.tick_params(labelsize=7)


if __name__ == "__main__":
    main()
