"""The action decoder: which spaces and modes fit each other, and the action of each mode for a network's outputs."""

import itertools
import json

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from user_tasks import Parts

from pyes import reference
from pyes.errors import ConfigError
from pyes.networks import ActionDecoder, Instruction, Op, PolicySpec, Program
from pyes.networks.observation import leaves


def _box(low, high, shape=(3,)):
    return spaces.Box(low, high, shape, np.float32)


MIXED = list(Parts.ACTIONS.values())[1:]


def _runner(inputs, decoder):
    """Return a runner of one linear layer with parameters at random."""
    outputs = decoder.outputs
    program = Program((Instruction(Op.LINEAR, inputs, outputs, 0, -1, 0),), inputs, outputs, inputs * outputs)
    runner = PolicySpec(program, decoder, 5.0).runner()
    runner.load(np.random.default_rng(0).normal(0, 0.4, program.dim).astype(np.float32))
    return runner


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
        *((space, {}, "mixed", outputs) for space, outputs in zip(MIXED, (14, 4, 2, 5, 13), strict=True)),
        (MIXED[3], {"action": "bins", "bins": 4}, "mixed", 11),
        (spaces.Box(-1, 1, (3,), np.float16), {}, "mixed", 3),
        (spaces.Box(-1e30, 1e30, (3,), np.float64), {"action": "tanh"}, "tanh", 3),
    ],
)
def test_decoder_for_space_chooses_mode_and_outputs(space, arguments, mode, outputs):
    decoder = ActionDecoder.for_space(space, **arguments)
    assert (decoder.mode, decoder.outputs) == (mode, outputs)
    assert ActionDecoder.from_dict(decoder.to_dict()) == decoder


