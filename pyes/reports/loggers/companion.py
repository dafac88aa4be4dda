"""The process of a logger: sends what a run has written, row after row, while the run goes on.

It reads metrics.csv, so that the run itself does nothing for it: the file is the queue between them. What the logger
does to the run is a line of text at most. Its own output is in ``loggers/NAME.log`` of the run directory.

Standard input has the order, a line of JSON; then a line with the way in which the run ended. At its end, as when the
run is killed, this process sends what is left and ends, too.
"""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyes.errors import PyesError, RunDirectoryError
from pyes.reports.loggers import film
from pyes.reports.loggers.base import LoggedRun, Logger, Row
from pyes.reports.loggers.memory import Memory
from pyes.run.directory import RunDirectory
from pyes.system import locks, lookup
from pyes.system.text import reason
from pyes.system.user_code import is_ctrl_c

_log = logging.getLogger(__name__)

_NICE = 10  # the workers go first
_POLL = 0.5  # seconds between two looks at the file
_ROWS = 40  # in a call
_RETRY = (2.0, 60.0)  # seconds after a first failure, and at most
_LONGEST = 240  # letters of an error
_FILMING = 0.7  # of the time after the end of the run, after which there is no video
_LAST_TRIES = 2  # after the end of the run
_ALONE = 30.0  # seconds that it goes on after a run that was killed, in addition to `logger.wait`


class Companion:
    """Feeds one logger.

    Parameters
    ----------
    order : dict
        ``run``, the directory; ``name``, ``factory``, ``kwargs``, ``project``, ``video`` and ``wait`` of the logger.
    say : callable
        Takes a line for the user, and whether it is a warning.
    """

    def __init__(self, order: dict[str, Any], say: Callable[[str, bool], None]) -> None:
        self._order, self._say = order, say
        self._path = Path(order["run"])
        self._memory = Memory(self._path, order["name"])
        self._rows = _Rows(self._path / "metrics.csv")
        self._logger: Logger | None = None
        self._failures, self._said = 0, False
        self.ended = threading.Event()
        self._end = 0.0  # of the run
        #: How the run ended: "finished", "failed", or "" if it was killed.
        self.ending = ""

    def end(self) -> None:
        """Say that the run has ended."""
        self._end = time.monotonic()
        self.ended.set()

    def go(self) -> bool:
        """Send rows until the run has ended; return whether everything was sent."""
        tries = _LAST_TRIES
        while True:
            last = self.ended.is_set()  # asked before the rows are read, of which there are no more then
            try:
                self._send_rows()
                if last:
                    self._finish()
                    return True
            except BaseException as error:  # of the logger, which may raise anything
                if is_ctrl_c(error):
                    raise
                self._fail(error)
                tries -= last
                if not tries:
                    return False
                self.ended.wait(min(_RETRY[0] * 2 ** min(self._failures, 9), _RETRY[1]))
            else:
                self.ended.wait(_POLL)

    def _send_rows(self) -> None:
        memory = self._memory
        if self._logger is None:
            self._logger = self._opened()
            memory.sent = memory.tried = self._logger.held(memory.sent, memory.tried)
            self._rows.skip(memory.sent)
            memory.save()
            if self._logger.where and not self._failures:
                self._say(self._logger.where, False)
        while rows := self._rows.take(_ROWS):
            memory.tried = memory.sent + len(rows)
            memory.save()
            self._logger.log(rows)
            memory.sent = memory.tried
            memory.save()
            self._failures = 0

    def _opened(self) -> Logger:
        order = self._order
        found = lookup.find("logger.factory", order["factory"], "MODULE:CLASS, for example 'my_loggers:Journal'")
        if not (isinstance(found, type) and issubclass(found, Logger)):
            raise PyesError(f"{order['factory']} is not a class that derives from pyes.Logger")
        config = json.loads((self._path / "config.json").read_bytes())
        run = LoggedRun(self._path, order["project"], config, self._memory.own)
        return found(run, **order["kwargs"])

    def _finish(self) -> None:
        """Send the policy and the video of a run that was not killed, and end the run there."""
        assert self._logger is not None
        policy = self._path / "policy.safetensors"
        if self.ending and policy.exists():
            self._logger.policy([policy, policy.with_suffix(".json")])
            left = _FILMING * self._order["wait"] + self._end - time.monotonic()
            video = film.of(self._path, left) if self._order["video"] else None
            if video is not None:
                self._logger.video(video)
        self._logger.close(failed=self.ending != "finished")
        self._memory.save()

    def _fail(self, error: BaseException) -> None:
        """Tell the user, once; the next attempt has a new logger, and begins with the first row that is not sent."""
        _log.warning("%s", self._order["name"], exc_info=error)
        self._logger = None
        self._failures += 1
        self._memory.tried = self._memory.sent  # it has said that it did not send them
        with suppress(PyesError):  # on a full disk, perhaps
            self._memory.save()
        if not self._said:
            self._said = True
            text = reason(error)
            text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
            self._say(f"{text}; tried again now and then, the rows are in metrics.csv", True)


