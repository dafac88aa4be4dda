import json
import math

import numpy as np
import pytest

import pyes
import pyes.reports.replay
from pyes import cli, tasks
from pyes.config import from_mapping
from pyes.errors import ConfigError, TaskError
from pyes.reports.replay import evaluate
from pyes.run.metrics import read_rows
from pyes.tasks.function import FunctionConfig
from pyes.tasks.functions import quadratic


def _task(function="sphere", **settings):
    return tasks.make(FunctionConfig(factory=f"user_functions:{function}", dim=5, **settings))


def test_one_timestep_returns_the_function_of_the_action():
    with _task(env_kwargs={"center": 1.0}) as task:
        assert (task.observation_size, task.max_timesteps, task.action_space.shape) == (1, 1, (5,))
        assert task.reset(3) == task.reset(4) == [1.0]
        _, value, terminated, truncated, _ = task.step(np.zeros(5, np.float32))
    assert (value, terminated, truncated) == (-5.0, True, False)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("nothing", "task.factory=user_functions:nothing is not there: user_functions has no nothing"),
        ("NUMBER", "task.factory=user_functions:NUMBER is int, expected a function"),
    ],
)
def test_name_that_is_no_function_is_refused_in_one_line(function, message):
    with pytest.raises(ConfigError) as caught:
        _task(function)
    assert str(caught.value) == message


_PLAIN = {"bias": False, "init": "zero"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": {"factory": ""}}, "task.factory: got '', expected MODULE:FUNCTION"),
        ({"task": {"dim": None}}, "task.dim: got null, expected an integer >= 1"),
        ({"task": {"dim": 0}}, "task.dim: got 0, expected an integer >= 1"),
        ({"task": {"frame_skip": 2}}, "unknown key 'task.frame_skip': allowed: dim, env_kwargs, episodes, factory"),
        ({"network": {"bias": True}}, "network.bias: got true, expected false with task.name=function"),
        ({"network": {**_PLAIN, "name": "mlp", "hidden": [3]}}, "network.name: got 'mlp', expected 'linear' with"),
        (
            {"network": {**_PLAIN, "output_activation": "tanh"}},
            "network.output_activation: got 'tanh', expected 'identity' with task.name=function",
        ),
    ],
)
def test_what_does_not_go_with_a_function_is_refused(changes, message):
    task = {"name": "function", "factory": "user_functions:sphere", "dim": 5, **changes.get("task", {})}
    with pytest.raises(ConfigError, match=message):
        from_mapping({"task": task, "network": changes.get("network", _PLAIN)})


def test_what_a_noise_table_is_too_small_for_is_refused_before_anything_is_made():
    values = {
        "task": {"name": "function", "factory": "user_functions:sphere", "dim": 6},
        "network": _PLAIN,
        "noise": {"entries": 10},
    }
    with pytest.raises(ConfigError, match=r"^task\.dim: got 6, expected at most half of noise\.entries, which is 10$"):
        from_mapping(values)
    from_mapping(values | {"algorithm": {"name": "cma_es"}})  # it draws nothing from the table


# In a run


def _config(run_dir, function="sphere", **changes):
    return {
        "run_dir": str(run_dir),
        "generations": 4,
        "algorithm": {"population_size": 12, "sigma": 0.2},
        "task": {"name": "function", "factory": f"user_functions:{function}", "dim": 5},
        "network": _PLAIN,
        "noise": {"entries": 10_000},
        "evaluation": {"every": 2, "episodes": 1},
        **changes,
    }


def test_a_member_is_one_timestep(tmp_path):
    pyes.train(_config(tmp_path / "run", cluster={"name": "inline"}), display=False)
    assert [int(row["timesteps"]) for row in read_rows(tmp_path / "run" / "metrics.csv")] == [12, 24, 36, 48]


