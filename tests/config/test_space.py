"""Files of parameters for `pyes tune`: what they may say, and what their values set."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyes.config.space import Choices, Interval, Space, shown
from pyes.errors import ConfigError

EXAMPLE = """
algorithm.sigma: { low: 0.02, high: 1.0, log: true }
algorithm.population_size: [20, 40]
task.normalize_observations: [false, true]
network.init: [uniform, zero_output]
policy:
  linear: network=linear
  small: network=mlp network.hidden=[16]
"""


@pytest.fixture
def space(tmp_path: Path) -> Space:
    path = tmp_path / "mine.yaml"
    path.write_text(EXAMPLE)
    return Space.read(path)


def test_file_is_read(space: Space):
    assert space.parameters["algorithm.sigma"] == Interval(0.02, 1.0, True)
    assert space.parameters["algorithm.population_size"] == Choices(
        {"20": ("algorithm.population_size=20",), "40": ("algorithm.population_size=40",)}
    )
    assert space.parameters["policy"] == Choices(
        {"linear": ("network=linear",), "small": ("network=mlp", "network.hidden=[16]")}
    )
    assert Space.parse(space.to_mapping(), "itself").parameters == space.parameters


def test_values_set_overrides(space: Space):
    low, high, between = space.samples()
    assert space.overrides(low) == [
        "algorithm.sigma=0.02",
        "algorithm.population_size=20",
        "task.normalize_observations=false",
        "network.init=uniform",
        "network=linear",
    ]
    assert space.overrides(high)[-2:] == ["network=mlp", "network.hidden=[16]"]
    assert space.overrides(between)[0] == "algorithm.sigma=0.383"


@pytest.mark.parametrize(("ends", "between"), [((16, 256.0), "16.4"), ((16, 256), "17"), ((0.9, 0.999), "0.9366")])
def test_a_value_is_checked_that_an_integer_cannot_have(ends: tuple[float, float], between: str):
    low, high = ends
    space = Space.parse({"algorithm.population_size": {"low": low, "high": high}}, "mine")
    assert space.overrides(space.samples()[-1]) == [f"algorithm.population_size={between}"]


def test_choices_may_be_called_low_and_high():
    values = {"task.env_kwargs.noise": ["low", "high"], "steps": {"low": "seed=1", "high": "seed=2"}}
    space = Space.parse(values, "mine")
    assert space.overrides({"task.env_kwargs.noise": "low", "steps": "high"}) == ["task.env_kwargs.noise=low", "seed=2"]
    assert Space.parse(space.to_mapping(), "itself").parameters == space.parameters


def test_keys_are_those_behind_the_signs_of_an_override():
    space = Space.parse({"x": {"a": "++evaluation.episodes=5", "b": "+seed=3"}}, "mine")
    assert space.keys("x") == {"evaluation.episodes", "seed"}
    assert not space.without(["evaluation.episodes"]).parameters


@given(value=st.floats(1e-6, 1e6))
def test_a_number_is_set_as_it_is_shown(value: float):
    assert Space({"x": Interval(1e-7, 1e7)}).overrides({"x": value}) == [f"x={shown(value)}"]
    assert float(shown(value)) == pytest.approx(value, rel=0.0051)


@given(value=st.floats(0.12345, 0.12349))
def test_a_number_is_not_rounded_out_of_its_interval(value: float):
    (word,) = Space({"x": Interval(0.12345, 0.12349)}).overrides({"x": value})
    assert 0.12345 <= float(word.removeprefix("x=")) <= 0.12349


def test_values_with_spaces_stay_whole():
    schedule = "linear 0.3 to 0.05 in 2e6 timesteps"
    values = {
        "network.hidden": [[16], [64, 64]],
        "algorithm.sigma": [0.1, schedule],
        "both": {"one": "seed=1", "two": f"seed=2 algorithm.learning_rate='{schedule}'"},
    }
    space = Space.parse(values, "mine")
    _, last = space.samples()
    both = ["seed=2", f"algorithm.learning_rate={schedule}"]
    assert space.overrides(last) == ["network.hidden=[64, 64]", f"algorithm.sigma={schedule}", *both]
    assert Space.parse(space.to_mapping(), "itself").parameters == space.parameters


def test_an_interval_between_whole_numbers_has_only_these():
    space = Space.parse({"a": {"low": 20, "high": 12345}, "b": {"low": 1, "high": 2.0}}, "mine")
    assert {name: each.whole for name, each in space.parameters.items()} == {"a": True, "b": False}
    assert space.overrides({"a": 12344, "b": 1.23456}) == ["a=12344", "b=1.23"]
    space = Space.parse({"a": {"low": 10, "high": "1e2"}, "b": {"low": 0, "high": "1e-1"}}, "mine")
    assert space.parameters == {"a": Interval(10, 100), "b": Interval(0.0, 0.1)}


def test_samples_have_every_choice_an_even_and_an_odd_number_and_one_with_a_fraction():
    space = Space.parse({"a": {"low": 10, "high": 80}, "b": {"low": 0.5, "high": 2}, "c": [1, 2, 3, 4]}, "mine")
    assert [tuple(each.values()) for each in space.samples()] == [
        (10, 0.5, "1"),
        (80, 2.0, "2"),
        (11, 0.87, "3"),
        (11, 0.87, "4"),
    ]


def test_numbers_near_one_and_without_a_point_are_taken_as_meant():
    values = {"optimizer.beta2": {"low": 0.99, "high": 0.99995}, "a": {"low": "1e-4", "high": "1E-1", "log": True}}
    space = Space.parse(values, "mine")
    low, high, _ = space.samples()
    assert space.overrides(low) == ["optimizer.beta2=0.99", "a=0.0001"]
    assert space.overrides(high) == ["optimizer.beta2=0.99995", "a=0.1"]
    assert shown(0.912345678) == "0.9123"


@pytest.mark.parametrize(
    ("given", "left_out"),
    [
        ([], set()),
        (["task", "algorithm", "timesteps"], set()),  # a group does not set the keys in it
        (["algorithm.sigma"], {"algorithm.sigma"}),
        (["network"], {"policy"}),
        (["network.hidden"], {"policy"}),
        (["network.init"], {"policy", "network.init"}),
    ],
)
def test_what_is_given_is_not_searched(space: Space, given: list[str], left_out: set[str]):
    assert space.parameters.keys() - space.without(given).parameters.keys() == left_out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "got None, expected a mapping of parameters"),
        ("[1, 2]", "got [1, 2], expected a mapping of parameters"),
        ("a: 3", "a: got 3, expected a list of values, {low: A, high: B}, or labels with their overrides"),
        ("a: [3]", "a: got ['3'], expected at least two choices, all different"),
        ("a: [3, 3]", "a: got ['3'], expected at least two choices, all different"),
        ("a: {one: b=1, two: 2}", "a: got {'one': 'b=1', 'two': 2}, expected a list of values"),
        ("a: {low: 1}", "a: got {'low': 1}, expected numbers low and high"),
        ("a: {low: 1, high: .nan}", "expected numbers low and high"),
        (f"a: {{low: 1, high: 1{400 * '0'}}}", "expected numbers low and high"),
        ("a: {low: 1, high: more}", "got {'low': 1, 'high': 'more'}, expected numbers low and high"),
        ("a: {low: 1, high: true}", "expected numbers low and high"),
        ("a: {low: 1, high: 2, log: 3}", "expected numbers low and high, and log: true or false"),
        ("a: {low: 2, high: 1}", "a: got low 2 and high 1, expected low < high"),
        ("a: {low: 0, high: 1, log: true}", "expected low < high, and low > 0 with log: true"),
        ("a: {low: 0, high: 1, logg: true}", "did you mean"),
        ("a: [1", "not YAML"),
        ('a: {one: b=1, two: "b=\'2"}', "expected overrides (No closing quotation)"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_it(tmp_path: Path, text: str, says: str):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(says)) as caught:
        Space.read(path)
    assert "mine.yaml" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"mine.yaml: cannot be read \(No such file or directory\)"):
        Space.read(tmp_path / "mine.yaml")
