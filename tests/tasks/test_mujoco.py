"""MuJoCo tasks: the episodes of Gymnasium's environments, bit for bit, whatever went before, and in silence."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from pyes import networks, tasks
from pyes.config import from_mapping
from pyes.errors import ConfigError
from pyes.networks import ActionDecoder
from pyes.tasks import Task
from pyes.tasks.gymnasium import GymnasiumConfig
from pyes.tasks.parity import first_difference
from tests.conformance.test_tasks import actions, episode
from tests.task_options import NAMES, option

pytest.importorskip("mujoco")

from pyes.tasks import mujoco  # the module, which must not be taken for the package

OPTIONS = [name for name in NAMES if name.endswith("_mujoco")]
FORCELESS = [name for name in OPTIONS if name != "ant_mujoco" and "humanoid" not in name]


@pytest.fixture(
    params=[pytest.param(name, marks=() if name == "hopper_mujoco" else pytest.mark.slow) for name in OPTIONS]
)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def task(name: str) -> Iterator[Task]:
    with tasks.make(option(name)) as made:
        yield made


# The environment's own episodes


def test_every_timestep_is_the_environments(name: str, task: Task):
    """Through several episodes that go on where the environment would end them, on the floor."""
    config = option(name)
    assert isinstance(config, GymnasiumConfig)
    assert type(task) is mujoco.MujocoTask
    original = mujoco.MujocoTask.original(config)
    assert original.spec is not None
    assert task.max_timesteps == original.spec.max_episode_steps
    for seed in range(8):
        assert first_difference(task, original.unwrapped, seed, actions(task.action_space, seed, 60)) is None
    original.close()


@pytest.mark.parametrize("name", FORCELESS)
def test_forces_are_left_out_where_they_are_not_used(name: str, task: Task):
    """What the test of equal timesteps would not notice: that the short way is the one that is taken."""
    episode(task, 0, 30)
    assert not task._env.unwrapped.data.cacc.any()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["hopper_mujoco"])
def test_action_of_another_size_is_refused_as_the_environment_does(name: str, task: Task):
    task.reset(0)
    with pytest.raises(ValueError, match="Action dimension mismatch"):
        task.step(np.zeros(1, np.float32))


def test_unstable_simulation_is_logged_once_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mujoco, "_logged", set())
    with tasks.make(option("half_cheetah_mujoco")) as task, tasks.make(option("half_cheetah_mujoco")) as other:
        expected = episode(other, 5, 50)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            for seed in range(3):
                task.reset(seed)
                task._env.unwrapped.data.qvel[:] = 1e12  # type: ignore[attr-defined]
                task.step(np.zeros(6, np.float32))
        assert [record.message.partition(" at ")[0] for record in caplog.records] == [
            "MuJoCo: Nan, Inf or huge value in QVEL"
        ]
        assert episode(task, 5, 50) == expected
    assert os.listdir(tmp_path) == []
    assert capfd.readouterr().err == ""


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
    with tasks.make(option("half_cheetah_mujoco", frame_skip=4, max_timesteps=100)) as task:
        assert task.max_timesteps == 100
        task.reset(3)
        held = np.full(6, 0.3, np.float32)
        _, total, _, _, _ = task.step(held)
    with tasks.make(option("half_cheetah_mujoco", remake=True)) as task:
        task.reset(3)
        assert sum(task.step(held)[1] for _ in range(4)) == total


def draw(env_id: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Draw in a process without a display: what draws is chosen once a process."""
    program = (
        "import sys, numpy as np\n"
        "from pyes import tasks\n"
        "from pyes.tasks.gymnasium import GymnasiumConfig\n"
        "from pyes.errors import TaskError\n"
        "frames = []\n"
        "try:\n"
        f"    with tasks.make(GymnasiumConfig(env_id={env_id!r}), 'rgb_array') as task:\n"
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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is always a display")
def test_frames_show_the_robot_without_a_display():
    done = draw("Hopper-v5")
    if "cannot be drawn" in done.stderr:
        pytest.skip(f"no EGL here: {done.stderr.strip()}")
    assert (done.returncode, done.stdout) == (0, "drawn\n"), done.stderr


@pytest.mark.slow
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
        tasks.make(option("ant_mujoco"))


def test_other_versions_and_names_are_left_to_gymnasium():
    assert mujoco.MujocoTask.knows("Ant-v5")
    assert not any(map(mujoco.MujocoTask.knows, ("Ant-v4", "Antelope-v5", "module:Ant-v5")))
