"""Memory as a torch layer: what a Sequential needs to hold recurrent cells.

Owns the state between two timesteps. Imports torch, so it is imported only where a network is made, never by a worker.
Invariant: after ``reset`` a layer gives what a new one with its parameters would give.
"""

from typing import Any

import torch
from torch import nn


class Recurrent(nn.Module):
    """One of torch's recurrent cells, as a layer that remembers from one call to the next, until it is reset.

    Parameters
    ----------
    cell    RNNCell, GRUCell or LSTMCell; one whose ``bias_hh`` is None has a single bias a gate
    """

    def __init__(self, cell: nn.RNNCellBase) -> None:
        super().__init__()
        self.cell = cell
        self._state: Any = None

    def reset(self) -> None:
        """Begin an episode: h, and c of an LSTM, are zeros again."""
        self._state = None

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return h after one timestep of float32 (..., inputs): float32 (..., outputs)."""
        self._state = self.cell(input, self._state)
        hidden: torch.Tensor = self._state[0] if isinstance(self.cell, nn.LSTMCell) else self._state
        return hidden
