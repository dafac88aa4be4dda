"""Environments in C: the public header, the ways to one, and what is refused."""

import ctypes
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import native_sources
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from native_sources import FUNCTIONS, RANDOM, computed

import pyes
from pyes import _core, reference, tasks
from pyes.config import from_mapping
from pyes.errors import ConfigError
from pyes.system import lookup

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or shutil.which("cc") is None, reason="compiles with a C compiler of POSIX"
)


def make(**keys: Any) -> tasks.Task:
    return tasks.make(from_mapping({"task": {"name": "native", **keys}}).task)


def test_header_is_where_include_dir_says():
    header = Path(pyes.include_dir()) / "pyes_environment.h"
    assert "struct pyes_environment {" in header.read_text(encoding="utf-8")
    command = ["cc", "-std=c11", "-ffast-math", "-fsyntax-only", "-x", "c", str(header)]
    assert "build without -ffast-math" in subprocess.run(command, capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_the_header_are_within_2_units_of_the_last_place(name: str):
    rng = np.random.default_rng(0)
    ends = {"exp": 700.0, "tanh": 25.0, "log": 0.0, "sqrt": 0.0}.get(name, 1e6)
    x = np.concatenate(
        [rng.uniform(-1, 1, 20_000), ends * rng.uniform(-1, 1, 20_000), 10 ** rng.uniform(-300, 2, 20_000)]
    )
    if name in ("log", "sqrt"):
        x = np.concatenate([np.abs(x[x != 0]), 10 ** rng.uniform(-323, 308, 20_000)])
    elif name in ("sin", "cos"):
        x = np.concatenate([x, np.arange(-20_000, 20_000) * (math.pi / 2)])
    expected = np.array([getattr(math, name)(each) for each in x])
    assert (np.abs(computed(name, x) - expected) / np.spacing(np.abs(expected))).max() <= 2


def test_functions_of_the_header_at_their_ends():
    inf, nan = math.inf, math.nan
    x = [0.0, -0.0, inf, -inf, nan]
    for name, expected in {
        "sin": [0, -0.0, nan, nan, nan],
        "cos": [1, 1, nan, nan, nan],
        "exp": [1, 1, inf, 0, nan],
        "log": [-inf, -inf, inf, nan, nan],
        "tanh": [0, -0.0, 1, -1, nan],
        "floor": [0, 0, inf, -inf, nan],
    }.items():
        np.testing.assert_array_equal(computed(name, x), np.array(expected, float), name)
    np.testing.assert_array_equal(computed("floor", [1.5, -1.5, -2.0, 0.999]), [1, -2, -2, 0])
    np.testing.assert_array_equal(computed("exp", [709.79, -709.0]), [inf, 0])
    np.testing.assert_array_equal(np.signbit(computed("sin", x[:2])), [False, True])


@given(st.integers(0, 2**64 - 1))
def test_random_numbers_of_the_header_are_philox(seed: int):
    library = ctypes.CDLL(native_sources.compiled(RANDOM, "random"))
    words, numbers = np.empty(11, np.uint32), np.empty(5)
    library.bits(ctypes.c_int64(11), ctypes.c_uint64(seed), ctypes.c_void_p(words.ctypes.data))
    library.uniform(ctypes.c_int64(5), ctypes.c_uint64(seed), ctypes.c_void_p(numbers.ctypes.data))
    first = np.empty(4, np.uint32)
    _core.stream_bits(seed, 0, 0, 0, 0, first)
    np.testing.assert_array_equal(words[:4], first)
    np.testing.assert_array_equal(
        words, reference.philox(np.array([[k, 0, 0, 0] for k in range(3)], np.uint32), seed).ravel()[:11]
    )
    pairs = words[:10].astype(np.uint64).reshape(5, 2)
    shares = ((pairs[:, 0] << np.uint64(32) | pairs[:, 1]) >> np.uint64(11)).astype(float) / 2**53
    np.testing.assert_array_equal(numbers, -2.0 + 5.0 * shares)


# Those that come with pyes


def own_state(env: Any) -> Any:
    return np.array(env.unwrapped.state, np.float64)


@pytest.mark.parametrize("episodes", [3, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
@pytest.mark.parametrize("env_id", sorted(_core.own_environments()))
def test_own_environment_follows_gymnasium_step_by_step(env_id: str, episodes: int):
    """From the same state by the same action; ends are equal, too."""
    rng = np.random.default_rng(0)
    task, env = make(env_id=env_id), gymnasium.make(env_id, disable_env_checker=True)
    assert task.native is not None
    assert task.max_timesteps == env.spec.max_episode_steps
    assert task.action_space == env.action_space
    assert task.observation_space == env.observation_space
    ends = 0
    for episode in range(episodes):
        env.reset(seed=episode)
        env.action_space.seed(episode)
        task.reset(episode)
        over, held, step = False, int(rng.integers(1, 5)), 0
        action = env.action_space.sample()
        while not over:
            begun = own_state(env)
            task.native.state[: begun.nbytes] = np.frombuffer(begun.tobytes(), np.uint8)
            if step % held == 0:
                action = env.action_space.sample()
            observation, reward, terminated, truncated, _ = env.step(action)
            ours = task.step(action)
            state = task.native.state[: begun.nbytes].view(np.float64)
            np.testing.assert_allclose(state, own_state(env), rtol=0, atol=1e-9)
            np.testing.assert_allclose(ours[0], observation, rtol=1e-6, atol=1e-6)
            assert ours[1] == pytest.approx(reward, abs=1e-9)
            assert ours[2] == terminated
            over, step, ends = terminated or truncated, step + 1, ends + terminated
    assert ends or not env_id.startswith("CartPole")
    env.close()


@pytest.mark.parametrize("env_id", sorted(_core.own_environments()))
def test_own_environment_starts_where_gymnasium_does(env_id: str):
    """Its starts are other ones, from the same distribution."""
    task, env = make(env_id=env_id), gymnasium.make(env_id, disable_env_checker=True)
    ours = np.array([task.reset(seed) for seed in range(2_000)])
    theirs = np.array([env.reset(seed=seed)[0] for seed in range(2_000)])
    env.close()
    np.testing.assert_allclose(ours.mean(0), theirs.mean(0), atol=0.1 * theirs.std(0).max())
    np.testing.assert_allclose(ours.std(0), theirs.std(0), rtol=0.1)
    assert len(np.unique(ours, axis=0)) > 1_900


# The ways to one


@pytest.mark.parametrize("name", ["struct", "pushed", "capsule", "address", "pointer", "_KEPT"])
def test_factory_gives_the_same_environment_as_the_library(name: str):
    there, library = make(factory=f"native_sources:{name}"), make(library=native_sources.point(), symbol="point")
    for task in (there, library):
        assert (task.observation_shape, task.max_timesteps, task.observation_space.dtype) == ((2,), None, np.float64)
    np.testing.assert_array_equal(there.reset(5), library.reset(5))
    for _ in range(10):
        ours, theirs = there.step(np.array([0.5], np.float32)), library.step(np.array([0.5], np.float32))
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[1:] == theirs[1:]
    assert ours[3]


def test_arguments_reach_the_function():
    windy, calm = (make(factory="native_sources:pushed", env_kwargs={"push": push}) for push in (1.0, 0.0))
    windy.reset(5), calm.reset(5)
    assert windy.step(np.zeros(1, np.float32))[0][0] == pytest.approx(calm.step(np.zeros(1, np.float32))[0][0] + 1)


def test_frame_skip_repeats_the_action_and_adds_rewards():
    one, three = (
        make(library=native_sources.point(more=".time_limit = 7,"), symbol="point", frame_skip=n) for n in (1, 3)
    )
    assert (one.max_timesteps, three.max_timesteps) == (7, 3)
    one.reset(1), three.reset(1)
    steps = [one.step([0.25]) for _ in range(3)]
    held = three.step([0.25])
    np.testing.assert_array_equal(held[0], steps[-1][0])
    assert held[1] == sum(step[1] for step in steps)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "task: got none, expected one of task.env_id, task.library and task.factory"),
        ({"env_id": "CartPole-v1", "factory": "a:b"}, "got task.env_id=CartPole-v1 task.factory=a:b, expected one of"),
        ({"env_id": "CartPole-v0"}, "task.env_id: got 'CartPole-v0', expected one of 'Acrobot-v1', 'Cart"),
        ({"env_id": "CartPole-v1", "env_kwargs": {"a": 1}}, r"task.env_kwargs: .* expected {} without task.factory"),
        ({"library": "there.so"}, "task.symbol: got '', expected the name of a struct pyes_environment"),
        ({"library": "there.so", "symbol": "x"}, "task.library: there is no file there.so; compile it first"),
        ({"library": __file__, "symbol": "x"}, "cannot be loaded: "),
        ({"factory": "native_sources:text"}, "task.factory=native_sources:text is str, expected a PyCapsule named"),
        ({"factory": "native_sources:other_capsule"}, "is a PyCapsule of another name, expected 'pyes.environment'"),
        ({"factory": "native_sources:_KEPT", "env_kwargs": {"a": 1}}, "because native_sources:_KEPT is no function"),
    ],
)  # fmt: skip
def test_way_that_leads_nowhere_is_refused_in_one_line(keys: Any, message: str):
    with pytest.raises(ConfigError, match=message) as caught:
        make(**keys)
    assert "\n" not in str(caught.value)


