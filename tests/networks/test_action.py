"""The action decoder: which spaces and modes fit each other, and the action of each mode for a network's outputs."""

import numpy as np
import pytest
from gymnasium import spaces

from pyes.errors import ConfigError
from pyes.networks import ActionDecoder, Instruction, Op, PolicySpec, Program


def _box(low, high, shape=(3,)):
    return spaces.Box(low, high, shape, np.float32)


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
        (_box(-np.inf, np.inf), {"action": "bins", "bins": 3}, ["bins", "bounds"]),
        (spaces.MultiDiscrete([2, 2]), {}, ["MultiDiscrete", "Discrete", "Box"]),
        (spaces.Box(0, 255, (3,), np.uint8), {}, ["uint8", "floats"]),
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


@pytest.mark.parametrize("mode", ["identity", "clip", "tanh", "bins"])
def test_box_actions_match_their_definition(mode):
    low, high = np.array([-1, 0, -3], np.float32), np.array([1, 5, 2], np.float32)
    box = spaces.Box(low, high, dtype=np.float32)
    runner = _runner(5, ActionDecoder.for_space(box, mode, bins=4 if mode == "bins" else 0))
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
