import os
import random
import signal
import sys
import threading
import time

import numpy as np
import pytest

from pyes import tasks
from pyes.cluster import open_cluster
from pyes.config import ClusterConfig, NetworkConfig, TaskConfig
from pyes.errors import ClusterError
from pyes.messages import Batch, Plan, Status
from pyes.networks import ActionHead, build
from pyes.noise import NoiseTable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kills processes by /proc")

CLUSTERS = [
    ClusterConfig(name="inline"),
    ClusterConfig(workers=1),
    ClusterConfig(workers=2),
    ClusterConfig(workers=5),
    ClusterConfig(workers=2, start_method="spawn"),
]


@pytest.fixture(scope="module")
def table():
    with NoiseTable(50_000, 0, shared=True) as table:
        yield table


def _plan(config, members):
    with tasks.make(config) as task:
        head = ActionHead.for_space(task.action_space)
        size = task.observation_size
    spec, theta = build(NetworkConfig(), size, head, seed=0, observation_clip=5.0)
    plan = Plan(
        seed=0,
        dim=len(theta),
        capacity=members,
        episodes=2,
        observation_size=size,
        statistics_rows=members,
        policy=spec,
    )
    return plan, theta


def _batch(theta, members, generation=0, **settings):
    rng = np.random.default_rng(generation)
    return Batch(
        generation=generation,
        offsets=rng.integers(0, 40_000, members),
        scales=np.full(members, 0.1, np.float32),
        seeds=np.arange(2 * members, dtype=np.int64).reshape(members, 2),
        theta=theta,
        limit=200,
        statistics_stride=1,
        **settings,
    )


def _same(first, second):
    np.testing.assert_array_equal(first.returns, second.returns)
    np.testing.assert_array_equal(first.lengths, second.lengths)
    np.testing.assert_array_equal(first.status, second.status)
    np.testing.assert_array_equal(first.sums, second.sums)
    np.testing.assert_array_equal(first.sum_lengths, second.sum_lengths)


@pytest.fixture(scope="module")
def expected(table):
    config = TaskConfig(env_id="LunarLanderContinuous-v3")
    plan, theta = _plan(config, 12)
    with open_cluster(ClusterConfig(name="inline"), config) as cluster:
        cluster.start(plan, table)
        return [cluster.evaluate(_batch(theta, 12, generation)) for generation in range(3)]


@pytest.mark.parametrize("config", CLUSTERS, ids=lambda c: f"{c.name}-{c.workers}-{c.start_method}")
def test_results_do_not_depend_on_the_cluster(config, table, expected):
    task = TaskConfig(env_id="LunarLanderContinuous-v3")
    plan, theta = _plan(task, 12)
    with open_cluster(config, task) as cluster:
        cluster.start(plan, table)
        for generation in range(3):
            _same(cluster.evaluate(_batch(theta, 12, generation)), expected[generation])


def test_batches_of_different_sizes_follow_each_other(table, expected):
    task = TaskConfig(env_id="LunarLanderContinuous-v3")
    plan, theta = _plan(task, 12)
    with open_cluster(ClusterConfig(workers=3), task) as cluster:
        cluster.start(plan, table)
        for members in (12, 1, 7, 12):
            results = cluster.evaluate(_batch(theta, members, 0))
            assert len(results.returns) == members
        _same(results, expected[0])


def _faulty(**kwargs):
    return TaskConfig(env_id="faulty:Faulty-v0", env_kwargs=kwargs)


def _evaluate(task, config, table, members=16, generations=1):
    plan, theta = _plan(TaskConfig(env_id="faulty:Faulty-v0"), members)
    with open_cluster(config, task) as cluster:
        cluster.start(plan, table)
        return [cluster.evaluate(_batch(theta, members, generation)) for generation in range(generations)]


#: With seeds 2m and 2m + 1 for member m, one seed in four fails every second member.
FAILED = np.arange(16) % 2 == 0


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("raise", Status.RAISED),
        ("shape", Status.RAISED),
        ("sys_exit", Status.RAISED),
        ("nan", Status.NOT_FINITE),
        ("inf", Status.NOT_FINITE),
    ],
)
@pytest.mark.parametrize("name", ["inline", "local"])
def test_a_failing_environment_fails_its_members_only(fault, status, name, table):
    config = ClusterConfig(name=name, workers=2)
    (healthy,) = _evaluate(_faulty(), config, table)
    (results,) = _evaluate(_faulty(fault=fault), config, table)
    np.testing.assert_array_equal(results.status, np.where(FAILED, status, Status.OK))
    assert np.isnan(results.returns[FAILED]).all()
    np.testing.assert_array_equal(results.returns[~FAILED], healthy.returns[~FAILED])
    assert (results.sums[FAILED] == 0).all()
    assert (results.sum_lengths[FAILED] == 0).all()
    assert results.failed == 8
    assert any("seed" in error for error in results.errors)


@pytest.mark.parametrize("fault", ["segfault", "exit", "hang", "hold_gil"])
def test_a_member_that_kills_or_hangs_its_worker_once_is_evaluated_again(fault, table, tmp_path):
    config = ClusterConfig(workers=2, episode_time_limit=1.0)
    (healthy,) = _evaluate(_faulty(), config, table)
    (results,) = _evaluate(_faulty(fault=fault, once=str(tmp_path), every=16), config, table)
    assert len(list(tmp_path.iterdir())) == 2
    _same(results, healthy)


