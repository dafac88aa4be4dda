"""Atari tasks: the episodes of Gymnasium's own wrappers, bit for bit, whatever went before, and in silence."""

import itertools
import sys
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from pyes import networks, tasks
from pyes.config import from_mapping
from pyes.errors import ConfigError, TaskError
from pyes.networks import ActionDecoder
from pyes.tasks import Task
from pyes.tasks.gymnasium import GymnasiumConfig
from pyes.tasks.parity import first_difference
from tests.conformance.test_tasks import actions, episode
from tests.task_options import option

ale_py = pytest.importorskip("ale_py")

from pyes.tasks.atari import AtariTask  # noqa: E402

ACTIONS = {"seaquest": 18, "beam_rider": 9, "freeway": 3, "qbert": 6}
PONG = "ALE/Pong-v5"


def config(env_id: str = PONG, frame_skip: int | str = "auto", **options: Any) -> GymnasiumConfig:
    return GymnasiumConfig(env_id=env_id, frame_skip=frame_skip, env_kwargs=options)  # type: ignore[arg-type]


def made(*arguments: Any, **options: Any) -> Task:
    return tasks.make(config(*arguments, **options))


@pytest.fixture(scope="module")
def task() -> Iterator[Task]:
    with made() as pong:
        yield pong


# The reference's own episodes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env_id", "frame_skip", "options", "length"),
    [
        (PONG, 4, {}, 300),
        ("ALE/Seaquest-v5", 4, {"repeat_action_probability": 0.25}, None),
        ("BreakoutNoFrameskip-v4", 3, {"noop_max": 0}, None),
        ("ALE/BeamRider-v5", 1, {"repeat_action_probability": 0.25, "noop_max": 5}, 100),
        ("ALE/Boxing-v5", 4, {"obs_type": "ram"}, None),
    ],
)
def test_every_timestep_of_a_game_is_that_of_gymnasiums_wrappers(
    env_id: str, frame_skip: int, options: dict[str, Any], length: int | None
):
    """To the end of the game where no length is given."""
    settings = config(env_id, frame_skip, **options)
    original = AtariTask.original(settings)
    with tasks.make(settings) as task:

        def given() -> Iterator[Any]:
            """Yield actions until the game is over: the task's step comes first."""
            for action in actions(task.action_space, 1, length or 3000):
                if task._env._ale.game_over():  # type: ignore[attr-defined]
                    return
                yield action

        assert first_difference(task, original, 7, given()) is None
        ended = task._env._ale.game_over()  # type: ignore[attr-defined]
    assert ended == (length is None)
    original.close()


@pytest.mark.parametrize("name", ACTIONS)
def test_options_have_the_declared_sizes(name: str):
    with tasks.make(option(name)) as task:
        assert (type(task).__name__, task.observation_size, task.max_timesteps) == ("AtariTask", 4 * 84 * 84, 27_000)
        assert task.action_space == gymnasium.spaces.Discrete(ACTIONS[name])
        assert task.render_fps == 15


def test_observations_stack_the_newest_frame_last_and_are_not_written_to_again(task: Task):
    first = task.reset(3)
    assert all((frame == first[0]).all() for frame in first)
    kept = [task.step(action)[0] for action in (2, 2, 3, 3, 2)]
    before = [observation.copy() for observation in kept]
    assert all((later[:3] == earlier[1:]).all() for earlier, later in itertools.pairwise(kept))
    assert (kept[-1][3] != kept[0][3]).any()
    for _ in range(5):
        task.step(0)
    task.reset(4)
    assert all((now == then).all() for now, then in zip(kept, before, strict=True))


