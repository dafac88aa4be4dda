"""Convolutions and virtual batch normalisation: C against torch and against its NumPy twin, bad rows refused."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import each_level, normals
from torch import nn

from pyes import _core, reference
from pyes.errors import ConfigError
from pyes.networks import ActionDecoder, Op, PolicySpec, Program, build
from pyes.networks.dqn import DQNConfig
from pyes.networks.torch.compiler import compile_module, flatten
from pyes.networks.torch.layers import Scale, VirtualBatchNorm, observe
from pyes.networks.torch.modules import module_of, policy_module

NORMALIZED = DQNConfig(channels=(5, 18), kernels=(4, 2), strides=(2, 1), hidden=(20,))
DQN = replace(NORMALIZED, virtual_batch_norm=False)
SHAPE = (3, 11, 9)


def images(count: int, shape: tuple[int, ...] = SHAPE, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, int(np.prod(shape))), np.uint8)


def spec_of(config: DQNConfig, shape: tuple[int, ...] = SHAPE) -> tuple[PolicySpec, NDArray[np.float32]]:
    return build(config, int(np.prod(shape)), ActionDecoder("argmax", 4), 0, 5.0, shape)


def torch_outputs(module: nn.Module, observations: NDArray[Any]) -> NDArray[np.float32]:
    with torch.inference_mode():
        return module(torch.tensor(observations, dtype=torch.float32)).numpy()


def assert_close(got: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


chains = st.tuples(
    st.tuples(st.integers(1, 5), st.integers(1, 12), st.integers(1, 12)),  # channels, height, width
    st.lists(
        st.tuples(st.one_of(st.integers(1, 35), st.sampled_from([16, 32])), st.integers(1, 4), st.integers(1, 3)),
        min_size=1,
        max_size=3,
    ),  # filters, kernel, stride
    st.booleans(),  # bias
)


def chain_of(shape: tuple[int, int, int], convolutions: list[tuple[int, int, int]], bias: bool) -> nn.Sequential:
    """Return convolutions whose kernels are cut to the image that they are given, and a linear layer behind them."""
    layers: list[nn.Module] = [nn.Unflatten(-1, shape)]
    image: Any = shape
    for filters, kernel, stride in convolutions:
        kernel = min(kernel, *image[1:])
        layers += [nn.Conv2d(image[0], filters, kernel, stride, bias=bias), nn.Tanh()]
        image = (filters, *((size - kernel) // stride + 1 for size in image[1:]))
    return nn.Sequential(*layers, nn.Flatten(-3), nn.Linear(int(np.prod(image)), 3))


@given(chain=chains, seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_any_convolutions_give_what_torch_gives_and_equal_bits_on_all_levels(chain: Any, seed: int) -> None:
    torch.manual_seed(seed)
    module = chain_of(*chain)
    program, theta = compile_module(module), flatten(module)
    observation = normals(program.observation_size, seed)
    twin = reference.PolicyNetwork(program.array(), theta).forward(observation)
    for level in _core.levels():
        made = _core.PolicyRunner(program.array(), program.observation_size, action="argmax", level=level)
        made.load(theta)
        np.testing.assert_array_equal(made.forward(observation), twin)
    assert_close(twin, torch_outputs(module, observation))


@each_level
@pytest.mark.parametrize("activation", ["identity", "relu", "gelu", "sigmoid"])
@pytest.mark.parametrize("floats", [False, True])
def test_normalized_network_equals_its_twin(level: str, activation: str, floats: bool) -> None:
    spec, theta = spec_of(replace(NORMALIZED, activation=activation))
    theta = theta + 0.2 * normals(len(theta), 1)
    batch = 200 * normals((7, 297)) if floats else images(7)
    made = spec.runner(level, reference_batch=batch)
    made.load(theta)
    twin = reference.PolicyNetwork(spec.program.array(), theta, batch)
    for observation in images(5, seed=2):
        np.testing.assert_array_equal(made.forward(observation), twin.forward(observation.astype(np.float32)))


@pytest.mark.parametrize("config", [DQN, NORMALIZED], ids=["plain", "normalised"])
def test_dqn_gives_what_its_torch_module_gives(config: DQNConfig) -> None:
    spec, theta = spec_of(config)
    batch = images(16, seed=1) if spec.normalized else None
    made = spec.runner(reference_batch=batch)
    theta = theta + 0.1 * normals(len(theta))
    made.load(theta)
    module = policy_module(spec.program, theta, reference_batch=batch)
    observations = images(10)
    assert_close(np.array([made.forward(each) for each in observations]), torch_outputs(module, observations))


def test_normalized_layers_have_mean_and_variance_of_the_batch_taken_out() -> None:
    """On the batch itself virtual batch normalisation is batch normalisation, as torch has it in training mode."""
    spec, theta = spec_of(NORMALIZED)
    theta = theta + 0.1 * normals(len(theta))
    batch = images(12)
    made = spec.runner(reference_batch=batch)
    made.load(theta)
    network = policy_module(spec.program, theta)
    plain: list[nn.Module] = []
    for layer in network:
        if isinstance(layer, VirtualBatchNorm):
            kind = nn.BatchNorm2d if layer.image else nn.BatchNorm1d
            norm = kind(len(layer.weight), eps=1e-3)
            norm.load_state_dict(layer.state_dict(), strict=False)
            layer = norm
        plain.append(layer)
    expected = nn.Sequential(*plain).train()(torch.tensor(batch, dtype=torch.float32)).detach().numpy()
    assert_close(np.array([made.forward(each) for each in batch]), expected)


def test_statistics_are_those_of_each_perturbed_policy() -> None:
    spec, center = spec_of(NORMALIZED)
    batch, observation, noise = images(12), images(1, seed=5)[0], 0.3 * normals(len(center))
    rebuilt, outputs = [], []
    for theta in (center + noise, center - noise):
        made = spec.runner(reference_batch=batch)
        made.load(center)  # its statistics must be replaced by the next load
        made.load(theta)
        module = policy_module(spec.program, theta, reference_batch=batch)
        rebuilt.append(next(layer.running_mean for layer in module if isinstance(layer, VirtualBatchNorm)).numpy())
        outputs.append(made.forward(observation))
        assert_close(outputs[-1], torch_outputs(module, observation))
    assert (rebuilt[0] != rebuilt[1]).all()
    assert (outputs[0] != outputs[1]).all()


def test_a_dead_channel_stays_finite() -> None:
    spec, theta = spec_of(NORMALIZED)
    made = spec.runner(reference_batch=np.zeros((4, 297), np.uint8))
    made.load(theta)
    assert np.isfinite(made.forward(images(1)[0])).all()


def test_dqn_of_mnih_et_al_has_their_sizes() -> None:
    spec, _ = build(DQNConfig(virtual_batch_norm=False), 28224, ActionDecoder("argmax", 18), 0, 5.0, (4, 84, 84))
    program = spec.program
    assert isinstance(program, Program)
    assert program.dim == 1_693_362
    assert [row.outputs for row in program.instructions[1:4]] == [32 * 20 * 20, 64 * 9 * 9, 64 * 7 * 7]


@pytest.mark.parametrize("config", [DQN, NORMALIZED], ids=["plain", "normalised"])
def test_image_program_survives_the_round_trip(config: DQNConfig) -> None:
    spec, _ = spec_of(config)
    assert isinstance(spec.program, Program)
    assert Program.from_dict(spec.program.to_dict()) == spec.program == compile_module(module_of(spec.program))
    scale, convolution, *_, linear, last = spec.program.to_dict()["instructions"]
    assert scale["op"] == "scale"
    assert convolution["kernel"] == 4
    assert ("scale_offset" in linear) is spec.normalized
    assert "kernel" not in last
    assert "scale_offset" not in last


def test_flatten_and_unflatten_of_a_user_compile_and_a_convolution_may_come_last() -> None:
    module = nn.Sequential(nn.Unflatten(-1, (2, 4, 5)), nn.Conv2d(2, 3, 2), nn.ReLU(), nn.Conv2d(3, 1, 3), nn.Flatten())
    program = compile_module(module)
    assert [row.op for row in program.instructions] == [Op.CONV, Op.CONV]
    made = _core.PolicyRunner(program.array(), 40, action="argmax")
    made.load(flatten(module))
    observation = normals(40)
    assert_close(made.forward(observation), torch_outputs(module, observation[None])[0])


def test_memory_may_follow_convolutions() -> None:
    rows = [[4, 18, 12, 0, 18, 2, -1, -1, 2, 3, 3, 2, 1, 0, -1], [1, 12, 4, 21, -1, 1, 69, -1, *[0] * 6, -1]]
    rows[0][3:5] = [0, -1]
    program = np.array(rows, np.int64)
    made = _core.PolicyRunner(program, 18, action="argmax")
    theta = normals(made.dim)
    made.load(theta)
    twin = reference.PolicyNetwork(program, theta)
    for observation in normals((4, 18)):
        np.testing.assert_array_equal(made.forward(observation), twin.forward(observation))


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([nn.Conv2d(1, 2, 3)], ["Conv2d", "no image", "Unflatten"]),
        ([nn.Unflatten(-1, (1, 5, 5)), nn.Conv2d(1, 2, 3, padding=1)], ["padding", "known layers"]),
        ([nn.Unflatten(-1, (1, 5, 5)), nn.Conv2d(1, 2, (3, 2))], ["(3, 2)", "known layers"]),
        ([nn.Unflatten(-1, (2, 5, 5)), nn.Conv2d(2, 2, 3, groups=2)], ["groups", "known layers"]),
        ([nn.Unflatten(-1, (1, 5, 5)), nn.Conv2d(1, 2, 6)], ["does not fit", "5 x 5"]),
        ([nn.Unflatten(-1, (1, 5, 5)), nn.Conv2d(1, 2, 2), nn.Linear(4, 2)], ["Linear", "put a Flatten"]),
        ([nn.Linear(3, 4), VirtualBatchNorm(4, image=False)], ["VirtualBatchNorm", "bias=False"]),
        ([nn.Linear(3, 4, bias=False), VirtualBatchNorm(5, image=False)], ["VirtualBatchNorm", "4 channels"]),
        ([VirtualBatchNorm(5)], ["VirtualBatchNorm", "right after"]),
        ([nn.Linear(3, 4), Scale(2)], ["do not fit"]),
    ],
)
def test_compile_refuses_images_it_cannot_run(layers: list[nn.Module], words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        compile_module(nn.Sequential(*layers))
    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in words), str(error.value)


@pytest.mark.parametrize("divisor", [0, -1, 2.5])
def test_scale_divides_by_integers(divisor: Any) -> None:
    with pytest.raises(ValueError, match=rf"^divisor: got {divisor}, expected an integer >= 1$"):
        Scale(divisor)


CONV = [4, 18, 12, 0, 24, 0, -1, -1, 2, 3, 3, 2, 1, 0, -1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({8: 3}, r"got an image of 3 x 3 x 3, expected 18 values"),
        ({11: 4}, r"got kernel 4 and stride 1 over an image of 2 x 3 x 3"),
        ({12: 0}, r"got kernel 2 and stride 0"),
        ({2: 13}, r"got 13 outputs, expected a multiple of 4"),
        ({14: -2}, r"got scale_offset -2, expected -1"),
        ({0: 5}, r"got 12 outputs and the divisor 0, expected 18"),
    ],
)
def test_damaged_image_instructions_are_refused(changes: dict[int, int], message: str) -> None:
    row = list(CONV)
    for column, value in changes.items():
        row[column] = value
    with pytest.raises(ValueError, match=r"instructions\[0\]: " + message):
        _core.PolicyRunner(np.array([row], np.int64), 18, action="argmax")


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (None, "got none, expected"),
        (np.zeros((2, 296), np.uint8), r"got shape \(2, 296\), expected \(n, 297\)"),
        (np.zeros((0, 297), np.uint8), r"expected \(n, 297\) with n >= 1"),
        (np.zeros(297, np.uint8), "got 1 dimensions"),
        (np.zeros((2, 297), np.float64), "got dtype float64, expected float32"),
    ],
)
def test_reference_batches_that_do_not_fit_are_refused(batch: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        spec_of(NORMALIZED)[0].runner(reference_batch=batch)
    with pytest.raises(ValueError, match="got one, expected"):
        spec_of(DQN)[0].runner(reference_batch=images(2))


def test_normalized_layer_behind_a_memory_is_refused() -> None:
    rows = [[1, 3, 4, 0, -1, 1, 12, -1, *[0] * 6, -1], [0, 4, 2, 28, -1, 0, -1, -1, *[0] * 6, 36]]
    with pytest.raises(ValueError, match="behind one with a memory"):
        _core.PolicyRunner(np.array(rows), 3, action="argmax", reference_batch=np.zeros((2, 3), np.float32))


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((99,), "observations of 99$"),
        ((), "observations of 297$"),
        ((3, 3, 33), "a kernel of 4, larger than its image of 3 x 33"),
    ],
)
def test_dqn_refuses_observations_that_are_no_images(shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build(DQN, 297, ActionDecoder("argmax", 4), 0, 5.0, shape)


def test_images_are_read_as_bytes_floats_and_of_any_shape() -> None:
    spec, theta = spec_of(DQN)
    made, image = spec.runner(), images(1)[0]
    made.load(theta)
    expected = made.forward(image.astype(np.float32))
    frozen = image.reshape(SHAPE)
    frozen.flags.writeable = False
    for form, _ in itertools.product((image, frozen, image.astype(np.float64), image.astype(np.int64)), range(2)):
        np.testing.assert_array_equal(made.forward(form), expected)


@pytest.mark.slow
def test_observing_leaves_statistics_in_the_torch_module() -> None:
    module = nn.Sequential(nn.Linear(3, 4, bias=False), VirtualBatchNorm(4, image=False))
    batch = torch.tensor(normals((9, 3)))
    observe(module, batch)
    with torch.inference_mode():
        outputs = module[0](batch)
        torch.testing.assert_close(module[1].running_mean, outputs.mean(0))
        torch.testing.assert_close(
            module(batch), (outputs - outputs.mean(0)) / (outputs.var(0, correction=0) + 1e-3).sqrt()
        )
