"""PolicyRunner: the forward pass against its twin, on all levels; actions, normalisation, noise, bad input."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import each_level, normals

from pyes import _core, reference

ACTIVATIONS = range(9)


def instructions(sizes: list[int], activation: int = 1, bias: bool = True) -> NDArray[np.int64]:
    """Return a multilayer perceptron whose last layer is linear, parameters in torch's order."""
    rows, offset = [], 0
    for k, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        last = k == len(sizes) - 2
        weights, offset = offset, offset + inputs * outputs
        rows.append([0, inputs, outputs, weights, offset if bias else -1, 0 if last else activation, -1, -1])
        offset += outputs if bias else 0
    return np.array(rows, np.int64)


def runner(sizes: list[int], activation: int = 1, seed: int = 0, **options: Any) -> _core.PolicyRunner:
    """Return a loaded runner with outputs of order 1."""
    settings = {"action": "identity", "low": None, "high": None, "action_shape": (sizes[-1],)} | options
    count = int(np.prod(settings["action_shape"]))
    for name, end in (("low", -1.0), ("high", 1.0)):
        settings[name] = np.full(count, end, np.float32) if settings[name] is None else settings[name]
    made = _core.PolicyRunner(instructions(sizes, activation), sizes[0], **settings)
    made.load(0.5 * normals(made.dim, seed))
    return made


def outputs_as(values: Any, **options: Any) -> _core.PolicyRunner:
    """Return a runner of one input whose outputs are its biases, ``values``."""
    n = len(values)
    made = _core.PolicyRunner(np.array([[0, 1, n, 0, n, 0, -1, -1]]), 1, **options)
    made.load(np.concatenate([np.zeros(n), values]).astype(np.float32))
    return made


def recurrent(op: int, inputs: int, units: int, biases: int, start: int = 0, activation: int = 0) -> list[int]:
    """Return a row of a recurrent layer whose parameters begin at ``start``, in torch's order."""
    rows = {1: 1, 2: 3, 3: 4}[op] * units
    second = start + rows * inputs
    bias = second + rows * units
    offsets = [-1 if biases < k else bias + (k - 1) * rows for k in (1, 2)]
    return [op, inputs, units, start, offsets[0], activation, second, offsets[1]]


