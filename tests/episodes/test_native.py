"""Episodes in C have the bits of those that Python steps; whatever an environment does, a member fails, not the run."""

import math
import shutil
import sys
from pathlib import Path
from typing import Any

import native_sources
import numpy as np
import pytest

import pyes
from pyes import networks, tasks
from pyes.config import from_mapping
from pyes.episodes import rollout
from pyes.episodes.native import NativeRollout, fits
from pyes.episodes.rollout import Rollout
from pyes.networks import ActionDecoder

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or shutil.which("cc") is None, reason="compiles with a C compiler of POSIX"
)

NETWORKS: dict[str, dict[str, Any]] = {
    "linear": {"name": "linear"},
    "mlp": {"name": "mlp", "hidden": [64, 64]},
    "rnn": {"name": "rnn", "hidden": [16]},
    "gru": {"name": "gru", "hidden": [16]},
    "lstm": {"name": "lstm", "hidden": [16, 8]},
}
#: A wide observation in float64, and two actions of which one has bounds.
WIDE = """
#include "pyes_environment.h"
struct wide { struct pyes_random random; double sum; uint64_t time; };
static void look(struct wide *now, double *seen)
{
    for (int i = 0; i < 40; i++)
        seen[i] = pyes_random_uniform(&now->random, -3.0, 3.0) + now->sum;
}
static void reset(void *state, uint64_t seed, void *seen, const void *user)
{
    struct wide *now = state;
    (void)user;
    pyes_random_begin(&now->random, seed);
    look(now, seen);
}
static int step(void *state, const float *action, void *seen, double *reward, const void *user)
{
    struct wide *now = state;
    (void)user;
    now->sum = pyes_tanh(now->sum + (double)action[0] - 0.3 * (double)action[1]);
    look(now, seen);
    *reward = pyes_exp(now->sum);
    return ++now->time >= 150 ? PYES_TRUNCATED : now->sum > 0.99 ? PYES_TERMINATED : 0;
}
static const float low[2] = {-1.0f, -0.5f}, high[2] = {1.0f, 2.0f};
PYES_EXPORT const struct pyes_environment wide = {
    .abi = PYES_ENVIRONMENT_ABI, .size = sizeof(struct pyes_environment), .name = "Wide", .reset = reset, .step = step,
    .state_bytes = sizeof(struct wide), .observation_type = PYES_OBSERVE_FLOAT64, .observation_size = 40,
    .action_size = 2, .action_low = low, .action_high = high,
};
"""
CHOICE: dict[str, Any] = {"env_id": "CartPole-v1"}
BOX: dict[str, Any] = {"env_id": "Pendulum-v1"}
CASES: dict[str, dict[str, Any]] = {
    **{f"choice {name}": {"network": name, **CHOICE} for name in NETWORKS},
    **{f"box {name}": {"network": name, **BOX} for name in NETWORKS},
    "removed": {"network": "lstm", **BOX, "hide_observations": [2]},
    "zeroed": {"network": "gru", **BOX, "hide_observations": [1], "hide_by": "zero", "action": "tanh"},
    "skipped": {"network": "mlp", **CHOICE, "frame_skip": 3},
    "bins": {"network": "mlp", **BOX, "action": "bins", "bins": 5},
    "noise": {"network": "mlp", **BOX, "action": "clip", "action_noise": 0.3, "reward_min": -4.0},
    "wide": {"network": "mlp", "library": "WIDE", "action": "tanh", "action_noise": 0.1},
    "wide, hidden": {"network": "linear", "library": "WIDE", "hide_observations": [0, 7, 39], "action": "identity"},
}


def made(network: str, **keys: Any) -> tuple[tasks.Task, Any, Any]:
    """Return a task, the spec of a policy and its parameters."""
    if keys.get("library") == "WIDE":
        keys |= {"library": native_sources.compiled(WIDE, "wide"), "symbol": "wide"}
    config = from_mapping({"task": {"name": "native", **keys}, "network": NETWORKS[network]})
    task = tasks.make(config.task)
    head = ActionDecoder.for_space(
        task.action_space, config.task.action, bins=config.task.bins, noise=config.task.action_noise
    )
    spec, theta = networks.build(config.network, task.observation_size, head, seed=3, observation_clip=2.0)
    return task, spec, theta + np.random.default_rng(1).normal(0, 0.5, spec.dim).astype(np.float32)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_rollout_in_c_has_the_bits_of_the_one_in_python(name: str, normalized: bool):
    task, spec, theta = made(**CASES[name])
    size = task.observation_size
    rng = np.random.default_rng(2)
    mean, inverse = rng.normal(size=size).astype(np.float32), rng.uniform(0.5, 3, size).astype(np.float32)
    results = []
    for kind in (Rollout, NativeRollout):
        runner = spec.runner()
        assert fits(task, runner)
        runner.load(theta)
        if normalized:
            runner.normalize(mean, inverse, 2.0)
        sums = np.zeros((2, size))
        runner.collect(sums)
        player: Any = kind(task, runner)
        trace: list[Any] = []
        for seed in range(12):
            runner.begin_episode(5, 6, 7, seed)
            limit = 11 if seed % 4 == 3 else task.max_timesteps
            trace.append((player.run(seed, limit), player.behaviour().tobytes()))
        results.append((trace, sums.tobytes()))
    assert results[0] == results[1]
    assert len({length for ((_, length), _) in results[1][0]}) > 1


