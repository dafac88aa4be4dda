"""Runs over sockets: whatever happens to nodes, head and network, the journal is the one of a run in one process."""

import asyncio
import collections
import contextlib
import csv
import functools
import itertools
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from clocks import backwards
from commands import running
from heads import DEADLINE, check_equal, children, count_of, hurt, merge, until
from hosts import FakeNode, Host, Link, Program, Proxy, Trainer, connect, crowd, new_address, new_cable, start_server

import pyes
from pyes import cli
from pyes.errors import ConfigError
from pyes.remote import job as job_module
from pyes.remote import peer as peer_module
from pyes.remote import wire
from pyes.remote.replica import Replica
from pyes.remote.wire import keys
from pyes.remote.wire.protocol import HeadSide
from pyes.reports import status
from pyes.run import journal
from pyes.run.metrics import read_rows
from pyes.run.state import Interface, Setup
from pyes.system import addresses

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc, and has 127.0.0.0/8")

makes_networks = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("ip"), reason="makes networks, as root"
)
makes_clocks = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or not Path("/proc/self/timens_offsets").exists(),
    reason="makes time namespaces, as root",
)

SETTINGS = {
    "task": {
        "env_id": "faulty:Faulty-v0",
        "normalize_observations": True,
        "reward_min": "linear -4 to -1 in 12 generations",
    },
    "algorithm": {"population_size": 8},
    "generations": 12,
    "evaluation": {"every": 5, "episodes": 4},
    "noise": {"entries": 100_000},
}
#: Timesteps take so long in runs that are to be hurt: a member 60 ms.
SLOW = {"FAULTY": '{"sleep": 0.006}'}

ENDLESS = {"generations": 10**6}
ALONE = "there is no node yet"  # says a head also at its start


def _train(run, *changes):
    """Train in this process, by default without any other."""
    settings = merge(SETTINGS, {"run_dir": str(run), "cluster": {"name": "inline"}})
    for each in changes:
        settings = merge(settings, each)
    return pyes.train(settings, display=False)


def over(address, run="", **cluster):
    """Return the settings of a head."""
    where = {"resume": str(run)} if count_of(run) or (run / "journal.bin").exists() else {"run_dir": str(run)}
    return {**where, "cluster": {"name": "socket", "listen": address, "workers": 0, **cluster}}


def _trainer(address, run, *changes, environment=None, **cluster):
    settings = merge(SETTINGS, over(address, run, **cluster))
    for each in changes:
        settings = merge(settings, each)
    return Trainer(settings, environment=environment)


