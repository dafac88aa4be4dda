import json
import re
import types

import numpy as np
import pytest
from user_tasks import Parts

import pyes
import pyes.reports.replay
from pyes import cli, tasks
from pyes.config import from_mapping
from pyes.episodes.rollout import Rollout
from pyes.errors import ConfigError, TaskError
from pyes.reports.export import export
from pyes.reports.replay import evaluate
from pyes.reports.video import record
from pyes.run.metrics import read_rows
from pyes.tasks.gymnasium import GymnasiumConfig
from pyes.tasks.python import PythonConfig


def _task(function, render_mode=None, **settings):
    return tasks.make(PythonConfig(factory=f"user_tasks:{function}", **settings), render_mode)


def test_task_is_the_environment_that_the_function_returns():
    with _task("point", env_kwargs={"size": 3}) as task:
        assert (task.observation_size, task.max_timesteps, task.limited) == (3, 10_000, False)
        start = task.reset(4)
        observation, reward, terminated, truncated, _ = task.step(np.array([0.5], np.float32))
    np.testing.assert_allclose(observation, start + 0.5, rtol=1e-6)
    assert (reward, terminated, truncated) == (pytest.approx(-abs(start[0] + 0.5)), False, False)


def test_limit_of_a_registered_environment_is_known():
    settings = {"env_kwargs": {"env_id": "Pendulum-v1", "steps": 30}}
    for changes, expected in [({}, 30), ({"max_timesteps": 20}, 20), ({"frame_skip": 4}, 8)]:
        with _task("limited", **settings, **changes) as task:
            assert task.max_timesteps == expected


def test_limit_of_a_wrapper_is_known():
    with _task("wrapped", env_kwargs={"steps": 30}, frame_skip=4) as task:
        assert task.max_timesteps == 8


def test_without_a_limit_there_is_one_of_pyes_and_few_frames_a_second_are_no_none():
    with _task("Slow") as task:
        assert (task.limited, task.max_timesteps) == (False, 10_000)
        assert task.render_fps == 0.5


def test_the_interface_of_old_gym_is_named():
    with _task("Old") as task, pytest.raises(TaskError, match=r"reset returned a ndarray, expected .* is task=gym"):
        task.reset(0)


def test_a_reset_without_a_seed_is_named():
    with _task("Old") as task:
        task._env.reset = lambda: np.zeros(1)
        with pytest.raises(
            TaskError, match=r"reset takes no seed \(.*'seed'\), .*; an environment of old gym is task=gym"
        ):
            task.reset(0)


def test_options_of_an_episode_are_refused():
    env = tasks.make_environment(PythonConfig(factory="user_tasks:point"))
    with pytest.raises(ValueError, match=r"options: got \{'x': 1\}, expected none: an episode follows from its seed"):
        env.reset(seed=1, options={"x": 1})
    env.reset(seed=1, options={})
    env.close()


def test_a_step_of_old_gym_is_named():
    runner = types.SimpleNamespace(act=lambda _: np.zeros(1, np.float32), check=print)
    with _task("wrong", env_kwargs={"rule": "four values"}) as task:
        with pytest.raises(TaskError, match=r"step: not enough values to unpack .* is task=gym"):
            Rollout(task, runner).run(0, 5)
        runner.act = lambda _: float("much")
        with pytest.raises(ValueError, match="could not convert"):
            Rollout(task, runner).run(0, 5)


def test_an_environment_that_works_elsewhere_is_remade_where_it_was_made(tmp_path, monkeypatch):
    (tmp_path / "assets").mkdir()
    monkeypatch.chdir(tmp_path)
    with _task("Elsewhere", remake=True) as task:
        task.reset(0)
        task.reset(1)


@pytest.mark.parametrize("name", ["Switching", "Machine"])
def test_a_step_that_the_environment_changes_is_the_one_that_is_called(name):
    runner = types.SimpleNamespace(act=lambda _: np.zeros(1, np.float32), check=print)
    with _task(name) as task:
        assert [Rollout(task, runner).run(seed, 5) for seed in (1, 2)] == [(101.0, 2), (101.0, 2)]


