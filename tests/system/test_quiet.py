"""Filters of warnings that threads share."""

import os
import signal
import threading
import warnings

import pytest

from pyes.system.quiet import warnings_as


def test_blocks_of_threads_wait_for_each_other_and_leave_nothing():
    entered, release, before = threading.Event(), threading.Event(), warnings.filters[:]

    def other() -> None:
        with warnings_as("error", "late"):
            entered.set()
            release.wait(60)

    thread = threading.Thread(target=other)
    with warnings_as("ignore", "early"):
        thread.start()
        assert not entered.wait(0.1)
        warnings.warn("early", stacklevel=1)
    assert entered.wait(60)
    with pytest.raises(UserWarning):
        warnings.warn("later", stacklevel=1)
    release.set()
    thread.join()
    assert warnings.filters == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_process_that_is_forked_in_the_block_of_another_thread_has_blocks_of_its_own():
    entered, release = threading.Event(), threading.Event()

    def other() -> None:
        with warnings_as("ignore"):
            entered.set()
            release.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert entered.wait(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads
        child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends it if it waits for ever
        with warnings_as("ignore"):
            os._exit(0)
    release.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