def test_a_member_that_kills_three_workers_is_recorded_as_failed(table):
    config = ClusterConfig(workers=2)
    (healthy,) = _evaluate(_faulty(), config, table)
    (results,) = _evaluate(_faulty(fault="segfault"), config, table)
    np.testing.assert_array_equal(results.status, np.where(FAILED, Status.KILLED, Status.OK))
    np.testing.assert_array_equal(results.returns[~FAILED], healthy.returns[~FAILED])


def test_workers_that_cannot_start_end_the_run_with_the_reason(table):
    plan, theta = _plan(TaskConfig(env_id="faulty:Faulty-v0"), 4)
    with open_cluster(ClusterConfig(workers=2), _faulty(fault="make")) as cluster:
        cluster.start(plan, table)
        with pytest.raises(ClusterError, match=r"workers die as soon as they start: .*cannot be made"):
            cluster.evaluate(_batch(theta, 4))


def test_workers_that_are_killed_as_they_start_end_the_run(table):
    plan, theta = _plan(TaskConfig(env_id="faulty:Faulty-v0"), 4)
    with open_cluster(ClusterConfig(workers=2), _faulty(fault="kill_at_start")) as cluster:
        cluster.start(plan, table)
        with pytest.raises(ClusterError, match="workers die as soon as they start"):
            cluster.evaluate(_batch(theta, 4))


def test_a_worker_that_hangs_as_it_starts_is_replaced(table, tmp_path):
    (healthy,) = _evaluate(_faulty(), ClusterConfig(name="inline"), table)
    config = ClusterConfig(workers=1, episode_time_limit=0.5)
    (results,) = _evaluate(_faulty(fault="hang_at_start", once=str(tmp_path)), config, table)
    _same(results, healthy)


def _descendants(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as children:
            for child in map(int, children.read().split()):
                found += [child, *_descendants(child)]
    return found


def _workers():
    """Return the processes two steps below this one: the nursery's children."""
    (nursery,) = [pid for pid in _descendants(os.getpid()) if _parent(pid) == os.getpid() and _descendants(pid)]
    return _descendants(nursery)


def _parent(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rsplit(")", 1)[1].split()[1])


def test_workers_killed_at_random_change_nothing(table):
    task = _faulty(sleep=0.001)
    plan, theta = _plan(task, 64)
    (expected,) = _evaluate(_faulty(), ClusterConfig(name="inline"), table, members=64)
    stop = threading.Event()
    kills = []

    def kill():
        random_source = random.Random(0)
        while not stop.wait(random_source.expovariate(10)):
            try:
                os.kill(victim := random_source.choice(_workers()), signal.SIGKILL)
                kills.append(victim)
            except (ValueError, IndexError, ProcessLookupError, FileNotFoundError):
                pass

    with open_cluster(ClusterConfig(workers=3, attempts=1000), task) as cluster:
        cluster.start(plan, table)
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            results = [cluster.evaluate(_batch(theta, 64, 0)) for _ in range(5)]
        finally:
            stop.set()
            killer.join()
    assert len(kills) > 5
    for result in results:
        _same(result, expected)


def test_a_killed_worker_is_replaced_at_once(table):
    """The figure itself is the benchmark's; here it must only not be seconds."""
    plan, theta = _plan(_faulty(), 4)
    with open_cluster(ClusterConfig(workers=1), _faulty()) as cluster:
        cluster.start(plan, table)
        cluster.evaluate(_batch(theta, 4))
        (worker,) = _workers()
        os.kill(worker, signal.SIGKILL)
        begun = time.monotonic()
        cluster.evaluate(_batch(theta, 4))
        assert time.monotonic() - begun < 2.0


def test_a_stopped_worker_counts_as_hung(table):
    plan, theta = _plan(_faulty(), 16)
    (healthy,) = _evaluate(_faulty(), ClusterConfig(name="inline"), table)
    with open_cluster(ClusterConfig(workers=2, episode_time_limit=0.5), _faulty(sleep=0.005)) as cluster:
        cluster.start(plan, table)
        stopper = threading.Timer(0.3, lambda: os.kill(_workers()[0], signal.SIGSTOP))
        stopper.start()
        for _ in range(3):
            _same(cluster.evaluate(_batch(theta, 16)), healthy)
        stopper.join()


def test_workers_end_when_the_nursery_is_killed(table):
    plan, theta = _plan(_faulty(sleep=0.01), 16)
    with open_cluster(ClusterConfig(workers=2), _faulty(sleep=0.01)) as cluster:
        cluster.start(plan, table)
        cluster.evaluate(_batch(theta, 4))
        workers = _workers()
        os.kill(_parent(workers[0]), signal.SIGKILL)
        with pytest.raises(ClusterError, match="parent of the workers was killed"):
            cluster.evaluate(_batch(theta, 16))
        deadline = time.monotonic() + 5
        while any(os.path.exists(f"/proc/{worker}") for worker in workers):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_workers_hold_no_torch(table, tmp_path):
    """The head has imported torch by now; workers are forked from a parent that had not."""
    code = f"""
import sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import numpy as np
from test_cluster import _batch, ClusterConfig, NoiseTable, Plan, open_cluster
seen = lambda theta: float("torch" in sys.modules)
assert "torch" not in sys.modules
with NoiseTable(50_000, 0, shared=True) as table, open_cluster(ClusterConfig(workers=2), seen) as cluster:
    import torch
    plan = Plan(seed=0, dim=3, capacity=4, episodes=2, observation_size=0, statistics_rows=4, policy=None)
    cluster.start(plan, table)
    print(cluster.evaluate(_batch(np.zeros(3, np.float32), 4)).returns.tolist())
"""
    import subprocess

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.strip() == "[0.0, 0.0, 0.0, 0.0]", done.stderr
