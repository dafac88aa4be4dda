"""Policies become good: real tasks, trained from the command line to the end.

Minutes each: only ``make test-learning`` runs them.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from pyes import tasks
from pyes.reports import replay
from pyes.tasks.gymnasium import GymnasiumConfig

pytestmark = [pytest.mark.learning, pytest.mark.timeout(3600)]

UNSEEN = 1_000_000  # seed of the episodes that judge


def _train(run: Path, *overrides: str) -> None:
    command = [sys.executable, "-m", "pyes", "train", *overrides, f"run_dir={run}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_default_run_lands(tmp_path, seed):
    _train(tmp_path / "run", f"seed={seed}")
    assert replay.evaluate(tmp_path / "run", seed=UNSEEN).return_mean >= 250


def test_an_lstm_swings_up_a_pendulum_whose_velocity_it_does_not_see(tmp_path):
    pytest.importorskip("envpool")
    _train(
        tmp_path / "run", "experiment=pendulum_hidden_velocity", "task=envpool", "task.env_id=Pendulum-v1",
        "task.hide_observations=[2]", "task.action=tanh", "cluster.vector=30", "seed=0",
    )  # fmt: skip
    with tasks.make(GymnasiumConfig(env_id="Pendulum-v1", hide_observations=(2,))) as task:
        evaluation = replay.run_episodes(replay.load(tmp_path / "run"), task, 100, UNSEEN)
    assert evaluation.return_mean >= -260  # below -700: it is caught at the top, but never swung up
