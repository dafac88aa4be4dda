"""Box2D tasks: the episodes of Gymnasium's environments, bit for bit, whatever went before."""

import copy
import gc
import platform
import subprocess
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

from pyes import _core, cli, tasks
from pyes.episodes.native import NativeRollout
from pyes.episodes.rollout import Rollout
from pyes.errors import ConfigError
from pyes.system import lookup
from pyes.tasks import Task, parity
from pyes.tasks.gymnasium import GymnasiumConfig
from pyes.tasks.parity import first_difference
from tests.conformance.test_tasks import actions
from tests.in_c import check_journals, played, trace

pytest.importorskip("Box2D")

from pyes.tasks import box2d, box2d_steps, box2d_terrain

IDS = ("LunarLander-v3", "LunarLanderContinuous-v3", "BipedalWalker-v3", "BipedalWalkerHardcore-v3")


@pytest.fixture(params=IDS)
def env_id(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def task(env_id: str) -> Iterator[Task]:
    with tasks.make(GymnasiumConfig(env_id=env_id)) as made:
        yield made


def original_of(env_id: str, **arguments: Any) -> Any:
    """Each episode in a world of its own, as the task has it."""
    return gymnasium.make(env_id, disable_env_checker=True, **arguments).unwrapped


def upright(observation: Any, space: Any, rng: np.random.Generator) -> Any:
    """Return an action that lands softly, or stands for a while, so that legs touch the ground."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return 2 if observation[3] < -0.1 else int(rng.integers(4)) if observation[6] == 0 else 0
    if len(observation) == 8:
        return np.array([-4 * observation[3] - 0.2, -3 * observation[4]], np.float32)
    return (0.4 * rng.standard_normal(4)).astype(np.float32)


@pytest.mark.parametrize("episodes", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_every_timestep_is_the_environments(env_id: str, task: Task, episodes: int):
    """Also of walkers that lie on the ground, and of landers that stand on it."""
    assert type(task) is box2d.Box2DTask
    if task._stepper is not None:
        assert task.step == task._stepper.step
    for seed in range(episodes):
        if seed % 2:
            assert first_difference(task, original_of(env_id), seed, actions(task.action_space, seed, 200)) is None
            continue
        original, rng = original_of(env_id), np.random.default_rng(seed)
        observation, over = task.reset(seed), False
        assert observation.tobytes() == original.reset(seed=seed)[0].tobytes()
        for _ in range(300):
            action = upright(observation, task.action_space, rng)
            observation, reward, over, _, _ = task.step(action)
            other = original.step(action)
            assert observation.tobytes() == other[0].tobytes()
            assert (float(reward), over) == (float(other[1]), other[2])
            if over:
                break


def in_c(task: Task) -> Any:
    """Return the environment in C of a task."""
    if sys.platform == "win32" or platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("C steps Box2D on processors of the x86-64 kind, and finds no function of libm on Windows")
    assert task.native is not None
    return task.native


@pytest.mark.parametrize("episodes", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_timesteps_in_c_are_those_of_python(env_id: str, task: Task, episodes: int):
    """Of policies, and of actions at random, far beyond the end of an episode."""
    native = in_c(task)
    for seed in range(episodes // 2):
        chosen = actions(task.action_space, seed, 250)
        assert trace(native, seed, chosen) == trace(task, seed, chosen)
    assert played(NativeRollout, task, episodes, 150) == played(Rollout, task, episodes, 150)


@pytest.mark.parametrize("env_id", IDS[:2])
def test_lander_sleeps_and_wakes_in_c_as_in_python(env_id: str, task: Task):
    from gymnasium.envs.box2d.lunar_lander import heuristic

    native, env = in_c(task), task._env.unwrapped  # type: ignore[attr-defined]
    fire: Any = 2 if env_id == IDS[0] else np.array([1.0, 0.8], np.float32)
    chosen, observation, reward = [], task.reset(0), 0.0
    while reward != 100:
        chosen.append(np.asarray(heuristic(env, observation), task.action_space.dtype))
        observation, reward, *_ = task.step(chosen[-1])
        assert len(chosen) < 1000
    chosen += [fire] * 5  # goes on where the episode ends
    expected = trace(task, 0, chosen)
    assert trace(native, 0, chosen) == expected
    assert [each[2] for each in expected[-7:]] == [False, True, False, False, False, False, False]  # asleep, and awake


@pytest.mark.parametrize(("env_id", "wrong"), [(IDS[1], np.nan), (IDS[1], np.inf), (IDS[2], np.inf), (IDS[2], -np.inf)])
def test_actions_that_are_not_finite_do_the_same_in_c(env_id: str, task: Task, wrong: float):
    native, action = in_c(task), np.full(task.action_space.shape, wrong, np.float32)
    assert trace(native, 0, [action] * 3) == trace(task, 0, [action] * 3)


@pytest.mark.parametrize("env_id", ["BipedalWalker-v3"])
def test_walker_without_numbers_fails_in_c_as_in_the_environment(env_id: str, task: Task):
    action = np.array([0, np.nan, 0, 0], np.float32)
    task.reset(0)
    with pytest.raises(AssertionError):
        task.step(action)
    native = in_c(task)
    native.reset(0)
    with pytest.raises(ValueError, match="action: got NaN"):
        native.step(action)
    assert trace(native, 0, []) == trace(task, 0, [])


@pytest.mark.parametrize("env_id", ["LunarLander-v3", "BipedalWalker-v3"])
def test_c_touches_no_body_after_a_reset_that_failed(env_id: str, task: Task, monkeypatch: pytest.MonkeyPatch):
    native = in_c(task)
    action = np.zeros(4 if env_id == "BipedalWalker-v3" else 1, np.float32)
    native.reset(0)
    expected = native.step(action)[0].tobytes()
    with monkeypatch.context() as patched:
        patched.setattr(task._stepper, "_own_reset", lambda **_: 1 / 0)  # type: ignore[attr-defined]
        with pytest.raises(ZeroDivisionError):
            native.reset(0)
    with pytest.raises(RuntimeError, match="no episode for C"):
        native.step(action)
    native.reset(0)
    assert native.step(action)[0].tobytes() == expected


@pytest.mark.parametrize("env_id", ["LunarLander-v3", "BipedalWalker-v3"])
def test_interrupt_in_a_callback_of_the_simulator_costs_the_episode_alone(
    env_id: str, task: Task, monkeypatch: pytest.MonkeyPatch
):
    """Which leaves Box2D's world locked: nothing in it can be destroyed any more. In C there are no callbacks."""
    from gymnasium.envs.box2d import bipedal_walker, lunar_lander

    module: Any = bipedal_walker if env_id == "BipedalWalker-v3" else lunar_lander
    in_c(task)
    expected = played(Rollout, task, 2, 150)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module.ContactDetector, "BeginContact", interrupted)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                played(Rollout, task, 2, 150)
    assert played(Rollout, task, 2, 150) == played(NativeRollout, task, 2, 150) == expected


