"""Describes settings in readable words: ``algorithm.name=openai_es`` is OpenAI-ES, ``task.episodes=5`` is 5 episodes.

Owns names, phrases, and the choice of the few that distinguish configurations. Knows nothing of runs. Invariant:
different settings have different descriptions.

A *feature* describes one or several settings together; its key is a dotted setting, or one of `_NAMED`.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pyes import config as configuration
from pyes.config.registry import ALGORITHMS

#: The setting that says which others were changed on the way, by force.
CHANGED = "changed"
#: The most important features, in the order in which they are shown.
_NAMED = ("algorithm", "task", "network", "optimizer")
#: Settings from which these are made.
_PARTS = (
    "algorithm.name", "algorithm.factory", "algorithm.optimizer", "task.factory", "task.env_id", "network.name",
    "network.module", "network.hidden", "optimizer.name",
)  # fmt: skip

_NAMES = {
    "linear": "linear", "mlp": "MLP", "rnn": "RNN", "gru": "GRU", "lstm": "LSTM", "dqn": "DQN",
    "adam": "Adam", "sgd": "SGD", "clipup": "ClipUp",
}  # fmt: skip
#: Units of settings that are counts, in the plural.
_COUNTED = {
    "task.episodes": "episodes",
    "task.max_timesteps": "timesteps an episode",
    "algorithm.population_size": "members",
    "cluster.workers": "workers",
    "generations": "generations",
    "timesteps": "timesteps",
    "time_limit": "seconds",
}
_SWITCHES = {
    "algorithm.mirrored": ("mirrored", "not mirrored"),
    "task.normalize_observations": ("normalised observations", "raw observations"),
}
_WORDS = {
    "episode_limit.initial": "episode limit",
    "cluster.name": "cluster",
    "noise.dtype": "noise",
    "task.name": "task",
}
#: Sections whose names are left out, since their keys are clear without.
_SECTIONS = ("algorithm", "task", "network", "optimizer")


def features(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the description of each feature of settings with dotted keys."""
    named = {
        "algorithm": _text(settings.get("algorithm.factory") or "")
        or _joined(settings, "algorithm.name", "algorithm.optimizer"),
        "task": _text(settings.get("task.factory") or settings.get("task.env_id") or ""),
        "network": _text(settings.get("network.module") or "") or _joined(settings, "network.name", "network.hidden"),
        "optimizer": _joined(settings, "optimizer.name"),
    }
    # A switch that is off is not told from one that the version of a run did not have.
    others = {key: _text(value) for key, value in settings.items() if key not in _PARTS and value is not False}
    return {key: text for key, text in named.items() if text} | others


def labels(each: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a label for each configuration, made of few features that distinguish them, names first.

    Features are added in the order of `_ranked` if they distinguish more of the configurations. The label of a single
    configuration is its algorithm.
    """
    chosen: list[str] = []
    told = 1
    for key in _ranked(each):
        now = len({tuple(texts.get(k) for k in (*chosen, key)) for texts in each})
        if now > told:
            chosen.append(key)
            told = now
    chosen = chosen or ["algorithm"]
    if CHANGED not in chosen and any(CHANGED in texts for texts in each):  # they are not what their settings say
        chosen.append(CHANGED)
    words = _words_apart(chosen)
    return [", ".join(filter(None, (_phrase(key, words[key], texts.get(key)) for key in words))) for texts in each]


def _ranked(each: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the features in which configurations differ: names, then settings with many values, then conditions."""
    every = dict.fromkeys(key for texts in each for key in texts)
    values = {key: len({texts.get(key) for texts in each}) for key in every}
    names = [key for key in _NAMED if values.get(key, 1) > 1]
    others = [key for key in every if key not in _NAMED and values[key] > 1]
    others.sort(key=lambda key: (key.split(".")[0] in configuration.FREE, -values[key]))  # a stable sort
    return names + others


def _joined(settings: Mapping[str, Any], name: str, more: str = "") -> str:
    """Return a name with its details: Nevergrad with the name of its optimiser, MLP with its layers."""
    given = str(settings.get(name, ""))
    rest = settings.get(more, "")
    rest = "-".join(map(str, rest)) if isinstance(rest, list) else str(rest)
    title = ALGORITHMS.title(given) if name == "algorithm.name" else _NAMES.get(given, given)
    return " ".join(filter(None, (title, rest)))


def _text(value: Any) -> str:
    """Return a value as text, numbers with ten digits."""
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10_000:
        return f"{value:,}"
    return json.dumps(value, default=str).strip('"')


def _words_apart(keys: Sequence[str]) -> dict[str, str]:
    """Return words for each key, preceded by the section where they would be ambiguous."""
    counts = Counter(map(_words, keys))
    return {key: _words(key, section=counts[_words(key)] > 1) for key in keys}


def _words(key: str, section: bool = False) -> str:
    if key in _WORDS and not section:
        return _WORDS[key]
    first, *rest = key.split(".")
    parts = [part for part in rest if not part.endswith("_kwargs") or len(rest) == 1]
    if section or first not in _SECTIONS:
        parts = [first, *parts]
    return " ".join(parts).replace("_", " ")


def _phrase(key: str, words: str, text: str | None) -> str:
    """Return the phrase for a feature; ``text`` is None where the setting has no value."""
    if key in _NAMED:
        return text or ""
    if key == CHANGED:
        return text or "settings unchanged"
    if key in _COUNTED:
        unit = _COUNTED[key]
        if text is not None and " " in text:  # a schedule
            return f"{unit} {text}"
        return f"no limit of {unit}" if text is None else f"{text} {unit.removesuffix('s') if text == '1' else unit}"
    if key in _SWITCHES:
        return _SWITCHES[key][text != "true"]
    if text is None and "_kwargs." in key:
        return f"default {words}"
    if text is None or text == "false":
        return f"no {words}"
    return words if text == "true" else f"{words} {text}"