@pytest.fixture(scope="module", autouse=True)
def server():
    start_server()


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Return the run of these settings and changes that no socket had a part in."""
    runs = {}

    def make(*changes):
        key = repr(changes)
        if key not in runs:
            runs[key] = tmp_path_factory.mktemp("reference") / "run"
            _train(runs[key], *changes)
        return runs[key]

    return make


@pytest.fixture(scope="module")
def daemons():
    """Return the address that two machines wait at, for one head after another."""
    address = new_address()
    with Host(address, 1) as one, Host(address, 2) as two:
        yield address
        assert one.running
        assert two.running


@pytest.fixture(scope="module")
def patient(tmp_path_factory, reference):
    """Yield a head whose run continues while tests disturb it; the run must end as if undisturbed."""
    run, address = tmp_path_factory.mktemp("patient") / "run", new_address()
    with _trainer(address, run, ENDLESS, workers=1, environment={"FAULTY": '{"sleep": 0.001}'}) as head:
        head.more_rows(run, 1)
        yield address, run
        head.more_rows(run, 2)
        head.stop()
    check_equal(reference({"generations": count_of(run)}), run)
    assert "Traceback" not in (run / "train.log").read_text()


# --- equality


@pytest.mark.slow
def test_a_state_that_is_sent_in_parts_leads_to_the_same(tmp_path, reference, daemons, monkeypatch):
    """As if it were large: machines that join a resumed run get members when they have loaded it."""
    monkeypatch.setattr(peer_module, "_CHUNK", 64)
    run = tmp_path / "run"
    _train(run, {"generations": 4})
    pyes.train(merge(SETTINGS, over(daemons, run)), display=False)
    check_equal(reference(), run)


@pytest.mark.slow
def test_machines_join_in_the_middle_and_in_a_resumed_run(tmp_path, reference):
    run, address = tmp_path / "run", new_address()
    _train(run, {"generations": 3})
    with _trainer(address, run, ENDLESS, environment=SLOW) as head:
        head.hear(f"there is no node yet; start one with: pyes worker {address}")
        with Host(address, environment=SLOW):
            head.more_rows(run, 2)
            with Host(address, 2, environment=SLOW):
                head.until(lambda: len(_nodes(run)) == 2, "a row of the second node")
                head.stop()
    check_equal(reference({"generations": count_of(run)}), run)


# --- faults


@pytest.mark.slow
def test_nodes_killed_at_random_and_all_at_once_change_nothing(tmp_path, reference):
    run, address, chance = tmp_path / "run", new_address(), random.Random(1)
    with contextlib.ExitStack() as stack, _trainer(address, run, ENDLESS, environment=SLOW) as head:
        hosts = [stack.enter_context(Host(address, environment=SLOW)) for _ in range(2)]
        for number in range(6):
            head.until(lambda: len(_nodes(run)) > 1, "rows of both")
            host = hosts[number % 2]
            victims = [[host.pid], [host.job], host.nurseries, host.workers][number % 4]
            head.more_rows(run, 1)
            time.sleep(chance.uniform(0, 0.1))
            for pid in victims:
                if pid:
                    hurt(pid, signal.SIGKILL)
            if not number % 4:
                host.wait()
                hosts[number % 2] = stack.enter_context(Host(address, environment=SLOW))
        alone = head.said.count(ALONE)
        for host in hosts:
            host.kill()
        head.until(lambda: head.said.count(ALONE) > alone, f"{ALONE!r} again")
        stack.enter_context(Host(address, 2, environment=SLOW))
        head.more_rows(run, 1)
        head.stop()
    check_equal(reference({"generations": count_of(run)}), run)


@pytest.mark.slow
def test_the_heads_own_node_is_replaced_when_it_dies(tmp_path, reference):
    run = tmp_path / "run"
    with _trainer(new_address(), run, workers=1, environment=SLOW) as head:
        for _ in range(2):
            head.more_rows(run, 1)
            (own,) = children(head.pid)
            hurt(own, signal.SIGKILL)
        head.succeed()
    check_equal(reference(), run)


@pytest.mark.slow
def test_the_heads_own_node_has_nothing_of_the_heads_and_ends_with_it(tmp_path):
    """Also one that has replaced another, while the head had threads and connections."""
    run, address = tmp_path / "run", new_address()
    with _trainer(address, run, ENDLESS, workers=1, environment=SLOW) as head, Host(address, environment=SLOW):
        head.until(lambda: len(_nodes(run)) == 2, "rows of both")
        (own,) = children(head.pid)
        hurt(own, signal.SIGKILL)
        (own,) = head.until(lambda: [each for each in children(head.pid) if each != own], "another one")
        head.until(lambda: children(own), "its process of the job")
        assert b"--tied" in Path(f"/proc/{own}/cmdline").read_bytes().split(b"\0")
        assert _sockets(head.pid)
        for process in (own, *children(own)):
            assert not _sockets(head.pid) & _sockets(process)
        head.kill()  # and waits for the end of all that it started


def _sockets(pid):
    """Return the sockets that a process has open."""
    found = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            found.add(os.readlink(descriptor))
    return {each for each in found if each.startswith("socket:")}


@pytest.mark.slow
def test_a_head_killed_and_resumed_finds_its_nodes_again(tmp_path, reference):
    run, address = tmp_path / "run", new_address()
    with Host(address, environment=SLOW) as one, Host(address, environment=SLOW) as two:
        jobs = set()
        for rows in (2, 4):
            with _trainer(address, run, environment=SLOW) as head:
                head.until(lambda rows=rows: count_of(run) >= rows, "some rows")
                jobs.add((one.job, two.job))
                head.kill()
        with _trainer(address, run, environment=SLOW) as head:
            head.succeed()
        assert len(jobs) == 1, f"they did not keep their workers: {one.said} {two.said}"
    check_equal(reference(), run)


@pytest.mark.slow
def test_a_silent_link_costs_time_alone(tmp_path, reference):
    """One link is silent while the other node goes on; then both are, for longer than a node may be silent."""
    run, address = tmp_path / "run", new_address()
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(Proxy(address))
        near, _ = (stack.enter_context(Host(each, environment=SLOW)) for each in (address, proxy.address))
        with _trainer(address, run, ENDLESS, environment=SLOW) as head:
            head.until(lambda: len(_nodes(run)) == 2, "rows of both")
            proxy.stop()
            head.more_rows(run, 2)
            proxy.heal()
            head.more_rows(run, 1)
            proxy.stop()
            near.kill()
            head.until(lambda: _logged(run, "has been silent for"), "the end of patience")
            proxy.heal()
            head.more_rows(run, 1)
            head.stop()
    check_equal(reference({"generations": count_of(run)}), run)


@pytest.mark.slow
def test_a_node_whose_workers_are_lost_leaves_and_tries_again(tmp_path, reference):
    run, address = tmp_path / "run", new_address()
    with _trainer(address, run, ENDLESS, workers=1, environment=SLOW) as head:
        head.more_rows(run, 1)
        with Host(address, environment={"FAULTY": '{"fault": "kill_at_start"}'}) as host:
            head.until(lambda: _logged(run, r"node \S+ has left") > 1, "two of its leaves")
            host.until(lambda: host.said.count("workers die as soon as they start") > 1, "its word on both of them")
            head.more_rows(run, 1)
            assert host.running
        head.stop()
    check_equal(reference({"generations": count_of(run)}), run)


@pytest.mark.slow
def test_a_member_that_takes_minutes_costs_its_node_one_worker_for_a_moment(tmp_path, reference):
    """It hangs on one node alone; the other node evaluates it, and the first one goes on with both of its workers."""
    run, address, marks = tmp_path / "run", new_address(), tmp_path / "marks"
    marks.mkdir()
    hangs = {"FAULTY": json.dumps({"sleep": 0.006, "fault": "hang", "every": 3, "once": str(marks)})}
    with contextlib.ExitStack() as stack:
        head = stack.enter_context(_trainer(address, run, ENDLESS, environment=SLOW))
        stack.enter_context(Host(address, environment=SLOW))
        host = stack.enter_context(Host(address, 2, environment=hangs))
        for number in (1, 2):
            head.until(lambda number=number: len(list(marks.iterdir())) >= number, "a member that hangs")
            head.until(lambda: len(host.workers) == 2, "a worker in place of the one that hung")
            head.until(lambda: len(_nodes(run)) == 2, "a generation of both nodes")
        assert host.said.count("its batch is over") >= 1
        assert "its episode ran for more than" not in host.said
        head.stop()
    check_equal(reference({"generations": count_of(run)}), run)


@pytest.mark.slow
def test_results_of_a_node_that_was_stopped_are_duplicates(tmp_path, reference):
    run, address = tmp_path / "run", new_address()
    with contextlib.ExitStack() as stack:
        one, _ = (stack.enter_context(Host(address, environment=SLOW)) for _ in range(2))
        with _trainer(address, run, ENDLESS, environment=SLOW) as head:
            head.until(lambda: len(_nodes(run)) == 2, "rows of both")
            one.send_all(signal.SIGSTOP)
            head.more_rows(run, 2)
            one.send_all(signal.SIGCONT)
            head.more_rows(run, 1)
            head.stop()
            assert re.search(r"\d+ members? (was|were) run again because their node was slow", head.said)
    check_equal(reference({"generations": count_of(run)}), run)


@pytest.mark.slow
@makes_networks
def test_three_machines_on_cables_that_are_pulled_out_change_nothing(tmp_path, reference, key):
    """Hosts are network namespaces; the address is open, and so there is a key."""
    run, address, secret = tmp_path / "run", new_address("0.0.0.0"), str(key)
    port = addresses.parse(address).port
    with contextlib.ExitStack() as stack:
        head = stack.enter_context(_trainer(address, run, ENDLESS, key=secret, environment=SLOW))
        links = []
        for _ in range(3):
            here = new_cable()
            host = Host(f"tcp://{here}:{port}", key=secret, environment=SLOW, apart=True)
            links.append(Link(stack.enter_context(host), here))
        head.until(lambda: len(_nodes(run)) == 3, "rows of all three")
        for link in links[:2]:
            link.down()
            head.more_rows(run, 2)
        for link in links[:2]:
            link.up()
        head.until(lambda: len(_nodes(run)) == 3, "rows of all three again")
        head.stop()
    check_equal(reference({"generations": count_of(run)}), run)


@pytest.mark.soak
@makes_networks
def test_a_cable_that_is_out_for_twenty_seconds_changes_nothing(tmp_path, reference, key):
    """Both ends have given the connection up by then; the node comes back by itself."""
    run, address, secret, here = tmp_path / "run", new_address("0.0.0.0"), str(key), new_cable()
    port = addresses.parse(address).port
    with contextlib.ExitStack() as stack:
        head = stack.enter_context(_trainer(address, run, ENDLESS, key=secret, workers=1, environment=SLOW))
        host = stack.enter_context(Host(f"tcp://{here}:{port}", key=secret, environment=SLOW, apart=True))
        link = Link(host, here)
        head.until(lambda: len(_nodes(run)) == 2, "rows of both")
        link.down()
        healed = time.monotonic() + 20.0
        head.until(lambda: _logged(run, r"node \S+ has left"), "the end of the head's patience")
        host.hear("lost the head")
        head.until(lambda: time.monotonic() > healed, "twenty seconds")
        head.more_rows(run, 1)
        link.up()
        head.until(lambda: len(_nodes(run)) == 2, "rows of both again")
        head.stop()
    check_equal(reference({"generations": count_of(run)}), run)


@pytest.mark.slow
@pytest.mark.parametrize(("delay", "piece"), [(0.05, 2**16), (0.0, 1)])
def test_a_slow_or_crumbling_link_changes_nothing(tmp_path, reference, delay, piece):
    run, address = tmp_path / "run", new_address()
    with Proxy(address) as proxy, Host(proxy.address):
        proxy.delay, proxy.piece = delay, piece
        with _trainer(address, run) as head:
            head.succeed()
    check_equal(reference(), run)


@pytest.mark.slow
def test_a_link_cut_after_every_number_of_bytes_changes_nothing(tmp_path, reference):
    """Every other connection lives for some bytes more than the one before it; a node gives up if none is let in."""
    run, address = tmp_path / "run", new_address()
    with Proxy(address) as proxy, Host(proxy.address), _trainer(address, run) as head:
        proxy.cut = (each for most in itertools.count(1, 7) for each in (most, 1000))
        head.succeed()
        assert proxy.cuts > 50
    check_equal(reference(), run)


@pytest.mark.slow
@makes_clocks
def test_clocks_that_are_days_apart_change_nothing(tmp_path, reference):
    """A beat carries its sender's clock: an answer with another one would make a round trip of days, or of none."""
    run, address, day = tmp_path / "run", new_address(), 24 * 3600
    settings = merge(merge(SETTINGS, over(address, run)), ENDLESS)
    with contextlib.ExitStack() as stack:
        head = stack.enter_context(Trainer(settings, environment=SLOW, clock=5 * day))
        for clock in (0, 10 * day):
            stack.enter_context(Host(address, environment=SLOW, clock=clock))
        head.until(lambda: len(_nodes(run)) == 2, "rows of both")
        head.until(lambda: [0.0 < each < 5.0 for each in _round_trips(run)] == [True] * 2, "round trips below 5 s")
        assert not _logged(run, "has been silent|has left")
        head.stop()
    check_equal(reference({"generations": count_of(run)}), run)


