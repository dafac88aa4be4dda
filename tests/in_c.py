"""What an environment in C gives beside what its task gives in Python."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyes
from pyes import networks
from pyes.config import TaskConfig, to_mapping
from pyes.episodes import rollout
from pyes.networks import ActionDecoder
from pyes.networks.mlp import MLPConfig
from pyes.tasks import Task


def trace(player: Any, seed: int, chosen: list[Any]) -> list[Any]:
    """Return the bits of an episode of a task or of an environment in C."""
    results = [(player.reset(seed).tobytes(),)]
    for action in chosen:
        observation, reward, terminated, truncated, *_ = player.step(action)
        results.append((observation.tobytes(), float(reward).hex(), bool(terminated), bool(truncated)))
    return results


def played(kind: Any, task: Task, episodes: int, limit: int = 60) -> Any:
    """Return all that episodes of policies give, each of another one: some hardly move, some push with all force."""
    decoder = ActionDecoder.for_space(task.action_space)
    spec, theta = networks.build(MLPConfig(), task.observation_size, decoder, 0, 5.0)
    runner: Any = spec.runner()
    player, sums, results = kind(task, runner), np.zeros((2, task.observation_size)), []
    runner.normalize(np.zeros(task.observation_size, np.float32), np.ones(task.observation_size, np.float32), 5.0)
    runner.collect(sums)
    for seed in range(episodes):
        noise = np.random.default_rng(seed).normal(0, seed % 5 * 0.1, spec.dim).astype(np.float32)
        runner.load(theta + noise)
        runner.begin_episode(0, 0, 0, seed)
        total, length = player.run(seed, limit)
        results.append((float(total).hex(), length, player.behaviour().tobytes()))
    return results, sums.tobytes()


def check_journals(config: TaskConfig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train by C in this process, by C in two workers, and by Python: the journals must be equal."""

    def trained(run: str, **cluster: Any) -> bytes:
        settings = {"network": {"name": "mlp", "hidden": [16]}, "algorithm": {"population_size": 8}, "cluster": cluster}
        budget = {"generations": 3, "evaluation": {"every": 2, "episodes": 2}, "noise": {"entries": 100_000}}
        pyes.train({"task": to_mapping(config), **settings, **budget, "run_dir": str(folder / run)}, display=False)
        return (folder / run / "journal.bin").read_bytes()

    in_c = trained("c", name="inline")
    assert trained("two", name="local", workers=2) == in_c
    monkeypatch.setattr(rollout, "fits", lambda task, runner: False)
    assert trained("python", name="inline") == in_c
