"""PolicyRunner and the optimisers against torch, where it is installed."""

import itertools

import numpy as np
import pytest
from strategies import normals

from pyes import _core
from tests.core.test_optimizers import adam_path
from tests.core.test_policy import instructions, recurrent

torch = pytest.importorskip("torch")

ACTIVATIONS = {
    0: torch.nn.Identity(),
    1: torch.nn.Tanh(),
    2: torch.nn.ReLU(),
    3: torch.nn.Sigmoid(),
    4: torch.nn.ELU(),
    5: torch.nn.LeakyReLU(),
    6: torch.nn.SiLU(),
    7: torch.nn.GELU(approximate="tanh"),
    8: torch.nn.Softsign(),
}
CELLS = {1: torch.nn.RNN, 2: torch.nn.GRU, 3: torch.nn.LSTM}


def module(sizes: list[int], activation: int, bias: bool = True) -> "torch.nn.Sequential":
    layers = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [torch.nn.Linear(inputs, outputs, bias=bias), ACTIVATIONS[activation]]
    return torch.nn.Sequential(*layers[:-1])


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("sizes", [[8, 2], [1, 1], [3, 17, 5], [8, 64, 64, 4], [24, 100, 33, 70]])
def test_forward_against_torch(activation: int, bias: bool, sizes: list[int]) -> None:
    torch.manual_seed(0)
    network = module(sizes, activation, bias)
    theta = torch.cat([p.detach().reshape(-1) for p in network.parameters()]).numpy()
    made = _core.PolicyRunner(instructions(sizes, activation, bias), sizes[0], action="argmax")
    made.load(theta)
    assert (made.dim, made.observation_size, made.outputs) == (len(theta), sizes[0], sizes[-1])
    for observation in 2 * normals((20, sizes[0])):
        expected = network(torch.tensor(observation)).detach().numpy()
        np.testing.assert_allclose(made.forward(observation), expected, atol=1e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_against_torch_over_their_range(activation: int) -> None:
    """Dense in the centre, out to where exp would overflow, infinities and NaN."""
    wide = [np.inf, -np.inf, np.nan, 0, -0.0, 1e-30, 1e30, -1e30]
    x = np.concatenate([np.linspace(-12, 12, 20_001), np.linspace(-200, 200, 2001), wide]).astype(np.float32)
    made = _core.PolicyRunner(np.array([[0, 1, 1, 0, -1, activation, -1, -1]]), 1, action="argmax")
    made.load(np.ones(1, np.float32))
    ours = np.array([made.forward(value[None])[0] for value in x])
    expected = ACTIVATIONS[activation](torch.tensor(x)).numpy()
    # torch's own ELU and GELU at infinity differ between builds; ours keep the limits or give NaN.
    checked = np.isfinite(x)
    np.testing.assert_allclose(ours[checked], expected[checked], atol=1e-6, rtol=1e-6)
    assert np.isnan(ours[np.isnan(x)]).all()


@pytest.mark.parametrize("op", CELLS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
def test_recurrent_layers_against_torch_over_an_episode(op: int, layers: int, bias: bool) -> None:
    torch.manual_seed(op)
    module = CELLS[op](5, 16, num_layers=layers, bias=bias)
    theta = torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    biases = 2 if bias else 0
    rows = [recurrent(op, 5, 16, biases, 0, int(op == 1))]
    first = {1: 1, 2: 3, 3: 4}[op] * 16 * (5 + 16 + biases)
    rows += [recurrent(op, 16, 16, biases, first, int(op == 1))] * (layers - 1)
    made = _core.PolicyRunner(np.array(rows, np.int64), 5, action="argmax")
    assert made.dim == len(theta)
    made.load(theta)
    observations = 2 * normals((200, 5))
    expected = module(torch.tensor(observations))[0].detach().numpy()
    made.begin_episode(0, 0, 0, 0)
    np.testing.assert_allclose([made.forward(each) for each in observations], expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adam_step_against_torch(weight_decay: float) -> None:
    start, gradients = normals(50), normals((30, 50), 1)
    theta = torch.tensor(start.copy(), requires_grad=True)
    optimizer = torch.optim.AdamW([theta], lr=0.01, weight_decay=weight_decay, maximize=True)
    for gradient in gradients:
        theta.grad = torch.tensor(gradient)
        optimizer.step()
    ours = adam_path(_core, start, gradients, (0.01, 0.9, 0.999, 1e-8, weight_decay))[-1]
    np.testing.assert_allclose(ours, theta.detach().numpy(), atol=1e-6)


@pytest.mark.slow
def test_sgd_step_against_torch() -> None:
    start, gradients = normals(50), normals((30, 50), 1)
    theta = torch.tensor(start.copy(), requires_grad=True)
    optimizer = torch.optim.SGD([theta], lr=0.01, momentum=0.9, maximize=True)
    ours, velocity = start.copy(), np.zeros_like(start)
    for gradient in gradients:
        theta.grad = torch.tensor(gradient)
        optimizer.step()
        _core.sgd_step(ours, gradient, velocity, 0.01, 0.9, 0.0)
    np.testing.assert_allclose(ours, theta.detach().numpy(), atol=2e-6)
