"""Which runs belong together, and what each group of them is called.

Owns grouping and labels, which all comparisons share. Knows nothing of how groups are shown. Invariant: labels of
different groups differ.

A *group* is runs whose settings that decide theta differ in nothing but the seed. Conditions (budgets, cluster,
evaluation) tell runs of a group apart only where it would have one seed twice: the same run on more workers, say.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyes.reports import wording
from pyes.reports.runs import Run


@dataclass(frozen=True)
class Group:
    """Runs of one configuration, and what it is called among the others."""

    label: str
    runs: Sequence[Run]


def group(runs: Iterable[Run]) -> list[Group]:
    """Return the groups of runs, in the order of their first ones, each with its label."""
    together = [part for each in _apart(runs, _settings) for part in _split(each)]
    return [Group(label, each) for label, each in zip(_labels(together), together, strict=True)]


def _apart(runs: Iterable[Run], key: Callable[[Run], Hashable]) -> list[list[Run]]:
    parts: dict[Hashable, list[Run]] = {}
    for run in runs:
        parts.setdefault(key(run), []).append(run)
    return list(parts.values())


def _settings(run: Run) -> Hashable:
    # Texts, not values: what reads alike is alike.
    return frozenset(wording.features(run.settings).items()) or run.path


def _split(runs: list[Run]) -> list[list[Run]]:
    """Part runs by their conditions where a seed is there more than once."""
    if max(Counter(run.seed for run in runs).values()) == 1:
        return [runs]
    return _apart(runs, lambda run: frozenset(wording.features(run.conditions).items()))


def _labels(groups: Sequence[Sequence[Run]]) -> list[str]:
    """Name each group by what tells it apart; where no configuration says it, by the folder of its first run."""
    labels = iter(wording.labels([wording.features(_common(runs)) for runs in groups if runs[0].settings]))
    paths = [runs[0].path for runs in groups]
    names = Counter(path.name for path in paths)
    folders = [path.name if names[path.name] == 1 else str(path) for path in paths]
    told = [next(labels) if runs[0].settings else "" for runs in groups]
    return [label or folder for label, folder in zip(told, folders, strict=True)]


def _common(runs: Sequence[Run]) -> Mapping[str, Any]:
    """Return the settings of a group, and the conditions that all its runs have."""
    shared = {
        key: value for key, value in runs[0].conditions.items() if all(run.conditions.get(key) == value for run in runs)
    }
    return {**runs[0].settings, **shared}
