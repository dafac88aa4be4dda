"""The action decoder: turns a network's outputs into an action of the task.

Owns the rules for combining action spaces and action modes; knows nothing of networks or of any task. Invariant: every
decoder can be run, with finite bounds wherever its mode needs them.
"""

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pyes.errors import ConfigError
from pyes.networks.action_part import ActionPart, tree_of
from pyes.networks.observation import dotted, leaves

if TYPE_CHECKING:
    from gymnasium.spaces import Box, Discrete, Space

MODES = ("argmax", "identity", "clip", "scale", "tanh", "bins", "mixed")
BOX_MODES = MODES[1:-1]
NOISY_MODES = ("identity", "clip", "scale", "tanh")
SPANNING_MODES = ("scale", "tanh", "bins")  # whose actions are computed from the bounds, which must be finite
_WIDEST = 1e6  # bounds farther apart are no range that an environment means
_ORDER = 20.0  # bounds at most so far apart, and at least its inverse, are of the order of one


@dataclass(frozen=True)
class ActionDecoder:
    """Turns network outputs into an action.

    Parameters
    ----------
    mode : str
        argmax: the index of the largest output, plus ``start``. identity, clip, tanh: the outputs unchanged, clipped to
        the bounds, or mapped to them by tanh. scale: clipped to [-1, 1], which is mapped to the bounds. bins: each
        component has ``bins`` outputs, the largest of which selects one of ``bins`` evenly spaced values from ``low``
        to ``high``, both included. mixed: each of ``parts`` by its own mode.
    outputs : int
        Number of network outputs.
    shape : tuple of int
        Shape of the action; () for argmax and mixed.
    low, high : tuple of float
        Bounds of each component in flat order, possibly infinite; empty for argmax and mixed.
    bins : int
        Number of values of each component, for bins only.
    start : int
        The first action, for argmax only.
    noise : float
        Standard deviation of the Gaussian noise added to the outputs before clip, scale and tanh.
    parts : tuple of ActionPart
        Of a mixed action, in the order of their outputs.

    Raises
    ------
    ValueError
        The parameters are inconsistent.
    """

    mode: str
    outputs: int
    shape: tuple[int, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    bins: int = 0
    start: int = 0
    noise: float = 0.0
    parts: tuple[ActionPart, ...] = ()

    def __post_init__(self) -> None:
        """Reject inconsistent parameters."""
        components = len(self.low)
        if self.mode not in MODES:
            raise ValueError(f"action mode {self.mode!r} is none of {', '.join(MODES)}")
        if (self.mode == "mixed") != bool(self.parts):
            raise ValueError(f"action mode {self.mode} has {len(self.parts)} parts")
        if self.mode not in ("argmax", "mixed") and not components == len(self.high) == math.prod(self.shape) > 0:
            raise ValueError(
                f"{components} lower and {len(self.high)} upper bounds for an action of shape {self.shape}"
            )
        if self.mode == "bins" and self.bins < 2:
            raise ValueError(f"bins is {self.bins}, expected 2 or more")
        wanted = {
            "argmax": max(self.outputs, 1),
            "bins": components * self.bins,
            "mixed": sum(sum(part.widths) for part in self.parts),
        }
        expected = wanted.get(self.mode, components)
        if self.outputs != expected:
            raise ValueError(f"action mode {self.mode} takes {expected} outputs, got {self.outputs}")
        if self.mode in SPANNING_MODES and not all(map(math.isfinite, self.low + self.high)):
            raise ValueError(f"action mode {self.mode} needs finite bounds")

    @classmethod
    def for_space(cls, space: "Space[Any]", action: str = "auto", bins: int = 0, noise: float = 0.0) -> "ActionDecoder":
        """Return the decoder for an action space.

        Parameters
        ----------
        space : Space
            Discrete, Box, MultiDiscrete, MultiBinary, or a Tuple or Dict of these.
        action : str
            auto (Discrete: argmax; Box: clip, scale where the bounds are not of the order of one, identity without
            any) or the mode for Box parts.
        bins : int
            Number of values of each component, 2 or more; only for the mode bins.
        noise : float
            Standard deviation of the action noise; 0 or more.

        Raises
        ------
        ConfigError
            The space is of another kind, or does not fit the mode, bins or noise.
        """
        from gymnasium.spaces import Box, Discrete

        if isinstance(space, Discrete):
            decoder = _for_discrete(space, action)
        elif isinstance(space, Box) and space.dtype in (np.float32, np.float64):
            decoder = _for_box(space, action, bins)
        else:
            decoder = _for_parts(space, action, bins)
        modes = {part.mode for part in decoder.parts} or {decoder.mode}
        if noise and modes.isdisjoint(NOISY_MODES):
            raise ConfigError(
                f"task.action_noise={noise} does not go with the action mode {decoder.mode}; "
                f"set it to 0, or choose one of {', '.join(NOISY_MODES)}"
            )
        return replace(decoder, noise=noise)

    @property
    def bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Lower and upper bounds of all components: float32 (components,) each."""
        sides = (self.low, self.high)
        if self.parts:
            low, high = zip(*(part.bounds for part in self.parts), strict=True)
            sides = sum(low, ()), sum(high, ())
        return rounded_inside(*sides)

    def assemble(self, numbers: NDArray[np.float32]) -> Any:
        """Return the environment's action for the components of a mixed one, float32 (components,), newly allocated."""
        return self._tree.action(numbers)

    @cached_property
    def _tree(self) -> Any:
        return tree_of(self.parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the decoder as JSON values; an infinite bound is null."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        parts = values.pop("parts")
        return {
            **values,
            "shape": list(self.shape),
            "low": [bound if math.isfinite(bound) else None for bound in self.low],
            "high": [bound if math.isfinite(bound) else None for bound in self.high],
            **({"parts": [part.to_dict() for part in parts]} if parts else {}),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ActionDecoder":
        """Invert ``to_dict``; raises KeyError, TypeError or ValueError if the values are damaged."""
        return cls(
            mode=str(values["mode"]),
            outputs=int(values["outputs"]),
            shape=tuple(int(size) for size in values["shape"]),
            low=tuple(-math.inf if bound is None else float(bound) for bound in values["low"]),
            high=tuple(math.inf if bound is None else float(bound) for bound in values["high"]),
            bins=int(values["bins"]),
            start=int(values["start"]),
            noise=float(values["noise"]),
            parts=tuple(ActionPart.from_dict(part) for part in values.get("parts", ())),
        )


def rounded_inside(low: Sequence[float], high: Sequence[float]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return bounds as float32 (n,) each, rounded so that they are in a space with the exact ones."""
    exact_low, exact_high = np.array(low, np.float64), np.array(high, np.float64)
    least, most = exact_low.astype(np.float32), exact_high.astype(np.float32)
    least = np.where(least < exact_low, np.nextafter(least, np.float32(np.inf)), least)
    most = np.where(most > exact_high, np.nextafter(most, np.float32(-np.inf)), most)
    return least, most


def _for_discrete(space: "Discrete", action: str) -> ActionDecoder:
    if action not in ("auto", "argmax"):
        raise ConfigError(f"task.action={action} does not fit the action space {space}; use auto or argmax")
    return ActionDecoder("argmax", outputs=int(space.n), start=int(space.start))


def _for_box(space: "Box", action: str, bins: int) -> ActionDecoder:
    low, high = (tuple(float(bound) for bound in side.ravel()) for side in (space.low, space.high))
    bounded = [math.isfinite(bound) for bound in low + high]
    mode = _mode_of(low, high) if action == "auto" else action
    if mode not in BOX_MODES:
        raise ConfigError(
            f"task.action={action} does not fit the action space {space}; use auto, {', '.join(BOX_MODES)}"
        )
    if not low:
        raise ConfigError(f"task has the action space {space}, which has no components")
    if (mode in SPANNING_MODES and not all(bounded)) or (mode == "clip" and not any(bounded)):
        raise ConfigError(f"task.action={mode} needs bounds, but the action space is {space}; use auto or identity")
    if mode in SPANNING_MODES and max(map(operator.sub, high, low)) > float(np.finfo(np.float32).max):
        raise ConfigError(
            f"task.action={mode} needs bounds whose distance float32 has, but the action space is {space}; use clip"
        )
    if mode == "bins" and bins < 2:
        raise ConfigError(f"task.bins is {bins}, expected 2 or more with task.action=bins")
    outputs = len(low) * bins if mode == "bins" else len(low)
    shape = tuple(int(size) for size in space.shape)
    return ActionDecoder(mode, outputs, shape, low, high, bins=bins if mode == "bins" else 0)


def _mode_of(low: tuple[float, ...], high: tuple[float, ...]) -> str:
    """Return the mode for a Box of these bounds.

    A network's outputs are of the order of one and begin near 0. Bounds of that order are best left alone; elsewhere,
    all outputs would be one action.
    """
    spans = [upper - lower for lower, upper in zip(low, high, strict=True)]
    if not any(map(math.isfinite, low + high)):
        return "identity"
    if max(spans) > _WIDEST:  # some are infinite, or stand for that
        return "clip"
    fit = all(lower <= 0 <= upper for lower, upper in zip(low, high, strict=True))
    return "clip" if fit and min(spans) >= 1 / _ORDER and max(spans) <= _ORDER else "scale"


def _for_parts(space: "Space[Any]", action: str, bins: int) -> ActionDecoder:
    from gymnasium.spaces import Box

    found = list(leaves(space, names_only=True))
    boxes = any(isinstance(part, Box) for _, part in found)
    if action != "auto" and (action == "argmax") == boxes:
        others = f"auto, {', '.join(BOX_MODES)}" if boxes else "auto or argmax"
        raise ConfigError(f"task.action={action} does not fit the action space {space}; use {others}")
    parts = tuple(_part(keys, part, action, bins) for keys, part in found)
    if not parts:
        raise ConfigError(f"task has the action space {space}, which has no components")
    return ActionDecoder("mixed", sum(sum(part.widths) for part in parts), parts=parts)


def _part(keys: tuple[str | int, ...], space: "Space[Any]", action: str, bins: int) -> ActionPart:
    """Return a part of a mixed action; one that is a Box has the mode that it would have alone."""
    from gymnasium.spaces import Box

    try:
        if isinstance(space, Box):
            return ActionPart.of_box(keys, space, _for_box(space, action, bins).mode, bins)
        return ActionPart.of_choices(keys, space)
    except ConfigError as error:
        name = f"part {dotted(keys)!r} of the task's actions" if keys else "the task's actions"
        raise ConfigError(f"{name}: {error}") from error