def test_wrappers_that_an_environment_is_registered_with_see_its_limit():
    with tasks.make(GymnasiumConfig(env_id="user_tasks:Late-v0")) as task:
        task.reset(0)
        rewards = [task.step(np.zeros(1, np.float32))[1] for _ in range(3)]
    assert rewards[1] > -100 > rewards[2]


def test_remake_calls_the_function_for_every_episode():
    with _task("tired") as task:
        assert task.reset(0) != task.reset(0)
    with _task("tired", remake=True) as task:
        assert task.reset(0) == task.reset(0)


def test_an_environment_that_cannot_be_closed_is_remade_all_the_same(caplog):
    with _task("Unclosable", remake=True) as task:
        assert task.reset(0).shape == task.reset(1).shape == (1,)
    assert "closing the environment of task.factory=user_tasks:Unclosable failed: RuntimeError" in caplog.text


def test_render_mode_is_passed_when_frames_are_wanted():
    with _task("rendered", "rgb_array") as task:
        task.reset(0)
        assert task.render().shape[-1] == 3


@pytest.mark.parametrize(
    ("name", "error"), [("point", "TypeError: .*render_mode"), ("shown_to_people_only", "Assertion")]
)
def test_an_environment_without_the_render_mode_is_said_to_need_it(name: str, error: str):
    with pytest.raises(TaskError, match=rf"task.factory=user_tasks:{name} failed: {error}") as caught:
        _task(name, "rgb_array")
    assert caught.value.__notes__ == ["(a film needs an environment that takes render_mode='rgb_array')"]


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        ("nothing", ConfigError, "task.factory=user_tasks:nothing is not there: user_tasks has no nothing"),
        ("number", ConfigError, "task.factory=user_tasks:number returned int, expected a gymnasium.Env"),
        ("broken", TaskError, "task.factory=user_tasks:broken failed: ValueError: no simulator here"),
        (
            "without_spaces",
            ConfigError,
            "task.factory=user_tasks:without_spaces has None for its observation_space, expected a gymnasium.Space",
        ),
    ],
)
def test_function_that_makes_no_task_is_refused_in_one_line(function, error, message):
    with pytest.raises(error) as caught:
        _task(function)
    assert re.sub(r" \(\S*user_tasks\.py:\d+ in \w+\)$", "", str(caught.value)) == message


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("user_tasks", "task.factory: got 'user_tasks', expected MODULE:FUNCTION"),
        ("no_such_package:make", "task.factory=no_such_package:make cannot be imported (ModuleNotFoundError"),
    ],
)
def test_name_that_stands_for_nothing_is_refused(factory, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        tasks.make(PythonConfig(factory=factory))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "python"}, "task.factory: got '', expected MODULE:FUNCTION"),
        ({"name": "gymnasium", "factory": "a:b"}, "unknown key 'task.factory': "),
        ({"name": "python", "factory": "a:b", "env_id": "CartPole-v1"}, "unknown key 'task.env_id': allowed: "),
    ],
)
def test_environment_is_named_in_one_way(settings, message):
    with pytest.raises(ConfigError, match=message):
        from_mapping({"task": settings})


# In a run


def _config(run_dir, **changes):
    return {
        "run_dir": str(run_dir),
        "generations": 3,
        "algorithm": {"population_size": 6},
        "task": {"name": "python", "factory": "user_tasks:point", "env_kwargs": {"size": 2}, "episodes": 2},
        "noise": {"entries": 10_000},
        "evaluation": {"every": 3, "episodes": 3},
        **changes,
    }


CLUSTERS = {"inline": {"name": "inline"}, "spawned": {"workers": 2, "start_method": "spawn"}}


@pytest.mark.slow
def test_theta_does_not_depend_on_the_cluster(tmp_path):
    hashes = set()
    for name, cluster in CLUSTERS.items():
        pyes.train(_config(tmp_path / name, cluster=cluster), display=False)
        hashes.add(tuple(row["theta_hash"] for row in read_rows(tmp_path / name / "metrics.csv")))
    assert len(hashes) == 1


