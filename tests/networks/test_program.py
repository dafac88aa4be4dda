"""Programs and specs as values: round trips, and what cannot be run."""

import itertools

import numpy as np
import pytest
from gymnasium import spaces

from pyes.networks import ActionDecoder, Activation, Instruction, Op, PolicySpec, Program
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
