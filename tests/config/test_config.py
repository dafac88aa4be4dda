"""pyes.config: defaults, conversions, and one clear line for everything that is refused."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyes import config
from pyes.algorithms.openai_es import OpenAIESConfig
from pyes.config import (
    DEFAULT_RUN,
    AlgorithmConfig,
    EpisodeLimitConfig,
    NetworkConfig,
    OptimizerConfig,
    TrainConfig,
    algorithm_config,
    from_mapping,
    to_mapping,
)
from pyes.config.section import Section
from pyes.errors import ConfigError
from pyes.networks.mlp import MLPConfig
from pyes.networks.own_module import OwnModuleConfig
from pyes.system.text import literal
from pyes.tasks.gymnasium import GymnasiumConfig

SECTIONS = [value for value in vars(config).values() if isinstance(value, type) and issubclass(value, Section)]


def refusal(mapping: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        from_mapping(mapping)
    message = str(caught.value)
    assert "\n" not in message
    return message


def nested(path: str, value: object) -> dict[str, Any]:
    key, _, rest = path.partition(".")
    return {key: nested(rest, value) if rest else value}


def test_from_mapping_of_one_key_defaults_the_rest():
    made = from_mapping({"task": {"env_id": "CartPole-v1"}})
    assert made == TrainConfig(task=GymnasiumConfig(env_id="CartPole-v1"), run_dir=made.run_dir)


def test_from_mapping_without_a_named_task_is_the_default_run():
    made = from_mapping({"task": {"episodes": 2}, "episode_limit": {"growth": 2.0}})
    assert made.task == GymnasiumConfig(**DEFAULT_RUN["task"], episodes=2)
    assert made.episode_limit == EpisodeLimitConfig(initial=400, growth=2.0)
    assert from_mapping({"task": {"env_id": "CartPole-v1"}}).episode_limit == EpisodeLimitConfig()


@pytest.mark.parametrize("key", ["run_dir", "resume"])
def test_an_empty_path_is_refused(key):
    """As of a variable of the shell that is not set."""
    with pytest.raises(ConfigError, match=rf"^{key}: got '', expected a path, or null"):
        from_mapping({key: ""})


def test_run_has_to_name_its_task():
    with pytest.raises(TypeError, match="task"):
        TrainConfig()  # type: ignore[call-arg]


def test_from_mapping_of_an_algorithm_takes_the_optimizer_that_goes_with_it():
    assert from_mapping({"algorithm": {"name": "pgpe"}}).optimizer == OptimizerConfig(name="clipup")
    assert from_mapping({"algorithm": {"name": "pgpe"}, "optimizer": {"name": "sgd"}}).optimizer.name == "sgd"
    assert from_mapping({}).optimizer == OptimizerConfig(name="adam")
    pgpe = algorithm_config({"name": "pgpe"})
    assert from_mapping({"algorithm": pgpe}).optimizer == OptimizerConfig(name="clipup")
    for optimizer in (None, {}, {"max_speed": 0.3}):
        made = TrainConfig(task=GymnasiumConfig(env_id="CartPole-v1"), algorithm=pgpe, optimizer=optimizer)
        assert made.optimizer == from_mapping({"algorithm": pgpe, "optimizer": optimizer}).optimizer
        assert made.optimizer == OptimizerConfig(name="clipup")


def test_from_mapping_of_a_task_takes_what_a_run_of_its_kind_starts_from():
    function = {"name": "function", "factory": "a:f", "dim": 3}
    made = from_mapping({"task": function, "evaluation": {"every": 3}})
    assert (made.network.init, made.network.bias, made.evaluation.episodes) == ("zero", False, 1)
    assert from_mapping({"task": function, "network": {"init": "uniform"}}).network.init == "uniform"


def test_from_mapping_takes_sections_that_are_made_already():
    made = from_mapping({"network": MLPConfig(hidden=(8,)), "seed": 3})
    assert (made.network.hidden, made.seed) == ((8,), 3)


@pytest.mark.parametrize(
    ("section", "made", "expected"),
    [
        ("network", NetworkConfig(name="lstm"), "network: got 'NetworkConfig', expected a LSTMConfig or a mapping"),
        (
            "algorithm",
            AlgorithmConfig(name="ars"),
            "algorithm: got 'AlgorithmConfig', expected a ARSConfig or a mapping",
        ),
    ],
)
def test_a_section_of_no_kind_is_refused(section: str, made: object, expected: str):
    assert refusal({section: made}) == expected


def test_to_mapping_is_plain_json_and_its_own_inverse():
    made = from_mapping({"network": {"name": "mlp", "hidden": [8, 4]}, "task": {"env_kwargs": {"a": [1, {"b": None}]}}})
    plain = to_mapping(made)
    assert from_mapping(json.loads(json.dumps(plain))) == made
    assert plain["network"]["hidden"] == [8, 4]


def test_sections_are_frozen_and_their_defaults_are_valid():
    for section in SECTIONS:
        made = from_mapping({}) if section is TrainConfig else section()
        with pytest.raises(dataclasses.FrozenInstanceError):
            made.name = "x"  # type: ignore[misc, attr-defined]
        assert section(**{each.name: getattr(made, each.name) for each in dataclasses.fields(made)}) == made


def test_section_made_directly_is_checked_too():
    with pytest.raises(ConfigError, match=r"algorithm\.sigma: got -1, expected a finite number > 0"):
        OpenAIESConfig(sigma=-1)


CONVERTED = [
    ("timesteps", 1e6, 1_000_000),
    ("time_limit", 60, 60.0),
    ("algorithm.sigma", 1, 1.0),
    ("network", {"name": "mlp", "hidden": [8, 8.0]}, MLPConfig(hidden=(8, 8))),
    ("noise.entries", "auto", "auto"),
    ("noise.entries", 100, 100),
    ("target_return", -150, -150.0),
    ("evaluation.every", 0, 0),
    ("seed", 2**64 - 1, 2**64 - 1),
    ("seed", np.int64(3), 3),
    ("time_limit", np.float32(0.5), 0.5),
    ("run_dir", Path("runs", "x"), "runs/x"),
]


def test_from_mapping_converts_to_the_annotated_type():
    for path, given_value, stored in CONVERTED:
        value: Any = from_mapping(nested(path, given_value))
        for name in path.split("."):
            value = getattr(value, name)
        assert value == stored
        assert type(value) is type(stored)


@pytest.mark.parametrize(
    ("named", "generations"),
    [({}, 200), ({"timesteps": 1e6}, None), ({"time_limit": 60}, None), ({"timesteps": 1e6, "generations": 5}, 5)],
)
def test_a_run_has_the_budget_that_is_named(named: dict[str, Any], generations: int | None):
    assert from_mapping(named).generations == generations


IMPOSSIBLE = [
    ("seed", -1, "an integer >= 0"),
    ("seed", 2**64, "an integer >= 0 and <= 18446744073709551615"),
    ("seed", True, "an integer"),
    ("seed", "x", "an integer"),
    ("generations", 0, "an integer >= 1 or null"),
    ("timesteps", 1.5, "an integer >= 1 or null"),
    ("time_limit", float("nan"), "a finite number > 0 or null"),
    ("target_return", float("inf"), "a finite number or null"),
    ("algorithm", "openai_es", "a mapping with keys among: factory, learning_rate, name"),
    ("algorithm", None, "a mapping"),
    ("algorithm.name", "openai", "'openai_es'"),
    ("algorithm.population_size", 0, "an integer >= 2"),
    (
        "algorithm.population_size",
        "linear 1 to 9 in 5 timesteps",
        "a schedule, as 'linear 20 to 100 in 2e6 timesteps' with",
    ),
    ("algorithm.population_size", "norm 3 at least 2", "only sigma and learning_rate follow a norm"),
    ("task.episodes", "steps 1 then 0 at 5 generations", "an integer >= 1, or a schedule, as 'linear 20 to 100 in"),
    ("task.episodes", 1.5, "an integer >= 1, or a schedule, as 'linear 20 to 100 in 2e6 timesteps'"),
    (
        "task.max_timesteps",
        "linear 9 to 99",
        "an integer >= 1 and <= 1000000000, or a schedule, as 'linear 20 to 100 in 2e6 timesteps' or nu",
    ),
    ("task.reward_min", "low", "a finite number, or a schedule, as 'linear 0.3 to 0.05 in 2e6 timesteps' or null"),
    ("task.reward_min", "norm 0.1 at least 0.1", "only sigma and learning_rate follow a norm"),
    ("algorithm.population_size", 7, "an even number with algorithm.mirrored=true"),
    ("algorithm.sigma", -0.1, "a finite number > 0"),
    ("algorithm.sigma", "0.1", "a finite number > 0"),
    (
        "algorithm.sigma",
        "linear 0.3 to 0 in 5 timesteps",
        "a schedule, as 'linear 0.3 to 0.05 in 2e6 timesteps' with all",
    ),
    ("algorithm.learning_rate", "linear 1 to 0.5", "or a schedule, as 'linear 0.3 to 0.05 in 2e6 timesteps'"),
    ("algorithm.weight_decay", "norm 0.1 at least 0.1", "only sigma and learning_rate follow a norm"),
    ("algorithm.weight_decay", -1, "a finite number >= 0"),
    ("algorithm.weight_decay_mode", "l2", "one of 'decoupled', 'classic'"),
    ("algorithm.mirrored", "yes", "true or false"),
    ("algorithm.shaping", "ranks", "one of 'centered_ranks', 'z_score', 'none'"),
    ("episode_limit.growth", 1, "a finite number > 1"),
    ("algorithm.restart.after", 0, "an integer >= 1 or null"),
    ("episode_limit.initial", 0, "an integer >= 1 or null"),
    ("optimizer.beta1", 1, "a finite number >= 0 and < 1"),
    ("task.env_id", "", "the id of a Gymnasium environment"),
    ("task.env_kwargs", [1], "a mapping with string keys"),
    ("task.env_kwargs", {1: 2}, "a mapping with string keys"),
    ("task.common_random_numbers", "all", "one of 'none', 'pair', 'generation'"),
    ("task.statistics_share", 0, "a finite number > 0 and <= 1"),
    ("task.frame_skip", 0, "an integer >= 1 or 'auto'"),
    ("task.frame_skip", 2**64, "an integer >= 1 or 'auto'"),  # the journal has 64 bits
    ("algorithm.population_size", 10**400, "an integer >= 2, or a schedule"),
    ("task.action", "softmax", "one of 'auto', 'argmax', 'identity', 'clip', 'scale', 'tanh', 'bins'"),
    ("task.hide_observations", [-1], "a list, each item an integer >= 0"),
    ("task.hide_by", "nan", "one of 'remove', 'zero'"),
    ("task.bins", 5, "0 with task.action=auto"),
    ("network.output_activation", "relu", "one of 'identity', 'tanh'"),
    ("task.bins", -5, "an integer >= 0"),
    ("noise.entries", "many", "an integer >= 1 or 'auto'"),
    ("noise.dtype", "float16", "one of 'float32', 'bfloat16', 'int8'"),
    ("cluster.name", "ring", "one of 'inline', 'local', 'ray', 'socket'"),
    ("cluster.metrics", "host", "PORT or HOST:PORT, for example 9095 or 0.0.0.0:9095, or null"),
    ("cluster.metrics", 70000, "PORT or HOST:PORT, for example 9095 or 0.0.0.0:9095, or null"),
    ("cluster.workers", 0, "an integer >= 1, or 'auto', with cluster.name=local"),
    ("evaluation.episodes", 0, "an integer >= 1"),
    ("evaluation.share", 0, "a finite number > 0 and <= 1 or null"),
]


def test_from_mapping_impossible_value_is_refused_in_one_line():
    for path, value, expected in IMPOSSIBLE:
        message = refusal(nested(path, value))
        assert message.startswith(f"{path}: got {literal(value)}, expected ")
        assert expected in message


CONTRADICTORY = [
    ({"task": {"action": "bins"}}, "task.bins: got 0, expected an integer >= 2 with task.action=bins"),
    ({"network": {"name": "mlp", "hidden": []}}, "network.hidden: got [], expected at least one layer"),
    (
        {"network": {"name": "mlp", "hidden": 64}},
        "network.hidden: got 64, expected a list, each item an integer >= 1",
    ),
    (
        {"network": {"name": "rnn", "activation": "elu"}},
        "network.activation: got 'elu', expected one of 'tanh', 'relu'",
    ),
    (
        {"network": {"name": "gru", "bias": False, "double_bias": True}},
        "network.double_bias: got true, expected false",
    ),
    (
        {"cluster": {"name": "socket", "listen": "0.0.0.0:5555", "key": "cluster.key"}},
        "cluster.listen: got '0.0.0.0:5555', expected tcp://HOST:PORT",
    ),
    ({"network": {"name": "torch"}}, "network.module: got null, expected MODULE:CLASS"),
    (
        {"network": {"hidden": [4]}},
        "unknown key 'network.hidden': it is a key of network=dqn, gru, lstm, mlp, rnn; allowed: ",
    ),
]


def test_from_mapping_impossible_combination_is_refused_in_one_line():
    for mapping, expected in CONTRADICTORY:
        assert refusal(mapping).startswith(expected)


def test_from_mapping_odd_population_without_mirroring_is_allowed():
    assert from_mapping({"algorithm": {"population_size": 7, "mirrored": False}}).algorithm.population_size == 7


UNKNOWN = [
    (
        {"sede": 1},
        "unknown key 'sede': did you mean 'seed'? allowed: algorithm, averaging, cluster, episode_limit, evaluation,",
    ),
    ({"algorithm": {"sigm": 1}}, "unknown key 'algorithm.sigm': did you mean 'algorithm.sigma'? allowed: "),
    (
        {"episode_limit": {"x": 1}},
        "unknown key 'episode_limit.x': allowed: growth, initial, threshold",
    ),
    ({1: 1}, "unknown key '1': allowed: "),
    ([1], "configuration: got [1], expected a mapping"),
    (None, "configuration: got null, expected a mapping"),
]


def test_from_mapping_unknown_key_lists_the_allowed_ones():
    for mapping, expected in UNKNOWN:
        assert refusal(mapping).startswith(expected)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES_OF_SECTIONS = [name for name, value in to_mapping(from_mapping({})).items() if isinstance(value, dict)]
key_paths = st.sampled_from(
    [f"{name}.{key}" if isinstance(value, dict) else name for name, value in to_mapping(from_mapping({})).items()
     for key in (value if isinstance(value, dict) else [""])]
)  # fmt: skip


@pytest.mark.slow
@given(key_paths, json_values)
def test_from_mapping_any_value_is_taken_or_refused_in_one_line(path: str, value: object):
    try:
        made = from_mapping(nested(path, value))
    except ConfigError as error:
        message = str(error)
    else:
        message = path
        assert from_mapping(to_mapping(made)) == made
    # Another key than the one given is named where two do not go together.
    assert message.startswith((path, f"unknown key '{path}", *(f"{section}." for section in NAMES_OF_SECTIONS)))
    assert len(message.splitlines()) == 1


NOT_JSON = [{1: 2}, np.float32(1), float("nan"), object(), {"deep": [{2: 3}]}]
NOT_JSON += [2**64, [-(2**63) - 1], "\udc80", {"\udc80": 1}]  # which the journal does not hold


@pytest.mark.parametrize("value", NOT_JSON)
def test_env_kwargs_are_what_json_has(value):
    with pytest.raises(ConfigError, match=r"task.env_kwargs: got .*, expected a mapping of what JSON has"):
        GymnasiumConfig(env_kwargs={"a": value})
    with pytest.raises(ConfigError, match=r"network.module_kwargs: got .*, expected a mapping of what JSON has"):
        OwnModuleConfig(module="a:b", module_kwargs={"a": value})
    assert GymnasiumConfig(env_kwargs={"a": (1, [2.5, None, {"b": True}], 2**64 - 1, -(2**63), "\u00e4")})


LITERALS = [
    (None, "null"),
    (True, "true"),
    (1, "1"),
    (0.5, "0.5"),
    ("None", "'None'"),
    ((64, 64), "[64, 64]"),
    ([True, [None]], "[true, [null]]"),
    ({"a": False, "b": {"c": "x"}}, "{'a': false, 'b': {'c': 'x'}}"),
    ([], "[]"),
    (float("inf"), "inf"),
]


def test_literal_is_in_the_words_of_yaml():
    for value, text in LITERALS:
        assert literal(value) == text
