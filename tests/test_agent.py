"""The agent of a node: whenever its end comes, the process of the job ends with it."""

import multiprocessing
import os
import signal
import threading
from typing import Any

import pytest
from hosts import new_address

from pyes import addresses
from pyes.cluster import agent

pytestmark = pytest.mark.skipif(os.name != "posix", reason="nodes run on Linux and macOS")


class _MeetsSigterm:
    """A context whose processes have hardly begun when SIGTERM reaches the one that started them."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def Process(self, **options: Any) -> Any:
        process = self._context.Process(**options)
        start = process.start

        def start_and_meet_it() -> None:
            start()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)

        process.start = start_and_meet_it
        return process


def test_sigterm_while_a_process_is_started_ends_it_too():
    before = signal.signal(signal.SIGTERM, agent._end)
    try:
        with agent.Agent(addresses.parse(new_address()), None, 1) as node:
            node._context = _MeetsSigterm(node._context)
            with pytest.raises(SystemExit):
                node.start()
    finally:
        signal.signal(signal.SIGTERM, before)
        left = multiprocessing.active_children()
        for process in left:
            process.kill()
    assert not left