def test_policy_may_see_the_memory_of_the_console_instead_of_the_screen(task: Task):
    """The same game: scores are those of a game that is seen on the screen."""
    with made(obs_type="ram") as memory:
        assert (memory.observation_size, memory.max_timesteps) == (128, 27_000)
        seen = [memory.reset(3)]
        task.reset(3)
        for action in actions(memory.action_space, 1, 100):
            observation, *result = memory.step(action)
            seen.append(observation)
            assert result == list(task.step(action)[1:])
            assert (observation == task._env.ram()).all()  # type: ignore[attr-defined]
    assert {(observation.shape, observation.dtype) for observation in seen} == {((128,), np.dtype(np.uint8))}
    assert len({observation.tobytes() for observation in seen}) > 50  # none is written to again


# A clean slate


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env_id", "options", "length"),
    [
        ("ALE/Seaquest-v5", {}, 2000),
        ("ALE/BeamRider-v5", {"repeat_action_probability": 0.25}, 60),
        ("ALE/Qbert-v5", {"obs_type": "ram"}, 2000),
    ],
)
def test_every_reset_is_a_clean_slate(env_id: str, options: dict[str, Any], length: int):
    """Also after a game that is over, where what sticks is drawn, and in the console's memory."""
    with made(env_id, **options) as task:
        expected = episode(task, 77, 60)
        assert episode(task, 0, length)[-1][-1] == (length == 2000)  # whether the game is over
        assert episode(task, 77, 60) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env_id", "options", "quick"),
    [
        (PONG, {}, True),
        (PONG, {"repeat_action_probability": 0.25}, False),
        (PONG, {"noop_max": 0}, False),
        ("ALE/MiniatureGolf-v5", {}, False),
    ],
)
def test_cartridge_is_loaded_again_only_where_it_must_be(env_id: str, options: dict[str, Any], quick: bool):
    with made(env_id, **options) as task:
        env, loads = task._env._env, []  # type: ignore[attr-defined]
        load = env.load_game
        env.load_game = lambda: loads.append(load())
        task.reset(2)
    assert len(loads) == (not quick)


@pytest.mark.slow
def test_seeds_choose_the_number_of_noops_and_what_sticks():
    def traces(**options: Any) -> int:
        with made(**options) as task:
            return len({repr(episode(task, seed, 30)) for seed in range(2)})

    assert traces(noop_max=1) == 1
    assert traces(noop_max=30) > 1
    assert traces(noop_max=1, repeat_action_probability=0.25) == 2


# Options


@pytest.mark.slow
def test_frame_skip_is_four_unless_given():
    with made(frame_skip=2, noop_max=0) as halved, made(frame_skip=4, noop_max=0) as task:
        assert (halved.max_timesteps, halved.render_fps) == (54_000, 30)
        assert task.max_timesteps == 27_000
        halved.reset(0)
        task.reset(0)
        for action in (2, 3, 3, 2, 5):
            halved.step(action)
            assert (halved.step(action)[0][3] == task.step(action)[0][3]).all()


@pytest.mark.slow
def test_game_is_truncated_at_its_limit_of_raw_frames():
    with made(noop_max=0, max_num_frames_per_episode=42) as task:
        assert task.max_timesteps == 11
        task.reset(0)
        ends = [task.step(0)[2:4] for _ in range(11)]
    assert ends == [(False, False)] * 10 + [(False, True)]


@pytest.mark.slow
def test_fire_start_begins_games_that_wait_for_it():
    def moves(**options: Any) -> bool:
        with made("ALE/Breakout-v5", noop_max=0, **options) as task:
            first = task.reset(0)[3]
            return any((task.step(0)[0][3] != first).any() for _ in range(8))

    assert (moves(), moves(fire_start=True)) == (False, True)


