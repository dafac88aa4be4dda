"""The base of all sections of the configuration: checks of values, and texts of errors.

Owns the meaning of annotations (types, ranges, allowed names). Must not know any key.
"""

import dataclasses
import difflib
import json
import math
import numbers
import os
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Union

from pyes.config.schedule import NOTATION, Schedule, ScheduleError
from pyes.errors import ConfigError
from pyes.system.text import literal


@dataclass(frozen=True)
class Range:
    """Allowed range of a number, or of each number in a tuple; an open end excludes its bound."""

    minimum: float | None = None
    maximum: float | None = None
    open_minimum: bool = False
    open_maximum: bool = False

    def __contains__(self, value: float) -> bool:
        """Whether a number lies in the range."""
        if self.minimum is not None and (value < self.minimum or (self.open_minimum and value == self.minimum)):
            return False
        return self.maximum is None or not (value > self.maximum or (self.open_maximum and value == self.maximum))

    def __str__(self) -> str:
        """Return the range for a message, for example ``> 0 and <= 1``."""
        ends = []
        if self.minimum is not None:
            ends.append(f"{'>' if self.open_minimum else '>='} {self.minimum}")
        if self.maximum is not None:
            ends.append(f"{'<' if self.open_maximum else '<='} {self.maximum}")
        return " and ".join(ends)


Positive = Range(minimum=0, open_minimum=True)
NotNegative = Range(minimum=0)
AtLeastOne = Range(minimum=1)
AnyNumber = Range()
Share = Range(minimum=0, maximum=1, open_minimum=True)
Seed = Range(minimum=0, maximum=2**64 - 1)


@dataclass(frozen=True)
class Scheduled:
    """Allowed range of all values of a number that may be a schedule.

    Attributes
    ----------
    range : Range
        Of every value that the schedule takes.
    norm : bool
        Whether it may follow the norm of theta.
    whole : bool
        Whether the number is an integer, to which the values of a schedule are rounded.
    """

    range: Range
    norm: bool = False
    whole: bool = False

    def __contains__(self, value: float | str) -> bool:
        """Whether every value of a schedule lies in the range."""
        return not self._problem(value)

    def describe(self, value: object) -> str:
        """Return what is expected instead of a value."""
        allowed = f"{'an integer' if self.whole else 'a finite number'} {self.range}".rstrip()
        problem = self._problem(value) if isinstance(value, str) else ""
        return f"{allowed}, or {problem or self._notation}"

    @property
    def _notation(self) -> str:
        return "a schedule, as 'linear 20 to 100 in 2e6 timesteps'" if self.whole else NOTATION

    def _problem(self, value: float | str) -> str:
        try:
            schedule = Schedule.parse(value)
        except ScheduleError as error:
            return self._notation if str(error) == NOTATION else str(error)
        if schedule.kind == "norm" and not self.norm:
            return f"{self._notation} (only sigma and learning_rate follow a norm)"
        ends = (schedule.smallest,) if schedule.kind == "norm" else (schedule.smallest, schedule.largest)
        if self.whole and not all(abs(each) < 2**63 for each in ends):
            return f"{self._notation} with all values below 2**63"
        return "" if all(each in self.range for each in ends) else f"{self._notation} with all values {self.range}"


def schedules(config: "Section") -> dict[str, Schedule]:
    """Return the schedule of each field that may have one."""
    metadata = {name: typing.get_args(hint)[1:] for name, hint in _hints(type(config)).items()}
    names = [name for name, each in metadata.items() if each and isinstance(each[0], Scheduled)]
    return {name: Schedule.parse(getattr(config, name)) for name in names}


@dataclass(frozen=True)
class Section:
    """Base of all sections: checks and converts its fields, so that every section is valid."""

    #: Key of the section, used in messages.
    PATH: ClassVar[str] = ""
    #: Keys that users may expect in this section, and a hint for each.
    ELSEWHERE: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def kind(cls, values: Mapping[str, Any]) -> "type[Section]":
        """Return the class for these values, if the section has several kinds."""
        return cls

    @classmethod
    def where(cls, key: str) -> str:
        """Return a hint about a key that this section does not have, or an empty string."""
        return cls.ELSEWHERE.get(key, "")

    def __post_init__(self) -> None:
        """Check every field against its annotation, then combinations of fields."""
        for name, hint in _hints(type(self)).items():
            object.__setattr__(self, name, parse(hint, getattr(self, name), _join(self.PATH, name)))
        self.check()

    def check(self) -> None:
        """Reject invalid combinations of values."""


def to_mapping(config: Section) -> dict[str, Any]:
    """Return a config as nested dicts and lists of plain JSON values; `from_mapping` is the inverse."""
    return typing.cast(dict[str, Any], plain(dataclasses.asdict(config)))


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the sorted dotted keys in which two nested mappings differ, each with its old and new value."""
    old, new = flat(before), flat(after)
    keys = sorted(old.keys() | new.keys())
    return {key: (old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)}


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings to dotted keys."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        result |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {prefix + key: value}
    return result


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested mappings; values in ``changes`` replace those in ``base``."""
    result = dict(base)
    for key, value in changes.items():
        # Arguments of an environment are replaced as a whole.
        both = isinstance(value, Mapping) and isinstance(base.get(key), Mapping) and key != "env_kwargs"
        result[key] = merged(base[key], value) if both else value
    return result


