import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces
from pyes.networks.compiler import compile_module, flatten, load_theta
from pyes.networks.modules import PolicyModule, build_module, initial_theta, module_of, policy_module
from torch import nn

from pyes.config import NetworkConfig
from pyes.errors import ConfigError
from pyes.networks import ACTIVATIONS, ActionDecoder, Activation, Instruction, Op, PolicySpec, Program, build
from pyes.networks.recurrent import Recurrent


def _box(low, high, shape=(3,)):
    return spaces.Box(low, high, shape, np.float32)


def _program(*sizes, activation=Activation.IDENTITY):
    rows, start = [], 0
    for inputs, outputs in itertools.pairwise(sizes):
        rows.append(Instruction(Op.LINEAR, inputs, outputs, start, start + inputs * outputs, activation))
        start += (inputs + 1) * outputs
    return Program(tuple(rows), sizes[0], sizes[-1], start)


def _runner(module, head=None, clip=5.0):
    program = compile_module(module)
    head = head or ActionDecoder.for_space(_box(-np.inf, np.inf, (program.outputs,)))
    runner = PolicySpec(program, head, clip).runner()
    runner.load(flatten(module))
    return runner


def _torch_outputs(module, observation):
    with torch.no_grad():
        return module(torch.tensor(observation, dtype=torch.float32)).numpy()


# Without torch


