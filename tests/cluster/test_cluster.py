import contextlib
import errno
import os
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import active_children, get_context
from pathlib import Path

import numpy as np
import pytest
from clusters import check_same, children_of, make_batch, workers_now
from commands import running
from heads import until

from pyes import tasks
from pyes.cluster import open_cluster
from pyes.config import ClusterConfig
from pyes.episodes.batch import Plan, Status
from pyes.errors import ClusterError
from pyes.networks import ActionDecoder, build
from pyes.networks.linear import LinearConfig
from pyes.node import supervisor
from pyes.node.board import Board
from pyes.node.pipes import open_pipe
from pyes.node.process import state_of
from pyes.node.supervisor import Site, run_worker
from pyes.numerics.noise import NoiseTable
from pyes.system.lifetime import interruptible
from pyes.tasks.gymnasium import GymnasiumConfig

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kills processes by /proc")


@pytest.fixture(scope="module")
def table():
    with NoiseTable(50_000, 0, shared=True) as table:
        yield table


def _plan(config, members):
    with tasks.make(config) as task:
        head = ActionDecoder.for_space(task.action_space)
        size = task.observation_size
    spec, theta = build(LinearConfig(), size, head, seed=0, observation_clip=5.0)
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


@pytest.mark.slow
def test_batches_of_different_sizes_follow_each_other(table):
    task = GymnasiumConfig(env_id="LunarLanderContinuous-v3")
    plan, theta = _plan(task, 12)
    with (
        open_cluster(ClusterConfig(name="inline"), task) as alone,
        open_cluster(ClusterConfig(workers=3), task) as three,
    ):
        for cluster in (alone, three):
            cluster.start(plan, table)
        for members in (12, 1, 7, 12):
            check_same(three.evaluate(make_batch(theta, members)), alone.evaluate(make_batch(theta, members)))


def _faulty(**kwargs):
    return GymnasiumConfig(env_id="faulty:Faulty-v0", env_kwargs=kwargs)


def _evaluate(task, config, table, members=16, generations=1):
    plan, theta = _plan(GymnasiumConfig(env_id="faulty:Faulty-v0"), members)
    with open_cluster(config, task) as cluster:
        cluster.start(plan, table)
        return [cluster.evaluate(make_batch(theta, members, generation)) for generation in range(generations)]


#: With seeds 2m and 2m + 1 for member m, one seed in four fails every second member.
FAILED = np.arange(16) % 2 == 0


FAULTS = {
    "raise": Status.RAISED,
    "shape": Status.RAISED,
    "sys_exit": Status.RAISED,
    **dict.fromkeys(("bytes", "no_text", "panic", "keyboard", "generator"), Status.RAISED),
    **dict.fromkeys(("close_raise", "close_sys_exit", "close_panic"), Status.RAISED),
    **dict.fromkeys(("reward", "nothing", "ends", "nan_seen", "nan_at_end"), Status.RAISED),
    "memory": Status.KILLED,
    "nan": Status.NOT_FINITE,
    "inf": Status.NOT_FINITE,
}


#: What is wrong where the environment itself raises nothing.
NAMED = {
    "reward": "the reward is an array of shape (2,), expected a number; have step return one, such as their sum",
    "nothing": "the reward is NoneType None, expected a number",
    "ends": "terminated is an array of shape (2,), expected True or False",
    "nan_seen": "the observation has NaN at index 0, of 3 values",
    "nan_at_end": "the observation has NaN at index 0, of 3 values",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inline", "local"])
def test_a_failing_environment_fails_its_members_only(name, table):
    config = ClusterConfig(name=name, workers=2)
    (healthy,) = _evaluate(_faulty(), config, table)
    for fault, status in FAULTS.items():
        with interruptible():  # as in a run, in which only a signal is a Ctrl-C
            (results,) = _evaluate(_faulty(fault=fault), config, table)
        np.testing.assert_array_equal(results.status, np.where(FAILED, status, Status.OK))
        assert np.isnan(results.returns[FAILED]).all()
        np.testing.assert_array_equal(results.returns[~FAILED], healthy.returns[~FAILED])
        assert (results.sums[FAILED] == 0).all()
        assert (results.sum_lengths[FAILED] == 0).all()
        assert results.failed == 8
        assert any("seed" in error or "which has cost 3 workers" in error for error in results.errors)
        if fault in NAMED:
            assert all(NAMED[fault] in error for error in results.errors), results.errors
        elif status == Status.RAISED and fault != "shape":
            assert all(re.search(r"faulty\.py:\d+ in _fail\)", error) for error in results.errors), results.errors


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("segfault", "killed by signal "),
        pytest.param("exit", "exit code 3", marks=pytest.mark.slow),
        pytest.param("exit_as_without_files", f"exit code {errno.EMFILE}", marks=pytest.mark.slow),
    ],
)
def test_a_member_that_kills_three_workers_is_recorded_as_failed(fault, reason, table):
    config = ClusterConfig(workers=2)
    (healthy,) = _evaluate(_faulty(), config, table)
    (results,) = _evaluate(_faulty(fault=fault), config, table)
    np.testing.assert_array_equal(results.status, np.where(FAILED, Status.KILLED, Status.OK))
    np.testing.assert_array_equal(results.returns[~FAILED], healthy.returns[~FAILED])
    assert any(reason in error and "which has cost 3 workers" in error for error in results.errors)


