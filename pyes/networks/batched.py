"""Several observations or actions as one, with an axis in front: what vectorised environments give and take.

Knows no network. Invariant: what is joined has the parts of a single one, each with one more axis.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Any

import numpy as np

from pyes.networks.observation import ObservationEncoder


def count(observation: Any, encoder: ObservationEncoder | None, size: int) -> int | None:
    """Return how many observations this is, or None for a single one without an axis in front.

    Parameters
    ----------
    observation : object
    encoder : ObservationEncoder or None
        Of the policy.
    size : int
        Numbers that its network reads.
    """
    shape: tuple[int, ...] = (size,)
    value = observation
    if encoder is not None and encoder.parts:
        first = encoder.parts[0]
        try:
            shape, value = first.shape, reduce(getitem, first.keys, observation)
        except (LookupError, TypeError):  # the encoder says what is missing
            return None
    found = np.shape(value)
    return int(found[0]) if found and found[1:] == shape and len(found) == len(shape) + 1 else None


def item(observations: Any, index: int, encoder: ObservationEncoder | None) -> Any:
    """Return one of several observations, but for parts that are texts, which no policy reads."""
    if encoder is None or not any(part.keys for part in encoder.parts):  # a tuple is a list of observations then
        return observations[index]
    return _part(observations, index)


def _part(observations: Any, index: int) -> Any:
    if isinstance(observations, Mapping):
        return {key: _part(part, index) for key, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_part(part, index) for part in observations)
    return observations if isinstance(observations, str) else observations[index]


def joined(actions: Sequence[Any]) -> Any:
    """Return actions, at least one, as one."""
    first = actions[0]
    if isinstance(first, dict):
        return {key: joined([action[key] for action in actions]) for key in first}
    if isinstance(first, tuple):
        return tuple(joined(parts) for parts in zip(*actions, strict=True))
    return np.stack(actions)
