"""The parts of a mixed action: from the numbers that the kernels choose to what an environment is given.

Owns the way from each action space to rules of the kernels, and back from their numbers to an action of that space.
Invariant: an assembled action is in its space, as far as the outputs are numbers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pyes.errors import ConfigError
from pyes.networks.observation import Keys, dotted

if TYPE_CHECKING:
    from gymnasium.spaces import Box, Space

#: The integers up to which float32 has all of them.
_WHOLE = 2**24


@dataclass(frozen=True)
class ActionPart:
    """A part of a mixed action.

    Parameters
    ----------
    keys : tuple
        Where it lies in the action: keys of dictionaries, indices of tuples; empty where it is the action itself.
    kind : str
        Discrete, MultiDiscrete, MultiBinary or Box.
    shape : tuple of int
    mode : str
        argmax, sign (1 where an output is above 0, else 0), or the mode of a Box, see `ActionDecoder`.
    dtype : str
    choices, start : tuple of int
        Of argmax: how many values each component has, and the first of them.
    low, high : tuple of float
        Of a Box: bounds of each component, infinite where there is none.
    bins : int
        Values of each component, for bins only.
    """

    keys: Keys
    kind: str
    shape: tuple[int, ...]
    mode: str
    dtype: str = "int64"
    choices: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    bins: int = 0

    @classmethod
    def of_choices(cls, keys: Keys, space: "Space[Any]") -> "ActionPart":
        """Return the part of a space whose components each are one of a few values.

        Raises
        ------
        ConfigError
            The space is of a kind that has no such components, or has none of them.
        """
        from gymnasium import spaces

        shape, dtype = tuple(map(int, space.shape or ())), str(space.dtype)
        if space.shape is not None and math.prod(shape) == 0:
            raise ConfigError(f"the space {space} has no components")
        match space:
            case spaces.Discrete():
                return cls(keys, "Discrete", shape, "argmax", dtype, (int(space.n),), (int(space.start),))
            case spaces.MultiDiscrete():
                values = tuple(space.nvec.ravel().tolist()), tuple(space.start.ravel().tolist())
                return cls(keys, "MultiDiscrete", shape, "argmax", dtype, *values)
            case spaces.MultiBinary():
                return cls(keys, "MultiBinary", shape, "sign", dtype)
        raise ConfigError(
            f"got a {type(space).__name__}, expected Discrete, Box, MultiDiscrete, MultiBinary, or a Tuple or Dict of "
            "these; wrap the environment so that it takes one of them"
        )

    @classmethod
    def of_box(cls, keys: Keys, space: "Box", mode: str, bins: int) -> "ActionPart":
        """Return the part of a Box; integers are rounded.

        Raises
        ------
        ConfigError
            It has integers so large, or without bounds, that float32 does not have all of them.
        """
        low, high = (tuple(float(bound) for bound in side.ravel()) for side in (space.low, space.high))
        if np.issubdtype(space.dtype, np.integer) and not all(abs(bound) <= _WHOLE for bound in low + high):
            raise ConfigError(
                f"the space {space} has integers beyond {_WHOLE:,}, which float32 does not have; use floats"
            )
        shape = tuple(int(size) for size in space.shape)
        bins = bins if mode == "bins" else 0
        return cls(keys, "Box", shape, mode, str(space.dtype), low=low, high=high, bins=bins)

    @property
    def name(self) -> str:
        """Its name: the keys, with dots between; empty where it is the action itself."""
        return dotted(self.keys)

    @cached_property
    def components(self) -> int:
        """Numbers that the kernels choose for it."""
        return math.prod(self.shape)

    @property
    def widths(self) -> tuple[int, ...]:
        """Network outputs of each component."""
        return self.choices or (self.bins or 1,) * self.components

    @property
    def bounds(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Lower and upper bounds of each component."""
        none = (math.inf,) * self.components
        return (self.low, self.high) if self.kind == "Box" else (tuple(-bound for bound in none), none)

    def action(self, numbers: NDArray[np.float32]) -> Any:
        """Return the part for its numbers, float32 (components,): an int, or a new array."""
        if self.kind == "Discrete":
            return self.start[0] + int(numbers[0])
        if self.kind == "Box":
            values = numbers if np.issubdtype(self.dtype, np.floating) else np.nan_to_num(np.rint(numbers))
            # In float32 a bound may lie outside of that in another type. Of integers there are none beyond the bounds.
            if self.mode != "identity" or not np.issubdtype(self.dtype, np.floating):
                values = np.clip(values.astype(np.float64), self.low, self.high)
        else:
            values = numbers.astype(np.int64) + (np.array(self.start) if self.start else 0)
        return values.astype(self.dtype).reshape(self.shape)

    def to_dict(self) -> dict[str, Any]:
        """Return the part as JSON values; an infinite bound is null."""
        values = {"name": self.name} | {field.name: getattr(self, field.name) for field in fields(self)}
        for key in ("low", "high"):
            values[key] = [bound if math.isfinite(bound) else None for bound in values[key]]
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ActionPart":
        """Rebuild what ``to_dict`` gave; KeyError, TypeError or ValueError when the values are damaged."""
        return cls(
            keys=tuple(values["keys"]),
            kind=str(values["kind"]),
            shape=tuple(map(int, values["shape"])),
            mode=str(values["mode"]),
            dtype=str(np.dtype(values["dtype"])),
            choices=tuple(map(int, values["choices"])),
            start=tuple(map(int, values["start"])),
            low=tuple(-math.inf if bound is None else float(bound) for bound in values["low"]),
            high=tuple(math.inf if bound is None else float(bound) for bound in values["high"]),
            bins=int(values["bins"]),
        )


class Node(Protocol):
    """A part, or what holds some."""

    def action(self, numbers: NDArray[np.float32]) -> Any:
        """Return its action for all numbers of the whole one."""


@dataclass(frozen=True)
class _Leaf:
    part: ActionPart
    where: slice

    def action(self, numbers: NDArray[np.float32]) -> Any:
        return self.part.action(numbers[self.where])


@dataclass(frozen=True)
class _Branch:
    """A dictionary, or with integers as keys a tuple."""

    nodes: dict[str | int, Node]

    def action(self, numbers: NDArray[np.float32]) -> Any:
        actions = {key: node.action(numbers) for key, node in self.nodes.items()}
        return tuple(actions.values()) if 0 in actions else actions


def tree_of(parts: Sequence[ActionPart]) -> Node:
    """Return the tree that assembles an action of parts, which are in the order of their numbers."""
    leaves, start = [], 0
    for part in parts:
        leaves.append((part.keys, _Leaf(part, slice(start, start + part.components))))
        start += part.components
    return _tree(leaves)


def _tree(leaves: list[tuple[Keys, _Leaf]]) -> Node:
    (keys, leaf), *others = leaves
    if not keys and not others:
        return leaf
    grouped: dict[str | int, list[tuple[Keys, _Leaf]]] = {}
    for (key, *rest), each in leaves:
        grouped.setdefault(key, []).append((tuple(rest), each))
    return _Branch({key: _tree(group) for key, group in grouped.items()})