@pytest.mark.parametrize("env_id", ["LunarLander-v3", "BipedalWalker-v3"])
def test_python_goes_on_where_c_has_stepped(env_id: str, task: Task):
    """It hears of contacts from there on; C takes no more timesteps of the episode."""
    native, chosen = in_c(task), actions(task.action_space, 2, 120)
    for steps in (0, 1, 100):
        expected = trace(task, 2, chosen)
        begun = trace(native, 2, chosen[:steps])
        rest = [task.step(action) for action in chosen[steps:]]
        assert begun + [(step[0].tobytes(), float(step[1]).hex(), *step[2:4]) for step in rest] == expected
        with pytest.raises(RuntimeError, match="no episode for C"):
            native.step(chosen[0])


@pytest.mark.parametrize("env_id", ["LunarLanderContinuous-v3", "BipedalWalker-v3"])
def test_environment_that_somebody_else_resets_is_followed(env_id: str, task: Task):
    native, chosen = in_c(task), actions(task.action_space, 1, 20)
    native.reset(3)
    native.step(chosen[0])
    task._env.reset(seed=5)  # type: ignore[attr-defined]
    steps = [native.step(action) for action in chosen]
    expected = trace(task, 5, chosen)
    assert [(step[0].tobytes(), float(step[1]).hex(), *step[2:]) for step in steps] == expected[1:]


