"""From torch modules to programs: what is compiled, and what is refused in one line."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import vector_to_parameters

from pyes.errors import ConfigError
from pyes.networks import ActionDecoder, Activation, PolicySpec
from pyes.networks.torch.compiler import compile_module, flatten
from pyes.networks.torch.layers import Recurrent


def _runner(module):
    program = compile_module(module)
    runner = PolicySpec(program, ActionDecoder("argmax", program.outputs), 5.0).runner()
    runner.load(flatten(module))
    return runner


def _torch_outputs(module, observation):
    with torch.no_grad():
        return module(torch.tensor(observation, dtype=torch.float32)).numpy()


ACTIVATIONS = [
    nn.Identity(), nn.Tanh(), nn.ReLU(), nn.Sigmoid(), nn.ELU(), nn.LeakyReLU(), nn.SiLU(), nn.GELU("tanh"),
    nn.Softsign(),
]  # fmt: skip


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_activation_matches_torch_over_its_range(activation):
    module = nn.Sequential(nn.Linear(1, 1), activation, nn.Linear(1, 1))
    vector_to_parameters(torch.tensor([1.0, 0.0, 1.0, 0.0]), module.parameters())
    runner = _runner(module)
    x = np.concatenate([np.linspace(-20, 20, 4001), [-1e4, -100, 100, 1e4]]).astype(np.float32)
    got = np.array([runner.forward(value[None])[0] for value in x])
    np.testing.assert_allclose(got, _torch_outputs(module, x[:, None])[:, 0], atol=1e-5, rtol=1e-5)


def test_theta_is_in_parameter_order():
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    vector_to_parameters(torch.arange(26.0), module.parameters())
    np.testing.assert_array_equal(flatten(module), np.arange(26))


def test_compile_opens_nested_sequentials_and_skips_identity():
    inner = nn.Sequential(nn.Identity(), nn.Linear(3, 4), nn.Tanh())
    module = nn.Sequential(inner, nn.Sequential(nn.Linear(4, 2)))
    program = compile_module(module)
    assert [row.activation for row in program.instructions] == [Activation.TANH, Activation.IDENTITY]
    observation = np.ones(3, np.float32)
    np.testing.assert_allclose(_runner(module).forward(observation), _torch_outputs(module, observation), atol=1e-6)


def test_compile_counts_a_layer_that_is_used_twice_once():
    shared = nn.Linear(3, 3)
    module = nn.Sequential(shared, nn.Tanh(), shared)
    program = compile_module(module)
    assert program.dim == 12
    observation = np.array([1, -2, 3], np.float32)
    np.testing.assert_allclose(_runner(module).forward(observation), _torch_outputs(module, observation), atol=1e-6)


class _Custom(nn.Module):
    def forward(self, x):
        return x


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.1)), ["Dropout", "known layers", "Linear"]),
        (nn.Sequential(nn.Linear(3, 4), _Custom()), ["_Custom", "known layers"]),
        (nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.2)), ["LeakyReLU", "0.2"]),
        (nn.Sequential(nn.Linear(3, 4), nn.GELU()), ["GELU", "tanh"]),
        (nn.Sequential(nn.Tanh(), nn.Linear(3, 4)), ["Tanh", "after a Linear or Conv2d"]),
        (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Tanh()), ["Tanh", "after a Linear or Conv2d"]),
        (nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 2)), ["do not fit", "5"]),
        (nn.Sequential(nn.Linear(3, 4).double()), ["float64", "float32"]),
        (
            nn.Sequential(nn.Linear(3, 4), nn.ModuleList([nn.Linear(4, 2), nn.Tanh()])),
            ["ModuleList cannot be compiled"],
        ),
        (nn.Sequential(), ["no linear layer"]),
        (nn.Sequential(Recurrent(nn.GRUCell(3, 4)), nn.Tanh()), ["Tanh", "after a Linear or Conv2d"]),
        (nn.Sequential(Recurrent(nn.LSTMCell(3, 4)), nn.Linear(5, 2)), ["do not fit", "5"]),
        (nn.Sequential(*2 * [Recurrent(nn.GRUCell(3, 3))]), ["GRUCell", "one memory", "several places"]),
    ],
)
def test_compile_refuses_what_it_cannot_run(module, words):
    with pytest.raises(ConfigError) as error:
        compile_module(module)
    message = str(error.value)
    assert "\n" not in message
    assert all(word in message for word in words), message