@pytest.mark.slow
def test_a_node_whose_wall_clock_runs_backwards_changes_nothing(tmp_path, reference):
    run, address = tmp_path / "run", new_address()
    variables = {**os.environ, **backwards(tmp_path), "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-m", "pyes", "worker", address, "--workers", "1", "--allow", "faulty"]
    with running(command, env=variables, stderr=subprocess.PIPE) as node:
        _train(run, over(address, run))
        assert any("the job has ended" in line for line in node.stderr)
        node.terminate()
        assert node.wait(DEADLINE) == 130
    check_equal(reference(), run)


def test_a_node_that_was_left_out_of_batches_learns_what_they_came_to(reference):
    """It took part in an evaluation alone, and in none of the batches that it is told about."""
    recording = journal.read(reference() / "journal.bin")
    records = [each for each in recording if isinstance(each, journal.Generation)]
    settings = job_module.settings_of(pyes.config.from_mapping(SETTINGS))
    theta_hash = read_rows(reference() / "metrics.csv")[-1]["theta_hash"]
    asyncio.run(_learn(wire.Job("job", settings, "replay"), records, theta_hash))


async def _learn(told, records, theta_hash):
    with await Replica.make(told, 1) as node:
        assert await node.open(wire.Open(1, 0, 4, node.ready().theta_hash)) is None
        node.close_batch()
        for record in records:
            assert await node.learn(peer_module.lesson(record)) is None
        assert node.ready().generation == len(records) == SETTINGS["generations"]
        assert node.ready().theta_hash == theta_hash


