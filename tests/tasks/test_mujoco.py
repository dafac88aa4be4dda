"""MuJoCo tasks: the episodes of Gymnasium's environments, bit for bit, whatever went before, and in silence."""

import hashlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from pyes import networks, tasks
from pyes.config import TaskConfig, from_mapping
from pyes.errors import ConfigError
from pyes.networks import ActionDecoder
from pyes.run.metrics import read_rows
from pyes.tasks import Task
from pyes.training import loop

pytest.importorskip("mujoco")

from pyes.tasks import mujoco  # the module, which must not be taken for the package

#: Observations, actions and the episode limit of each task.
SIZES = {
    "ant": (105, 8, 1000),
    "half_cheetah": (17, 6, 1000),
    "hopper": (11, 3, 1000),
    "humanoid": (348, 17, 1000),
    "humanoid_standup": (348, 17, 1000),
    "inverted_double_pendulum": (9, 1, 1000),
    "inverted_pendulum": (4, 1, 1000),
    "pusher": (23, 7, 100),
    "reacher": (10, 2, 50),
    "swimmer": (8, 2, 1000),
    "walker2d": (17, 6, 1000),
}
FORCELESS = [name for name in SIZES if name != "ant" and "humanoid" not in name]


def config(name: str, **keys: Any) -> TaskConfig:
    with initialize_config_module("pyes.conf", version_base="1.3"):
        composed = OmegaConf.to_container(compose("train", [f"task={name}_mujoco"]).task, resolve=True)
    assert isinstance(composed, dict)
    return TaskConfig(**{**composed, **keys})