def test_import_does_not_import_torch():
    code = "import sys, pyes, pyes.networks; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_acting_does_not_import_torch():
    code = """
import sys, numpy as np
from pyes.networks import ActionDecoder, Instruction, Policy, PolicySpec, Program
program = Program((Instruction(0, 4, 2, 0, 8, 1),), 4, 2, 10)
policy = Policy(PolicySpec(program, ActionDecoder("argmax", outputs=2), 5.0), np.ones(10, np.float32))
assert policy(np.zeros(4, np.float32)) == 0
sys.exit('torch' in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


# Heads


@pytest.mark.parametrize(
    ("space", "arguments", "mode", "outputs"),
    [
        (spaces.Discrete(4), {}, "argmax", 4),
        (spaces.Discrete(1), {"action": "argmax"}, "argmax", 1),
        (_box(-1, 1), {}, "clip", 3),
        (_box(-1, 1, (2, 3)), {"action": "tanh"}, "tanh", 6),
        (_box(-1, 1), {"action": "identity"}, "identity", 3),
        (_box(-1, 1), {"action": "bins", "bins": 5}, "bins", 15),
        (_box(-np.inf, np.inf), {}, "identity", 3),
        (_box(0, np.inf), {}, "clip", 3),
    ],
)
def test_head_for_space_chooses_mode_and_outputs(space, arguments, mode, outputs):
    head = ActionDecoder.for_space(space, **arguments)
    assert (head.mode, head.outputs) == (mode, outputs)
    assert ActionDecoder.from_dict(head.to_dict()) == head


@pytest.mark.parametrize(
    ("space", "arguments", "words"),
    [
        (spaces.Discrete(4), {"action": "clip"}, ["clip", "Discrete(4)", "argmax"]),
        (_box(-1, 1), {"action": "argmax"}, ["argmax", "Box", "tanh"]),
        (_box(-1, 1), {"action": "bins"}, ["task.bins", "0", "2 or more"]),
        (_box(-1, np.inf), {"action": "tanh"}, ["tanh", "bounds", "identity"]),
        (_box(-np.inf, np.inf), {"action": "clip"}, ["clip", "bounds", "identity"]),
        (_box(-np.inf, np.inf), {"action": "bins", "bins": 3}, ["bins", "bounds"]),
        (spaces.MultiDiscrete([2, 2]), {}, ["MultiDiscrete", "Discrete", "Box"]),
        (spaces.Box(0, 255, (3,), np.uint8), {}, ["uint8", "floats"]),
        (spaces.Discrete(4), {"noise": 0.1}, ["action_noise", "argmax"]),
    ],
)
def test_head_for_space_refuses_what_does_not_fit(space, arguments, words):
    with pytest.raises(ConfigError) as error:
        ActionDecoder.for_space(space, **arguments)
    message = str(error.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_head_dict_is_plain_json_where_bounds_are_infinite():
    head = ActionDecoder.for_space(_box(0, np.inf))
    assert head.to_dict()["high"] == [None] * 3
    assert ActionDecoder.from_dict(head.to_dict()) == head


def test_argmax_starts_at_the_first_action():
    head = ActionDecoder.for_space(spaces.Discrete(3, start=-1))
    module = nn.Sequential(nn.Linear(2, 3))
    actions = {_runner(module, head).act(x) for x in np.random.default_rng(0).normal(0, 9, (200, 2)).astype(np.float32)}
    assert actions <= {-1, 0, 1}
    assert len(actions) > 1


@pytest.mark.parametrize("mode", ["identity", "clip", "tanh", "bins"])
def test_box_actions_match_their_definition(mode):
    low, high = np.array([-1, 0, -3], np.float32), np.array([1, 5, 2], np.float32)
    head = ActionDecoder.for_space(spaces.Box(low, high, dtype=np.float32), mode, bins=4 if mode == "bins" else 0)
    module = nn.Sequential(nn.Linear(5, head.outputs))
    runner = _runner(module, head)
    for observation in np.random.default_rng(1).normal(0, 4, (50, 5)).astype(np.float32):
        y = runner.forward(observation)
        expected = {
            "identity": y,
            "clip": np.clip(y, low, high) if mode == "clip" else None,
            "tanh": low + (np.tanh(y) + 1) / 2 * (high - low) if mode == "tanh" else None,
            "bins": low + (high - low) * y.reshape(-1, 4).argmax(1) / 3 if mode == "bins" else None,
        }[mode]
        action = runner.act(observation)
        assert action.dtype == np.float32
        np.testing.assert_allclose(action, expected, atol=1e-5)


# Programs


def test_program_survives_the_round_trip():
    program = _program(4, 8, 2, activation=Activation.GELU)
    assert Program.from_dict(program.to_dict()) == program
    assert program.array().shape == (2, 15)
    assert len(program.to_dict()["instructions"][0]) == 6
    assert program.to_dict()["instructions"][0]["activation"] == "gelu"


def test_recurrent_program_survives_the_round_trip():
    program = compile_module(build_module(NetworkConfig("gru", hidden=(4, 3), double_bias=True), 2, 1))
    assert Program.from_dict(program.to_dict()) == program
    first, _, last = program.to_dict()["instructions"]
    assert first["recurrent_bias_offset"] > first["recurrent_offset"] > 0
    assert "recurrent_offset" not in last


@pytest.mark.parametrize("op", [Op.RNN, Op.GRU, Op.LSTM])
@pytest.mark.parametrize(
    "change",
    [
        {"recurrent_offset": -1},
        {"recurrent_offset": 10**6},
        {"recurrent_bias_offset": -2},
        {"recurrent_bias_offset": 10**6},
    ],
)
def test_program_refuses_a_cell_that_cannot_be_run(op, change):
    rows = op.blocks * 2
    row = Instruction(op, 4, 2, 0, -1, 0, recurrent_offset=4 * rows, recurrent_bias_offset=6 * rows)
    Program((row,), 4, 2, 7 * rows)
    with pytest.raises(ValueError, match=r"instruction 0 has its (recurrent weights|second bias) at"):
        Program((row._replace(**change),), 4, 2, 7 * rows)


def test_program_refuses_an_activation_inside_a_cell_that_has_its_own():
    row = Instruction(Op.LSTM, 1, 1, 0, -1, Activation.TANH, recurrent_offset=4)
    with pytest.raises(ValueError, match="LSTM with the activation tanh"):
        Program((row,), 1, 1, 8)


@pytest.mark.parametrize(
    "change",
    [
        {"weight_offset": -1},
        {"weight_offset": 3},
        {"bias_offset": 9},
        {"bias_offset": -2},
        {"inputs": 5},
        {"outputs": 0},
        {"op": 99},
        {"activation": 99},
    ],
)
def test_program_refuses_what_cannot_be_run(change):
    row = Instruction(Op.LINEAR, 4, 2, 0, 8, 0)
    with pytest.raises(ValueError, match=r".+"):
        Program((row._replace(**change),), 4, 2, 10)


def test_spec_refuses_a_head_that_takes_other_outputs():
    with pytest.raises(ValueError, match="2 outputs"):
        PolicySpec(_program(4, 2), ActionDecoder("argmax", outputs=3), 5.0)


def test_spec_survives_the_round_trip():
    spec = PolicySpec(_program(4, 8, 3), ActionDecoder.for_space(_box(-1, 1), noise=0.1), 10.0)
    assert PolicySpec.from_dict(spec.to_dict()) == spec


# Modules and their compilation


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_mlp_matches_torch(activation, bias):
    config = NetworkConfig("mlp", hidden=(33, 17), activation=activation, bias=bias, init="torch")
    torch.manual_seed(0)
    module = build_module(config, 11, 3)
    runner = _runner(module)
    for observation in np.random.default_rng(0).normal(0, 3, (100, 11)).astype(np.float32):
        np.testing.assert_allclose(
            runner.forward(observation), _torch_outputs(module, observation), atol=1e-5, rtol=1e-5
        )


RECURRENT = [
    pytest.param(NetworkConfig("lstm", hidden=(16,)), id="lstm"),
    pytest.param(NetworkConfig("lstm", hidden=(16, 5), double_bias=True), id="lstm stacked, both biases"),
    pytest.param(NetworkConfig("lstm", hidden=(7,), bias=False, output_activation="tanh"), id="lstm no bias, tanh"),
    pytest.param(NetworkConfig("gru", hidden=(16,)), id="gru"),
    pytest.param(NetworkConfig("gru", hidden=(3, 20, 4), double_bias=True), id="gru stacked, both biases"),
    pytest.param(NetworkConfig("gru", hidden=(7,), bias=False), id="gru no bias"),
    pytest.param(NetworkConfig("rnn", hidden=(16,)), id="rnn"),
    pytest.param(NetworkConfig("rnn", hidden=(16, 8), activation="relu", double_bias=True), id="rnn stacked, relu"),
]


@pytest.mark.parametrize("normalized", [False, True], ids=["raw", "normalized"])
@pytest.mark.parametrize("config", RECURRENT)
def test_recurrent_network_matches_torch_over_an_episode(config, normalized):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    module = build_module(config, 6, 2)
    mean, inverse_std = rng.normal(0, 1, 6).astype(np.float32), rng.uniform(0.2, 2, 6).astype(np.float32)
    runner = _runner(module)
    runner.normalize(*((mean, inverse_std) if normalized else (None, None)), 5.0)
    reference = PolicyModule(module, *((mean, inverse_std) if normalized else (None, None)), 5.0)
    for _ in range(2):
        runner.begin_episode(0, 0, 0, 0)
        reference.reset()
        for observation in rng.normal(0, 2, (200, 6)).astype(np.float32):
            np.testing.assert_allclose(runner.forward(observation), _torch_outputs(reference, observation), atol=1e-5)


@pytest.mark.parametrize("config", RECURRENT)
def test_recurrent_program_and_plain_module_translate_into_each_other(config):
    module = build_module(config, 6, 2)
    program = compile_module(module)
    assert compile_module(module_of(program)) == program
    spec = PolicySpec(program, ActionDecoder("argmax", outputs=2), 5.0)
    copy = policy_module(spec, flatten(module), None, None)
    assert copy.state_dict().keys() == module.state_dict().keys()
    for observation in np.random.default_rng(1).normal(size=(3, 6)).astype(np.float32):
        np.testing.assert_array_equal(_torch_outputs(copy, observation), _torch_outputs(module, observation))


@pytest.mark.parametrize(("double_bias", "parameters"), [(True, 1361), (False, 1297)])
def test_lstm_16_of_three_observations_and_one_action_has_as_many_parameters_as_known(double_bias, parameters):
    config = NetworkConfig("lstm", hidden=(16,), double_bias=double_bias)
    spec, theta = build(config, 3, ActionDecoder.for_space(_box(-2, 2, (1,))), seed=0, observation_clip=5.0)
    assert spec.dim == len(theta) == parameters


def test_recurrent_layers_start_from_torchs_own_initialisation():
    config = NetworkConfig("lstm", hidden=(16,), double_bias=True)
    torch.manual_seed(3)
    cell, linear = nn.LSTMCell(3, 16), nn.Linear(16, 1)
    np.testing.assert_array_equal(initial_theta(config, 3, 1, 3), flatten(nn.ModuleList([cell, linear])))


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_output_activation_comes_last(name):
    hidden = () if name == "linear" else (8,)
    plain, squashed = (
        _runner(build_module(NetworkConfig(name, hidden, output_activation=each), 3, 2))
        for each in ("identity", "tanh")
    )
    theta = np.random.default_rng(0).normal(size=plain.dim).astype(np.float32)
    for runner in (plain, squashed):
        runner.load(theta)
    observation = np.ones(3, np.float32)
    np.testing.assert_allclose(squashed.forward(observation), np.tanh(plain.forward(observation)), atol=1e-6)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activation_matches_torch_over_its_range(activation):
    config = NetworkConfig("mlp", hidden=(1,), activation=activation, init="torch")
    module = build_module(config, 1, 1)
    load_theta(module, np.array([1, 0, 1, 0], np.float32))
    runner = _runner(module)
    x = np.concatenate([np.linspace(-20, 20, 4001), [-1e4, -100, 100, 1e4]]).astype(np.float32)
    got = np.array([runner.forward(value[None])[0] for value in x])
    np.testing.assert_allclose(got, _torch_outputs(module, x[:, None])[:, 0], atol=1e-5, rtol=1e-5)


def test_normalized_policy_matches_its_torch_module():
    rng = np.random.default_rng(2)
    module = build_module(NetworkConfig("mlp", hidden=(8,), init="torch"), 6, 2)
    mean, inverse_std = rng.normal(0, 2, 6).astype(np.float32), rng.uniform(0.1, 9, 6).astype(np.float32)
    runner = _runner(module, clip=2.0)
    runner.normalize(mean, inverse_std, 2.0)
    reference = PolicyModule(module, mean, inverse_std, 2.0)
    for observation in rng.normal(0, 5, (50, 6)).astype(np.float32):
        np.testing.assert_allclose(runner.forward(observation), _torch_outputs(reference, observation), atol=1e-5)


def test_linear_default_network_of_lunar_lander_has_18_parameters():
    head = ActionDecoder.for_space(_box(-1, 1, (2,)))
    spec, theta = build(NetworkConfig("linear", init="zero"), 8, head, seed=0, observation_clip=5.0)
    assert spec.dim == len(theta) == 18
    assert not theta.any()


def test_theta_is_in_parameter_order():
    module = build_module(NetworkConfig("mlp", hidden=(4,), init="torch"), 3, 2)
    expected = np.concatenate([parameter.detach().numpy().ravel() for parameter in module.parameters()])
    np.testing.assert_array_equal(flatten(module), expected)
    theta = np.arange(len(expected), dtype=np.float32)
    load_theta(module, theta)
    np.testing.assert_array_equal(flatten(module), theta)
    with pytest.raises(ValueError, match="expected"):
        load_theta(module, theta[1:])


def test_initial_theta_follows_the_seed_and_leaves_torch_alone():
    config = NetworkConfig("mlp", hidden=(4,), init="torch")
    torch.manual_seed(123)
    state = torch.get_rng_state()
    first, again, other = (initial_theta(config, 3, 2, seed) for seed in (7, 7, 8))
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()


def test_initial_theta_takes_the_largest_seed():
    config = NetworkConfig("mlp", hidden=(4,), init="torch")
    assert initial_theta(config, 3, 2, 2**64 - 1).any()


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


def test_program_and_plain_module_translate_into_each_other():
    program = compile_module(build_module(NetworkConfig("mlp", hidden=(5, 4), activation="elu", init="torch"), 3, 2))
    assert compile_module(module_of(program)) == program


def test_policy_module_carries_the_parameters():
    module = build_module(NetworkConfig("mlp", hidden=(5,), bias=False, init="torch"), 3, 2)
    spec = PolicySpec(compile_module(module), ActionDecoder("argmax", outputs=2), 5.0)
    copy = policy_module(spec, flatten(module), None, None)
    assert copy.state_dict().keys() == module.state_dict().keys()
    observation = np.ones(3, np.float32)
    np.testing.assert_array_equal(_torch_outputs(copy, observation), _torch_outputs(module, observation))


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