# --- programs that are refused, and nodes that send false messages


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"protocol": 99}, r"the node has protocol 99, the head 1;"),
        ({"package": "9.9"}, r"the node has pyes-rl 9\.9, .* install the same version"),
        ({"kernels": "other"}, r"the node has the kernels other, .* install the same build"),
    ],
)
def test_another_build_is_refused_on_both_sides(tmp_path, patient, said, reason):
    address, run = patient
    with FakeNode(address, **said) as node:
        assert re.search(reason, node.refusal())
    _logged_once(run, reason)


def test_a_refused_worker_says_why_and_ends():
    address = new_address()
    parsed = addresses.parse(address)
    with socket.create_server((parsed.host, parsed.port)) as server, Host(address) as host:
        connection, _ = server.accept()
        with connection:
            side = HeadSide(2**20)
            while not side.receive(connection.recv(2**10)):
                pass
            connection.sendall(side.send(wire.Refused("the node has pyes-rl 0.1, the head 0.2")))
            assert host.wait() == 3
        assert host.said.splitlines()[-1].endswith(f"{address}: the node has pyes-rl 0.1, the head 0.2")


LIES = {
    "another center": (lambda done, _: replace(done, theta_hash="0bad"), "its theta is 0bad, expected"),
    "members of others": (
        lambda done, _: replace(done, ranges=np.array([[0, 1]]) + 10**6),
        "returned member 1000000 of",
    ),
    "members not granted": (
        lambda done, other: replace(done, ranges=np.array([[other, other + 1]])),
        "that it was not given",
    ),
    "other sums": (lambda done, _: replace(done, sums=np.zeros((3, 2, 3))), "its sums have shape"),
    "behaviours": (lambda done, _: replace(done, behaviours=np.zeros((1, 2), np.float32)), "its behaviours have shape"),
    "a return": (lambda done, _: replace(done, returns=np.array([np.nan])), "with a return that is not finite"),
    "timesteps": (
        lambda done, _: replace(done, lengths=np.array([2**60], np.uint64)),
        "with 1152921504606846976 timesteps, expected at most ",
    ),
}


def _lie(node, change):
    """Answer each grant with a lie, until the head sends the node away; return why it does."""
    while not isinstance(message := node.get(), wire.Refused):
        assert message is not None, "the head closed the connection"
        if isinstance(message, wire.Open):
            opened, others = message, set(range(8))
        if isinstance(message, wire.Grant) and message.batch == opened.batch:
            others -= set(wire.members_of(message.ranges).tolist())
            begin = int(message.ranges[0, 0])
            honest = wire.Done(
                batch=opened.batch,
                theta_hash=opened.theta_hash,
                ranges=np.array([[begin, begin + 1]]),
                returns=np.array([1e9]),
                lengths=np.array([10], np.uint8),
                status=None,
                sums=None if opened.episodes else np.zeros((1, 2, 3)),
                behaviours=None,
                halves=None,
                busy=0.1,
                errors=[],
            )
            node.send(change(honest, min(others)))
    return message.reason


def test_a_node_that_leaves_with_more_members_than_there_are_is_sent_away(patient):
    """Two billion of them take 18 bytes, and must not be made."""
    address, run = patient
    for _ in range(10):  # it is let go instead if the head's own node has ended the batch before its message comes
        with FakeNode(address, node="leaving") as node:
            _join(node)
            opened = _next(node, wire.Open)
            node.send(wire.Leave(opened.batch, np.array([[0, 2**31]])))
            refused = next((each for each in iter(node.get, None) if isinstance(each, wire.Refused)), None)
        if refused is not None:
            break
    reason = f"it runs member 2147483647 of {opened.episodes or 8}"  # an evaluation, or the population
    assert refused is not None
    assert refused.reason == reason
    _logged_once(run, f"refused leaving: {reason}")


