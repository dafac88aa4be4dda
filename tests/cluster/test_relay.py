"""Relays: nodes behind them change nothing, and neither does what happens to them and to their nodes."""

import contextlib
import signal
import socket
import sys

import pytest
from heads import check_equal, count_of, hurt, merge
from hosts import FakeNode, Host, Relay, Trainer, new_address, start_server

import pyes
from pyes import cli
from pyes.errors import ClusterError
from pyes.remote.wire import keys
from pyes.reports import status
from pyes.system import addresses

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc, and has 127.0.0.0/8")

SETTINGS = {
    "task": {
        "env_id": "faulty:Faulty-v0",
        "normalize_observations": True,
        "reward_min": "linear -2 to 0 in 12 generations",
    },
    "algorithm": {"population_size": 8},
    "generations": 12,
    "evaluation": {"every": 5, "episodes": 4},
    "noise": {"entries": 100_000},
}
SLOW = {"FAULTY": '{"sleep": 0.006}'}  # a member takes 60 ms
ENDLESS = {"generations": 10**6}
ALONE = "there is no node yet"  # says a head also at its start


@pytest.fixture(scope="module", autouse=True)
def server():
    start_server()


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Return the run of these settings and changes that no relay had a part in."""
    runs = {}

    def make(*changes):
        key = repr(changes)
        if key not in runs:
            runs[key] = tmp_path_factory.mktemp("reference") / "run"
            _train({"run_dir": str(runs[key]), "cluster": {"name": "inline"}}, *changes)
        return runs[key]

    return make


def _train(*changes):
    settings = SETTINGS
    for each in changes:
        settings = merge(settings, each)
    return pyes.train(settings, display=False)


def _over(address, run, **cluster):
    return {"run_dir": str(run), "cluster": {"name": "socket", "listen": address, "workers": 0, **cluster}}


def _trainer(address, run, *changes, **cluster):
    settings = merge(SETTINGS, _over(address, run, **cluster))
    for each in changes:
        settings = merge(settings, each)
    return Trainer(settings)


def _report(address):
    return status.ask(addresses.parse(address), None)


def _workers(address):
    """Return the workers of a head; 0 before it listens."""
    with contextlib.suppress(ClusterError):
        return _report(address)["workers"]
    return 0


@pytest.fixture(scope="module")
def tree():
    """Return the address that a relay with two nodes and another relay with one wait at, for one head after another."""
    top, left, right = (new_address() for _ in range(3))
    with Relay(top, left), Relay(top, right), Host(left, 1), Host(left, 2), Host(right, 1):
        yield top


@pytest.mark.parametrize(
    ("changes", "cluster"),
    [
        ({}, {}),
        ({"algorithm": {"name": "cma_es"}}, {"sync": "params"}),
        *(
            pytest.param(changes, {"sync": sync}, marks=pytest.mark.slow)
            for changes, sync in (
                ({"algorithm": {"name": "nsra_es"}, "task": {"behaviour": "final_observation"}}, "replay"),
                ({"averaging": {"episodes_max": 4}, "task": {"episodes": 2}}, "replay"),
                ({"algorithm": {"name": "ga", "population_size": 8, "elites": 2, "parents": 4}}, "replay"),
                ({}, "params"),
            )
        ),
    ],
    ids=["learn", "bases", "behaviours", "halves", "ga", "params"],
)
def test_nodes_behind_relays_lead_to_the_same(tmp_path, reference, tree, changes, cluster):
    run = tmp_path / "run"
    _train(_over(tree, run, **cluster), changes)
    check_equal(reference(changes), run)


@pytest.mark.slow
def test_a_head_is_told_of_the_nodes_that_join_and_leave_a_relay(tmp_path, reference):
    run, top, low = tmp_path / "run", new_address(), new_address()
    with contextlib.ExitStack() as stack:
        head = stack.enter_context(_trainer(top, run, ENDLESS))
        relay = stack.enter_context(Relay(top, low))
        relay.hear("waiting for nodes")
        for workers, expected in ((1, 1), (2, 3)):
            last = stack.enter_context(Host(low, workers, environment=SLOW))
            head.until(lambda expected=expected: _workers(top) == expected, f"{expected} workers")
            head.more_rows(run, 1)
        last.kill()
        head.until(lambda: _workers(top) == 1, "one worker")
        head.more_rows(run, 1)
        report = _report(low)
        assert [each["workers"] for each in report["nodes"]] == [1]
        assert report["members"] in (None, 8, 4)
        head.stop()
    check_equal(reference({"generations": count_of(run)}), run)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_relay_without_nodes_leaves_its_head_and_comes_back(tmp_path, reference, number):
    run, top, low = tmp_path / "run", new_address(), new_address()
    with _trainer(top, run, ENDLESS) as head, Relay(top, low) as relay:
        with Host(low, environment=SLOW) as host:
            head.more_rows(run, 2)
            alone = head.said.count(ALONE)
            host.send(number)
            host.wait()
        head.until(lambda: head.said.count(ALONE) > alone, f"{ALONE!r} again")
        relay.hear("leaving the head until there is a node")
        with Host(low, environment=SLOW):
            head.more_rows(run, 2)
            lost = _report(top)["lost"]
            head.stop()
        assert "lost the head" not in relay.said
    assert lost == 0, "members were handed back"
    check_equal(reference({"generations": count_of(run)}), run)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["job", "all"])
def test_a_relay_that_is_killed_costs_its_nodes_a_reconnect(tmp_path, reference, what):
    run, top, low = tmp_path / "run", new_address(), new_address()
    with contextlib.ExitStack() as stack:
        head = stack.enter_context(_trainer(top, run, ENDLESS))
        stack.enter_context(Host(top, environment=SLOW))
        relay = stack.enter_context(Relay(top, low))
        host = stack.enter_context(Host(low, 2, environment=SLOW))
        for _ in range(3):
            head.until(lambda: _workers(top) == 3, "all workers")
            head.more_rows(run, 1)
            job = host.job
            if what == "job":
                hurt(relay.job, signal.SIGKILL)
            else:
                relay.kill()
                relay = stack.enter_context(Relay(top, low))
            head.until(lambda: _workers(top) == 1, "the relay's end")
        head.until(lambda: _workers(top) == 3, "all workers")
        head.more_rows(run, 1)
        assert host.job == job, "it has kept its workers"
        head.stop()
    check_equal(reference({"generations": count_of(run)}), run)


@pytest.mark.slow
def test_nodes_of_a_relay_that_are_killed_change_nothing(tmp_path, reference):
    run, top, low = tmp_path / "run", new_address(), new_address()
    with contextlib.ExitStack() as stack:
        head = stack.enter_context(_trainer(top, run, ENDLESS))
        stack.enter_context(Relay(top, low))
        hosts = [stack.enter_context(Host(low, environment=SLOW)) for _ in range(3)]
        for number in range(6):
            head.more_rows(run, 1)
            if number % 2:
                for pid in hosts[number % 3].workers:
                    hurt(pid, signal.SIGKILL)
            else:
                hosts[number % 3].kill()
                hosts[number % 3] = stack.enter_context(Host(low, environment=SLOW))
        head.more_rows(run, 2)
        head.stop()
    check_equal(reference({"generations": count_of(run)}), run)


@pytest.mark.slow
def test_a_head_killed_and_resumed_finds_its_relay_again(tmp_path, reference):
    run, top, low = tmp_path / "run", new_address(), new_address()
    with Relay(top, low) as relay, Host(low, 2, environment=SLOW) as host:
        jobs = set()
        with _trainer(top, run) as head:
            head.until(lambda: count_of(run) >= 3, "some rows")
            jobs.add((relay.job, host.job))
            head.kill()
        settings = merge(SETTINGS, {"resume": str(run), "cluster": _over(top, run)["cluster"]})
        with Trainer(settings) as head:
            head.more_rows(run, 1)
            jobs.add((relay.job, host.job))
            head.succeed()
        assert len(jobs) == 1, f"they did not keep their state: {relay.said} {host.said}"
    check_equal(reference(), run)


@pytest.mark.slow
def test_a_relay_that_leaves_loses_no_member(tmp_path, reference):
    run, top, low = tmp_path / "run", new_address(), new_address()
    with _trainer(top, run, ENDLESS) as head, Host(top, environment=SLOW), Host(low, 2, environment=SLOW):
        with Relay(top, low) as relay:
            head.until(lambda: _workers(top) == 3, "all workers")
            head.more_rows(run, 2)
            relay.send(signal.SIGTERM)
            assert relay.wait() == 130, relay.said
        head.more_rows(run, 1)
        report = _report(top)
        head.stop()
    assert (report["lost"], report["workers"]) == (0, 1)
    check_equal(reference({"generations": count_of(run)}), run)


@pytest.mark.slow
def test_a_relay_waits_for_nodes_that_take_long_to_prepare(tmp_path, reference):
    """Longer than the relay looks for results, and than it takes to be noticed."""
    run, top, low = tmp_path / "run", new_address(), new_address()
    slow = {"FAULTY": '{"fault": "slow_at_start"}'}
    with Relay(top, low) as relay, Host(low, environment=slow) as host:
        _train(_over(top, run))
        assert "Traceback" not in relay.said
        assert host.said.count("at work") == 1, host.said
    check_equal(reference(), run)


@pytest.mark.slow
def test_a_relay_has_a_key_of_its_own(tmp_path, reference):
    run, top, low = tmp_path / "run", new_address(), new_address()
    own, other = tmp_path / "own", tmp_path / "other"
    keys.generate(own)
    keys.generate(other)
    with contextlib.ExitStack() as stack:
        head = stack.enter_context(_trainer(top, run, key=str(own)))
        stack.enter_context(Relay(top, low, key=str(own), nodes=str(other)))
        stranger = stack.enter_context(Host(low, key=str(own)))
        stack.enter_context(Host(low, key=str(other)))
        head.succeed()
        assert stranger.wait() == 3, stranger.said
    check_equal(reference(), run)


@pytest.mark.slow
def test_a_relay_under_a_relay_leads_to_the_same(tmp_path, reference):
    run, top, middle, low = tmp_path / "run", new_address(), new_address(), new_address()
    with Relay(top, middle), Relay(middle, low), Host(low, 2), Host(middle):
        _train(_over(top, run))
    check_equal(reference(), run)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--relay", "tcp://0.0.0.0:7555"], "--relay: tcp://0.0.0.0:7555 needs --relay-key FILE"),
        (["--relay-key", "some"], "--relay-key: is for a relay; add --relay"),
        (["--relay", "tcp://127.0.0.1:7555", "--relay-key", "nowhere"], "nowhere"),
        (["--relay", "tcp://192.0.2.1:7555", "--relay-key", "KEY"], "--relay: cannot listen at tcp://192.0.2.1:7555"),
        (["--relay", "127.0.0.1"], "expected tcp://HOST:PORT"),
        (["--relay", "tcp://127.0.0.1:1"], "--relay: tcp://127.0.0.1:1 is the address of the head"),
    ],
    ids=["open", "alone", "missing", "elsewhere", "malformed", "itself"],
)
def test_relays_that_cannot_be_are_refused_in_one_line(tmp_path, capsys, arguments, text):
    keys.generate(tmp_path / "KEY")
    arguments = [str(tmp_path / "KEY") if each == "KEY" else each for each in arguments]
    assert cli.main(["worker", "tcp://127.0.0.1:1", *arguments]) == 2
    error = capsys.readouterr().err
    assert text in error
    assert len(error.splitlines()) == 1


def test_a_relay_whose_port_is_taken_says_so(capsys):
    low = addresses.parse(new_address())
    with socket.create_server((low.host, low.port)):
        assert cli.main(["worker", "tcp://127.0.0.1:1", "--relay", str(low)]) == 2
    assert f"--relay: cannot listen at {low}" in capsys.readouterr().err


def test_a_relay_refuses_a_node_of_another_version_and_goes_on():
    top, low = new_address(), new_address()
    with Relay(top, low) as relay:
        relay.hear("waiting for nodes")
        with FakeNode(low, package="0.0.0") as stranger:
            assert "the node has pyes-rl 0.0.0" in stranger.refusal()
        relay.hear("refused 127.")
        assert relay.running
        assert _report(low)["nodes"] == []