def test_symbol_that_the_library_lacks_is_refused():
    with pytest.raises(ConfigError, match=r"task.symbol: .* has no pont; is it a global struct"):
        make(library=native_sources.point(), symbol="pont")


def test_library_is_the_users_own_code(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lookup, "_allowed", ("pyes.tasks",))
    with pytest.raises(ConfigError, match=r"task.library: this worker may not run"):
        make(library=native_sources.point(), symbol="point")


_LOW = (ctypes.c_double * 2)(0.0, 2.0)
_HIGH = (ctypes.c_double * 2)(1.0, 1.0)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"abi": 2}, r"its ABI is 2, expected 1; compile it against the pyes_environment.h in pyes.include_dir\(\)"),
        ({"size": 8}, r"its size is 8, expected sizeof\(struct pyes_environment\), which is 120"),
        ({"name": None}, "its name is NULL, expected a text"),
        ({"reset": None}, "its reset is NULL, expected a function"),
        ({"step": None}, "its step is NULL, expected a function"),
        ({"state_bytes": 2**63}, "its state_bytes is 9223372036854775808, expected 0 to 4294967296"),
        ({"observation_type": 2}, "its observation_type is 2, expected 0 to 1"),
        ({"observation_size": 0}, "its observation_size is 0, expected 1 to 16777216"),
        ({"action_size": 0}, "its action_size is 0, expected 1 to 16777216"),
        ({"choices": 3}, "its action_size is 1, expected 0 to 0 with 3 choices"),
        ({"time_limit": 2**63}, "its time_limit is 9223372036854775808, expected 0 to"),
        ({"reward_low": 1.0}, "its reward_low is 1.0, expected at most reward_high, 0.0"),
        ({"reward_high": math.nan}, "its reward_low is 0.0, expected at most reward_high, nan"),
        (
            {"observation_low": ctypes.addressof(_LOW), "observation_high": ctypes.addressof(_HIGH)},
            r"its observation_low\[1\] is above observation_high, or one of them is NaN",
        ),
    ],
)
def test_struct_that_cannot_be_is_refused(members: Any, message: str):
    made = native_sources.struct(**members)
    with pytest.raises(ValueError, match=message):
        _core.CompiledEnvironment(ctypes.addressof(made))


