import itertools

import numpy as np
import pytest
import torch

from pyes.algorithms import optimizers
from pyes.config import OptimizerConfig
from pyes.errors import ConfigError

NAMES = ["adam", "sgd", "clipup"]


def _gradients(steps, dim=50):
    return np.random.default_rng(0).standard_normal((steps, dim)).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [("adam", {}), ("sgd", {"momentum": 0.9})])
def test_steps_match_torch(name, options):
    parameter = torch.nn.Parameter(torch.zeros(50))
    twin = {
        "adam": lambda: torch.optim.AdamW([parameter], lr=0.1, weight_decay=0.01, maximize=True),
        "sgd": lambda: torch.optim.SGD([parameter], lr=0.1, momentum=0.9, maximize=True),
    }[name]()
    decay = 0.01 if name == "adam" else 0.0  # torch's SGD knows no decoupled decay
    theta = np.zeros(50, np.float32)
    optimizer = optimizers.make(OptimizerConfig(name=name, **options), 50)
    for gradient in _gradients(30):
        optimizer.step(theta, gradient, 0.1, decay)
        parameter.grad = torch.from_numpy(gradient)
        twin.step()
    np.testing.assert_allclose(theta, parameter.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_clipup_moves_no_faster_than_its_max_speed():
    theta = np.zeros(50, np.float32)
    optimizer = optimizers.make(OptimizerConfig(name="clipup", max_speed=0.2), 50)
    gradient = _gradients(1)[0] * 1000
    speeds = []
    for _ in range(20):
        before = theta.copy()
        optimizer.step(theta, gradient, 0.1, 0.0)
        speeds.append(np.linalg.norm(theta - before))
    assert speeds[0] == pytest.approx(0.1, rel=1e-5)
    assert max(speeds) == pytest.approx(0.2, rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_state_survives_a_save_and_a_load_exactly(name):
    gradients = _gradients(10)
    first = optimizers.make(OptimizerConfig(name=name), 50)
    theta = np.zeros(50, np.float32)
    for gradient in gradients[:5]:
        first.step(theta, gradient, 0.1, 0.01)
    second, copy = optimizers.make(OptimizerConfig(name=name), 50), theta.copy()
    second.load_state_dict(first.state_dict())
    for gradient in gradients[5:]:
        first.step(theta, gradient, 0.1, 0.01)
        second.step(copy, gradient, 0.1, 0.01)
    np.testing.assert_array_equal(theta, copy)


@pytest.mark.parametrize(("name", "other"), [*itertools.permutations(NAMES, 2)])
def test_a_state_of_another_optimizer_is_refused(name, other):
    with pytest.raises(ConfigError, match="it is of another optimizer"):
        optimizers.make(name, 5).load_state_dict(optimizers.make(other, 5).state_dict())
