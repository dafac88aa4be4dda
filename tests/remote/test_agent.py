"""The agent of a node: whenever its end comes, the process of the job ends with it."""

import multiprocessing
import os
import signal
import threading
from multiprocessing.process import BaseProcess

import pytest
from hosts import new_address

from pyes.remote import agent
from pyes.system import addresses

pytestmark = pytest.mark.skipif(os.name != "posix", reason="nodes run on Linux and macOS")


def test_sigterm_while_a_process_is_started_ends_it_too(monkeypatch: pytest.MonkeyPatch):
    start = BaseProcess.start

    def start_and_meet_it(process: BaseProcess) -> None:
        start(process)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)

    monkeypatch.setattr(BaseProcess, "start", start_and_meet_it)
    before = signal.signal(signal.SIGTERM, agent._end)
    try:
        with agent.Agent(agent.Membership(addresses.parse(new_address()), None, 1)) as node, pytest.raises(SystemExit):
            node.start()
    finally:
        signal.signal(signal.SIGTERM, before)
        left = multiprocessing.active_children()
        for process in left:  # else this process would wait for them as it ends
            process.kill()
    assert not left