def _next(node, kind):
    """Return the node's next message of a kind."""
    while not isinstance(message := node.get(), kind):
        assert message is not None, "the head closed the connection"
    return message


@pytest.mark.parametrize("lie", LIES)
def test_a_node_that_lies_is_sent_away(patient, lie):
    address, run = patient
    change, reason = LIES[lie]
    with FakeNode(address, node=lie) as node:
        _join(node)
        assert reason in _lie(node, change)
    _logged_once(run, f"refused {lie}: .*{reason}")


def test_a_node_that_comes_to_another_theta_is_corrected_three_times(patient):
    address, run = patient
    with FakeNode(address, node="drifting") as node:
        job = _join(node)
        for _ in range(3):
            snapshot = node.expect(wire.Snapshot)
            node.send(_at(job, snapshot, theta_hash="0bad"))
        assert "expected that of the head" in node.refusal()
    _logged_once(run, "refused drifting: its theta in generation")


def test_a_node_that_comes_to_another_theta_in_each_update_is_sent_away(patient):
    address, run = patient
    with FakeNode(address, node="astray") as node:
        ready = _join(node)
        for _ in range(3):
            snapshot = node.expect(wire.Snapshot)
            node.send(_at(ready, snapshot))
            learn = node.expect(wire.Learn)
            node.send(_at(ready, snapshot, generation=learn.generation + 1, theta_hash="0bad"))
        assert "expected that of the head" in node.refusal()
    _logged_once(run, "refused astray: its theta in generation")


def test_a_node_that_is_late_is_not_waited_for(patient):
    """The run goes on while it takes a snapshot in; what it says then is of the past."""
    address, _ = patient
    with FakeNode(address, node="late") as node:
        ready = _join(node)
        snapshot = node.expect(wire.Snapshot)
        for generation in range(snapshot.generation, snapshot.generation + 4):
            assert node.expect(wire.Open).generation == generation
            assert node.expect(wire.Learn).generation == generation
        node.send(_at(ready, snapshot))
        assert node.expect(wire.Open).generation == generation + 1


@pytest.mark.slow
def test_a_node_on_which_every_member_fails_changes_nothing(tmp_path, reference):
    """As without memory or disk: it is faster than the other one, for it does no work."""
    run, address = tmp_path / "run", new_address()
    with _trainer(address, run) as head, Host(address, environment=SLOW):
        head.hear("joins with")
        with Host(address, environment={"FAULTY": '{"fault": "raise", "every": 1}'}) as broken:
            head.succeed()
            assert broken.wait() == 3
            assert "members fail on it that other nodes evaluate" in broken.said
    check_equal(reference(), run)
    assert re.search(r"a member failed on node \S+ and not on \S+ \(", (run / "train.log").read_text())


