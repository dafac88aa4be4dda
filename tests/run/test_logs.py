import logging
import os
import signal
import sys
import threading
from contextlib import ExitStack
from multiprocessing import get_context

import pytest
from heads import until

from pyes.run import logs
from pyes.run.logs import run_log
from pyes.system.repeats import Repeats, repeated


def _talk(prepare, name, lines):
    if prepare is not None:
        prepare()
    for line in range(lines):
        logging.getLogger("test").info("%s says %d", name, line)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn"] if sys.platform == "win32" else ["fork", "spawn"])
def test_lines_of_workers_arrive_whole_and_in_their_order(tmp_path, method):
    path, threads = tmp_path / "train.log", threading.active_count()
    handlers = logging.getLogger().handlers[:]
    with run_log(path) as log:
        logging.getLogger("test").info("head begins")
        processes = [get_context(method).Process(target=_talk, args=(log.prepare, f"w{i}", 50)) for i in range(3)]
        for process in processes:
            process.start()
        log.gather()
        for process in processes:
            process.join()
        logging.getLogger("test").info("head ends")
    text = path.read_text().splitlines()
    assert len(text) == 152
    for i in range(3):
        said = [int(line.rsplit(" ", 1)[1]) for line in text if f" w{i} says" in line]
        assert said == list(range(50))
    assert logging.getLogger().handlers == handlers
    until(lambda: threading.active_count() <= threads, "the end of its threads")


def _talk_until_killed(prepare, lines):
    prepare()
    for line in range(lines):
        logging.getLogger("test").info("doomed %d", line)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_killed_worker_does_not_silence_or_hang_the_head(tmp_path):
    path = tmp_path / "train.log"
    with run_log(path) as log:
        log.gather()
        for _ in range(5):
            process = get_context("fork").Process(target=_talk_until_killed, args=(log.prepare, 200))
            process.start()
            process.join()
        logging.getLogger("test").info("head goes on")
    text = path.read_text()
    assert "head goes on" in text
    assert text.count("doomed 199") == 5


def test_the_level_is_as_before_once_the_last_of_two_logs_closes(tmp_path):
    root = logging.getLogger()
    before = root.level
    with ExitStack() as first, ExitStack() as second:  # as of two threads, which do not end in order
        first.enter_context(run_log(tmp_path / "first.log"))
        second.enter_context(run_log(tmp_path / "second.log"))
        first.close()
        assert root.level == logging.INFO
    assert root.level == before


class _Heard(logging.Handler):
    def __init__(self):
        super().__init__()
        self.said = []

    def emit(self, record):
        self.said.append(record.getMessage())


def test_handlers_of_the_program_show_what_they_showed_before(tmp_path):
    root, heard = logging.getLogger(), _Heard()
    before, talkative = root.level, logging.getLogger("test.talkative")
    talkative.setLevel(logging.DEBUG)
    root.setLevel(logging.WARNING)
    root.addHandler(heard)
    own, below = logging.getLogger("test.own"), _Heard()
    own.addHandler(below)
    try:
        with run_log(tmp_path / "train.log"):
            logging.getLogger("test").info("for the log")
            logging.getLogger("test").warning("for all")
            talkative.debug("asked for")
            own.info("for the log, too")
        assert not heard.filters
        root.setLevel(logging.NOTSET)
        with run_log(tmp_path / "all.log"):
            own.debug("with all levels")
    finally:
        root.removeHandler(heard)
        own.removeHandler(below)
        root.setLevel(before)
        talkative.setLevel(logging.NOTSET)
    assert heard.said == ["for all", "asked for", "with all levels"]
    assert below.said == ["with all levels"]
    assert "for the log" in (tmp_path / "train.log").read_text()


def _log_much(level):
    assert logging.getLogger().level == level
    for number in range(3000):
        logging.getLogger("stranger").warning("record %d", number)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_processes_that_others_fork_do_not_write_into_the_log_nor_wait_for_it(tmp_path):
    level = logging.getLogger().level
    with run_log(tmp_path / "train.log") as log:
        log.gather()
        stranger = get_context("fork").Process(target=_log_much, args=(level,))
        stranger.start()
        stranger.join(60)
        assert stranger.exitcode == 0
    assert not (tmp_path / "train.log").read_text()


def test_a_record_that_is_too_long_is_cut(tmp_path):
    path = tmp_path / "train.log"
    with run_log(path) as log:
        log.gather()
        logging.getLogger("test").info("x" * 10**6)
    assert "... (cut)" in path.read_text()


def test_fields_of_a_users_own_are_not_sent_however_large_or_odd(tmp_path):
    path = tmp_path / "train.log"
    with run_log(path) as log:
        log.gather()
        for extra in ({"picture": bytes(10**6)}, {"callback": lambda: None}, {"odd": Unreadable()}):
            logging.getLogger("test").info("with something", extra=extra)
        logging.getLogger("test").info("the last")
    assert path.read_text().count("with something") == 3
    assert "the last" in path.read_text()


class Unreadable:
    """Can be pickled, and not read again."""

    def __reduce__(self):
        return int, ("not a number",)


def test_exceptions_are_logged_with_their_traceback(tmp_path):
    path = tmp_path / "train.log"
    with run_log(path):
        try:
            raise RuntimeError("boom")
        except RuntimeError:
            logging.getLogger("test").exception("it failed")
    assert "Traceback" in path.read_text()


def test_no_thread_runs_before_the_records_of_workers_are_gathered(tmp_path):
    before = threading.active_count()
    with run_log(tmp_path / "train.log") as log:
        logging.getLogger("test").info("early")
        assert threading.active_count() <= before
        assert "early" in (tmp_path / "train.log").read_text()
        log.gather()
        logging.getLogger("test").info("late")
    assert [line.rpartition(" ")[2] for line in (tmp_path / "train.log").read_text().splitlines()] == ["early", "late"]


def _fail(prepare, times):
    if prepare is not None:
        prepare()
    for number in range(times):
        try:
            raise ValueError(f"value {number}")
        except ValueError as error:
            kind = repeated("it failed: ValueError")
            logging.getLogger("test").warning("it failed: %d", number, exc_info=error, extra=kind)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [0, 2])
def test_what_comes_again_and_again_is_limited_and_counted(tmp_path, processes):
    path = tmp_path / "train.log"
    with run_log(path) as log:
        log.gather()
        for _ in range(processes):
            process = get_context("spawn").Process(target=_fail, args=(log.prepare, 500))
            process.start()
            process.join()
        if not processes:
            _fail(None, 500)
        logging.getLogger("test").warning("it failed for another reason")
    text, total = path.read_text(), 500 * max(1, processes)
    assert text.count("Traceback") == 3
    assert text.count("it failed for another reason") == 1
    assert f"it failed: ValueError: {total - 3:,} more like this, {total:,} in all" in text
    assert len(text.splitlines()) < 30


def test_a_record_that_stands_for_others_has_one_line_and_says_for_how_many(tmp_path, monkeypatch):
    times = iter([0.0] * 100 + [61.0])
    monkeypatch.setattr(logs, "Repeats", lambda: Repeats(clock=lambda: next(times)))
    with run_log(tmp_path / "train.log") as log:
        log.gather()
        _fail(None, 101)
    (line,) = (line for line in (tmp_path / "train.log").read_text().splitlines() if "it failed: 100" in line)
    assert line.endswith("it failed: 100 (and 97 more like this, 101 in all)")
    assert (tmp_path / "train.log").read_text().endswith(f"{line}\n")