@pytest.mark.slow
@pytest.mark.usefixtures("memory_is_enough")
def test_a_worker_killed_from_outside_or_stopped_costs_the_member_nothing(table, tmp_path):
    (healthy,) = _evaluate(_faulty(), ClusterConfig(name="inline"), table)
    for fault in ("kill", "stop"):
        (tmp_path / fault).mkdir()
        config = ClusterConfig(workers=2, attempts=1)
        (results,) = _evaluate(_faulty(fault=fault, once=str(tmp_path / fault), every=8), config, table)
        assert len(list((tmp_path / fault).iterdir())) == 4
        check_same(results, healthy)


@pytest.fixture
def memory_is_enough(monkeypatch):
    """Count no kills for want of memory, which the kernel counts for the whole machine: another test makes some."""
    monkeypatch.setattr(supervisor, "kernel_memory_kills", lambda: 0)


@pytest.fixture
def memory_cgroup():
    """Yield a memory control group of 64 MiB."""
    version_1 = Path("/sys/fs/cgroup/memory")
    parent, limit = (
        (version_1, "memory.limit_in_bytes") if version_1.is_dir() else (Path("/sys/fs/cgroup"), "memory.max")
    )
    group = parent / f"pyes-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no memory control group can be made: {error}")
    try:
        if not (group / limit).exists():
            pytest.skip(f"the memory controller is not delegated to {parent}")
        (group / limit).write_text(str(64 * 2**20))
        if (group / "memory.swap.max").exists():
            (group / "memory.swap.max").write_text("0")
        yield group
    finally:
        until(lambda: not (group / "cgroup.procs").read_text(), "the control group is empty")
        group.rmdir()


@pytest.mark.slow
def test_members_that_the_kernel_kills_for_want_of_memory_are_tried_again_then_recorded_as_failed(
    table, tmp_path, memory_cgroup
):
    config = ClusterConfig(workers=2)
    (healthy,) = _evaluate(_faulty(), config, table)
    settings = {"fault": "oom", "every": 16, "cgroup": str(memory_cgroup)}
    (results,) = _evaluate(_faulty(once=str(tmp_path), **settings), config, table)
    assert len(list(tmp_path.iterdir())) == 2
    check_same(results, healthy)
    (results,) = _evaluate(_faulty(**settings), config, table)
    assert np.flatnonzero(results.status == Status.KILLED).tolist() == [0, 8]
    np.testing.assert_array_equal(np.delete(results.returns, [0, 8]), np.delete(healthy.returns, [0, 8]))
    assert any("killed: out of memory (generation 0, member" in error for error in results.errors)


@pytest.mark.slow
def test_workers_that_cannot_start_end_the_run_with_the_reason(table):
    plan, theta = _plan(GymnasiumConfig(env_id="faulty:Faulty-v0"), 4)
    with open_cluster(ClusterConfig(workers=2), _faulty(fault="make")) as cluster:
        cluster.start(plan, table)
        with pytest.raises(ClusterError, match=r"workers die as soon as they start: .*cannot be made"):
            cluster.evaluate(make_batch(theta, 4))