@pytest.mark.parametrize("env_id", ["LunarLander-v3", "BipedalWalker-v3"])
def test_an_episode_that_a_reset_did_not_end_goes_on_as_in_the_environment(env_id: str, task: Task):
    """C gives it back, wherever it was, with all that it had heard."""
    native, original, chosen = in_c(task), original_of(env_id), actions(task.action_space, 4, 200)
    native.reset(4)
    original.reset(seed=4)
    for action in chosen[:60]:
        native.step(action)
        original.step(action)
    with pytest.raises(gymnasium.error.Error):
        task._env.unwrapped.reset(seed=-1)  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="no episode for C"):
        native.step(chosen[0])
    for action in chosen[60:]:
        ours, theirs = task._env.unwrapped.step(action), original.step(action)  # type: ignore[attr-defined]
        assert ours[0].tobytes() == theirs[0].tobytes()
        assert (float(ours[1]), ours[2]) == (float(theirs[1]), theirs[2])


@pytest.mark.slow
@pytest.mark.parametrize("env_id", ["LunarLander-v3", "BipedalWalker-v3"])
def test_c_that_differs_gives_its_episode_back(env_id: str, monkeypatch: pytest.MonkeyPatch):
    """Else the world would go on to report contacts to an object that is gone."""
    chosen = actions(gymnasium.make(env_id).action_space, 3, 200)

    def differs(task: Task, native: Any) -> bool:
        trace(native, 3, chosen[:100])
        return False

    monkeypatch.setattr(parity, "_same_in_c", differs)
    with tasks.make(GymnasiumConfig(env_id=env_id)) as task, tasks.make(GymnasiumConfig(env_id=env_id)) as other:
        assert task.native is None
        gc.collect()
        rest = [task.step(action) for action in chosen[100:]]
        expected = trace(other, 3, chosen)[101:]
        assert [(step[0].tobytes(), float(step[1]).hex(), *step[2:4]) for step in rest] == expected


@pytest.mark.parametrize("env_id", ["LunarLander-v3", "BipedalWalker-v3"])
def test_an_interrupt_as_c_gives_back_costs_nothing(env_id: str, task: Task, monkeypatch: pytest.MonkeyPatch):
    native, chosen = in_c(task), actions(task.action_space, 2, 120)
    expected = trace(task, 2, chosen)
    begun = trace(native, 2, chosen[:100])
    world = type(task._env.unwrapped.world)  # type: ignore[attr-defined]

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(world, "contactListener", property(world.contactListener.fget, interrupted))
        with pytest.raises(KeyboardInterrupt):
            task.step(chosen[100])
    with pytest.raises(RuntimeError, match="no episode for C"):
        native.step(chosen[100])
    rest = [task.step(action) for action in chosen[100:]]
    assert begun + [(step[0].tobytes(), float(step[1]).hex(), *step[2:4]) for step in rest] == expected


@pytest.mark.slow
@pytest.mark.parametrize("env_id", ["LunarLander-v3", "BipedalWalker-v3"])
def test_the_world_that_c_steps_lives_as_long_as_it_may(env_id: str, task: Task):
    native, env = in_c(task), task._env.unwrapped  # type: ignore[attr-defined]
    native.reset(0)
    world = weakref.ref(env.world)
    env.world = task._stepper._advance = None  # type: ignore[attr-defined]
    gc.collect()
    assert world() is not None
    native.step(np.zeros(4 if env_id == "BipedalWalker-v3" else 1, np.float32))
    task._stepper.in_c.give_back()  # type: ignore[attr-defined]
    gc.collect()
    assert world() is None


