"""Atari tasks: the episodes of Gymnasium's own wrappers, bit for bit, whatever went before, and in silence."""

import hashlib
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from pyes import networks, tasks
from pyes.config import TaskConfig, from_mapping
from pyes.errors import ConfigError, TaskError
from pyes.networks import ActionDecoder
from pyes.run.metrics import read_rows
from pyes.tasks import Task
from pyes.training import loop

ale_py = pytest.importorskip("ale_py")

from pyes.tasks import atari  # noqa: E402

ACTIONS = {"seaquest": 18, "beam_rider": 9}
PONG = "ALE/Pong-v5"


def config(name: str, **keys: Any) -> TaskConfig:
    with initialize_config_module("pyes.conf", version_base="1.3"):
        composed = OmegaConf.to_container(compose("train", [f"task={name}"]).task, resolve=True)
    assert isinstance(composed, dict)
    return TaskConfig(**{**composed, **keys})


def made(env_id: str = PONG, frame_skip: int | str = "auto", **options: Any) -> Task:
    return tasks.make(TaskConfig(env_id=env_id, frame_skip=frame_skip, env_kwargs=options))  # type: ignore[arg-type]


def episode(reset: Callable[[], Any], step: Callable[[int], Any], given: Any) -> list[tuple[Any, ...]]:
    """Return all that an episode gives, to its end or as long as there are actions."""
    trace: list[tuple[Any, ...]] = [(digest(reset()),)]
    for action in given:
        observation, reward, terminated, truncated, _ = step(int(action))
        trace.append((digest(observation), reward, terminated, truncated))
        if terminated or truncated:
            break
    return trace


def digest(observation: Any) -> str:
    return f"{observation.dtype} {observation.shape} {hashlib.sha256(observation.tobytes()).hexdigest()}"


def actions(space: Any, seed: int, length: int) -> Any:
    """Random actions, each held for a random while."""
    rng = np.random.default_rng(seed)
    return np.repeat(rng.integers(space.n, size=length), rng.integers(1, 6, size=length))[:length]


def played(task: Task, seed: int, length: int) -> list[tuple[Any, ...]]:
    # A reset may make a new environment, and with it another step.
    return episode(lambda: task.reset(seed), lambda action: task.step(action), actions(task.action_space, seed, length))


@pytest.fixture(scope="module")
def task() -> Iterator[Task]:
    with made() as pong:
        yield pong


# The reference's own episodes


@pytest.mark.parametrize(
    ("env_id", "frame_skip", "sticky", "noop_max", "length"),
    [
        (PONG, 4, 0.0, 30, None),
        ("ALE/Seaquest-v5", 4, 0.25, 30, None),
        ("BreakoutNoFrameskip-v4", 3, 0.0, 0, None),
        ("ALE/BeamRider-v5", 1, 0.25, 5, 100),
    ],
)
def test_every_timestep_of_a_game_is_that_of_gymnasiums_wrappers(
    env_id: str, frame_skip: int, sticky: float, noop_max: int, length: int | None
):
    bare = gymnasium.make(env_id, frameskip=1, repeat_action_probability=sticky)
    env = FrameStackObservation(AtariPreprocessing(bare, noop_max=noop_max, frame_skip=frame_skip), 4)
    with made(env_id, frame_skip, repeat_action_probability=sticky, noop_max=noop_max) as task:
        assert task.action_space == env.action_space
        given = actions(task.action_space, 1, length or 3000)
        expected = episode(lambda: env.reset(seed=7)[0], env.step, given)
        assert episode(lambda: task.reset(7), task.step, given) == expected
        assert expected[-1][2] == (length is None)  # the game is over
    env.close()


@pytest.mark.parametrize("name", ACTIONS)
def test_options_have_the_declared_sizes(name: str):
    with tasks.make(config(name)) as task:
        assert (type(task).__name__, task.observation_size, task.max_timesteps) == ("AtariTask", 4 * 84 * 84, 27_000)
        assert task.action_space == gymnasium.spaces.Discrete(ACTIONS[name])
        assert task.render_fps == 15


def test_thousand_steps_have_the_declared_shapes(task: Task):
    observation = task.reset(0)
    total = 0.0
    for seed, action in enumerate(actions(task.action_space, 0, 1000)):
        assert (observation.shape, observation.dtype) == ((4, 84, 84), np.uint8)
        assert observation.flags.c_contiguous
        observation, reward, terminated, truncated, _ = task.step(action)
        assert (type(reward), type(terminated), truncated) == (float, bool, False)
        total += reward
        if terminated:
            observation = task.reset(seed)
    assert -42 <= total < 0


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


# A clean slate


@pytest.mark.parametrize(
    ("env_id", "sticky", "lengths"), [("ALE/Seaquest-v5", 0.0, (30, 2000)), ("ALE/BeamRider-v5", 0.25, (60, 1))]
)
def test_every_reset_is_a_clean_slate(env_id: str, sticky: float, lengths: tuple[int, ...]):
    """An episode after others, which end in the middle or with the game, is what it is in a fresh task."""
    with made(env_id, repeat_action_probability=sticky) as other:
        expected = played(other, 77, 60)
    with made(env_id, repeat_action_probability=sticky) as task:
        for seed, length in enumerate(lengths):
            before = played(task, seed, length)
            assert before[-1][-2] == (length == 2000)  # whether the game is over
            assert played(task, 77, 60) == expected


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