@pytest.mark.slow
def test_workers_that_are_killed_as_they_start_end_the_run(table):
    plan, theta = _plan(GymnasiumConfig(env_id="faulty:Faulty-v0"), 4)
    with open_cluster(ClusterConfig(workers=2), _faulty(fault="kill_at_start")) as cluster:
        cluster.start(plan, table)
        with pytest.raises(ClusterError, match="workers die as soon as they start"):
            cluster.evaluate(make_batch(theta, 4))


def test_a_worker_that_hangs_as_it_starts_is_replaced(table, tmp_path):
    (healthy,) = _evaluate(_faulty(), ClusterConfig(name="inline"), table)
    config = ClusterConfig(workers=1, episode_time_limit=0.5)
    (results,) = _evaluate(_faulty(fault="hang_at_start", once=str(tmp_path)), config, table)
    check_same(results, healthy)


def _parent(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rsplit(")", 1)[1].split()[1])


def _all_workers(count):
    return until(lambda: len(workers := workers_now()) == count and workers, f"{count} workers")


def _nursery():
    return until(lambda: _parent(workers_now()[0]), "a nursery has workers")


def _kill(pid):
    """Kill a process and wait for its death: what it was the parent of is killed by then, too."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: state_of(pid) in ("", "Z"), f"process {pid} is dead")


@pytest.mark.slow
def test_workers_killed_at_random_change_nothing(table):
    task = _faulty(sleep=0.001)
    plan, theta = _plan(task, 64)
    (expected,) = _evaluate(_faulty(), ClusterConfig(name="inline"), table, members=64)
    stop = threading.Event()
    kills = []

    def kill():
        random_source = random.Random(0)
        while len(kills) < 20 and not stop.wait(random_source.expovariate(10)):
            try:
                os.kill(victim := random_source.choice(workers_now()), signal.SIGKILL)
                kills.append(victim)
            except (ValueError, IndexError, ProcessLookupError, FileNotFoundError):
                pass

    results = []
    with open_cluster(ClusterConfig(workers=3), task) as cluster:
        cluster.start(plan, table)
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            while len(kills) <= 5 or len(results) < 5:
                results.append(cluster.evaluate(make_batch(theta, 64, 0)))
        finally:
            stop.set()
            killer.join()
    for result in results:
        check_same(result, expected)


def test_a_killed_worker_is_replaced_at_once(table):
    """The figure itself is the benchmark's; here it must only not be seconds."""
    plan, theta = _plan(_faulty(), 4)
    with open_cluster(ClusterConfig(workers=1), _faulty()) as cluster:
        cluster.start(plan, table)
        cluster.evaluate(make_batch(theta, 4))
        (worker,) = workers_now()
        begun = time.monotonic()
        _kill(worker)
        cluster.evaluate(make_batch(theta, 4))
        assert time.monotonic() - begun < 10.0


@pytest.mark.slow
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_a_worker_or_its_parent_that_cannot_be_replaced_ends_the_run_with_the_reason(table, start_method):
    plan, theta = _plan(_faulty(), 4)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open_cluster(ClusterConfig(workers=1, start_method=start_method), _faulty()) as cluster:
        cluster.start(plan, table)
        cluster.evaluate(make_batch(theta, 4))
        children = {child.pid for child in active_children()}
        for child in children:
            _kill(child)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))  # those that are open stay
        try:
            with pytest.raises(ClusterError, match=r"cannot start .*: Too many open files; raise the limit"):
                cluster.evaluate(make_batch(theta, 4))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.slow
def test_stopped_workers_are_replaced_when_they_hold_nothing_either(table):
    plan, theta = _plan(_faulty(), 16)
    (healthy,) = _evaluate(_faulty(), ClusterConfig(name="inline"), table)
    with open_cluster(ClusterConfig(workers=2), _faulty()) as cluster:
        cluster.start(plan, table)
        cluster.evaluate(make_batch(theta, 16))
        for worker in _all_workers(2):
            os.kill(worker, signal.SIGSTOP)
            until(lambda worker=worker: state_of(worker) == "T", "the worker has stopped")
        check_same(cluster.evaluate(make_batch(theta, 16)), healthy)