def test_c_wants_two_legs(task: Task):
    in_c(task)
    stepper: Any = task._stepper  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="unpack"):
        stepper.in_c.attach(
            stepper._env, [], np.zeros(24 if "_hull" in vars(stepper) else 8), world=1, **_others(stepper)
        )


def _others(stepper: Any) -> dict[str, Any]:
    if isinstance(stepper, box2d_steps.Lander):
        return {"body": 1, "ground": 0.0}
    return {"hull": 1, "joints": [(1, 1, 1, 0.0)] * 4, "rays": stepper._rays}


def test_walker_of_another_version_lays_its_own_ground(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lookup, "version", lambda name: "2.3.10" if name == "Box2D" else "1.5.0")
    with tasks.make(GymnasiumConfig(env_id="BipedalWalker-v3")) as task:
        assert task._stepper is None
        assert "_generate_terrain" not in vars(task._env.unwrapped)


def test_walker_steps_itself_by_the_rules_of_numpy_1(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(np, "__version__", "1.26.4")
    with tasks.make(GymnasiumConfig(env_id="BipedalWalker-v3")) as task:
        assert task._stepper is None
        assert task.native is None


def test_versions_that_c_does_not_know_are_stepped_by_python(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lookup, "version", lambda name: "2.4.0" if name == "Box2D" else "1.4.0")
    with tasks.make(GymnasiumConfig(env_id="LunarLander-v3")) as task:
        assert task.native is None
        assert task._stepper is None or task._stepper.in_c is None


@pytest.mark.parametrize("keys", [{"action_levels": 3}, {"remake": True}, {"env_kwargs": {"enable_wind": True}}])
def test_tasks_that_c_does_not_know_are_stepped_by_python(keys: dict[str, Any]):
    with tasks.make(GymnasiumConfig(**keys)) as task:
        assert task.native is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env_id", "keys"),
    [
        ("LunarLander-v3", {"hide_observations": [0, 7]}),
        ("LunarLanderContinuous-v3", {"action_noise": 0.2, "frame_skip": 2}),
        ("BipedalWalker-v3", {"reward_min": -1.0}),
    ],
)
def test_journal_is_the_same_by_c_and_by_python(
    env_id: str, keys: dict[str, Any], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
):
    config = GymnasiumConfig(env_id=env_id, normalize_observations=True, max_timesteps=120, **keys)
    with tasks.make(config) as made:
        in_c(made)
    check_journals(config, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("env_id", "arguments"),
    [
        ("LunarLander-v3", {"gravity": -3.0, "continuous": True}),
        ("LunarLander-v3", {"enable_wind": True}),  # steps by itself
        ("BipedalWalker-v3", {"hardcore": True}),
    ],
)
def test_arguments_of_the_environment_are_kept(env_id: str, arguments: dict[str, Any]):
    with tasks.make(GymnasiumConfig(env_id=env_id, env_kwargs=arguments)) as task:
        for seed in range(2):
            original = original_of(env_id, **arguments)
            assert first_difference(task, original, seed, actions(task.action_space, seed, 80)) is None


@pytest.mark.parametrize("env_id", ["LunarLanderContinuous-v3", "BipedalWalker-v3"])
def test_actions_may_be_lists(env_id: str):
    action = [0.7, 0.1, -0.3, 0.9] if env_id == "BipedalWalker-v3" else [0.7, -0.8]
    with tasks.make(GymnasiumConfig(env_id=env_id)) as task:
        original = original_of(env_id)
        task.reset(0)
        original.reset(seed=0)
        ours, theirs = task.step(action), original.step(np.array(action))
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert ours[1] == pytest.approx(theirs[1], rel=1e-6)


@pytest.mark.parametrize("action", [4, -1, 1.7])
def test_actions_that_do_not_exist_are_refused_as_by_the_environment(action: float):
    with tasks.make(GymnasiumConfig(env_id="LunarLander-v3")) as task:
        task.reset(0)
        with pytest.raises(AssertionError, match="invalid"):
            task.step(action)