class _Rows:
    """The whole rows of a metrics.csv that is being written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first, self._offset = 0, 0

    def skip(self, count: int) -> None:
        """Begin with the row of generation ``count``."""
        self._first, self._offset = count, 0

    def take(self, most: int) -> list[Row]:
        """Return the next rows, if there are any."""
        rows: list[Row] = []
        with open(self._path, "rb") as file:
            columns = file.readline().decode(errors="replace").rstrip("\n").split(",")
            file.seek(self._offset)
            for line in file:
                if len(rows) == most or not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                if line[:1].isdigit() and int(line.partition(b",")[0]) >= self._first:
                    rows.append(self._numbers(columns, line.decode(errors="replace").rstrip("\n")))
        return rows

    def _numbers(self, columns: Sequence[str], line: str) -> Row:
        """Return the numbers of a row by column; PyesError if it is damaged."""
        try:
            values = dict(zip(columns, line.split(","), strict=True))
            values.pop("theta_hash", None)  # a text, perhaps of digits alone
            return {key: float(value) for key, value in values.items() if value}
        except ValueError as error:
            generation = line.partition(",")[0]
            how = RunDirectory(self._path.parent).how_to_get_metrics()
            raise PyesError(f"{self._path} is damaged at generation {generation}; {how}") from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of this logger of this run, which the process of a part that was killed may still have."""
    deadline = time.monotonic() + _ALONE
    while True:
        try:
            with locks.held(path, "loggers"):
                yield
            return
        except RunDirectoryError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL)


def _listen(companion: Companion, wait: float) -> None:
    """Wait for the end of the run, and see that this process ends soon after it, whatever the logger does.

    The run says how it ended in one line; without that line, standard input is closed when it has been killed.
    """
    companion.ending = sys.stdin.readline().strip()  # not until it is closed: processes of the run may have it open
    companion.end()
    time.sleep(_ALONE + wait)  # the run itself ends this process sooner, if it has not been killed
    os._exit(1)


def send(order: dict[str, Any]) -> int:
    """Send in this process what a logger has not had of a run that has ended; return the number of rows.

    Raises
    ------
    PyesError
        The logger failed, or another process sends to it.
    """
    said: list[str] = []
    run, name = Path(order["run"]), order["name"]
    companion = Companion({**order, "wait": _ALONE}, lambda text, warning: said.append(text))
    companion.ending = "finished"
    companion.end()
    with _locked(run / "loggers" / f"{name}.lock"):
        before = Memory(run, name).sent
        if not companion.go():
            raise PyesError(f"logger {name}: {said[-1].partition('; tried again')[0]}")
        return Memory(run, name).sent - before


def main() -> None:
    """Feed the logger of the order on standard input."""
    if hasattr(os, "nice"):
        os.nice(_NICE)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is for the log

    def say(text: str, warning: bool) -> None:
        with suppress(OSError):  # the run has been killed
            print(json.dumps([text, warning]), file=answers, flush=True)

    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    order = json.loads(sys.stdin.readline())
    companion = Companion(order, say)
    threading.Thread(target=_listen, args=[companion, order["wait"]], daemon=True).start()
    with _locked(Path(order["run"]) / "loggers" / f"{order['name']}.lock"):
        done = companion.go()
        sys.stderr.flush()
        os._exit(int(not done))  # a library's threads may not want to end


if __name__ == "__main__":
    main()
