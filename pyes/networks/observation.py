"""The observation encoder: how an observation of the environment becomes the numbers that the network reads.

Owns the order of the numbers, and which of them the policy sees; knows nothing of networks or of any task. Invariant:
a part that is read gives the numbers of `gymnasium.spaces.flatten`.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property, reduce
from operator import getitem
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pyes.errors import ConfigError
from pyes.system.text import reason

if TYPE_CHECKING:
    from gymnasium.spaces import Space

#: Where a part lies in an observation or an action: keys of dictionaries, indices of tuples.
Keys = tuple[str | int, ...]


def leaves(space: "Space[Any]", keys: Keys = (), *, names_only: bool = False) -> "Iterator[tuple[Keys, Space[Any]]]":
    """Yield the parts of a space that have no parts themselves, with the keys that lead to each.

    Raises
    ------
    ConfigError
        A key is neither a text nor an integer, which a policy's files could not keep; with ``names_only``, a key of a
        Dict is no text, or a space has no parts.
    """
    from gymnasium import spaces

    if not isinstance(space, spaces.Dict | spaces.Tuple):
        yield keys, space
        return
    if names_only and not len(space.spaces):
        raise ConfigError(f"{dotted(keys) or 'the space'} is an empty {type(space).__name__}; wrap the environment")
    for key, part in space.items() if isinstance(space, spaces.Dict) else enumerate(space):
        if not isinstance(key, str if names_only and isinstance(space, spaces.Dict) else str | int):
            raise ConfigError(f"a Dict space has the key {key!r}, expected texts as keys; wrap the environment")
        yield from leaves(part, (*keys, key), names_only=names_only)


def dotted(keys: Keys) -> str:
    """Return the name of a part."""
    return ".".join(map(str, keys))


@dataclass(frozen=True)
class ObservationPart:
    """A part of an observation, read as a fixed count of numbers.

    Parameters
    ----------
    keys : tuple
        What leads to it; empty where it is the whole observation.
    kind : str
        Class of its space: Box, MultiBinary, Discrete or MultiDiscrete.
    shape : tuple of int
    dtype : str
    choices, start : tuple of int
        Of Discrete and MultiDiscrete: how many values each component has, and the first of them. Each value is a number
        that is 1 when the component has it, else 0.
    low, high : float, tuple of float or None
        Bounds of a Box, one for all numbers where they are equal; None for no bound.
    """

    keys: Keys
    kind: str
    shape: tuple[int, ...]
    dtype: str
    choices: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    low: Any = None
    high: Any = None

    @classmethod
    def of(cls, keys: Keys, space: "Space[Any]") -> "ObservationPart | None":
        """Return the part that a space describes; None if it is no fixed count of numbers."""
        from gymnasium import spaces

        array = tuple(map(int, space.shape or ())), str(space.dtype)
        match space:
            case spaces.Box():
                return cls(keys, "Box", *array, low=_bound(space.low), high=_bound(space.high))
            case spaces.MultiBinary():
                return cls(keys, "MultiBinary", *array)
            case spaces.Discrete():
                return cls(keys, "Discrete", *array, (int(space.n),), (int(space.start),))
            case spaces.MultiDiscrete():
                values = tuple(space.nvec.ravel().tolist()), tuple(space.start.ravel().tolist())
                return cls(keys, "MultiDiscrete", *array, *values)
        return None

    @cached_property
    def size(self) -> int:
        """Numbers that it gives."""
        return sum(self.choices) if self.choices else math.prod(self.shape)

    def numbers(self, observation: Any) -> NDArray[Any]:
        """Return the numbers of the part in an observation: (size,)."""
        value = reduce(getitem, self.keys, observation)
        if not self.choices:
            given = np.ravel(value)
            values = given.astype(self.dtype, copy=False)
            if values.size != self.size:
                raise ValueError(f"it has {values.size} values, expected {self.size}")
            if values.dtype.kind in "iub" and given.dtype != values.dtype and (values != given).any():
                wrong = given[values != given][0]
                raise ValueError(f"it has the value {wrong}, which its type {self.dtype} does not have")
            return values
        chosen = np.ravel(value) - np.array(self.start)
        if (
            chosen.shape != (len(self.choices),)
            or (chosen < 0).any()
            or (chosen >= self.choices).any()
            or (chosen % 1).any()
        ):
            raise ValueError(f"it is {value!r}, which is none of its values")
        numbers = np.zeros(self.size, self.dtype)
        first = 0
        for each, count in zip(chosen.tolist(), self.choices, strict=True):
            numbers[first + int(each)] = 1
            first += count
        return numbers

    def to_dict(self) -> dict[str, Any]:
        """Return the part as JSON values."""
        values = {"name": dotted(self.keys), "size": self.size}
        values |= {field.name: getattr(self, field.name) for field in fields(self)}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ObservationPart":
        """Rebuild what ``to_dict`` gave; KeyError, TypeError or ValueError when the values are damaged."""
        return cls(
            *(tuple(values["keys"]), str(values["kind"]), tuple(map(int, values["shape"]))),
            str(np.dtype(values["dtype"])),
            *(tuple(map(int, values[key])) for key in ("choices", "start")),
            *(tuple(bound) if isinstance(bound := values[key], list) else bound for key in ("low", "high")),
        )


@dataclass(frozen=True)
class ObservationEncoder:
    """From an observation of the environment to the numbers that the policy's network reads.

    Parameters
    ----------
    parts : tuple of ObservationPart
        In the order of their numbers.
    hidden : tuple of int
        Which of the numbers the policy does not see.
    hide_by : str
        Whether those are left out ("remove") or always zero ("zero").
    """

    parts: tuple[ObservationPart, ...]
    hidden: tuple[int, ...] = ()
    hide_by: str = "remove"

    @cached_property
    def whole(self) -> int:
        """Numbers before some are hidden."""
        return sum(part.size for part in self.parts)

    @cached_property
    def _kept(self) -> NDArray[np.int64]:
        return np.delete(np.arange(self.whole), np.array(self.hidden, int))

    @classmethod
    def for_space(cls, space: "Space[Any]") -> "ObservationEncoder":
        """Return the encoder for an observation space; parts that are no numbers, such as texts, are left out."""
        parts = (ObservationPart.of(keys, part) for keys, part in leaves(space))
        return cls(tuple(part for part in parts if part is not None))

    @cached_property
    def size(self) -> int:
        """Numbers that the network reads."""
        return len(self._kept) if self.hide_by == "remove" else self.whole

    @cached_property
    def array(self) -> bool:
        """Whether observations are arrays as they come."""
        return len(self.parts) == 1 and self.parts[0].kind == "Box" and not self.parts[0].keys

    @cached_property
    def plain(self) -> bool:
        """Whether observations are arrays of which everything is seen, so that there is nothing to do."""
        return self.array and not self.hidden

    @property
    def ranges(self) -> dict[str, range]:
        """Which numbers, before some are hidden, belong to each named part."""
        found, start = {}, 0
        for part in self.parts:
            if part.keys:
                found[dotted(part.keys)] = range(start, start + part.size)
            start += part.size
        return found

    def __call__(self, observation: Any) -> Any:
        """Return the numbers of an observation, (size,) in a new array; a plain one as it is.

        Raises
        ------
        ValueError
            It is not one of the environment's; the message names the part.
        """
        return observation if self.plain else self.seen(self._flat(observation))

    def _flat(self, observation: Any) -> NDArray[Any]:
        if self.array:
            if observation is None:
                raise ValueError(f"observation: got None, expected {self.whole} values")
            flat = np.ravel(observation)
            if flat.size != self.whole:
                raise ValueError(f"observation: got {flat.size} values, expected {self.whole}")
            return flat
        numbers = []
        for part in self.parts:
            try:
                numbers.append(part.numbers(observation))
            except (ValueError, TypeError, LookupError) as error:
                name = f"part {dotted(part.keys)!r}" if part.keys else "it"
                kind = f"a {part.kind} of {part.size} numbers"
                message = f"observation: {name} cannot be read as {kind}: {reason(error)}"
                raise ValueError(f"{message}; expected an observation of the environment's space") from error
        return np.concatenate(numbers)

    def seen(self, whole: NDArray[Any]) -> NDArray[Any]:
        """Return what is seen of (..., whole) numbers, newly allocated: the environment may use its own array again."""
        if not self.hidden:
            return whole
        if self.hide_by == "remove":
            kept: NDArray[Any] = whole[..., self._kept]
            return kept
        seen = whole.copy()
        seen[..., list(self.hidden)] = 0
        return seen

    def to_dict(self) -> dict[str, Any]:
        """Return the encoder as JSON values."""
        parts = [part.to_dict() for part in self.parts]
        return {"size": self.size, "parts": parts, "hidden": list(self.hidden), "hide_by": self.hide_by}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ObservationEncoder":
        """Rebuild what ``to_dict`` gave; KeyError, TypeError or ValueError when the values are damaged."""
        parts = tuple(ObservationPart.from_dict(part) for part in values["parts"])
        return cls(parts, tuple(map(int, values["hidden"])), str(values["hide_by"]))


def _bound(bounds: NDArray[Any]) -> Any:
    """Return bounds as JSON values: one where all are equal, None where there is none."""
    flat = [float(bound) if math.isfinite(bound) else None for bound in bounds.ravel().tolist()]
    return flat[0] if flat and all(bound == flat[0] for bound in flat) else tuple(flat)