@pytest.mark.parametrize(
    ("env_id", "wrong"),
    [("LunarLanderContinuous-v3", np.nan), ("LunarLanderContinuous-v3", np.inf), ("BipedalWalker-v3", np.inf)],
)
def test_actions_that_are_not_finite_do_what_they_do_in_the_environment(env_id: str, wrong: float):
    action = np.full(4 if env_id == "BipedalWalker-v3" else 2, wrong, np.float32)
    with tasks.make(GymnasiumConfig(env_id=env_id)) as task:
        original = original_of(env_id)
        task.reset(0)
        original.reset(seed=0)
        ours, theirs = task.step(action), original.step(action)
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_array_equal(ours[1:3], theirs[1:3])


@pytest.mark.parametrize("env_id", ["LunarLanderContinuous-v3", "BipedalWalker-v3"])
def test_environment_steps_itself_where_it_draws(env_id: str):
    with (
        tasks.make(GymnasiumConfig(env_id=env_id), "rgb_array") as drawn,
        tasks.make(GymnasiumConfig(env_id=env_id)) as plain,
    ):
        assert drawn.reset(3).tobytes() == plain.reset(3).tobytes()
        for action in actions(plain.action_space, 3, 40):
            ours, theirs = plain.step(action), drawn.step(action)
            assert ours[0].tobytes() == theirs[0].tobytes()
            assert float(ours[1]) == float(theirs[1])
        assert drawn.render().std() > 0


def test_another_class_or_a_wrapper_under_the_id_steps_itself(monkeypatch: pytest.MonkeyPatch):
    from gymnasium.envs.box2d.lunar_lander import LunarLander

    class Generous(LunarLander):
        def step(self, action: Any) -> Any:
            observation, _, *others = super().step(action)
            return observation, 1000.0, *others

    class Doubled(gymnasium.Wrapper):
        def step(self, action: Any) -> Any:
            observation, reward, *others = super().step(action)
            return observation, 2 * reward, *others

    for entry, expected in ((Generous, 1000.0), (lambda **keys: Doubled(LunarLander(**keys)), None)):
        spec = copy.deepcopy(gymnasium.spec("LunarLander-v3"))
        spec.entry_point = entry
        monkeypatch.setitem(gymnasium.registry, "LunarLander-v3", spec)
        with tasks.make(GymnasiumConfig(env_id="LunarLander-v3")) as task:
            task.reset(1)
            reward = task.step(2)[1]
        plain = LunarLander()
        plain.reset(seed=1)
        assert reward == (expected or 2 * plain.step(2)[1])


def test_missing_box2d_is_one_line_with_a_way_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    with pytest.raises(ConfigError) as caught:
        tasks.make(GymnasiumConfig())
    text = str(caught.value)
    assert "'LunarLanderContinuous-v3' needs the package Box2D: " in text
    assert 'pip install "pyes-rl[box2d]"; without it: ' in text
    assert "task=cart_pole" in text


@pytest.mark.slow
def test_other_tasks_do_without_box2d_and_pygame():
    code = "import sys; sys.modules.update(Box2D=None, pygame=None); from pyes import tasks\n"
    code += "from pyes.tasks.gymnasium import GymnasiumConfig as C; tasks.make(C(env_id='CartPole-v1')).reset(0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_constants_are_those_of_gymnasium():
    from gymnasium.envs.box2d import bipedal_walker, lunar_lander

    walker = (bipedal_walker, box2d_steps._WALKING, box2d_terrain._GROUND)
    for module, *constants in ((lunar_lander, box2d_steps._LANDING), walker):
        for ours in constants:
            assert vars(ours) == {name: getattr(module, name) for name in vars(ours)}