@pytest.mark.parametrize("kind", [Rollout, NativeRollout])
def test_smaller_rewards_count_as_the_least(kind: Any):
    task, spec, theta = made("mlp", **BOX)
    runner = spec.runner()
    runner.load(theta)
    player = kind(task, runner)
    totals = {}
    for least in (-math.inf, -2.0, 3.0):
        player.reward_min = least
        totals[least], length = player.run(1, 200)
    assert totals[-math.inf] < totals[-2.0] < 0
    assert totals[-2.0] >= -2.0 * length
    assert totals[3.0] == 3.0 * length


TRAIN: dict[str, Any] = {
    "algorithm": {"population_size": 8},
    "generations": 3,
    "evaluation": {"every": 2, "episodes": 2},
    "noise": {"entries": 100_000},
    "cluster": {"name": "inline"},
}


def trained(run: Path, **changes: Any) -> bytes:
    pyes.train({**TRAIN, "run_dir": str(run), **changes}, display=False)
    return (run / "journal.bin").read_bytes()


@pytest.mark.parametrize("case", ["choice mlp", "removed", "noise"])
def test_journal_is_the_same_in_c_in_python_and_with_workers(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    keys = dict(CASES[case])
    settings: dict[str, Any] = {"network": NETWORKS[keys.pop("network")]}
    settings["task"] = {"name": "native", "normalize_observations": True, "behaviour": "final_observation", **keys}
    in_c = trained(tmp_path / "c", **settings)
    assert trained(tmp_path / "two", **settings, cluster={"name": "local", "workers": 2}) == in_c
    monkeypatch.setattr(rollout, "fits", lambda task, runner: False)
    assert trained(tmp_path / "python", **settings) == in_c


def test_network_of_torch_takes_the_way_of_python(tmp_path: Path):
    pytest.importorskip("torch")
    network = {"name": "torch", "module": "user_modules:Plain"}
    config = from_mapping({"task": {"name": "native", **CHOICE}, "network": network})
    task = tasks.make(config.task)
    spec, _ = networks.build(config.network, 4, ActionDecoder.for_space(task.action_space), 0, 5.0)
    assert not fits(task, spec.runner())


@pytest.mark.parametrize("kind", [Rollout, NativeRollout])
@pytest.mark.parametrize(
    ("step", "more", "message"),
    [
        ("if (now->time == 3) seen[1] = NAN;", "", "the observation has NaN at index 1, of 2 values"),
        ("if (now->time == 10) seen[0] = NAN;", "", "the observation has NaN at index 0, of 2 values"),
        ("if (now->time == 4) return -1;", "", "Point: step returned a wrong number"),
        (
            "if (now->time == 4) *reward = NAN;",
            ".reward_low = -99, .reward_high = 0,",
            "Point: got the reward nan, expected",
        ),
        ("((char *)state)[sizeof *now] = 1;", "", "Point wrote behind its state"),
        ("seen[2] = 1.0;", "", "Point wrote behind its observation"),
    ],
)  # fmt: skip
def test_error_of_an_environment_is_the_same(kind: Any, step: str, more: str, message: str):
    library = native_sources.point(step, more)
    task, spec, theta = made("linear", library=library, symbol="point")
    runner = spec.runner()
    runner.load(theta * 0)
    runner.begin_episode(0, 0, 0, 0)
    with pytest.raises(ValueError, match=message):
        kind(task, runner).run(1, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        "if (now->time == 2 && now->place > 0.0) *(volatile int *)0 = 1;",
        "while (now->time == 2 && now->place > 0.0) *(volatile double *)&now->place = 1.0;",
        "if (now->place > 0.0) *reward = NAN;",
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="kills processes")
def test_environment_that_crashes_hangs_or_lies_costs_members(step: str, tmp_path: Path):
    task = {"name": "native", "library": native_sources.point(step), "symbol": "point", "common_random_numbers": "none"}
    cluster = {"name": "local", "workers": 2, "attempts": 1, "episode_time_limit": 3.0}
    changes: dict[str, Any] = {"task": task, "cluster": cluster, "generations": 1, "evaluation": {"every": 0}}
    pyes.train({**TRAIN, "run_dir": str(tmp_path / "run"), **changes}, display=False)
    lines = (tmp_path / "run" / "metrics.csv").read_text().splitlines()
    row = dict(zip(lines[0].split(","), lines[-1].split(","), strict=True))
    assert 0 < int(row["failed_members"]) < 8


def test_runner_refuses_an_environment_of_other_sizes():
    task, spec, theta = made("linear", **CHOICE)
    other, *_ = made("linear", **BOX)
    runner = spec.runner()
    runner.load(theta)
    assert task.native is not None
    assert other.native is not None
    with pytest.raises(ValueError, match="environment: got 3 values in an observation, expected 4"):
        runner.run(other.native, 0, 9)
    with pytest.raises(ValueError, match="environment: got 0 choices, expected those of this policy"):
        runner.run(other.native, 0, 9, np.array([0, 1, 2, -1]))
    with pytest.raises(ValueError, match=r"seen: got \[0, 1, 2, 4\], expected 4 indices below 4, or -1"):
        runner.run(task.native, 0, 9, np.array([0, 1, 2, 4]))
