"""Programs and specs as values: round trips, and what cannot be run."""

import itertools

import numpy as np
import pytest
from gymnasium import spaces

from pyes.errors import ConfigError
from pyes.networks import ActionDecoder, Activation, Instruction, Op, PolicySpec, Program
from pyes.networks.base import start
from pyes.networks.composer import Composer


def _program(*sizes, activation=Activation.IDENTITY):
    rows, start = [], 0
    for inputs, outputs in itertools.pairwise(sizes):
        rows.append(Instruction(Op.LINEAR, inputs, outputs, start, start + inputs * outputs, activation))
        start += (inputs + 1) * outputs
    return Program(tuple(rows), sizes[0], sizes[-1], start)


def test_program_survives_the_round_trip():
    program = _program(4, 8, 2, activation=Activation.GELU)
    assert Program.from_dict(program.to_dict()) == program
    assert program.array().shape == (2, 15)
    assert len(program.to_dict()["instructions"][0]) == 6
    assert program.to_dict()["instructions"][0]["activation"] == "gelu"


def test_recurrent_program_survives_the_round_trip():
    layers = Composer(2)
    layers.recurrent(Op.GRU, 4, biases=2)
    layers.recurrent(Op.GRU, 3, biases=2)
    layers.linear(1)
    program = layers.program()
    assert Program.from_dict(program.to_dict()) == program
    first, _, last = program.to_dict()["instructions"]
    assert first["recurrent_bias_offset"] > first["recurrent_offset"] > 0
    assert "recurrent_offset" not in last


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda layers: layers.recurrent("gru", 8), r"op: got 'gru', expected Op\.RNN, Op\.GRU or Op\.LSTM"),
        (lambda layers: layers.recurrent(Op.LINEAR, 8), r"op: got .*, expected Op\.RNN, Op\.GRU or Op\.LSTM"),
        (
            lambda layers: layers.recurrent(Op.RNN, 8, "sigmoid"),
            "activation: got 'sigmoid', expected one of identity, ta",
        ),
        (
            lambda layers: layers.recurrent(Op.GRU, 8, "tanh"),
            "activation: got 'tanh', expected one of identity with GRU",
        ),
        (lambda layers: layers.recurrent(Op.GRU, 8, biases=3), "biases: got 3, expected 0, 1 or 2"),
        (lambda layers: layers.recurrent(Op.GRU, 0), "units: got 0, expected an integer >= 1"),
        (lambda layers: layers.linear(2.5), r"outputs: got 2\.5, expected an integer >= 1"),
        (lambda layers: layers.scale(0), "divisor: got 0, expected an integer >= 1"),
        (lambda layers: layers.convolution(4, 3, 0), "stride: got 0, expected an integer >= 1"),
    ],
)
def test_layers_of_impossible_sizes_are_refused(add, message):
    with pytest.raises(ConfigError, match=message):
        add(Composer(192, (3, 8, 8)))


def test_a_zero_output_is_that_of_the_last_layer_with_parameters():
    layers = Composer(2)
    layers.linear(3)
    layers.linear(1)
    layers.scale(2)
    theta = start(layers.program(), 0, "zero_output")
    assert theta[:9].all()
    assert not theta[9:].any()


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


def test_spec_refuses_an_action_that_takes_other_outputs():
    with pytest.raises(ValueError, match="2 outputs"):
        PolicySpec(_program(4, 2), ActionDecoder("argmax", outputs=3), 5.0)


def test_spec_survives_the_round_trip():
    spec = PolicySpec(_program(4, 8, 3), ActionDecoder.for_space(spaces.Box(-1, 1, (3,), np.float32), noise=0.1), 10.0)
    assert PolicySpec.from_dict(spec.to_dict()) == spec