@pytest.mark.slow
def test_a_node_that_does_not_read_is_not_written_to_for_ever(tmp_path, reference):
    """Each generation is a vector of 1 MB; 4 may wait for it, and some more in the kernel."""
    changes = {
        "network": {"name": "mlp", "hidden": [500, 500]},
        "noise": {"entries": 2**20},
        "generations": 24,
        "evaluation": {"every": 0},
    }
    run, address = tmp_path / "run", new_address()
    _digests(json.dumps(changes))  # takes seconds; it is to join at the beginning
    with _trainer(address, run, changes, sync="params") as head:
        head.hear("there is no node yet")
        with FakeNode(address, node="deaf") as node, Host(address):
            node.send(_ready(node.expect(wire.Job), changes))
            while head.running:
                with contextlib.suppress(ConnectionError):  # the run has just ended
                    node.send(wire.Beat(0.0))
                time.sleep(0.2)
            head.succeed()
    sent = collections.Counter()
    with open(run / "nodes.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            sent[row["node"]] += int(row["bytes_sent"])
    assert sent.pop("deaf") < 16e6
    assert min(sent.values()) > 22e6
    check_equal(reference(changes), run)


def test_a_node_with_another_version_of_a_package_is_sent_away(patient):
    address, _ = patient
    with FakeNode(address) as node:
        ready = _ready(node.expect(wire.Job))
        node.send(replace(ready, versions=ready.versions | {"gymnasium": "0.1"}))
        assert re.search(r"gymnasium is 0\.1 at the node, .* at the head; install the same", node.refusal())


@pytest.mark.parametrize("what", ["digest", "table"])
def test_a_node_with_other_settings_is_sent_away(patient, what):
    address, _ = patient
    with FakeNode(address) as node:
        job = node.expect(wire.Job)
        node.send(replace(_ready(job), **{what: "other"}))
        assert re.search(r"the node's (settings|noise table): other, the head's: ", node.refusal())


def _join(node):
    """Say that a node is ready, at the beginning of the run; return what it said."""
    ready = _ready(node.expect(wire.Job))
    node.send(ready)
    return ready


def _at(ready, snapshot, **changes):
    """Return what a node says that has taken a snapshot up; changes are what it says wrong."""
    standing = {name: getattr(snapshot, name) for name in ("generation", "theta_hash")}
    return replace(ready, snapshot=snapshot.number, **(standing | changes))


@functools.cache
def _digests(changes):
    """Return what an honest node of SETTINGS with these changes finds out by itself."""
    config = pyes.config.from_mapping(merge(SETTINGS, json.loads(changes)))
    setup = Setup.of(config, Interface.of(config.task))
    with setup.make_table() as table:
        return job_module.digest_of(setup), table.fingerprint, setup.versions()


def _ready(job, changes=None):
    digest, table, versions = _digests(json.dumps(changes or {}))
    return wire.Ready(job.job, digest, table, "", 0, 0, versions)


@pytest.mark.slow
def test_user_code_that_is_on_the_head_alone_is_named(tmp_path):
    """The head's own node has it, too."""
    (tmp_path / "only_here.py").write_text("from user_tasks import point as make\n")
    run, address, path = tmp_path / "run", new_address(), (str(tmp_path),)
    task = {"name": "python", "factory": "only_here:make"}
    settings = {"task": task, "noise": {"entries": 10_000}, **ENDLESS}
    with Host(address, environment=SLOW) as host, Trainer(settings | over(address, run, workers=1), path=path) as head:
        host.hear("cannot take part in the job: ")
        head.hear("cannot take part")
        head.stop()
        assert re.search(r"node \S+ cannot take part: .*only_here", head.said)
        assert re.search(r"node \S+ cannot take part: .*only_here", (run / "train.log").read_text())
        assert host.running


# --- security


def test_an_open_address_without_a_key_is_refused_before_anything_is_made(tmp_path):
    address = new_address("0.0.0.0")
    with pytest.raises(ConfigError, match=r"cluster\.key=FILE .*pyes keygen"):
        _train("unused", over(address, tmp_path / "run"))
    assert not (tmp_path / "run" / "journal.bin").exists()
    with pytest.raises(ConnectionRefusedError):
        connect(address.replace("0.0.0.0", "127.0.0.1"))


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    path = tmp_path_factory.mktemp("key") / "key"
    keys.generate(path)
    return path


@pytest.mark.slow
def test_a_run_between_machines_with_a_key_lets_in_nobody_else(tmp_path, reference, key):
    run, address = tmp_path / "run", new_address()
    other = tmp_path / "other"
    keys.generate(other)
    with contextlib.ExitStack() as stack:
        head = stack.enter_context(_trainer(address, run, ENDLESS, key=str(key)))
        honest, wrong, none = (
            stack.enter_context(Host(address, key=each and str(each), environment=SLOW)) for each in (key, other, None)
        )
        head.more_rows(run, 1)
        assert wrong.wait() == 3
        assert re.search(r"it is not the head of this key|the head does not take this key", wrong.said)
        with connect(address) as garbage:
            garbage.sendall(bytes(range(256)) * 8)
            assert not _rest(garbage)
        head.until(
            lambda: _logged(run, "refused 127.*: it does not have the nodes' key of this cluster"), "the refusals"
        )
        head.more_rows(run, 2)
        assert none.wait() == 3, none.said
        assert honest.running
        head.stop()
    check_equal(reference({"generations": count_of(run)}), run)


def test_a_head_with_a_nodes_key_is_not_obeyed(tmp_path, key):
    """A thief of a node's file gives orders at the head's address: no node that has the same file takes them."""
    address = new_address()
    parsed = addresses.parse(address)
    thief = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    thief.load_cert_chain(keys.node_path(key))
    with socket.create_server((parsed.host, parsed.port)) as server, Host(address, key=str(key)) as host:
        connection, _ = server.accept()
        with contextlib.suppress(ssl.SSLError, ConnectionError), connection:
            thief.wrap_socket(connection, server_side=True).recv(1)
        assert host.wait() == 3
        assert f"{address}: it is not the head of this key" in host.said
    with pytest.raises(ConfigError, match=r"is the nodes' key, with which a machine can only join"):
        _train("unused", over(new_address(), tmp_path / "run", key=str(keys.node_path(key))))


@pytest.mark.slow
def test_code_that_a_worker_does_not_allow_is_named_on_both_sides(tmp_path, key):
    """Without a key that is any code of the user's own; with one, packages that were not given, where some were."""
    run, address = tmp_path / "run", new_address()
    refusal = "task.env_id: this worker may not run 'faulty:Faulty-v0'; allow it with: pyes worker --allow faulty"
    with _trainer(address, run) as head, Host(address, allow=()) as host:
        host.hear(f"cannot take part in the job: {refusal}")
        head.hear(f"cannot take part: {refusal}")
        assert host.running
        head.kill()
    run, address = tmp_path / "with_key", new_address()
    with _trainer(address, run, key=str(key)) as head:
        with Host(address, key=str(key), allow=("user_tasks",)) as host:
            host.hear(f"cannot take part in the job: {refusal}")
        with Host(address, key=str(key), allow=("user_tasks", "faulty")):
            head.succeed()


@pytest.mark.slow
@makes_networks
def test_an_address_beyond_loopback_without_a_key_is_refused_before_a_connection_is_made():
    """A program that listens there could otherwise run code as the worker's user."""
    with Program(_listen_beyond_loopback, apart=True) as program:
        program.succeed()


def _listen_beyond_loopback():
    """Listen where a worker and a status without a key are sent to, in a network of this process's own."""
    for command in ("link set lo up", "addr add 10.9.8.7/32 dev lo"):
        subprocess.run(["ip", *command.split()], check=True)
    with socket.create_server(("10.9.8.7", 5555)) as server:
        for command in ("worker", "status"):
            arguments = [sys.executable, "-m", "pyes", command, "tcp://10.9.8.7:5555"]
            done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=DEADLINE)
            assert done.returncode == 2, done.stderr
            assert done.stderr.startswith("pyes: error: tcp://10.9.8.7:5555: expected --key FILE with it"), done.stderr
            assert done.stderr.count("\n") == 1
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.slow
def test_a_node_with_a_key_does_not_trust_a_head_without(tmp_path, key):
    address = new_address()
    with _trainer(address, tmp_path / "run"), Host(address, key=str(key)) as host:
        assert host.wait() == 3
        assert "does not answer; is it a head of pyes, with a key?" in host.said.splitlines()[-1]


