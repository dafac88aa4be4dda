"""What threads share: filters of warnings, and the turns of those that change it."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import ExitStack

import pytest

from pyes.system.process_wide import fork_beside_threads, ignoring, in_turn, warnings_as


def test_blocks_of_threads_wait_for_each_other_and_leave_nothing():
    entered, release = threading.Event(), threading.Event()

    def other() -> None:
        with warnings_as("error", "late"):
            entered.set()
            release.wait(60)

    thread = threading.Thread(target=other)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = warnings.filters[:]
        with warnings_as("error", "early"):
            thread.start()
            assert not entered.wait(0.1)
            with pytest.raises(UserWarning):
                warnings.warn("early", stacklevel=1)
        assert entered.wait(60)
        with pytest.raises(UserWarning):
            warnings.warn("later", stacklevel=1)
        release.set()
        thread.join()
        assert warnings.filters == before


def _forked(check):
    """Return the exit status of a child that calls a function: 0, unless it fails or waits for a minute."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads
        child = os.fork()
    if child == 0:
        signal.alarm(60)
        status = 1
        try:
            check()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_process_that_is_forked_beside_the_block_of_another_thread_has_the_filters_of_before_and_blocks_of_its_own():
    entered, before = threading.Event(), warnings.filters[:]

    def other() -> None:
        with warnings_as("ignore", "of another thread"):
            entered.set()
            time.sleep(0.5)

    def check() -> None:
        with warnings.catch_warnings():
            warnings.filters.pop(0)  # the one of the fork
            assert warnings.filters == before
        with warnings_as("ignore"):
            pass

    thread = threading.Thread(target=other)
    thread.start()
    assert entered.wait(60)
    assert _forked(check) == 0
    thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_the_threads_of_a_process_that_is_forked_in_a_block_have_blocks_too():
    def check() -> None:
        thread = threading.Thread(target=lambda: warnings_as("ignore").__enter__())
        thread.start()
        thread.join()

    with in_turn():
        assert _forked(check) == 0


def test_forks_beside_threads_are_not_warned_of_and_nothing_else_is_ignored():
    text = "This process (pid=5) is multi-threaded, use of fork() may lead to deadlocks in the child."
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = warnings.filters[:]
        with fork_beside_threads():
            warnings.warn(text, DeprecationWarning, stacklevel=1)
            with pytest.raises(UserWarning):
                warnings.warn(text, stacklevel=1)
        assert warnings.filters == before
        with pytest.raises(DeprecationWarning):
            warnings.warn(text, DeprecationWarning, stacklevel=1)


def test_warnings_that_overlapping_blocks_ignore_are_seen_again():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = warnings.filters[:]
        with ExitStack() as first, ExitStack() as second:
            first.enter_context(ignoring("of two", UserWarning))
            second.enter_context(warnings_as("ignore"))
            second.close()
            second.enter_context(ignoring("of two", UserWarning))
            first.close()
            warnings.warn("of two", stacklevel=1)
        assert warnings.filters == before
        with pytest.raises(UserWarning):
            warnings.warn("of two", stacklevel=1)


_FORKS_AT_ONCE = """
import os, sys, threading
from pyes.system.process_wide import fork_beside_threads, ignoring, in_turn, warnings_as

foreign = threading.Lock()
os.register_at_fork(before=foreign.acquire, after_in_parent=foreign.release, after_in_child=foreign.release)

def forks(beside):
    for _ in range(300):
        with beside():
            child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)

def searches():
    for _ in range(3000):
        with in_turn(), warnings_as("ignore"):
            pass

from contextlib import nullcontext
sys.setswitchinterval(1e-5)
jobs = [(forks, fork_beside_threads), (forks, fork_beside_threads), (forks, nullcontext), (searches,), (searches,)]
threads = [threading.Thread(target=job, args=args) for job, *args in jobs]
for each in threads:
    each.start()
for each in threads:
    each.join()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_forks_beside_those_of_others_and_blocks_of_threads_wait_for_no_one_for_ever():
    """Libraries have locks of their own that forks take, some before ours: concurrent.futures, if loaded later."""
    command = [sys.executable, "-W", "ignore", "-c", _FORKS_AT_ONCE]
    assert subprocess.run(command, timeout=60).returncode == 0
