"""What a search for settings came to: its trials, in a table and in a figure.

Owns the numbers of the tables, their Markdown, the comment of a recipe, and the figure. Knows nothing of how trials are
chosen and run.
"""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyes.config.space import Value, shown
from pyes.reports import figures
from pyes.reports.tables import escaped
from pyes.system.text import counted, rounded

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULTS = 0  # the trial without values
_BEST_OF = 3  # the best trials, of which the second table tells: one of so many
_BLUE, _ORANGE, _GREY = "#0072b2", "#d55e00", "#777777"


@dataclass(frozen=True)
class Trial:
    """One setting and what it came to.

    Attributes
    ----------
    number : int
    values : dict
        Of the parameters; empty for the defaults.
    means : dict
        Mean over the seeds of the return after so many timesteps; -inf if a run failed.
    """

    number: int
    values: dict[str, Value]
    means: dict[int, float]

    @property
    def settings(self) -> str:
        """The values in words, without the names of sections."""
        words = (f"{name.rpartition('.')[2]}={shown(value)}" for name, value in self.values.items())
        return ", ".join(words) or "the defaults"

    @property
    def last(self) -> float:
        """Mean return after the most timesteps that the trial was given; -inf without any."""
        return self.means[max(self.means)] if self.means else -math.inf


@dataclass(frozen=True)
class Found:
    """What a search came to.

    Attributes
    ----------
    trials : list of Trial
        By number; the first one has the defaults.
    best : Trial
        The one with the highest mean after all timesteps.
    confirmed : dict
        Returns with the confirming seeds, by trial: of the defaults and of the best one.
    mattered : dict
        Share of each parameter in what made trials good, by name, the largest first; empty with too few trials.
    timesteps : int
        All timesteps.
    seeds : int
        Runs of each trial.
    """

    trials: list[Trial]
    best: Trial
    confirmed: dict[int, list[float]]
    mattered: dict[str, float]
    timesteps: int
    seeds: int

    @property
    def complete(self) -> list[Trial]:
        """The trials that had all timesteps."""
        return [trial for trial in self.trials if self.timesteps in trial.means]


def to_markdown(found: Found) -> str:
    """Return two tables: what the best trials and the defaults came to, and which parameters mattered."""
    first = min((min(trial.means) for trial in found.trials if trial.means), default=found.timesteps)
    ordered = sorted(found.complete, key=lambda trial: (-trial.last, trial.number))
    seeds = f"seeds 0 to {found.seeds - 1}" if found.seeds > 1 else "seed 0"
    tables = [
        _table(
            ("trial", "settings", f"mean of {seeds}", "confirmed: median (least to greatest)"),
            [
                (str(trial.number), trial.settings, number(trial.last), _confirmed(found, trial.number))
                for trial in ordered
            ],
        )
    ]
    if found.mattered:
        best = sorted(found.trials[DEFAULTS + 1 :], key=lambda trial: -trial.means.get(first, -math.inf))
        best = best[: max(1, len(best) // _BEST_OF)]
        rows = [
            (name, f"{share:.0%}", _usual([trial.values[name] for trial in best]))
            for name, share in found.mattered.items()
        ]
        tables.append(_table(("parameter", "share", f"in the best {len(best)} after {first:,} timesteps"), rows))
    return "\n\n".join(tables)


def comment(found: Found) -> list[str]:
    """Return the lines of a recipe that say how it was found."""
    lines = [f"Found by pyes tune: {counted(len(found.trials) - 1, 'setting')}, {counted(found.seeds, 'seed')} each."]
    count = len(found.confirmed[DEFAULTS])
    lines.append(f"Confirmed with {counted(count, 'other seed')}: median {_confirmed(found, found.best.number)}")
    if found.best.number == DEFAULTS:
        return [*lines, "No setting was better than the defaults."]
    return [*lines, f"The defaults with these seeds: median {_confirmed(found, DEFAULTS)}"]


def doubt(found: Found) -> str:
    """Return in a sentence that the best trial was no better with other seeds; empty if it was, or is the defaults."""
    if found.best.number == DEFAULTS:
        return ""
    best, defaults = (statistics.median(found.confirmed[number]) for number in (found.best.number, DEFAULTS))
    if best > defaults:
        return ""
    return (
        f"with other seeds trial {found.best.number} was not better than the defaults (median {number(best)}, theirs "
        f"{number(defaults)}): do not trust the recipe; search with more --seeds"
    )


def draw(found: Found, output: Path) -> None:
    """Draw what each trial came to, over its number, with the best one so far as a line."""
    from matplotlib.ticker import MaxNLocator

    def fill(figure: "Figure") -> None:
        axes = figure.add_subplot()
        complete = [trial for trial in found.complete if math.isfinite(trial.last)]
        stopped = [trial for trial in found.trials if trial not in found.complete and math.isfinite(trial.last)]
        style: Any = {"linestyle": "none", "marker": "o", "markersize": 6, "clip_on": False}
        axes.plot(*_points(stopped), **style, color=_BLUE, markerfacecolor="white", label="stopped earlier")
        axes.plot(*_points(complete), **style, color=_BLUE, label=f"after {found.timesteps:,} timesteps")
        defaults = found.trials[DEFAULTS].last
        if math.isfinite(defaults):
            axes.axhline(defaults, color=_GREY, linestyle="--", linewidth=1.2, label="the defaults")
        best = [max(each.last for each in complete if each.number <= trial.number) for trial in complete]
        ends = [*(trial.number for trial in complete), len(found.trials) - 1]
        if complete:
            axes.step(
                ends, [*best, best[-1]], where="post", color=_ORANGE, linewidth=1.5, label="best so far", zorder=1
            )
        axes.set_xlim(-0.5, len(found.trials) - 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("trial")
        axes.set_ylabel(f"return, mean of {counted(found.seeds, 'seed')}")
        axes.set_title("Trials")
        axes.yaxis.set_major_formatter(figures.format_number)
        axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.16), ncols=4, borderaxespad=0.0, handletextpad=0.4)

    figures.write(output, fill)


def number(value: float) -> str:
    """Return a return, or that there is none."""
    return rounded(value) if math.isfinite(value) else "failed"


def _points(trials: Sequence[Trial]) -> tuple[list[int], list[float]]:
    return [trial.number for trial in trials], [trial.last for trial in trials]


def _confirmed(found: Found, trial: int) -> str:
    returns = found.confirmed.get(trial)
    if not returns:
        return "-"
    return f"{number(statistics.median(returns))} ({number(min(returns))} to {number(max(returns))})"


def _usual(values: Sequence[Value]) -> str:
    """Return the most frequent label and how many have it, or the median of numbers and their range."""
    numbers = [value for value in values if not isinstance(value, str)]
    if numbers:
        return f"{shown(statistics.median(numbers))} ({shown(min(numbers))} to {shown(max(numbers))})"
    label, count = Counter(map(str, values)).most_common(1)[0]
    return f"{label} ({count} of {len(values)})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(escaped, cells))} |" for cells in lines)
