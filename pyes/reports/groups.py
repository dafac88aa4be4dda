"""Groups runs for comparisons and labels the groups.

Owns grouping and labels, which all comparisons share. Knows nothing of how groups are shown. Invariant: labels of
different groups differ.

A *group* holds runs whose settings that affect theta differ only in the seed. If it would contain one seed twice, it is
split by conditions that do not affect theta (budgets, cluster, evaluation): the same run on more workers, for example.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal

from pyes.errors import ConfigError
from pyes.reports import wording
from pyes.reports.runs import Run

Order = Literal["given", "label", "return"]

_NUMBER = re.compile(r"((?:(?<= )-)?(?:\d+,)*\d+(?:\.\d+)?(?:e[+-]\d+)?)")


@dataclass(frozen=True)
class Group:
    """Runs of one configuration, and a label that distinguishes it from the other groups."""

    label: str
    runs: Sequence[Run]


def group(runs: Iterable[Run]) -> list[Group]:
    """Return the labelled groups of runs, ordered by their first run."""
    together = [part for each in _apart(runs, _settings) for part in _split(each)]
    return [Group(label, each) for label, each in zip(_labels(together), together, strict=True)]


def once(runs: Iterable[Run]) -> list[Run]:
    """Return the first of runs that came to the same bits under the same conditions: copies tell nothing new."""
    found: dict[Hashable, Run] = {}
    for run in runs:
        conditions = frozenset(wording.features(run.conditions).items())
        found.setdefault((_settings(run), conditions, run.seed, run.theta_hash or run.path), run)
    return list(found.values())


def arrange(groups: Iterable[Group], order: Order, labels: Sequence[str] = ()) -> list[Group]:
    """Return groups in an order, and with labels of the user's own if there are any.

    Parameters
    ----------
    groups : Iterable[Group]
        Groups in the order of their first runs, which is ``given``.
    order : Order
        ``label``: by label, numbers by value; ``return``: the highest mean of the last returns first.
    labels : Sequence[str]
        A label for each group in the new order; none keep theirs.

    Raises
    ------
    ConfigError
        There are more or fewer labels than groups.
    """
    ordered = list(groups)
    if order == "label":
        ordered.sort(key=lambda each: _by_value(each.label))
    elif order == "return":
        ordered.sort(key=lambda each: -fmean(run.curve("timesteps")[1][-1] for run in each.runs))
    if not labels:
        return ordered
    if len(labels) != len(ordered):
        names = "; ".join(each.label for each in ordered)
        raise ConfigError(f"got {len(labels)} labels, expected {len(ordered)}, one for each group in order: {names}")
    return [replace(each, label=label) for each, label in zip(ordered, labels, strict=True)]


def _by_value(label: str) -> list[str | float]:
    """Return a sort key that puts sigma 0.9 before sigma 0.15e+2: text and numbers in turn."""
    return [float(part.replace(",", "")) if i % 2 else part for i, part in enumerate(_NUMBER.split(label))]


def _apart(runs: Iterable[Run], key: Callable[[Run], Hashable]) -> list[list[Run]]:
    parts: dict[Hashable, list[Run]] = {}
    for run in runs:
        parts.setdefault(key(run), []).append(run)
    return list(parts.values())


def _settings(run: Run) -> Hashable:
    # Compares texts instead of values: settings that read the same are the same.
    return frozenset(wording.features(run.settings).items()) or run.path


def _split(runs: list[Run]) -> list[list[Run]]:
    """Split runs by their conditions if a seed occurs more than once."""
    if max(Counter(run.seed for run in runs).values()) == 1:
        return [runs]
    return _apart(runs, lambda run: frozenset(wording.features(run.conditions).items()))


def _labels(groups: Sequence[Sequence[Run]]) -> list[str]:
    """Label each group by the settings that distinguish it, or without a configuration by its first run's folder."""
    labels = iter(wording.labels([wording.features(_common(runs)) for runs in groups if runs[0].settings]))
    paths = [runs[0].path for runs in groups]
    names = Counter(path.name for path in paths)
    folders = [path.name if names[path.name] == 1 else str(path) for path in paths]
    told = [next(labels) if runs[0].settings else "" for runs in groups]
    return [label or folder for label, folder in zip(told, folders, strict=True)]


def _common(runs: Sequence[Run]) -> Mapping[str, Any]:
    """Return the settings of a group and the conditions that its runs have in common."""
    shared = {
        key: value for key, value in runs[0].conditions.items() if all(run.conditions.get(key) == value for run in runs)
    }
    return {**runs[0].settings, **shared}
