"""EnvPool: members side by side have the episodes that each would have alone, whatever the vector and the workers."""

import dataclasses
import os
import random
import re
import signal
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import check_same, make_batch, workers_now
from heads import until

import pyes
from pyes import networks, tasks
from pyes.algorithms.population import Member
from pyes.cluster import open_cluster
from pyes.config import ClusterConfig, NetworkConfig
from pyes.episodes.batch import Batch, Plan, Results, Status
from pyes.errors import ConfigError, TaskError
from pyes.networks import ActionDecoder
from pyes.networks.linear import LinearConfig
from pyes.networks.own_module import OwnModuleConfig
from pyes.networks.recurrent import LSTMConfig
from pyes.numerics.noise import NoiseTable
from pyes.reports import replay
from pyes.run.metrics import read_rows
from pyes.tasks.envpool import EnvPoolConfig

envpool = pytest.importorskip("envpool")

INLINE = ClusterConfig(name="inline")
IDS = ["CartPole-v1", "Pendulum-v1", "HalfCheetah-v5"]


@pytest.fixture(scope="module")
def table():
    with NoiseTable(50_000, 0, shared=True) as table:
        yield table


def _config(env_id: str = "CartPole-v1", **keys: Any) -> EnvPoolConfig:
    return EnvPoolConfig(env_id=env_id, **keys)


def _plan(config: EnvPoolConfig, vector: int, network: NetworkConfig | None = None, noise: float = 0.0):
    with tasks.make(config) as task:
        head, size = ActionDecoder.for_space(task.action_space, noise=noise), task.observation_size
    spec, theta = networks.build(network or LinearConfig(), size, head, seed=0, observation_clip=5.0)
    plan = Plan(
        seed=0,
        dim=len(theta),
        capacity=64,
        episodes=2,
        observation_size=size,
        statistics_rows=64,
        policy=spec,
        vector=vector,
    )
    return plan, theta


def _evaluate(
    table: NoiseTable, config: EnvPoolConfig, plan: Plan, batch: Batch, cluster: ClusterConfig = INLINE
) -> Results:
    with open_cluster(cluster, config) as opened:
        opened.start(plan, table)
        return opened.evaluate(batch)


def _threads() -> int:
    return len(os.listdir("/proc/self/task")) if sys.platform == "linux" else threading.active_count()


# --- the task


def test_the_largest_seed_of_a_run_is_one_that_envpool_takes():
    with tasks.make(_config()) as task:
        assert np.isfinite(task.reset(2**31 - 1)).all()


@pytest.mark.filterwarnings("ignore:.*precision lowered:UserWarning")
def test_returns_and_lengths_are_those_of_a_plain_loop(table):
    """EnvPool stepped as its users step it, through the resets that it does by itself; the first episodes count."""
    config = _config()
    plan, theta = _plan(config, 8)
    batch = dataclasses.replace(make_batch(theta, 8), limit=500)
    results = _evaluate(table, config, plan, batch)
    returns, lengths = np.zeros(8), np.zeros(8, int)
    for episode in range(2):
        pool = envpool.make_gymnasium("CartPole-v1", num_envs=8, seed=batch.seeds[:, episode].tolist())
        runners = [plan.policy.runner() for _ in range(8)]
        for runner, offset in zip(runners, batch.population.offsets, strict=True):
            runner.load(theta + np.float32(0.1) * table.array[offset : offset + len(theta)])
        observations, _ = pool.reset()
        alive = np.ones(8, bool)
        while alive.any():
            actions = np.array([runner.act(row) for runner, row in zip(runners, observations, strict=True)])
            observations, rewards, terminated, truncated, _ = pool.step(actions)
            lengths += alive
            returns += np.where(alive, rewards, 0)
            alive &= ~(terminated | truncated)
        pool.close()
    np.testing.assert_array_equal(results.lengths, lengths)
    np.testing.assert_array_equal(results.returns, returns / 2)
    assert len(set(lengths.tolist())) > 3


def test_max_timesteps_and_the_limit_of_the_batch_end_episodes(table):
    assert tasks.make(_config("Pendulum-v1", max_timesteps=30)).max_timesteps == 30
    plan, theta = _plan(_config("Pendulum-v1"), 4)
    batch = dataclasses.replace(make_batch(theta, 5), limit=7)
    results = _evaluate(table, _config("Pendulum-v1"), plan, batch)
    np.testing.assert_array_equal(results.lengths, 14)
    np.testing.assert_array_equal(results.sum_lengths, 14)


def test_closing_leaves_no_thread():
    tasks.make(_config()).close()  # imports what starts threads of its own
    before = _threads()
    vector = tasks.make_vector(_config())
    vector.reset(range(4))
    running = _threads()
    assert running > before
    for first in range(3):
        vector.reset(range(first, first + 4))
        assert _threads() == running
    vector.close()
    vector.close()
    until(
        lambda: _threads() == before, "the end of its threads"
    )  # the kernel lists one a moment longer than join() waits