def assert_equals_its_twin(
    made: _core.PolicyRunner, rows: NDArray[np.int64], observations: NDArray[np.float32]
) -> None:
    """Run two episodes, the second shorter, on the runner and on its NumPy twin: equal bits at every timestep.

    The runner packs theta and a slice in one pass, the twin is given their sum.
    """
    base, table, deviation = 0.5 * normals(made.dim, 3), normals(made.dim + 3, 4), np.abs(normals(made.dim, 5))
    theta = np.empty_like(base)
    reference.perturb(base, table, 3, -0.1, theta, deviation=deviation)
    made.load(base, table, 3, -0.1, deviation)
    twin = reference.PolicyNetwork(rows, theta)
    for steps in (len(observations), len(observations) // 2):
        made.begin_episode(0, 0, 0, 0)
        twin.reset()
        for observation in observations[:steps]:
            np.testing.assert_array_equal(made.forward(observation), twin.forward(observation))


@each_level
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_forward_equals_its_twin(level: str, activation: int) -> None:
    rows = instructions([13, 100, 48, 7], activation)
    assert_equals_its_twin(_core.PolicyRunner(rows, 13, action="argmax", level=level), rows, 3 * normals((20, 13)))


@each_level
@given(
    ops=st.lists(st.sampled_from([0, 1, 2, 3]), min_size=1, max_size=3),
    sizes=st.lists(st.one_of(st.integers(1, 40), st.sampled_from([63, 64, 65])), min_size=4, max_size=4),
    biases=st.integers(0, 2),
    relu=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_any_network_equals_its_twin(level: str, ops: list[int], sizes: list[int], biases: int, relu: bool) -> None:
    """Any stack of recurrent and linear layers, with a linear one behind it."""
    rows, width, dim = [], sizes[0], 0
    for op, units in zip(ops, sizes[1:], strict=False):
        if op:
            rows.append(recurrent(op, width, units, biases, dim, 1 + relu if op == 1 else 0))
            dim += {1: 1, 2: 3, 3: 4}[op] * units * (width + units + biases)
        else:
            rows.append([0, width, units, dim, dim + units * width, 1 + relu, -1, -1])
            dim += units * (width + 1)
        width = units
    rows.append([0, width, 2, dim, -1, 0, -1, -1])
    program = np.array(rows, np.int64)
    made = _core.PolicyRunner(program, sizes[0], action="argmax", level=level)
    assert made.dim == dim + 2 * width
    assert_equals_its_twin(made, program, normals((6, sizes[0])))


def test_begin_episode_clears_the_memory_and_nothing_else_does() -> None:
    made = _core.PolicyRunner(np.array([recurrent(3, 2, 4, 1)], np.int64), 2, action="argmax")
    theta, observation = normals(made.dim), np.ones(2, np.float32)
    made.load(theta)
    made.begin_episode(0, 0, 0, 0)
    first, second = made.forward(observation), made.forward(observation)
    assert (first != second).all()
    made.begin_episode(1, 2, 3, 4)
    np.testing.assert_array_equal(made.forward(observation), first)
    made.act(observation)  # one timestep, as forward is
    third = made.forward(observation)
    made.begin_episode(0, 0, 0, 0)
    np.testing.assert_array_equal([made.forward(observation) for _ in range(3)][2], third)


@pytest.mark.parametrize(
    "convert", [np.float64, np.float16, list, lambda x: np.repeat(x, 2)[::2], lambda x: x.reshape(2, 4)]
)
def test_act_takes_any_form_of_the_observation(convert: Any) -> None:
    made, observation = runner([8, 2]), (8 * normals(8)).round() / 8
    form = convert(observation) if convert is list or not isinstance(convert, type) else observation.astype(convert)
    np.testing.assert_array_equal(made.act(form), made.act(observation))


def test_act_takes_integer_and_read_only_observations() -> None:
    made, observation = runner([3, 2]), np.array([1, 0, 5], np.uint8)
    expected = made.act(observation.astype(np.float32))
    np.testing.assert_array_equal(made.act(observation), expected)
    frozen = observation.astype(np.float64)
    frozen.flags.writeable = False
    np.testing.assert_array_equal(made.act(frozen), expected)


def test_act_takes_a_discrete_observation() -> None:
    np.testing.assert_array_equal(runner([1, 2]).act(3), runner([1, 2]).act(np.array([3.0])))


@pytest.mark.parametrize("observation", [np.zeros(7, np.float32), np.zeros(9), [1.0], np.zeros((8, 8))])
def test_act_wrong_size_says_got_and_expected(observation: Any) -> None:
    with pytest.raises(ValueError, match=r"observation: got \d+ values, expected 8"):
        runner([8, 2]).act(observation)


def test_act_returns_a_new_array_each_time() -> None:
    made = runner([8, 2])
    first = made.act(np.zeros(8, np.float32))
    kept = first.copy()
    second = made.act(np.ones(8, np.float32))
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, kept)
    assert first.dtype == np.float32


def test_act_keeps_the_shape_of_the_action_space() -> None:
    assert runner([8, 6], action_shape=(2, 3)).act(np.zeros(8)).shape == (2, 3)


@pytest.mark.parametrize(
    ("values", "index"),
    [([1, 3, 2], 1), ([3, 3, 2], 0), ([np.nan, -1, -2], 1), ([np.nan] * 3, 0), ([-np.inf, np.nan, 1], 2), ([5], 0)],
)
def test_argmax_worked_values(values: list[float], index: int) -> None:
    action = outputs_as(values, action="argmax", action_start=10).act([0.0])
    assert action == 10 + index
    assert type(action) is int


def test_clip_worked_values() -> None:
    low, high = np.array([-1, -1, -1, -np.inf], np.float32), np.array([1, 1, 2, np.inf], np.float32)
    made = outputs_as([-3, 0.5, 7, 1e9], action="clip", low=low, high=high, action_shape=(4,))
    np.testing.assert_array_equal(made.act([0.0]), np.array([-1, 0.5, 2, 1e9], np.float32))


def test_tanh_fills_the_box() -> None:
    low, high = np.array([-2, -2, 0], np.float32), np.array([2, 2, 10], np.float32)
    made = outputs_as([-50, 50, 0.3], action="tanh", low=low, high=high, action_shape=(3,))
    np.testing.assert_allclose(made.act([0.0]), [-2, 2, 5 + 5 * np.tanh(0.3)], rtol=1e-6)


def test_bins_reach_both_ends() -> None:
    low, high = np.array([-1, 0, 0], np.float32), np.array([1, 4, 1], np.float32)
    made = outputs_as([9, 0, 0, 0, 0, 9, 0, 9, 0], action="bins", bins=3, low=low, high=high, action_shape=(3,))
    np.testing.assert_array_equal(made.act([0.0]), [-1, 4, 0.5])


def test_normalize_centres_scales_and_clips() -> None:
    made = _core.PolicyRunner(np.array([[0, 3, 3, 0, -1, 0, -1, -1]]), 3, action="argmax")
    made.load(np.eye(3, dtype=np.float32).reshape(-1))
    mean, inverse_std = np.array([1, 2, 3], np.float32), np.array([1, 2, 100], np.float32)
    made.normalize(mean, inverse_std, 5.0)
    mean[:] = inverse_std[:] = np.nan  # copied when given
    np.testing.assert_array_equal(made.forward(np.array([0, 3, -4.0])), [-1, 2, -5])
    made.normalize(None, None, 5.0)
    np.testing.assert_array_equal(made.forward(np.array([0, 3, -40.0])), [0, 3, -40])


def test_collect_sums_raw_observations_in_act_alone() -> None:
    made, sums = runner([4, 2]), np.zeros((2, 4))
    made.normalize(normals(4), normals(4), 1.0)
    made.collect(sums)
    observations = normals((50, 4)).astype(np.float64)
    for observation in observations:
        made.act(observation)
        made.forward(observation)
    np.testing.assert_allclose(sums, [observations.sum(0), (observations**2).sum(0)])
    made.collect(None)
    made.act(observations[0])
    np.testing.assert_allclose(sums[0], observations.sum(0))


def test_action_noise_follows_the_stream_of_the_episode() -> None:
    made = outputs_as(
        np.zeros(3), action="identity", low=np.zeros(3, np.float32), high=np.zeros(3, np.float32), action_shape=(3,),
        action_noise=0.5,
    )  # fmt: skip
    bits = np.empty(30, np.uint32)
    _core.stream_bits(11, 3, 5, 7, 2, bits)
    for _ in range(2):  # the stream begins anew with the episode
        made.begin_episode(11, 5, 7, 2)
        actions = np.concatenate([made.act([0.0]) for _ in range(10)])
        np.testing.assert_array_equal(actions, np.float32(0.5) * reference.normal_of_bits(bits))
    made.set_action_noise(False)
    np.testing.assert_array_equal(made.act([0.0]), 0)
    made.set_action_noise(True)
    assert made.act([0.0]).all()


def test_action_noise_comes_before_the_clip_and_not_into_argmax() -> None:
    ends = {"low": np.full(1, -0.1, np.float32), "high": np.full(1, 0.1, np.float32), "action_shape": (1,)}
    clipped = outputs_as([0.0], action="clip", action_noise=10.0, **ends)
    actions = np.concatenate([clipped.act([0.0]) for _ in range(100)])
    assert np.abs(actions).max() == np.float32(0.1)
    assert {outputs_as([0.0, 1e-6], action="argmax", action_noise=10.0).act([0.0]) for _ in range(100)} == {1}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[6, 8, 2, 0, 16, 0, -1, -1]], r"instructions\[0\]: got op 6"),
        ([[0, 7, 2, 0, 16, 0, -1, -1]], r"instructions\[0\]: got 7 inputs, expected 8"),
        ([[0, 8, 3, 0, 24, 0, -1, -1], [0, 4, 2, 0, 0, 0, -1, -1]], r"instructions\[1\]: got 4 inputs, expected 3"),
        ([[0, 8, 0, 0, 16, 0, -1, -1]], r"instructions\[0\]: got 8 inputs and 0 outputs, expected at least 1 output"),
        ([[0, 8, 2, -1, 16, 0, -1, -1]], r"instructions\[0\]: got weight_offset -1, expected 0 <= weight_offset <"),
        ([[0, 8, 2, 0, -2, 0, -1, -1]], r"instructions\[0\]: got bias_offset -2, expected -1 <= bias_offset <"),
        ([[0, 8, 2, 2**62, 16, 0, -1, -1]], r"instructions\[0\]: got weight_offset 4611686018427387904"),
        ([[0, 8, 2**61, 0, -1, 0, -1, -1]], r"instructions\[0\]: got 8 inputs and 2305843009213693952 outputs"),
        ([[0, 8, 2, 0, 16, 9, -1, -1]], r"instructions\[0\]: got activation 9, expected 0 to 8"),
        (
            [[1, 8, 2, 0, 16, 1, -1, -1]],
            r"instructions\[0\]: got recurrent_offset -1, expected 0 <= recurrent_offset <",
        ),
        ([[3, 8, 2, 0, -1, 0, 64, -2]], r"instructions\[0\]: got recurrent_bias_offset -2"),
        ([[2, 8, 2, 0, -1, 1, 48, -1]], r"instructions\[0\]: got activation 1, expected 0 to 0"),
        (
            [[0, 8, 2**26, 0, -1, 0, -1, -1], *[[0, 2**26, 2**26, 0, -1, 0, -1, -1]] * 3],
            r"instructions: got layers of about \d+ weights, expected at most 281474976710656",
        ),
        (np.empty((0, 8)), r"instructions: got shape \(0, 8\)"),
        ([[0, 8, 2, 0, 16, 0]], r"instructions: got shape \(1, 6\), expected \(n, 8\)"),
    ],
)
def test_damaged_instructions_are_refused(rows: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _core.PolicyRunner(np.array(rows, np.int64), 8, action="argmax")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"action": "dance"}, "action: got 'dance', expected one of argmax, identity, clip, scale, tanh, bins"),
        ({"action": "clip", "action_shape": (3,)}, "got 2 outputs, expected 3"),
        ({"action": "bins", "bins": 1}, "bins: got 1, expected at least 2"),
        (
            {"action": "bins", "bins": 2**62 + 1, "action_shape": (2,)},
            f"bins: got {2**62 + 1}, expected at most the 2 outputs",
        ),
        ({"action": "tanh", "high": np.full(2, np.inf, np.float32)}, "high: got .*, expected finite bounds"),
        ({"action": "clip", "low": np.zeros(3, np.float32)}, "low: got length 3, expected 2"),
        ({"action_noise": -1.0}, "action_noise: got -1.0"),
        ({"level": "mmx"}, "level: got 'mmx'"),
    ],
)
def test_impossible_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        runner([8, 2], **options)