def test_seeds_choose_the_number_of_noops_and_what_sticks():
    def traces(**options: Any) -> int:
        with made(**options) as task:
            given = [2, 3] * 15
            return len({repr(episode(lambda s=seed: task.reset(s), task.step, given)) for seed in range(2)})

    assert traces(noop_max=1) == 1
    assert traces(noop_max=30) > 1
    assert traces(noop_max=1, repeat_action_probability=0.25) == 2


def test_another_process_plays_the_same_episode_and_says_nothing(tmp_path: Path, task: Task):
    program = (
        "from pyes import tasks\n"
        "from pyes.config import TaskConfig\n"
        f"with tasks.make(TaskConfig(env_id={PONG!r})) as task:\n"
        "    task.reset(5)\n"
        "    print([int(task.step(action)[0].sum()) for action in (2, 3, 5, 0) * 10])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    task.reset(5)
    assert done.stdout == f"{[int(task.step(action)[0].sum()) for action in (2, 3, 5, 0) * 10]}\n"
    assert done.stderr == ""


def test_workers_change_nothing(tmp_path: Path):
    def hashes(run: str, **cluster: Any) -> list[str]:
        settings = {
            "run_dir": str(tmp_path / run),
            "generations": 2,
            "task": {"env_id": PONG, "max_timesteps": 10, "env_kwargs": {"repeat_action_probability": 0.25}},
            "algorithm": {"population_size": 4, "sigma": 0.1},
            "noise": {"entries": 400_000},
            "evaluation": {"every": 0},
            "cluster": cluster,
        }
        loop.train(settings, display=False)
        return [row["theta_hash"] for row in read_rows(tmp_path / run / "metrics.csv")]

    assert hashes("inline", name="inline") == hashes("local", name="local", workers=2)


# Options


def test_frame_skip_is_four_unless_given():
    with made(frame_skip=2, noop_max=0) as halved, made(frame_skip=4, noop_max=0) as task:
        assert (halved.max_timesteps, halved.render_fps) == (54_000, 30)
        assert task.max_timesteps == 27_000
        halved.reset(0)
        task.reset(0)
        for action in (2, 3, 3, 2, 5):
            halved.step(action)
            assert (halved.step(action)[0][3] == task.step(action)[0][3]).all()


def test_game_is_truncated_at_its_limit_of_raw_frames():
    with made(noop_max=0, max_num_frames_per_episode=42) as task:
        assert task.max_timesteps == 11
        task.reset(0)
        ends = [task.step(0)[2:4] for _ in range(11)]
    assert ends == [(False, False)] * 10 + [(False, True)]


def test_fire_start_begins_games_that_wait_for_it():
    def moves(**options: Any) -> bool:
        with made("ALE/Breakout-v5", noop_max=0, **options) as task:
            first = task.reset(0)[3]
            return any((task.step(0)[0][3] != first).any() for _ in range(8))

    assert (moves(), moves(fire_start=True)) == (False, True)


def test_remade_games_are_the_same(task: Task):
    expected = played(task, 5, 20)
    with tasks.make(TaskConfig(env_id=PONG, remake=True)) as remade:
        assert [played(remade, seed, 20) == expected for seed in (6, 5)] == [False, True]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"frameskip": 4},
            "unknown key 'task.env_kwargs.frameskip': allowed: difficulty, fire_start, full_action_space",
        ),
        ({"obs_type": "ram"}, "unknown key 'task.env_kwargs.obs_type': allowed: "),
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
    with pytest.raises(TaskError, match="making 'ALE/Pong-v5' failed: RuntimeError: Invalid game mode requested"):
        made(mode=77)


def test_game_that_does_not_exist_is_named():
    with pytest.raises(ConfigError, match=r"'ALE/Pung-v5' cannot be made: .*Pung.*"):
        made("ALE/Pung-v5")


def test_game_without_its_namespace_is_refused_with_its_whole_name():
    with pytest.raises(ConfigError, match=r"'Pong-v5' cannot be made: .*[^.]; did you mean 'ALE/Pong-v5'\?$"):
        made("Pong-v5")


def test_missing_package_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ConfigError, match=r"Pong-v5' needs the packages ale-py and .* pip install 'pyes-rl\[atari\]'"):
        made()


def test_other_versions_and_names_are_left_to_gymnasium():
    assert all(map(atari.knows, (PONG, "PongNoFrameskip-v4")))
    assert not any(map(atari.knows, ("Pong-v4", "PongNoFrameskip-v0", "Ant-v5", "ALE/Pong-v6")))


# Use


@pytest.mark.parametrize("name", ["atari_es", "frostbite_es"])
def test_experiment_is_the_published_configuration(name: str):
    with initialize_config_module("pyes.conf", version_base="1.3"):
        composed: Any = OmegaConf.to_container(compose("train", [f"experiment={name}", "run_dir=x"]), resolve=True)
    run = from_mapping(composed)
    assert (run.algorithm.population_size, run.algorithm.weight_decay, run.timesteps) == (5000, 0.005, 250_000_000)
    assert (run.algorithm.sigma, run.algorithm.learning_rate) == ({"atari_es": 0.02, "frostbite_es": 0.005}[name], 0.01)
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
    with tasks.make(TaskConfig(env_id=PONG), "rgb_array") as task:
        task.reset(0)
        first = task.render()
        for _ in range(5):
            task.step(2)
        last = task.render()
    assert (first.shape, first.dtype) == ((210, 160, 3), np.uint8)
    assert (first != last).any()
    assert (first[..., 0] != first[..., 2]).any()


def test_closing_twice_does_no_harm():
    task = made()
    task.reset(0)
    task.close()
    task.close()
