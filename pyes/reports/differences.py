"""Where two runs differ first, by their journals: the setting, or the generation, the member and the figure.

Compares what decides theta and what follows from it. Budgets, paths, the machine, versions of libraries, and
evaluations or episodes of them that only one run made are no difference.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyes import config as configuration
from pyes.errors import ConfigError, RunDirectoryError
from pyes.reports.replay import recording_of
from pyes.run.journal import Evaluation, Generation, Kind, Record, Recording, Start
from pyes.system.text import counted

#: Last parts of settings that choose what others belong to, and how many settings are told.
_NAMES, _TOLD = ("name", "factory", "env_id"), 5
#: Of whole records: if a center differs, the one before it was moved otherwise, though its members were equal.
_FIGURES = ("theta_hash", "table", "reference")
#: Of each member, or of each episode of an evaluation.
_OF_MEMBERS = {"returns": "return", "lengths": "length", "status": "status", "behaviours": "behaviour"}
#: What follows from the members, for the generations that follow.
_STATISTICS = ("observations", "sums", "agreement")


@dataclass(frozen=True)
class Comparison:
    """How far two runs are equal.

    Attributes
    ----------
    generations : int
        Recorded by both, and so compared.
    difference : str or None
        The first one; None if there is none.
    """

    generations: int
    difference: str | None


def compare(first: Path, second: Path) -> Comparison:
    """Compare two runs as far as both have gone.

    Raises
    ------
    RunDirectoryError
        A run has no journal, or has recorded nothing.
    JournalError
        A journal cannot be read.
    """
    runs = recording_of(first), recording_of(second)
    for run, recording in zip((first, second), runs, strict=True):
        if not len(recording):
            raise RunDirectoryError(f"{run} has recorded nothing yet, so there is nothing to compare")
    generations = min(recording.generations for recording in runs)
    one, other = (_places(recording, generations) for recording in runs)
    for key in sorted(one.keys() | other.keys()):
        if key in one and key in other:
            text = _difference(runs[0][one[key]], runs[1][other[key]])
        else:
            text = _alone(key, first if key in one else second)
        if text is not None:
            return Comparison(generations, text)
    return Comparison(generations, None)


_Key = tuple[int, Kind, int]


def _places(recording: Recording, generations: int) -> dict[_Key, int]:
    """Return where records are: by generation, kind, and number among those of the same generation and kind."""
    alike: Counter[tuple[int, Kind]] = Counter()
    places = {}
    for place, entry in enumerate(recording.entries):
        last = generations if entry.kind == Kind.EVALUATION else generations - 1  # of the center after the last update
        if entry.generation <= last or place == 0:
            places[entry.generation, entry.kind, alike[entry.generation, entry.kind]] = place
            alike[entry.generation, entry.kind] += 1
    return places


def _alone(key: _Key, run: Path) -> str | None:
    generation, kind, _ = key
    return f"generation {generation}: only {run} changes its settings here" if kind == Kind.START else None


def _difference(one: Record, other: Record) -> str | None:
    """Return the first difference of two records of the same kind and generation."""
    if isinstance(one, Start) and isinstance(other, Start) and (text := _setting(one.settings, other.settings)):
        return f"settings: {text}"
    where = f"evaluation of center {one.generation}" if isinstance(one, Evaluation) else f"generation {one.generation}"
    for name in _FIGURES:
        if (pair := _values(one, other, name)) and pair[0] != pair[1]:
            return f"{where}: {name} {pair[0]} and {pair[1]}"
    if text := _member(one, other):
        return f"{where}, {text}"
    for name in _STATISTICS:
        if (pair := _values(one, other, name)) and not np.array_equal(*pair):
            shown = "" if isinstance(pair[0], np.ndarray) else f" {pair[0]} and {pair[1]}"
            return f"{where}: {name}{shown}"
    return None


def _values(one: Record, other: Record, name: str) -> tuple[Any, Any] | None:
    return (getattr(one, name), getattr(other, name)) if hasattr(one, name) else None


def _setting(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """Return some settings that differ, with both values, names first; defaults of what an older version lacks."""
    found = configuration.changes(_decided(one), _decided(other))
    found = {key: pair for key, pair in found.items() if any(value not in (None, "") for value in pair)}
    keys = sorted(found, key=lambda key: key.rpartition(".")[2] not in _NAMES)  # a stable sort
    told = [f"{key} {found[key][0]!r} and {found[key][1]!r}" for key in keys[:_TOLD]]
    return "; ".join([*told, *[f"{len(keys) - _TOLD} more"] * (len(keys) > _TOLD)]) or None


def _decided(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return configuration.deciding(configuration.from_mapping(settings))
    except ConfigError:  # an algorithm of the user's own that is not to be found here
        return settings


def _member(one: Record, other: Record) -> str | None:
    """Return the first member, or episode, with a figure that differs."""
    if isinstance(one, Start):
        return None
    what = "member" if isinstance(one, Generation) else "episode"
    sizes = [len(each.returns) for each in (one, other) if not isinstance(each, Start)]
    if isinstance(one, Generation) and sizes[0] != sizes[1]:
        return f"{counted(sizes[0], what)} and {sizes[1]}"
    common = min(sizes)  # an evaluation with more episodes begins with the same ones
    found = []
    for order, (name, text) in enumerate(_OF_MEMBERS.items()):
        pair = _values(one, other, name)
        if pair is None or pair[0] is None or pair[1] is None:
            continue
        left, right = (
            np.asarray(each).reshape(size, -1)[:common].astype(float) for each, size in zip(pair, sizes, strict=True)
        )
        if left.shape != right.shape:
            return f"{text} of {left.shape[1]} and {right.shape[1]} numbers"
        differs = ((left != right) & ~(np.isnan(left) & np.isnan(right))).any(axis=1)
        if differs.any():
            member = int(np.argmax(differs))
            found.append((member, order, f"{text} {_shown(left[member])} and {_shown(right[member])}"))
    if not found:
        return None
    member, _, text = min(found)
    return f"{what} {member}: {text}"


def _shown(values: Any) -> str:
    return ", ".join(f"{value:.17g}" for value in values)
