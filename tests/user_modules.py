"""Torch modules as users write them; ``network.module`` is "user_modules:NAME", with this folder on the path."""

import os
import random
import sys
import time
from typing import Any

import numpy as np
import torch
from torch import nn

from pyes.networks.torch.layers import Recurrent, VirtualBatchNorm


class Plain(nn.Module):
    """Two layers that C knows, in a forward that it does not."""

    def __init__(self, observation_size: int, outputs: int, units: int = 8) -> None:
        super().__init__()
        self.hidden, self.output = nn.Linear(observation_size, units), nn.Linear(units, outputs)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return self.output(torch.tanh(self.hidden(observation)))


class Convolution(nn.Module):
    """Sees an image of one row, through features that are drawn at random, and drops out in training only."""

    def __init__(self, observation_size: int, outputs: int) -> None:
        super().__init__()
        self.observation_shape = (1, 1, observation_size)
        self.register_buffer("features", torch.randn(observation_size))
        self.convolution = nn.Conv2d(1, 4, (1, 2))
        self.output = nn.Sequential(nn.Dropout(0.5), nn.Linear(4 * (observation_size - 1), outputs))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        assert observation.shape == self.observation_shape
        return self.output(self.convolution(observation * self.features).flatten())


class Fatal(nn.Module):
    """A linear layer that fails, as ``fault`` says, where its first weight is above ``limit``."""

    def __init__(self, observation_size: int, outputs: int, fault: str = "", limit: float = 0.0) -> None:
        super().__init__()
        self.output = nn.Linear(observation_size, outputs)
        self.fault, self.limit = fault, limit

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        if self.fault and observation.any() and self.output.weight[0, 0] > self.limit:
            if self.fault == "exit":
                os._exit(3)
            if self.fault == "hang":
                time.sleep(3600)
            raise RuntimeError("the network is unhappy")
        return self.output(observation)


class Memory(nn.Module):
    """Remembers the episode."""

    def __init__(self, observation_size: int, outputs: int) -> None:
        super().__init__()
        self.cell, self.output = nn.LSTMCell(observation_size, 5), nn.Linear(5, outputs)
        self.reset()

    def reset(self) -> None:
        self.state: Any = None

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        self.state = self.cell(observation, self.state)
        return self.output(self.state[0])


class Chain(nn.Sequential):
    """Layers that C knows, and a forward that does more than call them."""

    def __init__(self, observation_size: int, outputs: int) -> None:
        super().__init__(nn.Linear(observation_size, outputs))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return -super().forward(observation)


def chain(observation_size: int, outputs: int, units: int = 8) -> nn.Sequential:
    return nn.Sequential(nn.Linear(observation_size, units), nn.ReLU(), nn.Linear(units, outputs))


def hooked(observation_size: int, outputs: int) -> nn.Sequential:
    made = chain(observation_size, outputs)
    made[0].register_forward_hook(lambda module, inputs, output: -output)
    return made


def recurrent(observation_size: int, outputs: int) -> nn.Sequential:
    """Return a memory of ours before a layer that C does not know."""
    return nn.Sequential(Recurrent(nn.GRUCell(observation_size, 5)), nn.LayerNorm(5), nn.Linear(5, outputs))


def hooked_cell(observation_size: int, outputs: int) -> nn.Sequential:
    cell = nn.GRUCell(observation_size, 5)
    cell.register_forward_hook(lambda module, inputs, output: 2 * output)
    return nn.Sequential(Recurrent(cell), nn.Linear(5, outputs))


def fixed(observation_size: int, outputs: int) -> nn.Sequential:
    """Return one with features whose weights are drawn at random and not trained."""
    features = nn.Linear(observation_size, 8)
    weight = features.weight.detach().clone()
    del features.weight
    features.register_buffer("weight", weight)
    return nn.Sequential(features, nn.Tanh(), nn.Linear(8, outputs))


class Quitting(nn.Module):
    def __init__(self, observation_size: int, outputs: int) -> None:
        super().__init__()
        sys.exit()


class Pair(nn.Linear):
    """Returns its outputs and a state, as layers with memory do."""

    def forward(self, observation: torch.Tensor) -> Any:
        return super().forward(observation), None


class Unforgetting(nn.Module):
    """Has a memory, and nothing that empties it."""

    def __init__(self, observation_size: int, outputs: int) -> None:
        super().__init__()
        self.cell, self.state = nn.GRUCell(observation_size, outputs), None

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        self.state = self.cell(observation, self.state)
        return self.state


class Hiding(nn.Module):
    """Has a memory that nothing empties, behind an output layer of zeros."""

    def __init__(self, observation_size: int, outputs: int) -> None:
        super().__init__()
        self.cell, self.output, self.state = nn.GRUCell(observation_size, 4), nn.Linear(4, outputs), None
        for parameter in self.output.parameters():
            nn.init.zeros_(parameter)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        self.state = self.cell(observation, self.state)
        return self.output(self.state)


class Counting(nn.Module):
    """Learns the mean of all observations that it ever saw."""

    def __init__(self, observation_size: int, outputs: int) -> None:
        super().__init__()
        self.linear, self.seen = nn.Linear(observation_size, outputs), 0
        self.register_buffer("mean", torch.zeros(observation_size))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        self.mean = self.mean + (observation - self.mean) / self.seen
        return self.linear(observation - self.mean)


class Dropping(nn.Linear):
    """Draws random numbers in its forward pass, in evaluation mode, too."""

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.dropout(observation, 0.5, True))


class Projecting(nn.Module):
    """Has a buffer of NumPy's and Python's random numbers."""

    def __init__(self, observation_size: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("projection", torch.tensor(np.random.randn(observation_size, 8) * random.random()).float())
        self.linear = nn.Linear(8, outputs)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return self.linear(observation @ self.projection)


def overridden(observation_size: int, outputs: int) -> nn.Module:
    made: Any = nn.Linear(observation_size, outputs)
    made.forward = lambda observation: -nn.Linear.forward(made, observation)
    return made


def frozen(observation_size: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(observation_size, 4).requires_grad_(False), nn.Linear(4, outputs))


def all_frozen(observation_size: int, outputs: int) -> nn.Module:
    return nn.Linear(observation_size, outputs).requires_grad_(False)


def double(observation_size: int, outputs: int) -> nn.Module:
    return nn.Linear(observation_size, outputs).double()


def too_many(observation_size: int, outputs: int) -> nn.Module:
    return nn.Linear(observation_size, outputs + 1)


def blind(observation_size: int, outputs: int) -> nn.Module:
    return nn.Linear(observation_size + 1, outputs)


def empty(observation_size: int, outputs: int) -> nn.Module:
    return nn.Identity()


def normalized(observation_size: int, outputs: int) -> nn.Module:
    hidden = nn.Linear(observation_size, 4, bias=False)
    return nn.Sequential(hidden, VirtualBatchNorm(4, image=False), nn.ReLU(), nn.Linear(4, outputs))


def unknown_normalized(observation_size: int, outputs: int) -> nn.Module:
    hidden = nn.Linear(observation_size, 4, bias=False)
    return nn.Sequential(hidden, VirtualBatchNorm(4, image=False), nn.Softplus(), nn.Linear(4, outputs))


def number(observation_size: int, outputs: int) -> int:
    return 3


class NotANumber(Plain):
    """Gives NaN, whatever its parameters are."""

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return super().forward(observation) * float("nan")
