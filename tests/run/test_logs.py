import logging
import os
import signal
import sys
import threading
import time
from multiprocessing import get_context

import pytest

from pyes.run.logs import run_log


def _talk(prepare, name, lines):
    if prepare is not None:
        prepare()
    for line in range(lines):
        logging.getLogger("test").info("%s says %d", name, line)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_lines_of_workers_arrive_whole_and_in_their_order(tmp_path, method):
    path = tmp_path / "train.log"
    handlers = logging.getLogger().handlers[:]
    with run_log(path) as prepare:
        logging.getLogger("test").info("head begins")
        processes = [get_context(method).Process(target=_talk, args=(prepare, f"w{i}", 50)) for i in range(3)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        logging.getLogger("test").info("head ends")
    text = path.read_text().splitlines()
    assert len(text) == 152
    for i in range(3):
        said = [int(line.rsplit(" ", 1)[1]) for line in text if f" w{i} says" in line]
        assert said == list(range(50))
    assert logging.getLogger().handlers == handlers
    deadline = time.monotonic() + 5
    while threading.active_count() > 1:
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)


def _talk_until_killed(prepare, lines):
    prepare()
    for line in range(lines):
        logging.getLogger("test").info("doomed %d", line)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_killed_worker_does_not_silence_or_hang_the_head(tmp_path):
    path = tmp_path / "train.log"
    with run_log(path) as prepare:
        for _ in range(5):
            process = get_context("fork").Process(target=_talk_until_killed, args=(prepare, 200))
            process.start()
            process.join()
        logging.getLogger("test").info("head goes on")
    text = path.read_text()
    assert "head goes on" in text
    assert text.count("doomed 199") == 5


def test_a_record_that_is_too_long_is_cut(tmp_path):
    path = tmp_path / "train.log"
    with run_log(path):
        logging.getLogger("test").info("x" * 10**6)
    assert "... (cut)" in path.read_text()


def test_exceptions_are_logged_with_their_traceback(tmp_path):
    path = tmp_path / "train.log"
    with run_log(path):
        try:
            raise RuntimeError("boom")
        except RuntimeError:
            logging.getLogger("test").exception("it failed")
    assert "Traceback" in path.read_text()
