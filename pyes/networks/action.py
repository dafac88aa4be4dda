"""The action decoder: turns a network's outputs into an action of the task.

Owns the rules for combining action spaces and action modes; knows nothing of networks or of any task. Invariant: every
decoder can be run, with finite bounds wherever its mode needs them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pyes.errors import ConfigError

if TYPE_CHECKING:
    from gymnasium.spaces import Box, Discrete, Space

MODES = ("argmax", "identity", "clip", "tanh", "bins")
BOX_MODES = MODES[1:]
NOISY_MODES = ("identity", "clip", "tanh")


@dataclass(frozen=True)
class ActionDecoder:
    """Turns network outputs into an action.

    Parameters
    ----------
    mode : str
        argmax: the index of the largest output, plus ``start``. identity, clip, tanh: the outputs unchanged, clipped to
        the bounds, or mapped to them by tanh. bins: each component has ``bins`` outputs, the largest of which selects
        one of ``bins`` evenly spaced values from ``low`` to ``high``, both included.
    outputs : int
        Number of network outputs.
    shape : tuple of int
        Shape of the action; () for argmax.
    low, high : tuple of float
        Bounds of each component in flat order, possibly infinite; empty for argmax.
    bins : int
        Number of values of each component, for bins only.
    start : int
        The first action, for argmax only.
    noise : float
        Standard deviation of the Gaussian noise added to the outputs before clip and tanh.

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

    def __post_init__(self) -> None:
        """Reject inconsistent parameters."""
        components = len(self.low)
        if self.mode not in MODES:
            raise ValueError(f"action mode {self.mode!r} is none of {', '.join(MODES)}")
        if self.mode != "argmax" and not components == len(self.high) == math.prod(self.shape) > 0:
            raise ValueError(
                f"{components} lower and {len(self.high)} upper bounds for an action of shape {self.shape}"
            )
        if self.mode == "bins" and self.bins < 2:
            raise ValueError(f"bins is {self.bins}, expected 2 or more")
        expected = {"argmax": max(self.outputs, 1), "bins": components * self.bins}.get(self.mode, components)
        if self.outputs != expected:
            raise ValueError(f"action mode {self.mode} takes {expected} outputs, got {self.outputs}")
        if self.mode in ("tanh", "bins") and not all(map(math.isfinite, self.low + self.high)):
            raise ValueError(f"action mode {self.mode} needs finite bounds")

    @classmethod
    def for_space(cls, space: "Space[Any]", action: str = "auto", bins: int = 0, noise: float = 0.0) -> "ActionDecoder":
        """Return the decoder for an action space.

        Parameters
        ----------
        space : Space
            Discrete, or Box of floating numbers.
        action : str
            auto (Discrete: argmax; Box: clip, or identity without bounds) or one of ``MODES``.
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
        elif isinstance(space, Box) and np.issubdtype(space.dtype, np.floating):
            decoder = _for_box(space, action, bins)
        else:
            raise ConfigError(
                f"task has the action space {space}, expected Discrete or a Box of floats; "
                "wrap the environment so that it takes one of these"
            )
        if noise and decoder.mode not in NOISY_MODES:
            raise ConfigError(
                f"task.action_noise={noise} does not go with the action mode {decoder.mode}; "
                f"set it to 0, or choose one of {', '.join(NOISY_MODES)}"
            )
        return cls(**{**decoder.__dict__, "noise": noise})

    def to_dict(self) -> dict[str, Any]:
        """Return the decoder as JSON values; an infinite bound is null."""
        return {
            **self.__dict__,
            "shape": list(self.shape),
            "low": [bound if math.isfinite(bound) else None for bound in self.low],
            "high": [bound if math.isfinite(bound) else None for bound in self.high],
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
        )


def _for_discrete(space: "Discrete", action: str) -> ActionDecoder:
    if action not in ("auto", "argmax"):
        raise ConfigError(f"task.action={action} does not fit the action space {space}; use auto or argmax")
    return ActionDecoder("argmax", outputs=int(space.n), start=int(space.start))


def _for_box(space: "Box", action: str, bins: int) -> ActionDecoder:
    low, high = (tuple(float(bound) for bound in side.ravel()) for side in (space.low, space.high))
    bounded = [math.isfinite(bound) for bound in low + high]
    mode = action if action != "auto" else "clip" if any(bounded) else "identity"
    if mode not in BOX_MODES:
        raise ConfigError(
            f"task.action={action} does not fit the action space {space}; use auto, {', '.join(BOX_MODES)}"
        )
    if not low:
        raise ConfigError(f"task has the action space {space}, which has no components")
    if (mode in ("tanh", "bins") and not all(bounded)) or (mode == "clip" and not any(bounded)):
        raise ConfigError(f"task.action={mode} needs bounds, but the action space is {space}; use auto or identity")
    if mode == "bins" and bins < 2:
        raise ConfigError(f"task.bins is {bins}, expected 2 or more with task.action=bins")
    outputs = len(low) * bins if mode == "bins" else len(low)
    shape = tuple(int(size) for size in space.shape)
    return ActionDecoder(mode, outputs, shape, low, high, bins=bins if mode == "bins" else 0)