def test_address_of_nothing_is_refused_by_the_task(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(native_sources, "address", lambda: 0)
    with pytest.raises(ConfigError, match=r"native_sources:address is no environment .*: its address is 0"):
        make(factory="native_sources:address")


@pytest.mark.parametrize(
    ("step", "more", "message"),
    [
        ("((char *)state)[sizeof *now + 3] = 1;", "", "Point wrote behind its state: state_bytes is 56"),
        ("seen[2] = 1.0;", "", "Point wrote behind its observation: observation_size is 2 values of float64"),
        ("return 7;", "", "Point: step returned a wrong number, expected 0, PYES_TERMINATED, PYES_TRUNCATED or both"),
        ("*reward = 2.5;", ".reward_low = -9, .reward_high = 0,", "Point: got the reward 2.5, expected -9.0 to 0.0"),
    ],
)
def test_step_that_breaks_its_contract_is_refused(step: str, more: str, message: str):
    task = make(library=native_sources.point(step, more), symbol="point")
    task.reset(0)
    with pytest.raises(ValueError, match=message):
        task.step(np.zeros(1, np.float32))


def test_action_of_another_size_is_refused():
    task = make(env_id="CartPole-v1")
    task.reset(0)
    for action, message in ((2, "action: got 2, expected 0 to 1"), ([0.0, 1.0], "action: got 2 values, expected 1")):
        with pytest.raises(ValueError, match=message):
            task.step(action)