@pytest.mark.slow
@pytest.mark.parametrize(
    "workers_too",
    [pytest.param(False, id="nursery"), pytest.param(True, id="nursery and workers")],
)
@pytest.mark.usefixtures("memory_is_enough")
def test_nurseries_killed_again_and_again_change_nothing(workers_too, table):
    task = _faulty(sleep=0.002)
    plan, theta = _plan(task, 64)
    (expected,) = _evaluate(_faulty(), ClusterConfig(name="inline"), table, members=64)
    killed = []
    stop = threading.Event()

    def kill():
        chance = random.Random(1)
        while len(killed) < 5 and not stop.is_set():
            nursery = until(lambda: ({_nursery()} - set(killed)).pop(), "a new nursery has workers")
            time.sleep(chance.uniform(0, 0.1))
            for process in [*(children_of(nursery) if workers_too else []), nursery]:
                with contextlib.suppress(ProcessLookupError):  # a worker that was just replaced
                    os.kill(process, signal.SIGKILL)
            killed.append(nursery)

    results = []
    with open_cluster(ClusterConfig(workers=3, attempts=1), task) as cluster:
        cluster.start(plan, table)
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            while killer.is_alive() or not results:
                results.append(cluster.evaluate(make_batch(theta, 64, 0)))
        finally:
            stop.set()
            killer.join()
    assert len(set(killed)) == 5
    for result in results:
        check_same(result, expected)


@pytest.mark.slow
def test_workers_end_with_their_nursery_and_the_next_batch_has_new_ones(table):
    plan, theta = _plan(_faulty(), 16)
    (healthy,) = _evaluate(_faulty(), ClusterConfig(name="inline"), table)
    with open_cluster(ClusterConfig(workers=2), _faulty()) as cluster:
        cluster.start(plan, table)
        cluster.evaluate(make_batch(theta, 4))
        old = _all_workers(2)
        _kill(_nursery())
        until(lambda: all(state_of(worker) in ("", "Z") for worker in old), "the workers are gone")
        check_same(cluster.evaluate(make_batch(theta, 16)), healthy)
        assert not set(workers_now()) & set(old)


def test_a_nursery_killed_before_the_start_is_replaced(table):
    plan, theta = _plan(_faulty(), 16)
    (healthy,) = _evaluate(_faulty(), ClusterConfig(name="inline"), table)
    before = set(children_of(os.getpid()))
    with open_cluster(ClusterConfig(workers=2), _faulty()) as cluster:
        (nursery,) = set(children_of(os.getpid())) - before
        _kill(nursery)
        cluster.start(plan, table)
        check_same(cluster.evaluate(make_batch(theta, 16)), healthy)


@pytest.mark.slow
def test_a_stopped_nursery_is_replaced(table):
    plan, theta = _plan(_faulty(), 16)
    (healthy,) = _evaluate(_faulty(), ClusterConfig(name="inline"), table)
    with open_cluster(ClusterConfig(workers=2), _faulty()) as cluster:
        cluster.start(plan, table)
        cluster.evaluate(make_batch(theta, 16))
        workers, nursery = _all_workers(2), _nursery()
        os.kill(nursery, signal.SIGSTOP)
        until(lambda: state_of(nursery) == "T", "the nursery has stopped")
        for worker in workers:
            _kill(worker)
        check_same(cluster.evaluate(make_batch(theta, 16)), healthy)
        assert _nursery() != nursery


def test_a_worker_that_comes_when_the_head_has_gone_leaves_without_a_traceback(table, capfd):
    plan, _ = _plan(_faulty(), 4)
    board = Board(plan, 1)
    site = Site(plan, 1, board.handle, table.handle, table.seed, table.dtype)
    board.close()
    (reader, writer) = open_pipe()
    with reader, writer:
        arguments = (0, site, _faulty(), reader, writer, None, os.getpid())
        worker = get_context("fork").Process(target=run_worker, args=arguments)
        worker.start()
        worker.join(60)
        assert worker.exitcode == 1
        worker.close()
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_nurseries_that_die_without_any_progress_end_the_run(table):
    plan, theta = _plan(_faulty(), 4)
    with open_cluster(ClusterConfig(workers=2), _faulty(fault="kill_parent_at_start")) as cluster:
        cluster.start(plan, table)
        with pytest.raises(ClusterError, match=r"^the parent of the workers died \d+ times and no member was finished"):
            cluster.evaluate(make_batch(theta, 4))


def _script(body, **options):
    """Run a script that imports the names of this module, in its own session."""
    code = f"""
import os, signal, sys, threading, time
sys.path[:0] = {[str(Path(__file__).parents[n]) for n in (1, 2)]!r}
from tests.cluster.test_cluster import *
from tests.cluster.test_cluster import _all_workers, _faulty, _kill, _nursery, _plan
table = NoiseTable(50_000, 0, shared=True)
{body}
table.close()
"""
    return running([sys.executable, "-c", code], **options)


