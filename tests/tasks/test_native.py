"""Environments in C: the public header, the ways to one, and what is refused."""

import ctypes
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import native_sources
import numpy as np
import pytest
import slime_volley_twin
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


def make(render_mode: str | None = None, **keys: Any) -> tasks.Task:
    return tasks.make(from_mapping({"task": {"name": "native", **keys}}).task, render_mode)


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
    normals = np.empty(2)
    library.normal(ctypes.c_int64(2), ctypes.c_uint64(seed), ctypes.c_void_p(normals.ctypes.data))
    expected = np.sqrt(-2 * np.log(1 - shares[:4:2])) * np.cos(2 * np.pi * shares[1:4:2])
    np.testing.assert_allclose(normals, expected, rtol=1e-12, atol=1e-12)


# Those that come with pyes


#: Environments in C that follow one in Python, by its id.
TWINS = {name: name for name in _core.own_environments() if name in gymnasium.registry}
TWINS["Maze"] = "pyes.tasks.maze:Maze-v0"
OWN_RULES = ("CartPoleSwingUp", "SlimeVolley")


def own_state(env: Any) -> Any:
    env = env.unwrapped
    return np.array(env.state if hasattr(env, "state") else env.position, np.float64)


def test_every_environment_in_c_is_compared():
    assert {*TWINS, *OWN_RULES} == set(_core.own_environments())


