"""Layers for images, as torch modules: what torch lacks, and how they stand in a chain.

Owns the normalisation over a reference batch. Imports torch, so it is imported only where a network is made, never by a
worker. Invariant: a `VirtualBatchNorm` acts alike on one observation and on many.
"""

import torch
from torch import nn

#: Added to variances: that of the Atari policies of Salimans et al. 2017, and of ``PYES_NORMALIZE_EPSILON`` in C.
EPSILON = 1e-3


class Scale(nn.Module):
    """Divides its inputs, as 255 does those of images.

    Parameters
    ----------
    divisor    an integer, 1 or more

    Raises
    ------
    ValueError    the divisor is none
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
    """Batch normalisation by the statistics of a reference batch (Salimans, Goodfellow et al. 2016, section 3.4).

    ``(x - running_mean) / sqrt(running_var + 1e-3) * weight + bias`` for each channel. Its tensors have the names of
    torch's ``BatchNorm2d(channels, eps=1e-3)``, which gives the same in evaluation mode.

    Parameters
    ----------
    channels    of an image (..., channels, height, width), or, after a linear layer, numbers (..., channels)
    image       which of the two
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
        """Take mean and variance of each channel over float32 (count, channels[, height, width])."""
        variance, mean = torch.var_mean(batch, dim=(0, 2, 3) if self.image else 0, correction=0)
        self.running_mean.copy_(mean)
        self.running_var.copy_(variance)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return float32 of the shape of ``input``."""
        gain = self.weight / torch.sqrt(self.running_var + EPSILON)
        shift = self.bias - self.running_mean * gain
        return input * gain[:, None, None] + shift[:, None, None] if self.image else input * gain + shift

    def extra_repr(self) -> str:
        """Return the channels, for messages."""
        return str(len(self.weight))


def observe(network: nn.Sequential, batch: torch.Tensor) -> None:
    """Let all normalised layers of a network take their statistics over a reference batch (count, observation_size)."""
    with torch.inference_mode():
        for layer in network:
            if isinstance(layer, VirtualBatchNorm):
                layer.observe(batch)
            batch = layer(batch)
