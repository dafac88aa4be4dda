"""MuJoCo tasks: the episodes of Gymnasium's environments, bit for bit, whatever went before, and in silence."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

import pyes
from pyes import networks, tasks
from pyes.config import from_mapping, to_mapping
from pyes.episodes.native import NativeRollout
from pyes.episodes.rollout import Rollout, rollout_of
from pyes.errors import ConfigError
from pyes.networks import ActionDecoder
from pyes.networks.mlp import MLPConfig
from pyes.tasks import Task
from pyes.tasks.gymnasium import GymnasiumConfig
from pyes.tasks.parity import first_difference
from tests.conformance.test_tasks import actions, episode
from tests.in_c import check_journals, played, trace
from tests.task_options import NAMES, option

pytest.importorskip("mujoco")

from gymnasium.envs.mujoco.hopper_v5 import HopperEnv

from pyes.tasks import mujoco, mujoco_timestep  # modules: the first must not be taken for the package

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


@pytest.mark.parametrize("episodes", [4, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", OPTIONS)
def test_timesteps_in_c_are_those_of_python(name: str, episodes: int, task: Task):
    """Actions of random strength, beyond the end of the environment's own episode; and those of policies."""
    native = stepped_in_c(task)
    for seed in range(episodes // 2):
        assert trace(native, seed, actions(task.action_space, seed, 60)) == trace(
            task, seed, actions(task.action_space, seed, 60)
        )
    assert played(NativeRollout, task, episodes // 2) == played(Rollout, task, episodes // 2)


def stepped_in_c(task: Task) -> Any:
    """Return the environment in C of a task."""
    if sys.platform == "win32":
        pytest.skip("Windows finds no function of MuJoCo this way, so that Python steps it")
    assert task.native is not None
    return task.native


CHANGED: dict[str, dict[str, Any]] = {
    "hopper_mujoco": {
        "forward_reward_weight": 2,
        "ctrl_cost_weight": 0.3,
        "healthy_reward": 7,
        "healthy_state_range": [-2, 2.5],
        "healthy_angle_range": [-1, 0.1],
        "exclude_current_positions_from_observation": False,
        "frame_skip": 2,
    },
    "walker2d_mujoco": {"terminate_when_unhealthy": False, "healthy_z_range": [1.1, 1.25], "ctrl_cost_weight": 0.7},
    "ant_mujoco": {
        "main_body": "front_left_leg",
        "contact_force_range": [-0.3, 0.2],
        "contact_cost_weight": 1,
        "healthy_z_range": [0.5, 0.8],
        "xml_file": "ant.xml",
    },
    "humanoid_mujoco": {
        "include_cvel_in_observation": False,
        "contact_cost_weight": 1e-3,
        "contact_cost_range": [0.5, 3],
        "ctrl_cost_weight": 1,
    },
    "humanoid_standup_mujoco": {"impact_cost_weight": 0.1, "include_cfrc_ext_in_observation": False},
    "inverted_double_pendulum_mujoco": {"healthy_reward": 3, "reset_noise_scale": 0.3},
    "reacher_mujoco": {"reward_dist_weight": 3, "reward_control_weight": 0.1},
    "pusher_mujoco": {"reward_near_weight": 3, "reward_dist_weight": 0.1, "reward_control_weight": 0.3},
    "swimmer_mujoco": {"exclude_current_positions_from_observation": False, "ctrl_cost_weight": 0.1},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGED)
def test_timesteps_in_c_have_the_options_of_the_environment(name: str):
    with tasks.make(option(name, env_kwargs=CHANGED[name])) as task, tasks.make(option(name)) as plain:
        native, chosen = stepped_in_c(task), actions(task.action_space, 3, 60)
        assert trace(native, 3, chosen) == trace(task, 3, chosen) != trace(plain, 3, chosen)


class LazyHopper(HopperEnv):
    """Another class, which earns something else."""

    def _get_rew(self, x_velocity: float, action: Any) -> Any:
        return 0.0, {}


class Doubled(gymnasium.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> Any:
        return 2 * reward


@pytest.mark.parametrize(
    ("keys", "change"),
    [
        ({"env_kwargs": {"camera_id": 1, "healthy_reward": 2.0}}, "C"),
        ({"frame_skip": 3}, "C"),
        ({"env_kwargs": {"terminate_when_unhealthy": 1}}, ""),
        ({"env_kwargs": {"healthy_z_range": [True, 2]}}, ""),
        ({"env_kwargs": {"healthy_reward": True}}, ""),
        ({"action_levels": 5}, ""),
        ({"remake": True}, ""),
        ({}, "class"),
        ({}, "wrapper"),
        ({}, "argument"),
        ({}, "formula"),
        ({}, "library"),
    ],
)
def test_what_c_does_not_know_is_stepped_by_python(keys: dict[str, Any], change: str, monkeypatch: pytest.MonkeyPatch):
    """And in silence, with the environment's own results."""
    changes: dict[str, Any] = {
        "class": lambda: monkeypatch.setattr(spec, "entry_point", LazyHopper),
        "wrapper": lambda: monkeypatch.setattr(
            spec, "additional_wrappers", (gymnasium.envs.registration.WrapperSpec("x", f"{__name__}:Doubled", {}),)
        ),
        "argument": lambda: monkeypatch.setattr(HopperEnv, "__init__", generous),
        "formula": lambda: monkeypatch.setattr(HopperEnv, "_get_rew", LazyHopper._get_rew),
        "library": lambda: monkeypatch.setattr(mujoco_timestep, "_engine", lambda _: missing.mj_step),
    }
    spec, plain, missing = gymnasium.spec("Hopper-v5"), HopperEnv.__init__, object()

    def generous(self: Any, *args: Any, tip: float = 0.0, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)

    if change in changes:
        changes[change]()
    if change == "argument":
        keys = {"env_kwargs": {"tip": 1.0}}
    with tasks.make(option("hopper_mujoco", **keys)) as task:
        assert (task.native is not None) == (change == "C" and sys.platform != "win32")
        spec_of, theta = networks.build(
            MLPConfig(), task.observation_size, ActionDecoder.for_space(task.action_space), 0, 5.0
        )
        runner = spec_of.runner()
        runner.load(theta)
        runner.begin_episode(0, 0, 0, 0)
        assert isinstance(rollout_of(task, runner), NativeRollout if task.native is not None else Rollout)
        total, length = rollout_of(task, runner).run(3, 20)
        assert (length > 3, total == 0) == (True, change in ("class", "formula"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        {"name": "hopper_mujoco", "behaviour": "final_observation", "hide_observations": [0, 7]},
        {"name": "ant_mujoco", "behaviour": "final_position"},
        {"name": "reacher_mujoco", "action_noise": 0.2, "frame_skip": 2},
        {"name": "humanoid_mujoco", "hide_observations": [9], "hide_by": "zero"},
    ],
)
def test_journal_is_the_same_by_c_and_by_python(keys: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    name = keys.pop("name")
    check_journals(option(name, normalize_observations=True, max_timesteps=60, **keys), tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="kills processes")
def test_fatal_error_of_the_engine_costs_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """MuJoCo ends the process: a model with too little memory for the contacts of some falls."""
    monkeypatch.chdir(tmp_path)  # where MuJoCo writes what was wrong
    model = (Path(gymnasium.__file__).parent / "envs/mujoco/assets/half_cheetah.xml").read_text()
    text = model.replace('<size nstack="300000" nuser_geom="1"/>', '<size memory="8K" nuser_geom="1"/>')
    assert text != model
    (tmp_path / "cheetah.xml").write_text(text)
    keys: dict[str, Any] = {"env_kwargs": {"xml_file": str(tmp_path / "cheetah.xml")}, "max_timesteps": 150}
    with tasks.make(option("half_cheetah_mujoco", **keys)) as task:
        assert task.native is not None  # nothing is wrong with its first timesteps
    settings: dict[str, Any] = {
        "task": to_mapping(option("half_cheetah_mujoco", **keys)),
        "algorithm": {"population_size": 8, "sigma": 0.5},
        "cluster": {"name": "local", "workers": 2, "attempts": 1},
        "generations": 1,
        "evaluation": {"every": 0},
        "noise": {"entries": 100_000},
    }
    pyes.train({**settings, "run_dir": str(tmp_path / "run")}, display=False)
    assert pyes.read(tmp_path / "run")[0]["failed_members"][-1] > 0
    assert "out of memory" in (tmp_path / "MUJOCO_LOG.TXT").read_text()


@pytest.mark.parametrize("name", FORCELESS)
def test_forces_are_left_out_where_they_are_not_used(name: str, task: Task):
    """What the test of equal timesteps would not notice: that the short way is the one that is taken."""
    episode(task, 0, 30)
    assert not task._env.unwrapped.data.cacc.any()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["hopper_mujoco"])
def test_timers_stand_while_c_steps_and_no_other_clock_is_touched(name: str):
    import mujoco as package

    calls: list[int] = []

    def clock() -> float:
        calls.append(0)
        return 0.0

    def timed(played: Any) -> float:
        before = data.timer[0].duration
        trace(played, 0, actions(task.action_space, 1, 5))
        return float(data.timer[0].duration - before)

    with tasks.make(option(name)) as task:
        native, data = stepped_in_c(task), task._env.unwrapped.data  # type: ignore[attr-defined]
        assert timed(native) == 0
        assert timed(task) > 0  # by Python
        package.set_mjcb_time(clock)
        try:
            timed(native)
        finally:
            package.set_mjcb_time(None)
    assert calls


@pytest.mark.parametrize("name", ["hopper_mujoco"])
def test_action_of_another_size_is_refused_as_the_environment_does(name: str, task: Task):
    task.reset(0)
    with pytest.raises(ValueError, match="Action dimension mismatch"):
        task.step(np.zeros(1, np.float32))


@pytest.mark.parametrize(("given", "camera"), [({}, 0), ({"camera_id": -1}, -1)])
def test_the_models_own_camera_follows_the_robot_unless_another_is_chosen(given: dict[str, Any], camera: int):
    with tasks.make(option("hopper_mujoco", env_kwargs=given)) as task:
        renderer = task._env.unwrapped.mujoco_renderer  # type: ignore[attr-defined]
        assert renderer.camera_id == camera
        assert task._env.unwrapped.model.camera(0).name == "track"  # type: ignore[attr-defined]


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
                (task if seed else task.native or task).step(np.zeros(6, np.float32))
        message = "MuJoCo: Nan, Inf or huge value in QVEL"
        assert [record.message.partition(" at ")[0] for record in caplog.records] == [message]
        assert episode(task, 5, 50) == expected
        if task.native is not None:
            mujoco._logged.clear()
            monkeypatch.setattr(task._env, "reset", partial(launched, task._env, task._env.reset))  # type: ignore[attr-defined]
            assert played(NativeRollout, task, 2, 5) == played(Rollout, task, 2, 5)
            assert [record.message.partition(" at ")[0] for record in caplog.records] == [message, message]
    assert os.listdir(tmp_path) == []
    assert capfd.readouterr().err == ""


def launched(env: Any, reset: Any, *, seed: int) -> Any:
    """Reset an environment, and give its robot a speed that no simulation bears."""
    reset(seed=seed)
    env.data.qvel[:] = 1e12
    return env._get_obs(), {}


# Use


def test_experiment_is_the_published_configuration():
    with initialize_config_module("pyes.conf", version_base="1.3"):
        composed: Any = OmegaConf.to_container(
            compose("train", ["experiment=humanoid_mujoco-openai_es", "run_dir=x"]), resolve=True
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
@pytest.mark.parametrize(
    "env_id", ["Hopper-v5", "Hopper-v4"]
)  # the second one is like any environment that MuJoCo draws
def test_frames_show_the_robot_without_a_display(env_id: str):
    done = draw(env_id)
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
    with pytest.raises(ConfigError, match=r"Ant-v5' needs the package mujoco: pip install \"pyes-rl\[mujoco\]\""):
        tasks.make(option("ant_mujoco"))


def test_other_versions_and_names_are_left_to_gymnasium():
    assert mujoco.MujocoTask.knows("Ant-v5")
    assert not any(map(mujoco.MujocoTask.knows, ("Ant-v4", "Antelope-v5", "module:Ant-v5")))