GARBAGE = {
    "other frames": b"GET / HTTP/1.1\r\n\r\n" * 8,
    "a frame beyond a kibibyte": struct.pack("<I", 1025) + b"x" * 1025,
    "a frame of gigabytes": struct.pack("<I", 2**31) + b"x" * 100,
    "a message before its time": wire.encode(wire.Log(30, "text")),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_is_refused_and_logged_once(patient, what):
    address, run = patient
    before = _logged(run, "refused 127")
    for _ in range(3):
        with connect(address) as connection:
            connection.sendall(GARBAGE[what])
            assert not _rest(connection)
    until(lambda: _logged(run, "refused 127") > before, "the refusal")
    assert _logged(run, "refused 127") == before + 1


def test_garbage_of_many_kinds_does_not_fill_the_log(patient):
    address, run = patient
    for number in range(50):
        with connect(address, "127.0.0.9") as connection:
            connection.sendall(struct.pack("<I", 2000 + number))
            assert not _rest(connection)
    _logged_once(run, r"refused 127\.0\.0\.9: and more often this minute")
    assert _logged(run, r"refused 127\.0\.0\.9") == 21


@pytest.mark.slow
def test_a_thousand_idle_connections_hold_nobody_up(patient):
    address, run = patient
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        idle = [stack.enter_context(connect(address)) for _ in range(1000)]
        for each in idle[::2]:
            each.sendall(b"\x10")
        before = count_of(run)
        until(lambda: count_of(run) >= before + 2, "two rows")
        with FakeNode(address) as node:
            node.expect(wire.Job)
        assert not _rest(idle[0])  # by and by, each is shut out
    _logged_once(run, "no handshake within")


@pytest.mark.slow
def test_two_thousand_nodes_that_join_at_once_are_all_let_in(patient):
    address, run = patient
    with crowd(address, 2000):
        report = status.ask(addresses.parse(address), None)
        assert len(report["nodes"]) > 2000  # and the head's own
        before = count_of(run)
        until(lambda: count_of(run) >= before + 2, "two rows")
    until(lambda: len(status.ask(addresses.parse(address), None)["nodes"]) < 2000, "their leave")


@pytest.mark.slow
def test_status_is_watched_over_the_end_and_the_restart_of_a_head(tmp_path):
    run, address = tmp_path / "run", new_address()
    with Watcher(address, tmp_path / "seen") as watcher:
        watcher.see(f"{address}: no head answers there")
        with Host(address) as host:
            with _trainer(address, run, ENDLESS, environment=SLOW) as head:
                watcher.see(r"generation \d+: \d+ of 8 members done; .*[1-9] steps/s; 1 node with 1 worker")
                host.send_all(signal.SIGSTOP)
                watcher.see(r"  \S+:\d+: 1 worker, .* steps/s, silent for \d+ s")
                host.send_all(signal.SIGCONT)
                head.kill()
            watcher.see("(?s)no head answers there.*no head answers there")
            with _trainer(address, run, ENDLESS, environment=SLOW):
                watcher.see(r"(?s)answers there.*answers there.*generation \d+: \d+ of 8 members done")
        watcher.see("(?s)(no head answers there.*){3}")
        assert watcher.stop() == 130
    assert watcher.seen.count("no head answers") == 3  # one line each time
    assert "Traceback" not in watcher.seen
    assert watcher.seen.splitlines()[-1].endswith("Ctrl-C ends")


class Watcher:
    """A ``pyes status --watch`` without a terminal."""

    def __init__(self, address, path):
        self._path, self._address = path, address

    @property
    def seen(self):
        """What it has shown so far, on both outputs."""
        return self._path.read_text()

    def __enter__(self):
        command = [sys.executable, "-m", "pyes", "status", self._address, "--watch", "0.2"]
        with self._path.open("wb") as file:
            # Where the tests run in the background, Ctrl-C is ignored, and so by what they start.
            heeding = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
            self._process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, preexec_fn=heeding)
        return self

    def __exit__(self, *error):
        self._process.kill()
        self._process.wait()

    def see(self, pattern):
        """Wait until it shows something."""
        until(lambda: re.search(pattern, self.seen), f"{pattern!r} in {self.seen}")

    def stop(self):
        """Press Ctrl-C; return its exit status."""
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(DEADLINE)


