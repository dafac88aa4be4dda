"""What ``pyes tune`` searches: parameters, and the values that each may take.

Owns the form of the files of ``conf/tune`` and their checks. Knows neither the keys of the configuration, which are
checked as those of every run are, nor how values are chosen.

A parameter is the key of a setting, with an interval (``{low: 0.02, high: 0.5, log: true}``; of whole numbers if both
ends are written as such) or a list of values; or it is a name of its own, with the overrides that each of its choices
stands for (``small: network=mlp network.hidden=[16]``), in a shell's quotes where they have spaces.
"""

import json
import math
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyes.config.section import unknown_key
from pyes.errors import ConfigError

#: A value as it is chosen: a number of an interval, or the label of a choice.
Value = float | str
_DIGITS = 3  # of a number that is chosen: what lies between makes no difference, and a recipe is to be read


@dataclass(frozen=True)
class Interval:
    """Numbers from ``low`` to ``high``, chosen evenly, or evenly in their logarithm."""

    low: float
    high: float
    log: bool = False

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are chosen."""
        return isinstance(self.low, int) and isinstance(self.high, int)


@dataclass(frozen=True)
class Choices:
    """Labels, and the overrides that each stands for."""

    overrides: Mapping[str, tuple[str, ...]]


class Space:
    """The parameters of a search by name, in the order of their file."""

    def __init__(self, parameters: Mapping[str, Interval | Choices]) -> None:
        self.parameters = dict(parameters)

    @classmethod
    def read(cls, path: Path) -> "Space":
        """Read a file.

        Raises
        ------
        ConfigError
            It is missing, is not YAML, or has a parameter without values.
        """
        import yaml

        try:
            return cls.parse(yaml.safe_load(path.read_text(encoding="utf-8")), str(path))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror}); name a file of parameters") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: not YAML: {error}") from error

    @classmethod
    def parse(cls, values: Any, source: str) -> "Space":
        """Check the content of a file; ConfigError, which names the source, if it is wrong."""
        if not isinstance(values, dict) or not values:
            expected = "a mapping of parameters, as algorithm.sigma: {low: 0.02, high: 0.5, log: true}"
            raise ConfigError(f"{source}: got {values!r}, expected {expected}")
        space = cls({str(name): _parameter(f"{source}: {name}", str(name), value) for name, value in values.items()})
        setting: dict[str, str] = {}
        for name in space.parameters:
            for key in sorted(space.keys(name)):
                if key in setting:
                    raise ConfigError(f"{source}: {key} is set by {setting[key]} and by {name}; leave one of them out")
                setting[key] = name
        return space

    def without(self, given: Iterable[str]) -> "Space":
        """Return the space without the parameters that set a key, or its group, that is given."""
        keys = set(given)

        def is_free(name: str) -> bool:
            return not any(other == key or other.startswith(f"{key}.") for key in self.keys(name) for other in keys)

        return Space({name: each for name, each in self.parameters.items() if is_free(name)})

    def keys(self, name: str) -> set[str]:
        """Return the keys that a parameter sets."""
        parameter = self.parameters[name]
        if not isinstance(parameter, Choices):
            return {name}
        return {word.lstrip("+~").partition("=")[0] for words in parameter.overrides.values() for word in words}

    def to_mapping(self) -> dict[str, Any]:
        """Return the space as plain JSON values; `parse` is the inverse."""
        return {
            name: {label: shlex.join(words) for label, words in each.overrides.items()}
            if isinstance(each, Choices)
            else {"low": each.low, "high": each.high, "log": each.log}
            for name, each in self.parameters.items()
        }

    def overrides(self, values: Mapping[str, Value]) -> list[str]:
        """Return the overrides of chosen values."""
        words: list[str] = []
        for name, value in values.items():
            parameter = self.parameters[name]
            if isinstance(parameter, Choices):
                words += parameter.overrides[str(value)]
            else:
                text = shown(value)
                if not parameter.low <= float(text) <= parameter.high:  # rounded out of the interval
                    text = repr(value)
                words.append(f"{name}={text}")
        return words

    def samples(self) -> list[dict[str, Value]]:
        """Return values to check: together every choice, both ends of every interval and a number between them.

        That is an odd one where one end is even, or one with a fraction unless both ends are whole.
        """
        several: dict[str, list[Value]] = {}
        for name, each in self.parameters.items():
            if isinstance(each, Choices):
                several[name] = list(each.overrides)
            else:
                between = each.low + (1 if each.whole else 0.37 * min(1.0, each.high - each.low))
                several[name] = [each.low, each.high, between]
        count = max(map(len, several.values()))
        return [{name: values[min(k, len(values) - 1)] for name, values in several.items()} for k in range(count)]


def shown(value: Value) -> str:
    """Return a value as it is written: a whole number with all its digits, others with three.

    Of a number from 0.9 to 1, those are digits of what it lacks to 1, which is what counts in a moving average.
    """
    if isinstance(value, str | int):
        return str(value)
    if 0.9 < value < 1.0:
        return f"{1.0 - float(f'{1.0 - value:.{_DIGITS}g}'):.12g}"
    return f"{value:.{_DIGITS}g}"


def _parameter(where: str, name: str, value: Any) -> Interval | Choices:
    if isinstance(value, Sequence) and not isinstance(value, str):
        labels = [each if isinstance(each, str) else json.dumps(each) for each in value]
        return _choices(where, {label: (f"{name}={label}",) for label in labels}, len(labels))
    labelled = isinstance(value, dict) and all(isinstance(words, str) and "=" in words for words in value.values())
    if isinstance(value, dict) and {"low", "high"} & value.keys() and not labelled:
        return _interval(where, value)
    if isinstance(value, dict) and all(isinstance(words, str) for words in value.values()):
        try:
            overrides = {str(label): tuple(shlex.split(words)) for label, words in value.items()}
        except ValueError as error:
            raise ConfigError(f"{where}: got {value!r}, expected overrides ({error})") from error
        return _choices(where, overrides, len(value))
    expected = "a list of values, {low: A, high: B}, or labels with their overrides"
    raise ConfigError(f"{where}: got {value!r}, expected {expected}")


def _choices(where: str, words: Mapping[str, tuple[str, ...]], count: int) -> Choices:
    if count < 2 or len(words) < count:
        raise ConfigError(f"{where}: got {list(words)}, expected at least two choices, all different")
    return Choices(words)


def _number(value: Any) -> Any:
    """Return a value with text that is a number as that number: YAML takes 1e-4 and 1e4, without a point, for text."""
    try:
        number = float(value) if isinstance(value, str) else value
    except ValueError:
        return value
    whole = isinstance(value, str) and "." not in value and math.isfinite(number) and number == int(number)
    return int(number) if whole else number


def _interval(where: str, value: Mapping[str, Any]) -> Interval:
    if others := value.keys() - {"low", "high", "log"}:
        raise unknown_key(where, min(map(str, others)), {"low", "high", "log"})
    low, high, log = _number(value.get("low")), _number(value.get("high")), value.get("log", False)
    numbers = [each for each in (low, high) if isinstance(each, int | float) and not isinstance(each, bool)]
    if len(numbers) < 2 or not all(abs(each) <= sys.float_info.max for each in numbers) or not isinstance(log, bool):
        raise ConfigError(f"{where}: got {dict(value)}, expected numbers low and high, and log: true or false")
    if not low < high or (log and low <= 0):
        expected = "low < high, and low > 0 with log: true"
        raise ConfigError(f"{where}: got low {low} and high {high}, expected {expected}")
    interval = Interval(low, high, log)
    return interval if interval.whole else Interval(float(low), float(high), log)
