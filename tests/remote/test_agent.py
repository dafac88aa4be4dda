"""The agent of a node: whenever its end comes, the process of the job ends with it."""

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from multiprocessing.process import BaseProcess
from types import SimpleNamespace

import pytest
from hosts import new_address

from pyes.errors import ConfigError
from pyes.remote import agent
from pyes.remote.wire import keys
from pyes.system import addresses

pytestmark = pytest.mark.skipif(os.name != "posix", reason="nodes run on Linux and macOS")


def test_sigterm_while_a_process_is_started_ends_it_too(monkeypatch: pytest.MonkeyPatch):
    start = BaseProcess.start

    def start_and_meet_it(process: BaseProcess) -> None:
        start(process)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)

    monkeypatch.setattr(BaseProcess, "start", start_and_meet_it)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit, match="130"):
            agent.work(agent.Membership(addresses.parse(new_address()), None, 1))
    finally:
        left = multiprocessing.active_children()
        for process in left:  # else this process would wait for them as it ends
            process.kill()
    assert not left
    assert signal.getsignal(signal.SIGTERM) is before


ANYWHERE = addresses.Address("10.0.0.1", 5555)
HERE = addresses.Address("127.0.0.1", 5555)


@pytest.mark.parametrize(
    ("address", "key", "allow", "allowed"),
    [
        (HERE, None, (), ()),  # any user of this machine may listen there
        (HERE, None, ("mine", "yours.envs"), ("mine", "yours.envs")),
        (HERE, None, ("*",), None),
        (ANYWHERE, "key", (), None),  # the head has proved that it has the owner's key
        (ANYWHERE, "key", ("mine",), ("mine",)),
    ],
)
def test_which_code_a_head_may_name(address, key, allow, allowed):
    assert agent.Membership(address, key, 1, allow).allowed == allowed


def test_a_membership_without_a_key_or_with_no_package_is_refused():
    with pytest.raises(ConfigError, match=r"tcp://10\.0\.0\.1:5555: expected --key FILE with it"):
        agent.Membership(ANYWHERE, None, 1)
    with pytest.raises(ConfigError, match="--allow: got 'mine:make', expected a package"):
        agent.Membership(HERE, None, 1, ("mine:make",))


def test_a_membership_without_a_port_is_refused():
    free = addresses.Address("127.0.0.1", 0)
    with pytest.raises(ConfigError, match=r"address: got tcp://127\.0\.0\.1:0, expected the port of the head"):
        agent.Membership(free, None, 1)
    with pytest.raises(ConfigError, match=r"--relay: got tcp://127\.0\.0\.1:0, expected the port at which"):
        agent.Membership(HERE, None, 0, listen=free)


def test_a_worker_tied_to_a_closed_input_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ConfigError, match="--tied: standard input is closed already"):
        agent.work(agent.Membership(HERE, None, 1), tied=True)


def test_each_record_is_one_message_to_the_head_and_those_of_one_place_become_few():
    """As from an environment that raises in every tenth of a hundred thousand episodes."""
    sent: list[str] = []
    handler = agent._ToHead()
    handler.send = lambda level, text: sent.append(text)
    handler.loop = SimpleNamespace(call_soon_threadsafe=lambda call, *arguments: call(*arguments))  # type: ignore[assignment]
    for number in range(10_000):
        try:
            raise RuntimeError(f"the simulator is unhappy, {number}")
        except RuntimeError:
            record = logging.LogRecord("place", logging.WARNING, "x.py", 7, "an episode failed", None, sys.exc_info())
        handler.handle(record)
    handler.handle(logging.LogRecord("another place", logging.WARNING, "x.py", 7, "something else", None, None))
    assert len(sent) == 21
    assert all("\n" not in text for text in sent)
    assert sent[0].endswith("RuntimeError: the simulator is unhappy, 0")
    assert handler._repeats.left_out()["place:7"].total == 10_000


def test_a_key_that_can_never_be_used_is_refused_before_any_process_starts(tmp_path, monkeypatch):
    keys.generate(tmp_path / "key")
    monkeypatch.setattr(agent.Agent, "serve", lambda *_, **__: pytest.fail("it serves with the head's key"))
    with pytest.raises(ConfigError, match="is the head's key and stays with the head; expected the nodes' key"):
        agent.work(agent.Membership(addresses.parse(new_address()), str(tmp_path / "key"), 1))


def test_a_process_for_the_next_job_knows_that_the_node_was_in(monkeypatch):
    met = []

    def take_part(*arguments: object) -> None:
        met.append(arguments[-1])
        if len(met) == 3:
            serving.leave()

    class Process(SimpleNamespace):
        def __init__(self, target, args, name):
            super().__init__(exitcode=1 if not met else 0, start=lambda: take_part(*args), join=lambda: None)
            self.kill = self.close = lambda: None

    monkeypatch.setattr(agent, "time", SimpleNamespace(sleep=lambda seconds: None, strftime=time.strftime))
    with agent.Agent(agent.Membership(HERE, None, 1)) as serving:
        fork = serving._context
        serving._context = SimpleNamespace(Process=Process, Pipe=fork.Pipe, get_start_method=fork.get_start_method)
        serving.serve()
    assert met == [False, False, True]  # an error, the end of a job, another job


def test_a_process_that_was_killed_is_replaced_at_once_whatever_was_before(monkeypatch):
    codes, waited = [1, 1, 1, -9, 1, 0], []

    class Process(SimpleNamespace):
        def __init__(self, **_: object) -> None:
            super().__init__(exitcode=None, start=lambda: None, kill=lambda: None, close=lambda: None)

        def join(self) -> None:
            if self.exitcode is None:
                waited.append(0)
                self.exitcode = codes.pop(0)
                if not codes:
                    serving.leave()

    def wait(seconds: float) -> None:
        waited[-1] += seconds

    monkeypatch.setattr(agent, "time", SimpleNamespace(sleep=wait, strftime=time.strftime))
    with agent.Agent(agent.Membership(HERE, None, 1)) as serving:
        real = serving._context
        serving._context = SimpleNamespace(Process=Process, Pipe=real.Pipe, get_start_method=real.get_start_method)
        serving.serve()
    assert waited == [1, 2, 4, 1, 1, 0]
