"""A family of tasks from outside of pyes: one Python file with a class and its settings, and one YAML file."""

import json
import sys
from pathlib import Path

import pytest

import pyes
from pyes import cli, tasks
from pyes.config import TaskConfig, from_mapping
from pyes.errors import ConfigError, TaskError
from pyes.reports import replay

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "own_task_family.md"


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the two files of the how-to; return the folder."""
    text = PAGE.read_text(encoding="utf-8")
    python, yaml = (text.split(f"```{language}\n")[1].split("```\n")[0] for language in ("python", "yaml"))
    (tmp_path / "walks.py").write_text(python)
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "walk.yaml").write_text(yaml)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "walks", raising=False)
    monkeypatch.chdir(tmp_path)
    assert len(python.splitlines()) <= 45
    assert len(yaml.splitlines()) <= 8
    return tmp_path


@pytest.mark.slow
def test_family_of_two_files_is_trained_resumed_replayed_and_evaluated(
    family: Path, capsys: pytest.CaptureFixture[str]
):
    chosen = ["--config-dir", ".", "task=walk", "task.steps=12", "task.episodes=2", "cluster.workers=2"]
    small = ["algorithm.population_size=8", "noise.entries=10000", "generations=2", "evaluation.episodes=2"]
    assert cli.main(["train", *chosen, *small, "run_dir=run"]) == 0
    assert cli.main(["train", "resume=run", "generations=3"]) == 0
    capsys.readouterr()
    assert cli.main(["evaluate", "run", "--episodes", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lengths"] == [12, 12]
    with replay.open("run") as individuals:
        assert all(individuals.play(generation, 3).exact for generation in (0, 2))
    assert pyes.load("run").task["steps"] == 12
    assert cli.main(["check-environment", *chosen[:4]]) == 0
    assert cli.main(["check-environment", *chosen[:4], "hydra.searchpath=[.]"]) == 2
    (family / "task" / "broken.yaml").write_text("defaults: [environment\n")
    capsys.readouterr()
    assert cli.main(["check-environment", "--config-dir", ".", "task=broken"]) == 2
    assert "broken.yaml:2: expected ',' or ']'" in capsys.readouterr().err


@pytest.mark.usefixtures("family")
def test_settings_of_every_environment_hold():
    config = from_mapping({"task": {"factory": "walks:WalkTask", "hide_observations": [0], "max_timesteps": 3}}).task
    with tasks.make(config) as task:
        assert (task.observation_size, task.max_timesteps, config.title) == (1, 3, "walks:WalkTask")


@pytest.mark.usefixtures("family")
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"steps": 0}, "task.steps: got 0, expected an integer >= 1"),
        ({"stepps": 5}, "unknown key 'task.stepps': did you mean 'task.steps'?"),
        ({"behaviour": "final_position"}, "task.behaviour: got 'final_position', expected 'none' for walks:WalkTask"),
        ({"factory": "walks:Nothing"}, "task.factory=walks:Nothing is not there: walks has no Nothing"),
        ({"factory": "json:dumps"}, "task.factory=json:dumps is not a class that derives from pyes.tasks.base.Task"),
    ],
)
def test_mistakes_are_refused_in_one_line(keys: dict[str, object], message: str):
    with pytest.raises(ConfigError) as caught:
        tasks.make(from_mapping({"task": {"factory": "walks:WalkTask", **keys}}).task)
    assert str(caught.value).startswith(message)


@pytest.mark.usefixtures("family")
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("observation_shape", None, "got None, expected a tuple of integers >= 1"),
        ("observation_shape", 2, "got 2, expected a tuple of integers >= 1"),
        ("observation_shape", (0,), r"got \(0,\), expected a tuple of integers >= 1"),
        ("action_space", 2, r"got 2, expected a gymnasium\.Space"),
        ("max_timesteps", "50", "got '50', expected an integer >= 1, or None"),
        ("max_timesteps", 0, "got 0, expected an integer >= 1, or None"),
    ],
)
def test_attributes_that_the_constructor_sets_wrongly_are_named(
    name: str, value: object, message: str, monkeypatch: pytest.MonkeyPatch
):
    import walks

    def wrong(self, *arguments, made=walks.WalkTask.__init__):
        made(self, *arguments)
        setattr(self, name, value)

    monkeypatch.setattr(walks.WalkTask, "__init__", wrong)
    with pytest.raises(TaskError, match=rf"^WalkTask\.{name}: {message}; set it in the constructor$"):
        tasks.make(from_mapping({"task": {"factory": "walks:WalkTask"}}).task)


def test_task_without_a_step_is_refused_in_one_line(family: Path):
    (family / "halves.py").write_text(
        "import walks\n\n\nclass Half(walks.Task):\n    Config = walks.WalkConfig\n\n"
        "    def __init__(self, *_):\n        pass\n"
    )
    config = from_mapping({"task": {"factory": "halves:Half"}}).task
    with pytest.raises(TaskError, match=r"^task halves:Half cannot be made: TypeError: .*abstract.*'?reset'?"):
        tasks.make(config)


def test_installed_package_adds_a_family_by_an_entry_point(family: Path):
    (family / "trails.py").write_text(
        "from dataclasses import dataclass\nimport walks\n\n\n"
        "@dataclass(frozen=True)\nclass Config(walks.WalkConfig):\n    name: str = 'trail'\n\n\n"
        "class Trail(walks.WalkTask):\n    Config = Config\n"
    )
    info = family / "trails-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: trails\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pyes.tasks]\ntrail = trails:Trail\n")
    config = from_mapping({"task": {"name": "trail", "steps": 4}}).task
    assert isinstance(config, TaskConfig)
    with tasks.make(config) as task:
        assert (type(task).__name__, task.max_timesteps) == ("Trail", 4)