def test_load_wrong_length_says_got_and_expected() -> None:
    with pytest.raises(ValueError, match="theta: got length 17, expected 18"):
        runner([8, 2]).load(np.zeros(17, np.float32))
    with pytest.raises(ValueError, match=r"offset: got 3, expected 0 <= offset <= 2"):
        runner([8, 2]).load(np.zeros(18, np.float32), np.zeros(20, np.int8), 3, 0.1)


@pytest.mark.parametrize("dtype", [np.float32, np.uint16, np.int8])
@pytest.mark.parametrize("sizes", [[70, 65, 3], [1500, 130, 2], [1, 1]])
def test_load_of_a_slice_equals_perturb_and_load(sizes: list[int], dtype: Any) -> None:
    """Also where a row does not fit into what is perturbed at once."""
    made = runner(sizes)
    table, out = np.empty(made.dim + 9, dtype), np.empty(made.dim, np.float32)
    _core.fill_noise(table, 1, 0)
    for deviation in (None, normals(made.dim, 2)):
        _core.perturb(normals(made.dim), table, 5, 0.3, out, deviation=deviation)
        made.load(out)
        expected = made.packed
        made.load(normals(made.dim), table, 5, 0.3, deviation)
        np.testing.assert_array_equal(made.packed, expected)


def test_a_foreign_network_and_a_normalised_one_get_the_sum() -> None:
    def perturbed(dim: int) -> NDArray[np.float32]:
        out = np.empty(dim, np.float32)
        reference.perturb(normals(dim), normals(dim + 2, 1), 2, 0.5, out)
        return out

    class Kept:
        dim, outputs = 4, 1

        def load(self, theta: NDArray[np.float32]) -> None:
            self.theta = theta.copy()

    kept: Any = Kept()
    _core.PolicyRunner(kept, 3, action="argmax").load(normals(4), normals(6, 1), 2, 0.5)
    np.testing.assert_array_equal(kept.theta, perturbed(4))
    row = [0, 3, 2, 0, 6, 1, -1, -1, *[0] * 6, 8]
    made = _core.PolicyRunner(np.array([row]), 3, action="argmax", reference_batch=normals((5, 3)))
    made.load(perturbed(10))
    expected = made.packed
    made.load(normals(10), normals(12, 1), 2, 0.5)
    np.testing.assert_array_equal(made.packed, expected)


def test_collect_and_normalize_refuse_wrong_shapes() -> None:
    with pytest.raises(ValueError, match=r"sums: got shape \(2, 7\), expected \(2, 8\)"):
        runner([8, 2]).collect(np.zeros((2, 7)))
    with pytest.raises(ValueError, match="inverse_std: got length 7, expected 8"):
        runner([8, 2]).normalize(np.zeros(8, np.float32), np.zeros(7, np.float32), 5.0)


def test_no_environment_is_refused() -> None:
    with pytest.raises(TypeError, match="Argument 'environment' has incorrect type"):
        runner([8, 2]).run(None, 0, 10)  # type: ignore[arg-type]


def test_a_negative_number_of_inputs_is_refused() -> None:
    row = [0, -1, 2, 0, 2, 0, -1, -1, *[0] * 7]
    with pytest.raises(ValueError, match=r"instructions\[0\]: got -1 inputs"):
        _core.PolicyRunner(np.array([row]), -1, action="argmax")