@pytest.mark.parametrize("episodes", [3, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("env_id", sorted(TWINS))
def test_environment_in_c_follows_its_twin_step_by_step(env_id: str, episodes: int):
    """From the same state by the same action; ends are equal, too."""
    rng = np.random.default_rng(0)
    task, env = make(env_id=env_id), gymnasium.make(TWINS[env_id], disable_env_checker=True)
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


@pytest.mark.parametrize("env_id", sorted(TWINS))
def test_environment_in_c_starts_where_its_twin_does(env_id: str):
    """Its starts are other ones, from the same distribution."""
    task, env = make(env_id=env_id), gymnasium.make(TWINS[env_id], disable_env_checker=True)
    ours = np.array([task.reset(seed) for seed in range(2_000)])
    theirs = np.array([env.reset(seed=seed)[0] for seed in range(2_000)])
    env.close()
    np.testing.assert_allclose(ours.mean(0), theirs.mean(0), atol=0.1 * theirs.std(0).max())
    np.testing.assert_allclose(ours.std(0), theirs.std(0), rtol=0.1)
    assert len(np.unique(ours, axis=0)) > 1_900


def test_swing_up_obeys_the_laws_of_motion():
    """Accelerations solve Lagrange's equations of a cart and a rod, with the angle from upright to the left."""
    task, rng = make(env_id="CartPoleSwingUp"), np.random.default_rng(0)
    assert task.max_timesteps == 1000
    starts = np.array([task.reset(seed) for seed in range(2_000)])
    assert abs(starts.mean(0) - [0, 0, -np.exp(-0.02), 0, 0]).max() < 0.03  # the mean cosine of a normal angle
    np.testing.assert_allclose(starts.std(0)[[0, 1, 3, 4]], 0.2, rtol=0.1)
    cart, pole, length, gravity, friction, tau = 0.5, 0.5, 0.6, 9.82, 0.1, 0.01
    for _ in range(300):
        x, speed, angle, turn = begun = rng.normal(0, (1.2, 1, 3, 4))
        task.native.state[:] = np.frombuffer(begun.tobytes(), np.uint8)
        push = float(np.float32(rng.uniform(-2, 2)))
        coupling = pole * length / 2 * np.cos(angle)
        inertia = np.array([[cart + pole, -coupling], [-coupling, pole * length**2 / 3]])
        forces = [
            10 * np.clip(push, -1, 1) - friction * speed - pole * length / 2 * np.sin(angle) * turn**2,
            pole * gravity * length / 2 * np.sin(angle),
        ]
        speeds = np.array([speed, turn])
        x, angle = np.array([x, angle]) + tau * speeds
        speed, turn = speeds + tau * np.linalg.solve(inertia, forces)
        observation, reward, terminated, truncated, _ = task.step([push])
        np.testing.assert_allclose(task.native.state.view(np.float64), [x, speed, angle, turn], rtol=0, atol=1e-9)
        np.testing.assert_allclose(observation, [x, speed, np.cos(angle), np.sin(angle), turn], rtol=1e-6, atol=1e-6)
        assert reward == pytest.approx((np.cos(angle) + 1) / 2 * np.cos(x / 2.4 * np.pi / 2), abs=1e-9)
        assert (terminated, truncated) == (abs(x) > 2.4, False)


def slime_volley() -> tuple[tasks.Task, Callable[[], Any]]:
    """Return the task, and a function that reads x, y, speeds and radius of ball and slimes from its state."""
    task = make(env_id="SlimeVolley")
    assert task.native is not None
    return task, lambda: task.native.state[:120].view(np.float64).reshape(3, 5).copy()  # type: ignore[union-attr]


@pytest.mark.parametrize("episodes", [3, pytest.param(6, marks=pytest.mark.slow)])
def test_slime_volley_keeps_its_rules(episodes: int):
    """A player like the opponent keeps the ball in the air, one that acts at random loses it."""
    (task, read), rng = slime_volley(), np.random.default_rng(0)
    assert task.max_timesteps == 3000
    for seed in range(episodes):
        task.reset(seed)
        pause, lost, mirrored = 30, 0, seed % 3 < 2
        for _ in range(1_500):
            ball, left, right = map(slime_volley_twin.Disc, read())
            choice = int(rng.integers(6))
            if mirrored:  # the opponent's own way to play, seen from the other side
                flipped = [slime_volley_twin.Disc(each.numbers()) for each in (ball, right)]
                for each in flipped:
                    each.x, each.vx = -each.x, -each.vx
                run, jump = slime_volley_twin.opponent(*flipped)
                choice = run % 3 + 3 * jump
            met = slime_volley_twin.timestep(ball, left, right, pause, choice)
            observation, reward, over, _, _ = task.step(choice)
            assert reward == -met
            pause = 30 if met else max(pause - 1, 0)
            expected = [left.numbers(), right.numbers()] if met else [ball.numbers(), left.numbers(), right.numbers()]
            np.testing.assert_allclose(read()[-len(expected) :], expected, rtol=0, atol=1e-9)
            numbers = read()[[2, 0, 1], :4] * np.array([[1, 1, 1, 1], [1, 1, 1, 1], [-1, 1, -1, 1]]) / 10
            np.testing.assert_array_equal(observation, numbers.astype(np.float32).ravel())
            lost += met != 0
            if over:
                break
        assert lost >= 5 if over else mirrored


def test_slime_volley_ends_when_a_player_has_lost_five_times():
    task, _ = slime_volley()
    task.reset(0)
    total, over, steps = 0.0, False, 0
    while not over:
        _, reward, over, _, _ = task.step(0)
        total, steps = total + reward, steps + 1
    assert -5 <= total <= -3
    assert steps < 1_500


@pytest.mark.parametrize("env_id", sorted(_core.own_environments()))
def test_environment_that_comes_with_pyes_is_drawn(env_id: str):
    """What is drawn follows the state."""
    with make(env_id=env_id, render_mode="rgb_array") as task:
        frames = []
        for seed in (0, 1, 0):
            task.reset(seed)
            for _ in range(12):
                task.step(task.action_space.sample() if seed else 0 if task.native.choices else task.action_space.high)
            frames.append(task.render())
    assert frames[0].dtype == np.uint8
    assert frames[0].ndim == 3
    assert frames[0].std() > 0
    np.testing.assert_array_equal(frames[0], frames[2])
    assert (frames[0] != frames[1]).any()


def test_pole_that_hangs_is_drawn_whole():
    with make(env_id="CartPoleSwingUp", render_mode="rgb_array") as task:
        task.reset(0)
        task.native.state[:] = np.frombuffer(np.array([0.0, 0.0, np.pi, 0.0]).tobytes(), np.uint8)
        assert (task.render()[-1] == 255).all()


def test_environment_of_ones_own_draws_nothing():
    with pytest.raises(ConfigError, match="point is an environment in C, which draws no pictures; evaluate it instead"):
        make(library=native_sources.point(), symbol="point", render_mode="rgb_array")


# The ways to one


@pytest.mark.parametrize("name", ["struct", "pushed", "capsule", "address", "pointer", "_KEPT"])
def test_factory_gives_the_same_environment_as_the_library(name: str):
    there, library = make(factory=f"native_sources:{name}"), make(library=native_sources.point(), symbol="point")
    for task in (there, library):
        assert (task.observation_shape, task.limited, task.observation_space.dtype) == ((2,), False, np.float64)
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
        ({"factory": "native_sources:text"}, "task.factory=native_sources:text is str, expected an environment of"),
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


def test_episode_begins_with_an_observation_of_zeros():
    """An environment that does not write all of it has nothing of the episode before."""
    task = make(library=native_sources.point("seen[1] = 7.0;"), symbol="point")
    for _ in range(2):
        assert task.reset(0)[1] == 0.0
        assert task.step(np.zeros(1, np.float32))[0][1] == 7.0


def test_longest_episode_of_all():
    task = make(factory="native_sources:address", max_timesteps=10**9)
    assert task.max_timesteps == 10**9
    with pytest.raises(
        ConfigError, match=r"task\.max_timesteps: got 9223372036854775808, expected an integer >= 1 and <="
    ):
        make(env_id="CartPole-v1", max_timesteps=2**63)


def test_action_of_another_size_is_refused():
    task = make(env_id="CartPole-v1")
    task.reset(0)
    for action, message in ((2, "action: got 2, expected 0 to 1"), ([0.0, 1.0], "action: got 2 values, expected 1")):
        with pytest.raises(ValueError, match=message):
            task.step(action)


def test_steps_and_choices_are_whole():
    with make(env_id="CartPole-v1") as task:
        task.reset(0)
        with pytest.raises(ValueError, match=r"action: got 0\.7, expected an integer"):
            task.native.step(0.7)
        with pytest.raises(ValueError, match="frame_skip: got 0, expected at least 1"):
            _core.CompiledEnvironment(_core.own_environments()["CartPole-v1"], 0)
