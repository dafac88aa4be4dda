"""Layers that torch lacks: a scale, virtual batch normalisation, and recurrent cells that keep their state.

Owns the normalisation over a reference batch, and the state between two timesteps. Invariants: a `VirtualBatchNorm`
treats each observation of a batch like a single one; after ``reset`` a `Recurrent` acts like a new one.
"""

from typing import Any

import torch
from torch import nn

from pyes.networks.program import NORMALIZE_EPSILON


class Scale(nn.Module):
    """Divides its inputs, for example those of images by 255.

    Parameters
    ----------
    divisor : int
        At least 1.

    Raises
    ------
    ValueError
        The divisor is not a positive integer.
    """

    def __init__(self, divisor: int) -> None:
        super().__init__()
        if not isinstance(divisor, int) or divisor < 1:
            raise ValueError(f"divisor: got {divisor!r}, expected an integer >= 1")
        self.divisor = divisor

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return float32 of the shape of ``input``."""
        return input / self.divisor

    def extra_repr(self) -> str:
        """Return the divisor, for messages."""
        return str(self.divisor)


class VirtualBatchNorm(nn.Module):
    """Batch normalisation by the statistics of a reference batch (Salimans, Goodfellow et al. 2016, section 3.5).

    ``(x - running_mean) / sqrt(running_var + 1e-3) * weight + bias`` for each channel. Its tensors have the names of
    torch's ``BatchNorm2d(channels, eps=1e-3)``, which gives the same in evaluation mode.

    Parameters
    ----------
    channels : int
        Channels of an image (..., channels, height, width), or outputs (..., channels) of a linear layer.
    image : bool
        Whether inputs are images.
    """

    running_mean: torch.Tensor
    running_var: torch.Tensor

    def __init__(self, channels: int, image: bool = True) -> None:
        super().__init__()
        self.image = image
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def observe(self, batch: torch.Tensor) -> None:
        """Set the statistics to those of a batch, float32 (count, channels[, height, width])."""
        variance, mean = torch.var_mean(batch, dim=(0, 2, 3) if self.image else 0, correction=0)
        self.running_mean.copy_(mean)
        self.running_var.copy_(variance)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return float32 of the shape of ``input``."""
        gain = self.weight / torch.sqrt(self.running_var + NORMALIZE_EPSILON)
        shift = self.bias - self.running_mean * gain
        return input * gain[:, None, None] + shift[:, None, None] if self.image else input * gain + shift

    def extra_repr(self) -> str:
        """Return the channels, for messages."""
        return str(len(self.weight))


class Recurrent(nn.Module):
    """A layer around one of torch's recurrent cells that keeps its state between calls until it is reset.

    Parameters
    ----------
    cell : RNNCell, GRUCell or LSTMCell
        With ``bias_hh`` None it has a single bias per gate.
    """

    def __init__(self, cell: nn.RNNCellBase) -> None:
        super().__init__()
        self.cell = cell
        self._state: Any = None

    def reset(self) -> None:
        """Begin an episode: set the state to zeros."""
        self._state = None

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return h after one timestep of float32 (..., inputs): float32 (..., outputs)."""
        self._state = self.cell(input, self._state)
        hidden: torch.Tensor = self._state[0] if isinstance(self.cell, nn.LSTMCell) else self._state
        return hidden


def observe(network: nn.Sequential, batch: torch.Tensor) -> None:
    """Set the statistics of all normalised layers from a reference batch (count, observation_size)."""
    with torch.inference_mode():
        for layer in network:
            if isinstance(layer, VirtualBatchNorm):
                layer.observe(batch)
            batch = layer(batch)