def test_a_report_has_what_is_lost_with_a_node_and_its_return(tmp_path):
    run, address = tmp_path / "run", new_address()
    with _trainer(address, run, ENDLESS, environment=SLOW) as head, Host(address):
        head.more_rows(run, 1)
        for _ in range(2):
            with FakeNode(address) as node:
                node.expect(wire.Job)
        report = until(lambda: _report_of(address, left=2), "the nodes' leave")
        with FakeNode(address) as node:
            node.expect(wire.Job)
            report = status.ask(addresses.parse(address), None)
        head.kill()
    assert (report["left"], report["workers"], report["bytes_sent"] > 0, report["bytes_received"] > 0) == (
        2,
        1,
        True,
        True,
    )
    figures = {each["node"]: (each["reconnects"], each["lost"]) for each in report["nodes"]}
    assert figures.pop("fake") == (2, 0)
    assert list(figures.values()) == [(0, 0)]
    if report["generation"] is not None:
        assert (report["members"], report["evaluation"]) in ((8, False), (4, True))


def _report_of(address, left):
    report = status.ask(addresses.parse(address), None)
    return report if report["left"] == left else None


@pytest.mark.slow
def test_a_head_out_of_descriptors_goes_on(tmp_path, reference):
    run, address = tmp_path / "run", new_address()
    with Trainer(
        merge(merge(SETTINGS, over(address, run, workers=1)), ENDLESS), environment=SLOW, descriptors=100
    ) as head:
        head.more_rows(run, 1)
        with contextlib.ExitStack() as stack:
            for _ in range(150):
                stack.enter_context(connect(address))
            head.more_rows(run, 3)
        with FakeNode(address) as node:
            node.expect(wire.Job)
        head.stop()
    check_equal(reference({"generations": count_of(run)}), run)


def _rest(connection):
    """Return what the head has to say until it closes the connection."""
    rest = b""
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(2**16):
            rest += data
    return rest


# --- daemons and signals


@pytest.mark.slow
def test_a_sweep_of_tasks_and_networks_is_served_by_the_same_daemons(tmp_path, daemons):
    sweep = tmp_path / "sweep"
    shared = [
        "generations=2",
        "evaluation.every=0",
        "algorithm.population_size=4",
        "noise.entries=100000",
        "task.max_timesteps=20",
        "task=cart_pole,pendulum",
        "network=linear,mlp",
    ]
    for name, more in (("socket", [f"cluster.listen={daemons}"]), ("inline", [])):
        where = f"hydra.sweep.dir={sweep / name}"
        assert cli.main(["train", "-m", *shared, f"cluster={name}", *more, where]) == 0
    for job in range(4):
        check_equal(sweep / "inline" / str(job), sweep / "socket" / str(job))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_that_is_interrupted_finishes_its_members_and_leaves(patient, number):
    address, run = patient
    lost = _logged(run, "other nodes evaluate")
    with Host(address) as host:
        host.hear("at work")
        host.send_all(number)
        assert host.wait() == 130
        assert "leaving" in host.said
        assert "Traceback" not in host.said
    assert _logged(run, "other nodes evaluate") == lost


@pytest.mark.parametrize("moment", [pytest.param(each, marks=pytest.mark.slow) for each in (0.0, 0.05, 0.1, 0.2)])
def test_a_node_that_leaves_loses_no_member(tmp_path, reference, moment):
    run, address = tmp_path / "run", new_address()
    with _trainer(address, run, ENDLESS, environment=SLOW) as head, Host(address, environment=SLOW):
        with Host(address, 2, environment=SLOW) as host:
            head.until(lambda: len(_nodes(run)) > 1, "rows of both")
            time.sleep(moment)
            host.send(signal.SIGTERM)
            assert host.wait() == 130
        head.more_rows(run, 1)
        report = status.ask(addresses.parse(address), None)
        head.stop()
    assert (report["left"], report["lost"], report["workers"]) == (1, 0, 1)
    check_equal(reference({"generations": count_of(run)}), run)


@pytest.mark.slow
def test_a_node_that_is_told_twice_to_leave_waits_for_no_member(tmp_path, reference):
    run, address = tmp_path / "run", new_address()
    with _trainer(address, run, ENDLESS) as head:
        hanging = {"FAULTY": json.dumps({"fault": "hang", "every": 1, "once": str(tmp_path)})}
        with Host(address, environment=hanging) as host:
            until(lambda: [each for each in tmp_path.iterdir() if each.name.isdigit()], "a member that runs")
            host.send(signal.SIGTERM)
            host.hear("leaving, after 1 running member")
            host.send(signal.SIGTERM)
            assert host.wait() == 130
        with Host(address):
            head.more_rows(run, 1)
            head.stop()
    check_equal(reference({"generations": count_of(run)}), run)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_head_that_waits_for_nodes_can_be_interrupted(tmp_path, number):
    with _trainer(new_address(), tmp_path / "run") as head:
        head.hear("there is no node yet")
        head.send(number)
        assert head.wait() == 130
        assert "Traceback" not in head.said


def _logged(run, pattern):
    return len(re.findall(pattern, (run / "train.log").read_text()))


def _logged_once(run, pattern):
    until(lambda: _logged(run, pattern), pattern)
    assert _logged(run, pattern) == 1


def _nodes(run):
    """Return the nodes that had a part in the last generation that was written down."""
    rows = [row for row in _rows(run) if row["members"] != "0"]
    return {row["node"] for row in rows if row["generation"] == rows[-1]["generation"]}


def _round_trips(run):
    """Return the round trip of each node in the last generation that was written down, in seconds."""
    rows = _rows(run)
    return [float(row["round_trip"]) for row in rows if row["generation"] == rows[-1]["generation"]]


def _rows(run):
    path = run / "nodes.csv"
    return read_rows(path) if path.exists() else []