@pytest.mark.slow
def test_a_nursery_forked_beside_torch_and_threads_works_as_the_first_one(table, tmp_path):
    body = """
plan, theta = _plan(_faulty(), 16)
with open_cluster(ClusterConfig(workers=2), _faulty()) as cluster:
    cluster.start(plan, table)
    first = cluster.evaluate(make_batch(theta, 16))
    import torch
    (torch.ones(1000, 1000) @ torch.ones(1000, 1000)).sum().item()
    threads = [threading.Thread(target=time.sleep, args=(1,)) for _ in range(8)]
    for thread in threads: thread.start()
    for _ in range(3):
        _kill(_nursery())
        check_same(cluster.evaluate(make_batch(theta, 16)), first)
    for thread in threads: thread.join()
print("the same")
"""
    with _script(body, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as process:
        output, errors = process.communicate(timeout=120)
    assert output == "the same\n", errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start_method", "stderr"),
    [
        ("fork", "unread"),
        ("fork", "broken"),
        ("fork", "closed"),
        ("spawn", "broken"),
    ],
)
def test_environments_may_print_whoever_listens(start_method, stderr, table, tmp_path):
    """More than a pipe holds, and standard output has what the head says alone."""
    (healthy,) = _evaluate(_faulty(), ClusterConfig(name="inline"), table)
    body = f"""
task = _faulty(fault="talk")
plan, theta = _plan(task, 16)
with open_cluster(ClusterConfig(workers=2, start_method={start_method!r}), task) as cluster:
    cluster.start(plan, table)
    results = cluster.evaluate(make_batch(theta, 16))
    print(results.status.sum(), results.returns.tolist())
"""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    before = (lambda: os.close(2)) if stderr == "closed" else None
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with _script(body, cwd=tmp_path, env=environment, preexec_fn=before, **pipes) as process:
        if stderr == "broken":
            process.stderr.close()
        process.wait(timeout=120)
        assert process.stdout.read() == f"0 {healthy.returns.tolist()}\n"


@pytest.mark.slow
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_ctrl_c_in_the_whole_group_is_the_heads_alone(start_method, tmp_path):
    """Also in processes that have just been started."""
    body = f"""
signal.signal(signal.SIGINT, lambda *_: None)
task = _faulty(fault="kill", every=4, once={str(tmp_path)!r})
plan, theta = _plan(task, 16)
print("begun", flush=True)
with open_cluster(ClusterConfig(workers=2, start_method={start_method!r}), task) as cluster:
    cluster.start(plan, table)
    results = cluster.evaluate(make_batch(theta, 16))
    if {start_method!r} == "fork":
        _kill(_nursery())
    check_same(cluster.evaluate(make_batch(theta, 16)), results)
print("over", flush=True)
sys.stdin.read()
"""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    over = threading.Event()
    with _script(body, cwd=tmp_path, env=environment, **pipes) as process:

        def interrupt():
            while not over.wait(0.001):
                os.killpg(process.pid, signal.SIGINT)

        assert process.stdout.readline() == "begun\n"
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        said = process.stdout.readline()
        over.set()
        interrupter.join()
        _, errors = process.communicate(timeout=60)
    assert said == "over\n", errors
    assert "Traceback" not in errors
    assert "KeyboardInterrupt" not in errors


@pytest.mark.slow
def test_workers_hold_no_torch(table, tmp_path):
    """The head has imported torch by now; workers are forked from a parent that had not."""
    code = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parents[n]) for n in (1, 2)]!r}
import numpy as np
from tests.cluster.test_cluster import make_batch, ClusterConfig, NoiseTable, Plan, open_cluster
seen = lambda theta: float("torch" in sys.modules)
assert "torch" not in sys.modules
with NoiseTable(50_000, 0, shared=True) as table, open_cluster(ClusterConfig(workers=2), seen) as cluster:
    import torch
    plan = Plan(seed=0, dim=3, capacity=4, episodes=2, observation_size=0, statistics_rows=4, policy=None)
    cluster.start(plan, table)
    print(cluster.evaluate(make_batch(np.zeros(3, np.float32), 4)).returns.tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.strip() == "[0.0, 0.0, 0.0, 0.0]", done.stderr