@pytest.mark.parametrize("episodes", [20, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("env_id", IDS[2:])
def test_ground_is_the_environments(env_id: str, episodes: int):
    """Down to the bodies, in their order, and to the state of the generator."""

    def bodies(env: Any) -> list[Any]:
        fixtures = [body.fixtures[0] for body in env.world]
        shapes = [[tuple(vertex) for vertex in fixture.shape.vertices] for fixture in fixtures]
        others = [
            (each.friction, each.restitution, each.filterData.categoryBits, each.filterData.maskBits)
            for each in fixtures
        ]
        return [shapes, others, [(body.type, tuple(body.position), body.angle) for body in env.world]]

    for seed in range(episodes):
        original, env = original_of(env_id), original_of(env_id)
        terrain = box2d_terrain.Terrain(env)
        original.reset(seed=seed)
        env.reset(seed=seed)
        assert bodies(env) == bodies(original)
        assert env.np_random.bit_generator.state == original.np_random.bit_generator.state
        assert (env.terrain_x, env.terrain_y) == (original.terrain_x, original.terrain_y)
        ground = [[value for vertex in body.fixtures[0].shape.vertices for value in vertex] for body in env.terrain]
        assert terrain.segments.tolist() == ground[: len(terrain.segments)][::-1]
        assert [quad[:, :2].ravel().tolist() for quad in terrain.quads] == ground[len(terrain.segments) :][::-1]


def test_gymnasium_without_these_environments_is_one_line_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Any
):
    monkeypatch.delitem(gymnasium.registry, "LunarLanderContinuous-v3")
    assert cli.main(["train", f"run_dir={tmp_path / 'run'}", "cluster=inline"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert f"'LunarLanderContinuous-v3' is not in gymnasium {gymnasium.__version__} any more; pip install" in line
    assert "task=cart_pole" in line


def test_rays_meet_what_they_meet_in_box2d():
    """Against ``b2World.RayCast``, in worlds of random segments and boxes, on the last bit."""
    import Box2D

    class Nearest(Box2D.b2.rayCastCallback):
        def ReportFixture(self, fixture: Any, point: Any, normal: Any, fraction: float) -> float:
            self.fraction = fraction
            return fraction

    rng, callback, met = np.random.default_rng(0), Nearest(), 0
    for _ in range(60):
        world = Box2D.b2World()
        segments = rng.uniform(-5, 5, (20, 4)).astype(np.float32)
        for x, y, *end in segments.tolist():
            world.CreateStaticBody(fixtures=Box2D.b2FixtureDef(shape=Box2D.b2EdgeShape(vertices=[(x, y), tuple(end)])))
        quads = []
        for x, y, width, height in rng.uniform(0.2, 4, (5, 4)).tolist():
            corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]
            body = world.CreateStaticBody(fixtures=Box2D.b2FixtureDef(shape=Box2D.b2PolygonShape(vertices=corners)))
            shape = body.fixtures[0].shape
            quads.append([(*c, *n) for c, n in zip(shape.vertices, shape.normals, strict=True)])
        offsets = rng.uniform(-6, 6, (20, 2))
        offsets[0] = 0.0, -6.0  # straight down, as the walker's first ray
        rays = _core.Rays(offsets, segments, np.array(quads, np.float32))
        for point in rng.uniform(-5, 5, (5, 2)).astype(np.float32).tolist():
            found = np.empty(20, np.float32)
            rays.cast(*point, found)
            for fraction, (dx, dy) in zip(found.tolist(), offsets.tolist(), strict=True):
                callback.fraction = 1.0
                world.RayCast(callback, point, (point[0] + dx, point[1] + dy))
                assert fraction == callback.fraction
                met += fraction < 1
    assert met > 1000


def test_rays_refuse_other_shapes():
    offsets, segments, quads = np.zeros((2, 2)), np.zeros((1, 4), np.float32), np.zeros((0, 4, 4), np.float32)
    with pytest.raises(ValueError, match=r"segments: got the shape \(1, 3\), expected \(n, 4\)"):
        _core.Rays(offsets, segments[:, :3].copy(), quads)
    with pytest.raises(TypeError, match="offsets: got dtype float32, expected float64"):
        _core.Rays(offsets.astype(np.float32), segments, quads)
    with pytest.raises(ValueError, match=r"out: got length 3, expected 2"):
        _core.Rays(offsets, segments, quads).cast(0.0, 0.0, np.empty(3, np.float32))
