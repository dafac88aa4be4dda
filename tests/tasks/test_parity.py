"""Families of tasks with pyes' own code are compared with the original if a simulator's version was not verified."""

import logging

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import PendulumEnv

from pyes import tasks
from pyes.errors import ConfigError
from pyes.system import lookup
from pyes.tasks import parity
from pyes.tasks.envpool import EnvPoolTask, EnvPoolVector
from pyes.tasks.gymnasium import Family, GymnasiumConfig, GymnasiumTask
from pyes.tasks.parity import first_difference
from tests.task_options import option


@pytest.fixture
def other_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the families find versions that they do not know."""
    tasks.make(option("pendulum")).close()  # imports the families
    monkeypatch.setattr(parity, "_compared", set())
    for family in (*Family.ALL, EnvPoolTask):
        monkeypatch.setattr(family, "VERIFIED", dict.fromkeys(family.VERIFIED, ("0.1",)))


COMPARED = ["reacher_bullet", "ant_bullet", "hopper_mujoco", "humanoid_mujoco", "seaquest", "envpool"]


def test_versions_installed_here_are_verified():
    """When this fails, run the tests of the families; where they pass, enter the versions in VERIFIED."""
    tasks.make(option("pendulum")).close()
    verified = {name: versions for family in (*Family.ALL, EnvPoolTask) for name, versions in family.VERIFIED.items()}
    assert verified
    for name, versions in verified.items():
        assert lookup.version(name) in (*versions, "not installed")


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPARED)
@pytest.mark.usefixtures("other_versions")
def test_other_version_is_compared_once_and_said_in_one_line(
    name: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
):
    with caplog.at_level(logging.INFO, "pyes.tasks.parity"):
        for _ in range(2):
            tasks.make(option(name)).close()
    lines = [record.message for record in caplog.records if record.name == "pyes.tasks.parity"]
    assert len(lines) == 1
    assert "was not verified with " in lines[0]
    assert lines[0].endswith(": a first comparison shows no difference")
    assert capfd.readouterr().out == ""


@pytest.mark.usefixtures("other_versions")
def test_version_with_another_environment_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch):
    from pyes.tasks.mujoco import MujocoTask

    make = MujocoTask.original

    def heavier(config: GymnasiumConfig) -> gymnasium.Env:
        env = make(config)
        env.unwrapped.model.body_mass[:] *= 1.01
        return env

    monkeypatch.setattr(MujocoTask, "original", staticmethod(heavier))
    for _ in range(2):
        with pytest.raises(ConfigError) as caught:
            tasks.make(option("hopper_mujoco"))
    message = str(caught.value)
    assert message.startswith("task.env_id: 'Hopper-v5' behaves differently with gymnasium ")
    assert "(the observation of timestep 0); install a verified version (gymnasium==0.1 mujoco==0.1)" in message
    assert "task=python task.factory=gymnasium:make task.env_kwargs.id=Hopper-v5 task.remake=true" in message


@pytest.mark.usefixtures("other_versions")
def test_version_of_envpool_whose_episodes_depend_on_their_neighbours_is_refused(monkeypatch: pytest.MonkeyPatch):
    reset = EnvPoolVector.reset
    monkeypatch.setattr(EnvPoolVector, "reset", lambda self, seeds: reset(self, [sum(seeds)] * len(seeds)))
    with pytest.raises(ConfigError, match=r"'CartPole-v1' behaves differently .* \(the observation of reset\); "):
        tasks.make(option("envpool"))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"reset": lambda env: (env.state + 1.0).astype(np.float32)}, "the observation of reset"),
        ({"reward": 1.0}, "'reward' ("),
        ({"end": True}, "'terminated' (False, not True) of timestep 0"),
    ],
)
def test_first_difference_is_named(change, expected):
    class Changed(PendulumEnv):
        def reset(self, **keys):
            observation, info = super().reset(**keys)
            return change["reset"](self) if "reset" in change else observation, info

        def step(self, action):
            observation, reward, terminated, truncated, info = super().step(action)
            return observation, reward + change.get("reward", 0), change.get("end", terminated), truncated, info

    with GymnasiumTask(GymnasiumConfig(env_id="Pendulum-v1")) as task:
        assert first_difference(task, PendulumEnv()) is None
        assert (first_difference(task, Changed()) or "").startswith(expected)