@pytest.mark.parametrize(
    ("space", "arguments", "words"),
    [
        (spaces.Discrete(4), {"action": "clip"}, ["clip", "Discrete(4)", "argmax"]),
        (_box(-1, 1), {"action": "argmax"}, ["argmax", "Box", "tanh"]),
        (_box(-1, 1), {"action": "bins"}, ["task.bins", "0", "2 or more"]),
        (_box(-1, np.inf), {"action": "tanh"}, ["tanh", "bounds", "identity"]),
        (_box(-np.inf, np.inf), {"action": "clip"}, ["clip", "bounds", "identity"]),
        (_box(-3e38, 3e38), {"action": "tanh"}, ["tanh", "bounds whose distance", "use clip"]),
        (spaces.Box(-1e300, 0, (3,), np.float64), {"action": "bins", "bins": 3}, ["bins", "bounds whose distance"]),
        (_box(-np.inf, np.inf), {"action": "bins", "bins": 3}, ["bins", "bounds"]),
        (spaces.Text(3), {}, ["the task's actions", "Text", "MultiDiscrete", "wrap"]),
        (spaces.Dict({"say": spaces.Tuple([spaces.Text(3)])}), {}, ["part 'say.0' of the task's actions", "Text"]),
        (spaces.Dict({1: spaces.Discrete(2)}), {}, ["key 1", "texts as keys"]),
        (spaces.Dict({"none": spaces.Tuple([])}), {}, ["none", "empty Tuple"]),
        (spaces.Tuple([_box(-1, 1), _box(-1, np.inf)]), {"action": "tanh"}, ["part '1'", "tanh", "needs bounds"]),
        (spaces.MultiDiscrete([2, 2]), {"action": "tanh"}, ["tanh", "MultiDiscrete", "argmax"]),
        (spaces.MultiDiscrete([2, 2]), {"noise": 0.1}, ["action_noise", "mixed"]),
        (spaces.Box(0, 2**30, (3,), np.int32), {}, ["int32", "16,777,216", "floats"]),
        (spaces.Discrete(4), {"noise": 0.1}, ["action_noise", "argmax"]),
    ],
)
def test_decoder_for_space_refuses_what_does_not_fit(space, arguments, words):
    with pytest.raises(ConfigError) as error:
        ActionDecoder.for_space(space, **arguments)
    message = str(error.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_decoder_dict_is_plain_json_where_bounds_are_infinite():
    decoder = ActionDecoder.for_space(_box(0, np.inf))
    assert decoder.to_dict()["high"] == [None] * 3
    assert ActionDecoder.from_dict(decoder.to_dict()) == decoder


def test_argmax_starts_at_the_first_action():
    runner = _runner(2, ActionDecoder.for_space(spaces.Discrete(3, start=-1)))
    actions = {runner.act(x) for x in np.random.default_rng(0).normal(0, 9, (200, 2)).astype(np.float32)}
    assert actions <= {-1, 0, 1}
    assert len(actions) > 1


@pytest.mark.parametrize("mode", ["identity", "clip", "scale", "tanh", "bins"])
def test_box_actions_match_their_definition(mode):
    low, high = np.array([-1, 0, -3], np.float32), np.array([1, 5, 2], np.float32)
    box = spaces.Box(low, high, dtype=np.float32)
    runner = _runner(5, ActionDecoder.for_space(box, mode, bins=4 if mode == "bins" else 0))
    for observation in np.random.default_rng(1).normal(0, 4, (50, 5)).astype(np.float32):
        y = runner.forward(observation)
        expected = {
            "identity": y,
            "clip": np.clip(y, low, high) if mode == "clip" else None,
            "scale": low + (np.clip(y, -1, 1) + 1) / 2 * (high - low) if mode == "scale" else None,
            "tanh": low + (np.tanh(y) + 1) / 2 * (high - low) if mode == "tanh" else None,
            "bins": low + (high - low) * y.reshape(-1, 4).argmax(1) / 3 if mode == "bins" else None,
        }[mode]
        action = runner.act(observation)
        assert action.dtype == np.float32
        np.testing.assert_allclose(action, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("low", "high", "mode"),
    [
        ([-1, -1], [1, 1], "clip"),
        ([-3.2, 0], [3.2, 0.8], "clip"),
        ([-10, -10], [10, 10], "clip"),
        ([0, 0], [512, 512], "scale"),
        ([-1, 1], [1, 5], "scale"),
        ([-1, -0.01], [1, 0.01], "scale"),
        ([0, 0], [1, 1e7], "clip"),
        ([-3e38, 0], [3e38, 1], "clip"),
        ([0, 0], [1, np.inf], "clip"),
        ([-np.inf, -np.inf], [np.inf, np.inf], "identity"),
    ],
)
def test_outputs_of_the_order_of_one_reach_all_actions_of_a_box(low, high, mode):
    box = spaces.Box(np.array(low, np.float32), np.array(high, np.float32))
    assert ActionDecoder.for_space(box).mode == mode
    assert ActionDecoder.for_space(spaces.Dict(torque=box)).parts[0].mode == mode


@pytest.mark.parametrize("action", ["clip", "scale", "tanh", "bins"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_actions_at_the_bounds_are_in_their_space(action, dtype):
    """Of bounds whose difference, or which themselves, have no exact float32."""
    low, high = zip(*itertools.combinations(np.arange(-20, 21) / 10, 2), strict=True)
    space = spaces.Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype)
    decoder = ActionDecoder.for_space(space, action, bins=2 * (action == "bins"))
    runner = _runner(1, decoder)
    weights = np.tile(np.float32([-1, 1]), len(low)) if action == "bins" else np.ones(len(low), np.float32)
    runner.load(100 * weights)
    for observation in (-1.0, 1.0):
        assert space.contains(runner.act(np.array([observation], np.float32)).astype(dtype))


@pytest.mark.parametrize("action", ["auto", "scale", "tanh", "bins", "identity"])
@pytest.mark.parametrize("dtype", [np.float16, np.uint8, bool])
def test_actions_are_of_the_type_of_their_space(dtype, action):
    space = spaces.Box(0, 1, (3,), dtype)
    runner = _runner(5, ActionDecoder.for_space(space, action, bins=3 * (action == "bins")))
    observations = np.random.default_rng(1).normal(0, 4, (50, 5)).astype(np.float32)
    actions = [runner.act(observation) for observation in observations]
    if dtype is not np.float16 or action != "identity":
        assert all(space.contains(each) for each in actions)
    assert {each.dtype for each in actions} == {np.dtype(dtype)}
    assert 0.2 < np.mean(actions) < 0.8 or action == "identity"


@pytest.mark.slow
@pytest.mark.parametrize("action", ["auto", "scale", "tanh", "bins", "identity"])
@pytest.mark.parametrize("space", MIXED, ids=str)
def test_mixed_actions_are_in_their_space_and_those_of_the_twin(space, action):
    boxes = any(isinstance(part, spaces.Box) for _, part in leaves(space))
    bounded = action in ("auto", "identity") or "inf" not in str(space)
    decoder = ActionDecoder.for_space(space, action if boxes and bounded else "auto", bins=3 * (action == "bins"))
    assert ActionDecoder.from_dict(json.loads(json.dumps(decoder.to_dict()))) == decoder
    runner = _runner(5, decoder)
    rules = [part.mode for part in decoder.parts for _ in range(part.components)]
    widths = [width for part in decoder.parts for width in part.widths]
    actions = []
    for observation in np.random.default_rng(1).normal(0, 4, (50, 5)).astype(np.float32):
        actions.append(runner.act(observation))
        expected = reference.mixed_action(rules, widths, runner.forward(observation), *decoder.bounds)
        assert data_equivalence(actions[-1], decoder.assemble(expected), exact=True)
        assert action == "identity" or space.contains(actions[-1])
    assert len({str(each) for each in actions}) > 3


def test_mixed_noise_reaches_boxes_alone():
    """A Tuple of a Discrete and a Box: the noise is that of a Box by itself, and the choice is as without noise."""
    space = spaces.Tuple([spaces.Discrete(3), _box(-9, 9, (2,))])
    runner = _runner(2, ActionDecoder.for_space(space, "clip", noise=0.5))
    runner.begin_episode(3, 1, 2, 0)
    bits = np.empty(20, np.uint32)
    reference.stream_bits(3, 3, 1, 2, 0, bits)
    normals = reference.normal_of_bits(bits).reshape(10, 2)
    for noise, observation in zip(normals, np.random.default_rng(0).normal(0, 2, (10, 2)), strict=True):
        outputs = runner.forward(observation)
        choice, box = runner.act(observation)
        assert choice == outputs[:3].argmax()
        np.testing.assert_array_equal(box, outputs[3:] + np.float32(0.5) * noise)
