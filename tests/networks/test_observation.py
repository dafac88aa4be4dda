"""The observation encoder: the numbers of an observation are Gymnasium's, and what is none is named."""

import json

import numpy as np
import pytest
from gymnasium import spaces

from pyes.errors import ConfigError
from pyes.networks import ObservationEncoder

SPACES = [
    spaces.Box(-1, np.array([1.0, 2.0]), (2,), np.float64),
    spaces.Discrete(5, start=-2),
    spaces.MultiDiscrete([[2, 3], [4, 1]], start=[[0, 1], [-1, 2]]),
    spaces.MultiBinary((2, 2)),
    spaces.Tuple([spaces.Discrete(3), spaces.Dict({"x": spaces.Box(0, 255, (2, 2), np.uint8)})]),
    spaces.Dict({"b": spaces.Discrete(2, start=1), "a": spaces.Tuple([spaces.MultiBinary(2), spaces.Box(0, 1, ())])}),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_numbers_are_those_of_gymnasium_before_and_after_a_round_trip(space):
    encoder = ObservationEncoder.for_space(space)
    again = ObservationEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert again == encoder
    assert encoder.size == spaces.flatdim(space)
    space.seed(0)
    for _ in range(20):
        observation = space.sample()
        expected = spaces.flatten(space, observation)
        for numbers in (encoder(observation), again(observation)):
            assert (numbers.dtype, numbers.tobytes()) == (expected.dtype, expected.tobytes())


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        ({"a": (np.zeros(2), 0.5)}, "part 'b' cannot be read as a Discrete of 2 numbers: .*'b'"),
        ([1, 2], "part 'a.0' cannot be read as a MultiBinary of 2 numbers"),
        ({"a": (np.zeros(3), 0.5), "b": 1}, "part 'a.0' .* it has 3 values, expected 2"),
        ({"a": ([0.25, 1], 0.5), "b": 1}, "part 'a.0' .* it has the value 0.25, which its type int8 does not have"),
        ({"a": ([0, 300], 0.5), "b": 1}, "part 'a.0' .* it has the value 300, which its type int8 does not have"),
        ({"a": (np.zeros(2), 0.5), "b": 0}, "part 'b' .* it is 0, which is none of its values"),
        ({"a": (np.zeros(2), 0.5), "b": 1.5}, "part 'b' .* it is 1.5, which is none of its values"),
        ({"a": (np.zeros(2), 0.5), "b": [1, 2]}, r"part 'b' .* it is \[1, 2\], which is none of its values"),
    ],
)
def test_foreign_observation_is_refused_in_one_line_that_names_the_part(observation, message):
    with pytest.raises(
        ValueError, match=rf"^observation: {message}.*; expected an observation of the environment's space$"
    ):
        ObservationEncoder.for_space(SPACES[-1])(observation)


def test_key_that_files_cannot_keep_is_refused():
    with pytest.raises(ConfigError, match=r"the key \(1, 2\), expected texts as keys"):
        ObservationEncoder.for_space(spaces.Dict({(1, 2): spaces.Discrete(2)}))