# --- many members


@pytest.mark.slow
@pytest.mark.parametrize("env_id", IDS)
def test_results_depend_neither_on_the_vector_nor_on_the_workers(env_id, table):
    """Nor on being evaluated by the task itself, one episode after the other; with memory, statistics and noise."""
    config = _config(env_id)
    noise = 0.0 if env_id == "CartPole-v1" else 0.1
    network = LSTMConfig(hidden=(4,))
    plan, theta = _plan(config, 1, network, noise)
    size = plan.observation_size
    statistics = {"mean": np.full(size, 0.1, np.float32), "inverse_std": np.full(size, 2.0, np.float32)}
    batch = dataclasses.replace(make_batch(theta, 9, **statistics), limit=80, reward_min=-0.3)  # no float32
    expected = _evaluate(table, config, plan, batch)
    assert not expected.status.any()
    assert len(set(expected.returns.tolist())) > 2
    for vector, cluster in [(4, INLINE), (64, INLINE), (3, ClusterConfig(workers=2))]:
        check_same(_evaluate(table, config, dataclasses.replace(plan, vector=vector), batch, cluster), expected)
    evaluator = replay.TaskEvaluator(tasks.make(config), plan)
    evaluator.begin(batch)
    for member in (0, 8):
        offset = int(batch.population.offsets[member])
        evaluator.load(Member(theta, table.array, offset, 0.1), None)
        episodes = [evaluator.episode(member, k, int(seed)) for k, seed in enumerate(batch.seeds[member])]
        assert sum(length for _, length in episodes) == expected.lengths[member]
        assert (episodes[0][0] + episodes[1][0]) / 2 == expected.returns[member]
    evaluator.close()


def _fatal(fault: str, table: NoiseTable, members: int) -> tuple[NetworkConfig, np.ndarray[Any, Any], Batch]:
    """Return a network that fails for one member, which one that is, and the batch."""
    network = OwnModuleConfig(module="user_modules:Fatal")
    _, theta = _plan(_config("Pendulum-v1"), 1, network)
    batch = dataclasses.replace(make_batch(theta, members), limit=10)
    first = theta[0] + np.float32(0.1) * table.array[batch.population.offsets]
    limit = float(np.sort(first)[-2:].mean())
    failing = dataclasses.replace(network, module_kwargs={"fault": fault, "limit": limit})
    return failing, first > limit, batch


@pytest.mark.slow
def test_a_member_that_raises_fails_alone(table):
    config = _config("Pendulum-v1")
    network, guilty, batch = _fatal("raise", table, 7)
    plan, _ = _plan(config, 1, network)
    results = _evaluate(table, config, dataclasses.replace(plan, vector=7), batch)
    np.testing.assert_array_equal(results.status, np.where(guilty, Status.RAISED, Status.OK))
    assert re.match(
        r"RuntimeError: the network is unhappy \(.* in forward\) \(generation 0, member ", results.errors[0]
    )
    check_same(_evaluate(table, config, plan, batch), results)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks workers")
@pytest.mark.parametrize("fault", ["exit", "hang"])
def test_a_member_that_kills_or_hangs_its_worker_fails_alone(fault, table):
    config = _config("Pendulum-v1")
    network, guilty, batch = _fatal(fault, table, 6)
    plan, _ = _plan(config, 6, network)
    cluster = ClusterConfig(workers=1, attempts=1, episode_time_limit=8.0 if fault == "exit" else 3.0)
    results = _evaluate(table, config, plan, batch, cluster)
    np.testing.assert_array_equal(results.status, np.where(guilty, Status.KILLED, Status.OK))
    assert f"member {guilty.argmax()}, which has cost 1 worker" in results.errors[0]
    healthy = dataclasses.replace(network, module_kwargs={})
    expected = _evaluate(table, config, _plan(config, 1, healthy)[0], batch)
    np.testing.assert_array_equal(results.returns[~guilty], expected.returns[~guilty])
    np.testing.assert_array_equal(results.sums[~guilty], expected.sums[~guilty])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="kills processes by /proc")