def refusal(key: str, got: object, expected: str) -> ConfigError:
    """Return the one-line error with a key, its value and the expected one."""
    return ConfigError(f"{key or 'configuration'}: got {literal(got)}, expected {expected}")


def unknown_key(path: str, key: str, allowed: Iterable[str], what: str = "key", hint: str = "") -> ConfigError:
    """Return the one-line error for a key (or other name) that does not exist, with the allowed ones listed."""
    names = sorted(allowed)
    close = difflib.get_close_matches(key, names, n=1)
    hint = f"{hint}; " if hint else f"did you mean {_join(path, close[0])!r}? " if close else ""
    return ConfigError(f"unknown {what} {_join(path, key)!r}: {hint}allowed: {', '.join(names)}")


def _hints(section: type[Section]) -> dict[str, Any]:
    hints = typing.get_type_hints(section, include_extras=True)
    return {each.name: hints[each.name] for each in dataclasses.fields(section)}


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def parse(hint: Any, value: Any, path: str) -> Any:
    """Return the value converted to the annotated type, or raise a ConfigError that names its path."""
    if isinstance(hint, type) and issubclass(hint, Section):
        return _parse_section(hint, value, path)
    parsed = _match(hint, value)
    if parsed is _MISMATCH:
        raise refusal(path, value, _describe(hint, value))
    return parsed


def _parse_section(section: type[Section], value: Any, path: str) -> Section:
    if isinstance(value, section):
        kind = section.kind(vars(value))
        if not isinstance(value, kind):
            raise refusal(path, type(value).__name__, f"a {kind.__name__} or a mapping")
        return value
    if not isinstance(value, Mapping):
        raise refusal(path, value, f"a mapping with keys among: {', '.join(sorted(_hints(section.kind({}))))}")
    section = section.kind(value)
    allowed = _hints(section)
    for key in value:
        if key not in allowed:
            raise unknown_key(path, str(key), allowed, hint=section.where(str(key)))
    for each in dataclasses.fields(section):
        if each.name not in value and each.default is each.default_factory is dataclasses.MISSING:
            raise ConfigError(f"{_join(path, each.name)}: got no value, expected {_describe(allowed[each.name])}")
    return section(**value)


_MISMATCH = object()
_STORABLE = range(-(2**63), 2**64)  # integers that the journal and the messages of a cluster hold


def _match(hint: Any, value: Any) -> Any:
    """Return the value converted to the annotated type, or _MISMATCH."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        parsed = _match(arguments[0], value)
        return parsed if parsed is not _MISMATCH and parsed in arguments[1] else _MISMATCH
    if origin in (Union, types.UnionType):
        matches = (_match(option, value) for option in arguments)
        return next((each for each in matches if each is not _MISMATCH), _MISMATCH)
    if origin is Literal:
        return value if isinstance(value, str) and value in arguments else _MISMATCH
    if origin is tuple:
        return _match_tuple(arguments[0], value)
    if origin is dict:
        return dict(value) if isinstance(value, Mapping) and all(isinstance(k, str) for k in value) else _MISMATCH
    return _match_scalar(hint, value)


def _match_tuple(hint: Any, value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return _MISMATCH
    items = tuple(_match(hint, item) for item in value)
    return _MISMATCH if any(item is _MISMATCH for item in items) else items


def _match_scalar(hint: Any, value: Any) -> Any:
    if hint is types.NoneType:
        return None if value is None else _MISMATCH
    if hint is str and isinstance(value, os.PathLike):
        value = os.fspath(value)
    if hint in (bool, str):
        return value if isinstance(value, hint) else _MISMATCH
    if not _is_finite(value):
        return _MISMATCH
    if hint is float:
        try:
            return float(value)
        except OverflowError:  # an integer beyond them
            return _MISMATCH
    whole = int(value)  # accepts 1e6
    return whole if whole == value and whole in _STORABLE else _MISMATCH


def _is_finite(value: Any) -> bool:
    """Whether a value is a finite number, of Python or of NumPy."""
    return not isinstance(value, bool) and isinstance(value, numbers.Real) and value == value and abs(value) != math.inf


def _describe(hint: Any, value: object = None) -> str:
    """Return what an annotation allows, in words; of a schedule, what is wrong with ``value``."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated and isinstance(arguments[1], Scheduled):
        return arguments[1].describe(value)
    if origin is Annotated:
        return f"{_describe(arguments[0])} {arguments[1]}"
    if origin in (Union, types.UnionType):
        return " or ".join(_describe(option, value) for option in arguments)
    if origin is Literal:
        return repr(arguments[0]) if len(arguments) == 1 else f"one of {', '.join(map(repr, arguments))}"
    if origin is tuple:
        return f"a list, each item {_describe(arguments[0])}"
    if origin is dict:
        return "a mapping with string keys"
    return {bool: "true or false", int: "an integer", float: "a finite number", str: "a string"}.get(hint, "null")


JSON_MAPPING = (
    "a mapping of what JSON has: strings, numbers (integers of at most 64 bits), true, false, null, and lists and "
    "mappings of those"
)


def is_json(value: Any) -> bool:
    """Whether config.json and the journal, which has integers of 64 bits and texts in UTF-8, preserve a value."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
        return bool(json.loads(text, parse_int=_storable) == plain(value))
    except (TypeError, ValueError):
        return False


def _storable(text: str) -> int:
    value = int(text)
    if value not in _STORABLE:
        raise ValueError
    return value


def plain(value: Any) -> Any:
    """Convert a value to JSON types: mappings to dicts, tuples to lists."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value