def test_theta_of_a_member_is_what_the_function_was_called_with(tmp_path):
    kwargs = {"name": "function", "factory": "user_functions:sphere", "dim": 5, "env_kwargs": {"center": 0.5}}
    result = pyes.train(_config(tmp_path / "run", task=kwargs, cluster={"name": "inline"}), display=False)
    with pyes.reports.replay.open(tmp_path / "run") as replay:
        assert not replay.theta(0).any()  # a run begins at zero
        for generation, member in [(0, 3), (3, 11)]:
            value = -float(np.sum((replay.member(generation, member) - 0.5) ** 2))
            assert replay.returns(generation)[member] == value
            assert replay.play(generation, member).exact
    assert evaluate(tmp_path / "run").returns == (result.objective,)  # one call is enough
    assert result.objective == -float(np.sum((pyes.load(tmp_path / "run").theta - 0.5) ** 2))


@pytest.mark.slow
def test_members_without_a_value_count_as_the_worst(tmp_path):
    pyes.train(_config(tmp_path / "run", "half", cluster={"name": "inline"}), display=False)
    with pyes.reports.replay.open(tmp_path / "run") as replay:
        first = [replay.member(0, index)[0] for index in range(12)]
        failed = np.isnan(replay.returns(0))
        assert failed.tolist() == [abs(x) > 0.1 for x in first]
        assert 0 < failed.sum() < 12
    log = (tmp_path / "run" / "train.log").read_text(encoding="utf-8")
    assert "too far" in log
    assert "the return is nan" in log


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "reason"), [("broken", "ValueError: no value, not even one"), ("silent", "NoneType")]
)
def test_function_that_never_has_a_value_ends_the_run_in_one_line(function, reason, tmp_path):
    with pytest.raises(TaskError, match=rf"^user_functions:{function}: all 12 members failed: .*{reason}.*$"):
        pyes.train(_config(tmp_path / "run", function, cluster={"name": "inline"}), display=False)


@pytest.mark.slow
def test_resumed_run_is_the_whole_run(tmp_path, capsys):
    config = _config(tmp_path / "parts", cluster={"name": "inline"})
    pyes.train(config, display=False)
    pyes.train({**config, "run_dir": str(tmp_path / "whole"), "generations": 7}, display=False)
    assert cli.main(["train", f"resume={tmp_path / 'parts'}", "generations=7"]) == 0
    capsys.readouterr()
    files = [(tmp_path / name / "journal.bin").read_bytes() for name in ("parts", "whole")]
    assert files[0] == files[1]


@pytest.mark.slow
def test_command_line_sets_the_plain_network(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the last run has no name
    arguments = ["task=function", "task.factory=user_functions:sphere", "task.dim=5", "debug=default"]
    run = str(tmp_path / "run")
    assert cli.main(["train", *arguments, f"run_dir={run}"]) == 0
    assert "user_functions:sphere: 5 parameters" in capsys.readouterr().err
    assert cli.main(["evaluate", run, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lengths"] == [1]
    assert cli.main(["train", *arguments, "network=mlp"]) == 2
    assert "network.name: got 'mlp', expected 'linear' with task.name=function" in capsys.readouterr().err


@pytest.mark.slow
def test_quadratic_ends_near_its_maximum_and_serves_every_command(tmp_path, capsys):
    run = str(tmp_path / "run")
    assert cli.main(["train", "experiment=quadratic", f"run_dir={run}"]) == 0
    capsys.readouterr()
    np.testing.assert_allclose(pyes.load(run).theta, [0.5, 0.1, -0.3], atol=0.05)
    assert cli.main(["replay", run, "--generation", "299", "--member", "49", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["length"] == 1
    for command, name in [("plot", "curve.png"), ("export", "policy.onnx"), ("export", "policy.safetensors")]:
        if name.endswith("onnx"):
            pytest.importorskip("onnx")
        assert cli.main([command, run, "-o", str(tmp_path / name)]) == 0
    pytest.importorskip("imageio_ffmpeg")
    assert cli.main(["video", run, "-o", str(tmp_path / "film.mp4")]) == 2
    assert capsys.readouterr().err == (
        "pyes: error: pyes.tasks.functions:quadratic is a function, which has no pictures; "
        "plot or map the run instead\n"
    )


def test_quadratic_is_highest_at_the_solution():
    solution = np.array([0.5, 0.1, -0.3], np.float32)
    assert quadratic(solution) == pytest.approx(0, abs=1e-12)
    assert quadratic(solution + 1) == pytest.approx(-3)
    assert math.isnan(quadratic(np.full(3, np.nan, np.float32)))