def test_workers_killed_in_the_middle_of_their_waves_change_nothing(table):
    config = _config("Pendulum-v1")
    plan, theta = _plan(config, 8)
    batch = make_batch(theta, 64)
    expected = _evaluate(table, config, plan, batch)
    killed: set[int] = set()
    stop = threading.Event()

    def kill() -> None:
        chance = random.Random(0)
        while len(killed) < 5 and not stop.is_set():
            time.sleep(chance.uniform(0, 0.1))
            victim = until(lambda: (set(workers_now()) - killed).pop(), "a new worker")
            os.kill(victim, signal.SIGKILL)
            killed.add(victim)

    results = []
    with open_cluster(ClusterConfig(workers=2, attempts=1), config) as cluster:
        cluster.start(plan, table)
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            while killer.is_alive() or not results:
                results.append(cluster.evaluate(batch))
        finally:
            stop.set()
            killer.join()
    for result in results:
        check_same(result, expected)


# --- a run


@pytest.mark.slow
def test_a_run_is_the_same_for_every_vector_goes_on_and_plays_again(tmp_path: Path):
    settings: dict[str, Any] = {
        "task": {"name": "envpool", "env_id": "CartPole-v1", "normalize_observations": True},
        "algorithm": {"population_size": 12},
        "evaluation": {"every": 2, "episodes": 6},
        "noise": {"entries": 50_000},
        "cluster": {"name": "inline", "vector": 1_000_000},
    }
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    result = pyes.train(settings | {"generations": 4, "run_dir": str(whole)}, display=False)
    small = {"cluster": {"name": "inline", "vector": 5}}
    pyes.train(settings | {"generations": 2, "run_dir": str(parts)} | small, display=False)
    pyes.train({"resume": str(parts), "generations": 4, "cluster": {"vector": 3}}, display=False)
    assert (parts / "journal.bin").read_bytes() == (whole / "journal.bin").read_bytes()
    evaluation = replay.evaluate(whole, episodes=6)
    assert evaluation.return_mean == result.objective
    row = read_rows(whole / "metrics.csv")[-1]
    assert float(row["eval_return_mean"]) == pytest.approx(result.objective, rel=1e-8)
    with replay.open(whole) as individuals:
        assert all(individuals.play(3, member).exact for member in (0, 7, 11))


def test_frames_are_pictures():
    with tasks.make(_config(), "rgb_array") as task:
        task.reset(0)
        frame = task.render()
    assert (frame.dtype, frame.ndim, frame.shape[2]) == (np.uint8, 3, 3)
    assert frame.std() > 0


def test_frames_of_mujoco_are_refused_before_they_end_the_process():
    with pytest.raises(ConfigError, match="EnvPool cannot draw 'HalfCheetah-v5': no video of its MuJoCo environments"):
        tasks.make(_config("HalfCheetah-v5"), "rgb_array")


# --- refusals


@pytest.mark.parametrize(
    ("env_id", "kwargs", "message"),
    [
        ("CartPole-v7", {}, r"task.env_id: EnvPool has no environment 'CartPole-v7'; close: .*CartPole-v1"),
        ("CartPole-v1", {"num_envs": 3}, "task.env_kwargs: got 'num_envs', which pyes sets itself"),
        ("CartPole-v1", {"colour": 3}, "EnvPool cannot make 'CartPole-v1': .*colour"),
        ("MiniGrid-Empty-5x5-v0", {}, "task.env_id: 'MiniGrid-Empty-5x5-v0' observes a Dict, expected a Box"),
        ("IntersectionMultiAgent-v0", {}, "is played by several, expected one player"),
    ],
)
def test_environments_that_cannot_be_used_are_refused_in_one_line(env_id, kwargs, message):
    with pytest.raises(ConfigError, match=message) as caught:
        tasks.make(_config(env_id, env_kwargs=kwargs))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("hide_by", ["remove", "zero"])
def test_hidden_numbers_are_hidden_in_a_vector_as_in_one_environment(hide_by):
    config = _config("Pendulum-v1", hide_observations=(2,), hide_by=hide_by)
    actions = np.linspace(-2, 2, 3, dtype=np.float32).reshape(3, 1)
    with tasks.make(config) as task, closing(tasks.make_vector(config)) as vector:
        assert vector.observation_size == task.observation_size
        first, (then, *_) = vector.reset([5, 6, 7]), vector.step(np.arange(3), actions)
        for slot, seed in enumerate([5, 6, 7]):
            np.testing.assert_array_equal(first[slot], task.reset(seed))
            np.testing.assert_array_equal(then[slot], task.step(actions[slot])[0])


def test_an_environment_that_envpool_cannot_draw_is_said_to_be_one():
    with tasks.make(_config()) as task:
        task.reset(0)
        with pytest.raises(TaskError, match="EnvPool cannot draw 'CartPole-v1': "):
            task.render()


def test_an_episode_at_its_limit_is_truncated():
    with tasks.make(_config("Pendulum-v1")) as task:
        task.reset(1)
        ends = [task.step(np.zeros(1, np.float32))[2:4] for _ in range(200)]
    assert set(ends[:-1]) == {(False, False)}
    assert ends[-1] == (False, True)