@pytest.mark.slow
def test_run_is_replayed_evaluated_and_gone_on_with(tmp_path, capsys):
    config = _config(tmp_path / "run", cluster={"name": "inline"})
    result = pyes.train(config, display=False)
    assert pyes.load(tmp_path / "run").task["factory"] == "user_tasks:point"
    assert evaluate(tmp_path / "run", episodes=3).return_mean == pytest.approx(result.objective, rel=1e-12)
    with pyes.reports.replay.open(tmp_path / "run") as replay:
        assert all(replay.play(generation, member).exact for generation in (2, 0) for member in (5, 0))
    whole = pyes.train({**config, "run_dir": str(tmp_path / "whole"), "generations": 5}, display=False)
    assert cli.main(["train", f"resume={tmp_path / 'run'}", "generations=5"]) == 0
    capsys.readouterr()
    assert evaluate(tmp_path / "run", episodes=3) == evaluate(whole.run_dir, episodes=3)


@pytest.mark.slow
def test_command_line_takes_a_function(tmp_path, capsys):
    arguments = ["task=python", "task.factory=user_tasks:limited", "task.env_kwargs.env_id=CartPole-v1"]
    arguments += ["task.env_kwargs.steps=20", "debug=default", f"run_dir={tmp_path / 'run'}"]
    assert cli.main(["train", *arguments]) == 0
    assert "user_tasks:limited: 114 parameters" in capsys.readouterr().err
    assert cli.main(["evaluate", str(tmp_path / "run"), "--episodes", "2", "--json"]) == 0
    assert max(json.loads(capsys.readouterr().out)["lengths"]) <= 20


@pytest.mark.slow
@pytest.mark.parametrize("actions", Parts.ACTIONS)
def test_run_with_every_action_space_is_replayed_filmed_and_exported(tmp_path, actions):
    """Observations and actions of parts, a text among them, through all that a run leaves."""
    changes = {"normalize_observations": True, "action_noise": 0.1} if actions in ("tuple", "dict") else {}
    task = {"name": "python", "factory": "user_tasks:parts", "env_kwargs": {"actions": actions}, "frame_skip": 2}
    task = {**task, "hide_observations": ["note", 1], "max_timesteps": 4, **changes}
    run = tmp_path / "run"
    result = pyes.train(_config(run, task=task, network={"name": "mlp"}, cluster=CLUSTERS["inline"]), display=False)
    assert {row["failed_members"] for row in read_rows(run / "metrics.csv")} == {"0"}
    assert evaluate(run, episodes=3).return_mean == pytest.approx(result.objective, rel=1e-12)
    with pyes.reports.replay.open(run) as replay:
        assert all(replay.play(generation, member).exact for generation in (2, 0) for member in (5, 0))
        assert replay.policy(3).encoder == pyes.load(run).encoder
    policy, env = pyes.load(export(run, tmp_path / "policy.safetensors")), pyes.make_env(run)
    observation, _ = env.reset(seed=1)
    assert "note" in observation
    assert env.action_space.contains(policy(observation))
    if actions == "dict":
        pytest.importorskip("imageio_ffmpeg")
        assert record(run, tmp_path / "run.mp4", episodes=3).return_mean == pytest.approx(result.objective, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("actions", ["tuple", "dict", "multi_discrete"])
def test_journal_of_mixed_actions_does_not_depend_on_the_cluster(tmp_path, actions):
    task = {"name": "python", "factory": "user_tasks:parts", "env_kwargs": {"actions": actions}}
    task["hide_observations"] = ["note"]
    for name, cluster in CLUSTERS.items():
        pyes.train(_config(tmp_path / name, task=task, cluster=cluster), display=False)
    first, second = ((tmp_path / name / "journal.bin").read_bytes() for name in CLUSTERS)
    assert first == second