@pytest.mark.slow
def test_remade_games_are_the_same(task: Task):
    expected = episode(task, 5, 20)
    with tasks.make(GymnasiumConfig(env_id=PONG, remake=True)) as remade:
        assert [episode(remade, seed, 20) == expected for seed in (6, 5)] == [False, True]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"frameskip": 4},
            "unknown key 'task.env_kwargs.frameskip': allowed: difficulty, fire_start, full_action_space",
        ),
        ({"obs_type": "rgb"}, "task.env_kwargs.obs_type: got 'rgb', expected grayscale or ram"),
        ({"noop_max": -1}, "task.env_kwargs.noop_max: got -1, expected an integer >= 0"),
        ({"noop_max": 2.5}, "task.env_kwargs.noop_max: got 2.5, expected an integer >= 0"),
        ({"fire_start": 1}, "task.env_kwargs.fire_start: got 1, expected true or false"),
        ({"mode": "hard"}, "task.env_kwargs.mode: got 'hard', expected an integer or null"),
        (
            {"repeat_action_probability": 25},
            "task.env_kwargs.repeat_action_probability: got 25, expected a finite number",
        ),
        (
            {"max_num_frames_per_episode": 0},
            "task.env_kwargs.max_num_frames_per_episode: got 0, expected an integer >= 1",
        ),
    ],
)
def test_impossible_option_is_refused(options: dict[str, Any], expected: str):
    with pytest.raises(ConfigError) as refused:
        made(**options)
    assert str(refused.value).startswith(expected)


def test_mode_that_a_game_does_not_have_is_named():
    with made(mode=1, difficulty=1, full_action_space=True) as task:
        assert task.action_space == gymnasium.spaces.Discrete(18)
        task.reset(0)
    with pytest.raises(TaskError, match="Pong-v5' cannot be made: RuntimeError: Invalid game mode requested"):
        made(mode=77)


def test_game_that_does_not_exist_is_named():
    with pytest.raises(ConfigError, match=r"'ALE/Pung-v5' cannot be made: .*Pung.*"):
        made("ALE/Pung-v5")


def test_game_without_its_namespace_is_refused_with_its_whole_name():
    with pytest.raises(ConfigError, match=r"'Pong-v5' cannot be made: .*[^.]; did you mean 'ALE/Pong-v5'\?$"):
        made("Pong-v5")


def test_missing_package_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ConfigError, match=r"Pong-v5' needs the packages ale-py and .*install \"pyes-rl\[atari\]\""):
        made()


def test_other_versions_and_names_are_left_to_gymnasium():
    assert all(map(AtariTask.knows, (PONG, "PongNoFrameskip-v4")))
    assert not any(map(AtariTask.knows, ("Pong-v4", "PongNoFrameskip-v0", "Ant-v5", "ALE/Pong-v6")))


# Use


@pytest.mark.slow
@pytest.mark.parametrize("name", ["atari", "frostbite"])
def test_experiment_is_the_published_configuration(name: str):
    with initialize_config_module("pyes.conf", version_base="1.3"):
        composed: Any = OmegaConf.to_container(compose("train", [f"experiment={name}", "run_dir=x"]), resolve=True)
    run = from_mapping(composed)
    assert (run.algorithm.population_size, run.algorithm.weight_decay, run.timesteps) == (5000, 0.005, 250_000_000)
    assert (run.algorithm.sigma, run.algorithm.learning_rate) == ({"atari": 0.02, "frostbite": 0.005}[name], 0.01)
    assert (run.network.name, run.network.virtual_batch_norm, run.network.hidden) == ("dqn", True, (256,))
    assert (run.task.max_timesteps, run.task.env_kwargs["fire_start"], run.optimizer.name) == (5000, True, "adam")


def test_policies_take_observations_as_they_come(task: Task):
    head = ActionDecoder.for_space(task.action_space)
    network = from_mapping({"network": {"name": "mlp", "hidden": [4]}}).network
    spec, theta = networks.build(network, task.observation_size, head, seed=0, observation_clip=5.0)
    runner = spec.runner()
    runner.load(theta)
    runner.begin_episode(0, 0, 0, 0)
    assert runner.act(task.reset(0)) in range(6)


def test_frames_show_the_game_in_colour():
    with tasks.make(config(), "rgb_array") as task:
        task.reset(0)
        first = task.render()
        for _ in range(5):
            task.step(2)
        last = task.render()
    assert (first.shape, first.dtype) == ((210, 160, 3), np.uint8)
    assert (first != last).any()
    assert (first[..., 0] != first[..., 2]).any()