def actions(space: Any, seed: int, length: int) -> Any:
    """Actions of random strength, some beyond the bounds, each held for a random while."""
    rng = np.random.default_rng(seed)
    scale, hold = rng.choice([0.3, 1.0, 3.0]), int(rng.integers(1, 20))
    drawn = rng.normal(0, scale, (length // hold + 1, *space.shape)).astype(np.float32) * space.high
    return np.repeat(drawn, hold, axis=0)[:length]


def episode(reset: Callable[[], Any], step: Callable[[Any], Any], given: Any) -> list[tuple[Any, ...]]:
    """Return all that an episode gives; it goes on where the environment would end it, on the floor."""
    observation = reset()
    trace: list[tuple[Any, ...]] = [(observation.dtype, observation.tobytes())]
    for action in given:
        observation, reward, terminated, truncated, _ = step(action)
        trace.append((observation.dtype, observation.tobytes(), float(reward), terminated, truncated))
    return trace


def played(task: Task, seed: int, length: int) -> list[tuple[Any, ...]]:
    return episode(lambda: task.reset(seed), task.step, actions(task.action_space, seed, length))


@pytest.fixture(params=SIZES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def task(name: str) -> Iterator[Task]:
    with tasks.make(config(name)) as made:
        yield made


# The environment's own episodes


def test_thousand_steps_have_the_declared_sizes(name: str, task: Task):
    size, components, limit = SIZES[name]
    assert (type(task).__name__, task.max_timesteps, task.observation_size) == ("MujocoTask", limit, size)
    assert task.action_space.shape == (components,)
    observation = task.reset(0)
    for seed, action in enumerate(actions(task.action_space, 0, 1000)):
        assert (observation.shape, observation.dtype) == ((size,), np.float64)
        observation, reward, terminated, truncated, _ = task.step(action)
        assert np.isfinite(observation).all()
        assert np.isfinite(reward)
        assert (type(terminated), truncated) == (bool, False)
        if terminated:
            observation = task.reset(seed)


def test_every_timestep_is_the_environments(name: str, task: Task):
    env = gymnasium.make(config(name).env_id, disable_env_checker=True).unwrapped
    try:
        for seed in range(20):
            given = actions(task.action_space, seed, 60)
            expected = episode(lambda seed=seed: env.reset(seed=seed)[0], env.step, given)
            assert episode(lambda seed=seed: task.reset(seed), task.step, given) == expected
    finally:
        env.close()


@pytest.mark.parametrize("name", FORCELESS)
def test_forces_are_left_out_where_nobody_looks_at_them(name: str, task: Task):
    """What the test of equal timesteps would not notice: that the short way is the one that is taken."""
    played(task, 0, 30)
    assert not task._env.unwrapped.data.cacc.any()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["hopper"])
def test_action_of_another_size_is_refused_as_the_environment_does(name: str, task: Task):
    task.reset(0)
    with pytest.raises(ValueError, match="Action dimension mismatch"):
        task.step(np.zeros(1, np.float32))


# A clean slate


def test_every_reset_is_a_clean_slate(name: str, task: Task):
    """An episode after others is, bit for bit, what it is in a fresh task: those others end in tangled heaps."""
    with tasks.make(config(name)) as other:
        expected = played(other, 77, 150)
    for seed in range(3):
        played(task, seed, 100 + 50 * seed)
        assert played(task, 77, 150) == expected


def test_seeds_differ(name: str, task: Task):
    assert len({task.reset(seed).tobytes() for seed in range(5)}) == 5


def test_another_process_plays_the_same_episodes_and_says_nothing(tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(
        "import json, sys\n"
        "from tests.tasks.test_mujoco import SIZES, digest\n"
        "print(json.dumps({name: digest(name) for name in SIZES}))\n"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.append({root!r}); exec(open({str(program)!r}).read())"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    # MuJoCo complains of HalfCheetah's model, by itself on standard error and in a file beside.
    assert done.stderr == ""
    assert os.listdir(tmp_path) == ["program.py"]
    assert json.loads(done.stdout) == {name: digest(name) for name in SIZES}


def digest(name: str) -> str:
    with tasks.make(config(name)) as task:
        played(task, 1, 50)
        trace = played(task, 2, 100)
    return hashlib.sha256(repr(trace).encode()).hexdigest()


def test_unstable_simulation_is_logged_once_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mujoco, "_logged", set())
    with tasks.make(config("half_cheetah")) as task, tasks.make(config("half_cheetah")) as other:
        expected = played(other, 5, 50)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            for seed in range(3):
                task.reset(seed)
                task._env.unwrapped.data.qvel[:] = 1e12  # type: ignore[attr-defined]
                task.step(np.zeros(6, np.float32))
        assert [record.message.partition(" at ")[0] for record in caplog.records] == [
            "MuJoCo: Nan, Inf or huge value in QVEL"
        ]
        assert played(task, 5, 50) == expected
    assert os.listdir(tmp_path) == []
    assert capfd.readouterr().err == ""


def test_workers_change_nothing(tmp_path: Path):
    def hashes(run: str, **cluster: Any) -> list[str]:
        settings = {
            "run_dir": str(tmp_path / run),
            "generations": 2,
            "task": {"env_id": "Humanoid-v5", "max_timesteps": 40, "normalize_observations": True},
            "algorithm": {"population_size": 8},
            "noise": {"entries": 100_000},
            "evaluation": {"every": 2, "episodes": 2},
            "cluster": cluster,
        }
        loop.train(settings, display=False)
        return [row["theta_hash"] for row in read_rows(tmp_path / run / "metrics.csv")]

    assert hashes("inline", name="inline") == hashes("local", name="local", workers=3)


# Use


def test_experiment_is_the_published_configuration():
    with initialize_config_module("pyes.conf", version_base="1.3"):
        composed: Any = OmegaConf.to_container(
            compose("train", ["experiment=humanoid_mujoco", "run_dir=x"]), resolve=True
        )
    made = from_mapping(composed)
    assert (made.algorithm.population_size, made.algorithm.sigma) == (10_000, 0.02)
    assert (made.algorithm.learning_rate, made.algorithm.weight_decay, made.optimizer.name) == (0.01, 0.005, "adam")
    assert (made.task.action_noise, made.task.statistics_share) == (0.01, 0.01)
    with tasks.make(made.task) as task:
        head = ActionDecoder.for_space(task.action_space, made.task.action, noise=made.task.action_noise)
        _, theta = networks.build(made.network, task.observation_size, head, seed=0, observation_clip=5.0)
    assert theta.size == (348 + 1) * 256 + (256 + 1) * 256 + (256 + 1) * 17


def test_options_of_every_task_hold_here_too():
    with tasks.make(config("half_cheetah", frame_skip=4, max_timesteps=100)) as task:
        assert task.max_timesteps == 100
        task.reset(3)
        held = np.full(6, 0.3, np.float32)
        _, total, _, _, _ = task.step(held)
    with tasks.make(config("half_cheetah", remake=True)) as task:
        task.reset(3)
        assert sum(task.step(held)[1] for _ in range(4)) == total


def test_closing_twice_does_no_harm(name: str):
    task = tasks.make(config(name))
    task.reset(0)
    task.close()
    task.close()


def draw(env_id: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Draw in a process without a display: what draws is chosen once a process."""
    program = (
        "import sys, numpy as np\n"
        "from pyes import tasks\n"
        "from pyes.config import TaskConfig\n"
        "from pyes.errors import TaskError\n"
        "frames = []\n"
        "try:\n"
        f"    with tasks.make(TaskConfig(env_id={env_id!r}), 'rgb_array') as task:\n"
        "        task.reset(3)\n"
        "        for _ in range(5):\n"
        "            task.step(np.full(task.action_space.shape, 0.5, np.float32))\n"
        "            frames.append(task.render())\n"
        "except TaskError as error:\n"
        "    sys.exit(str(error))\n"
        "assert all((f.shape, f.dtype) == ((480, 480, 3), np.uint8) and f.std() > 5 for f in frames)\n"
        "assert (frames[0] != frames[-1]).any()\n"
        "print('drawn')\n"
    )
    kept = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL")}
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**kept, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        start_new_session=True,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is always a display")
def test_frames_show_the_robot_without_a_display():
    done = draw("Hopper-v5")
    if "cannot be drawn" in done.stderr:
        pytest.skip(f"no EGL here: {done.stderr.strip()}")
    assert (done.returncode, done.stdout) == (0, "drawn\n"), done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is always a display")
@pytest.mark.parametrize("backend", ["crayons", "glfw"])
def test_what_cannot_draw_is_named(backend: str):
    done = draw("Hopper-v5", MUJOCO_GL=backend)
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("task.env_id"))
    assert line.startswith(f"task.env_id: 'Hopper-v5' cannot be drawn with MUJOCO_GL={backend} (")
    assert line.endswith("); try egl, osmesa or glfw")


def test_missing_package_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(ConfigError, match=r"Ant-v5' needs the package mujoco: pip install 'pyes-rl\[mujoco\]'"):
        tasks.make(TaskConfig(env_id="Ant-v5"))


def test_other_versions_and_names_are_left_to_gymnasium():
    assert mujoco.knows("Ant-v5")
    assert not any(map(mujoco.knows, ("Ant-v4", "Antelope-v5", "module:Ant-v5")))
