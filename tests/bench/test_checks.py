"""`pyes check-environment`: what each check finds in an environment that breaks its rule."""

import shutil
from typing import Any

import native_sources
import pytest

from pyes.bench import checks, twins
from pyes.config import from_mapping
from pyes.errors import ConfigError


def found(against: str | None = None, **task: Any) -> dict[str, tuple[str, str]]:
    """Return the result and the text of each check."""
    lines: list[str] = []
    config = checks.only_environments(from_mapping({"task": task}).task)
    failures = checks.run(config, lambda task: twins.checks(task, against), lines.append)
    results = {line[:16].rstrip(): (line[16:24].rstrip(), line[24:]) for line in lines}
    assert failures == sum(word == "FAILED" for word, _ in results.values())
    return results


def failed(results: dict[str, tuple[str, str]]) -> dict[str, str]:
    return {name: text for name, (word, text) in results.items() if word == "FAILED"}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "SECONDS", 0.01)


@pytest.mark.slow
def test_sound_environment_passes_every_check():
    results = found(name="gymnasium", env_id="MountainCarContinuous-v0")
    assert list(results) == list(checks.NAMES)
    assert {word for word, _ in results.values()} == {"ok"}
    assert results["time limit"][1] == "999 timesteps; the longest episode of random actions has 999"


def test_observations_that_are_written_over_are_no_fault(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "NAMES", ("seeding", "clean slate", "bounds"))
    assert failed(found(name="python", factory="user_tasks:Lists")) == {}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["remove", "zero"])
@pytest.mark.parametrize("name", ["native", "gymnasium"])
def test_hidden_numbers_are_no_fault(name: str, how: str):
    results = found(name=name, env_id="CartPole-v1", hide_observations=[1], hide_by=how)
    assert failed(results) == {}
    assert f"of which the policy sees {3 if how == 'remove' else 4}" in results["spaces"][1]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("no seed", {"seeding": "two episodes of seed 1 with the same actions differ; draw every random number from"}),
        ("own actions", {"seeding": "two episodes of seed 1 with the same actions differ; draw"}),
        ("worn", {"clean slate": "seed 6 gives another episode after others than in a new environment"}),
        ("another process", {"other process": "seed 1 gives another episode in another process; use no hash()"}),
        ("outside", {"bounds": "observation[0] is 11.5 at timestep 7 of seed 1, expected -10.0 to 10.0; clip it"}),
        ("nan", {"finite numbers": "got [nan] at timestep 7 of seed 1; a member with NaN fails"}),
        ("infinite", {"finite numbers": "got [inf] at timestep 7 of seed 1; an infinity may make actions NaN"}),
        ("no reward", {"rewards": "got the reward None (NoneType), expected a finite number"}),
        ("nan reward", {"rewards": "got the reward nan (float), expected a finite number"}),
        ("endless", {"time limit": "an episode has not ended after 1,000 timesteps; set task.max_timesteps"}),
        ("shape", {"spaces": "reset returned float64 (3,), expected float32 (1,), as observation_space says"}),
        ("step's shape", {"spaces": "step returned float32 (1, 1), expected float32 (1,), as observation_space says"}),
        ("type", {"spaces": "reset returned complex64 (1,), expected float32 (1,), as observation_space says"}),
        ("raises", {"seeding": "it has raised KeyError: 'missing' (tests/user_tasks.py:"}),
    ],
)  # fmt: skip
def test_rule_that_is_broken_is_named(rule: str, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "NAMES", tuple(expected))
    failures = failed(found(name="python", factory="user_tasks:wrong", env_kwargs={"rule": rule}))
    for name, text in expected.items():
        assert text.removeprefix("it has") in failures[name] or failures[name].startswith(text)
        assert "\n" not in failures[name]


def test_bounds_are_those_of_every_part(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "NAMES", ("bounds",))
    task = {"name": "python", "factory": "user_tasks:Outside"}
    text = failed(found(**task))["bounds"]
    assert text.startswith("observation[3] is 11.5 at timestep 7 of seed 1, expected -10.0 to 10.0; clip it, or widen")
    assert failed(found(**task, hide_observations=["position"])) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        ("no chance", "seeding", "all seeds give the same episode: is the environment meant to have no chance in it?"),
        ("flat", "rewards", "every reward of random actions is 1: only lengths tell policies apart"),
        (
            "",
            "time limit",
            "there is none: episodes end after 10,000 timesteps, or task.max_timesteps (the longest had 10)",
        ),
    ],
)
def test_what_may_be_meant_is_a_note(rule: str, name: str, text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "NAMES", (name,))
    results = found(name="python", factory="user_tasks:wrong", env_kwargs={"rule": rule})
    assert results[name] == ("note", text)


@pytest.mark.slow
def test_environment_in_c_is_compared_with_its_twin():
    results = found("CartPole-v1", name="native", env_id="CartPole-v1")
    assert failed(results) == {}
    assert results["same steps"] == ("ok", "108 steps from the same states are equal")
    assert results["speed"][1].endswith("stepped by Python, with equal results")


@pytest.mark.slow
def test_difference_from_the_twin_is_named():
    results = found("CartPole-v1", name="native", env_id="Pendulum-v1")
    assert set(failed(results)) == {"same spaces", "same episodes"}
    assert results["same spaces"][1].startswith("observation_space is Box([-1. -1. -8.]")
    assert results["same steps"] == ("note", "not compared step by step: the spaces differ")


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_state_outside_of_the_struct_is_found(monkeypatch: pytest.MonkeyPatch):
    """A static variable in C: an episode follows from those before it."""
    monkeypatch.setattr(checks, "NAMES", ("seeding", "clean slate", "speed"))
    library = native_sources.point("static double kept = 0.0; kept += 0.01; seen[0] += kept;")
    failures = failed(found(name="native", library=library, symbol="point"))
    assert {"seeding", "clean slate", "speed"} <= set(failures)
    assert "with all state in the struct's own memory" in failures["speed"]


@pytest.mark.slow
def test_exception_in_a_compiled_function_is_that_of_python(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("numba")
    monkeypatch.setattr(checks, "NAMES", ("seeding",))
    failures = failed(found(name="native", factory="numba_environments:Walk"))
    assert "it has raised IndexError: index 5 is out of bounds" in failures["seeding"]
    assert "numba_environments.py:" in failures["seeding"]
    hidden = failed(found(name="native", factory="numba_environments:Walk", hide_observations=[1]))
    assert "it has raised IndexError: index 5 is out of bounds" in hidden["seeding"]


def test_function_of_theta_is_refused():
    with pytest.raises(ConfigError, match="is a function of theta and has no environment to check"):
        found(name="function", factory="pyes.tasks.functions:sphere", dim=2)
