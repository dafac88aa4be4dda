"""The parameters that a run starts from: torch's distributions, drawn from the run's own stream."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from gymnasium import spaces
from scipy import stats

from pyes import reference
from pyes.config.registry import NETWORKS
from pyes.errors import ConfigError
from pyes.networks import ActionDecoder, Op, Program, build
from pyes.networks.base import initial_theta
from pyes.networks.composer import Composer
from pyes.networks.linear import LinearConfig
from pyes.networks.mlp import MLPConfig
from pyes.networks.recurrent import LSTMConfig
from pyes.numerics.streams import Purpose

#: (layers, how many parameters of each kind) of layers large enough to tell distributions apart.
LAYERS = {
    "linear": lambda layers: layers.linear(200),
    "convolution": lambda layers: layers.convolution(200, 5, 2),
    "rnn": lambda layers: layers.recurrent(Op.RNN, 90, "tanh", biases=2),
    "gru": lambda layers: layers.recurrent(Op.GRU, 60, biases=2),
    "lstm": lambda layers: layers.recurrent(Op.LSTM, 50, biases=2),
}
SHAPE = (3, 7, 5)


def program_of(name: str) -> Program:
    layers = Composer(math.prod(SHAPE), SHAPE)
    LAYERS[name](layers)
    return layers.program()


@pytest.mark.statistical
@pytest.mark.parametrize("name", LAYERS)
def test_initial_parameters_have_the_distributions_of_torch(name: str) -> None:
    """Kolmogorov-Smirnov of two samples, weights and biases apart, fixed seeds, alpha 1e-3."""
    torch = pytest.importorskip("torch")
    from pyes.networks.torch.compiler import flatten
    from pyes.networks.torch.modules import module_of

    program = program_of(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        theirs = flatten(module_of(program))
    ours, row = initial_theta(program, 1), program.instructions[0]
    assert ours.shape == theirs.shape
    for part in (slice(0, row.rows * row.columns), slice(row.bias_offset, row.bias_offset + row.rows)):
        assert stats.ks_2samp(ours[part], theirs[part]).pvalue > 1e-3
        bound = 1 / math.sqrt(row.outputs if Op(row.op).recurrent else row.columns)
        assert np.abs(ours[part]).max() <= bound * (1 + 1e-6)
        assert stats.kstest(ours[part], "uniform", (-bound, 2 * bound)).pvalue > 1e-3


def test_initial_parameters_are_the_words_of_a_stream_of_their_own() -> None:
    """Each is recomputed in exact arithmetic from the twin of the generator, and rounded once for the bound."""
    layers = Composer(7)
    layers.linear(5)
    words = np.empty(40, np.uint32)
    reference.stream_bits(11, Purpose.THETA, 0, 0, 0, words)
    signed = [(int(word) ^ 2**31) - 2**31 for word in words]
    bound = Fraction(float(np.float32(1 / math.sqrt(7))))
    exact = [Fraction(2 * (word // 256) + 1, 2**24) * bound for word in signed]
    theta = initial_theta(layers.program(), 11)
    assert theta.tolist() == [float(np.float32(each.numerator / each.denominator)) for each in exact]


def test_normalised_layers_begin_with_scale_one_and_bias_zero() -> None:
    layers = Composer(4)
    layers.linear(3, normalized=True)
    layers.linear(2)
    theta = initial_theta(layers.program(), 0)
    assert theta[12:18].tolist() == [1, 1, 1, 0, 0, 0]
    assert (theta[:12] != 0).all()


def test_zero_output_is_a_policy_that_does_nothing_with_hidden_layers_as_they_are_drawn() -> None:
    decoder = ActionDecoder("clip", 2, (2,), (-1.0,) * 2, (1.0,) * 2)
    _, drawn = build(MLPConfig(hidden=(5,), init="uniform"), 3, decoder, seed=2, observation_clip=5.0)
    _, theta = build(MLPConfig(hidden=(5,)), 3, decoder, seed=2, observation_clip=5.0)
    hidden = 3 * 5 + 5
    np.testing.assert_array_equal(theta[:hidden], drawn[:hidden])
    assert drawn[hidden:].all()
    assert not theta[hidden:].any()


def test_linear_default_network_of_lunar_lander_has_18_parameters() -> None:
    decoder = ActionDecoder("clip", 2, (2,), (-1.0,) * 2, (1.0,) * 2)
    spec, theta = build(LinearConfig(init="zero"), 8, decoder, seed=0, observation_clip=5.0)
    assert spec.dim == len(theta) == 18


@pytest.mark.parametrize(("double_bias", "parameters"), [(True, 1361), (False, 1297)])
def test_lstm_16_of_three_observations_and_one_action_has_as_many_parameters_as_known(
    double_bias: bool, parameters: int
) -> None:
    config = LSTMConfig(double_bias=double_bias)
    spec, theta = build(config, 3, ActionDecoder("clip", 1, (1,), (-2.0,), (2.0,)), seed=0, observation_clip=5.0)
    assert spec.dim == len(theta) == parameters


def test_an_activation_that_is_none_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^activation: got 'swish', expected one of identity, tanh, relu"):
        Composer(4).linear(8, "swish")


@pytest.mark.parametrize(
    ("compose", "says"),
    [
        (lambda self, layers, outputs: layers.linear(64), "the network gives 64 outputs, the action takes 3"),
        (lambda self, layers, outputs: None, "a program needs an observation and at least one instruction"),
    ],
)
def test_layers_of_a_kind_of_ones_own_that_do_not_fit_are_one_line(
    compose: Callable[..., None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NETWORKS.get("linear"), "compose", compose)
    with pytest.raises(ConfigError, match=rf"^network\.name=linear: {says}; see compose of Linear"):
        build(LinearConfig(), 4, ActionDecoder.for_space(spaces.Discrete(3)), 0, 5.0)
