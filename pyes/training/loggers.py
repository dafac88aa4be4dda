"""The loggers of a run: a process for each, which reads what the run writes, and cannot slow it.

Owns these processes. A run does nothing for a logger but start its process, and at the end wait for it for at most
``logger.wait`` seconds.
"""

import importlib.util
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyes.config import LoggerConfig
from pyes.errors import ConfigError, RunDirectoryError, missing
from pyes.reports.loggers import OWN
from pyes.reports.loggers.memory import Memory
from pyes.run.directory import RunDirectory
from pyes.system import locks, lookup
from pyes.system.text import counted, quoted

logger = logging.getLogger(__name__)

_SILENT = 1.0  # seconds of waiting of which nothing is said
_INTERRUPTED = 1.0  # seconds that are left to the loggers of a run that is stopped at once


def check_installed(config: LoggerConfig) -> None:
    """Reject a logger whose library, or whose own package, is not there, without importing it.

    Raises
    ------
    ConfigError
        It is not installed.
    """
    for name in _wanted(config):
        _check(config, name)


def _check(config: LoggerConfig, name: str) -> None:
    if name in OWN:
        library = OWN[name][1]
        if importlib.util.find_spec(library) is None:
            raise missing(f"logger={name}", library, name, ModuleNotFoundError(f"No module named {library!r}"))
        return
    package = (config.factory or "").partition(":")[0].partition(".")[0]
    if package in ("", "__main__"):
        raise ConfigError(
            f"logger.factory: got {config.factory}, expected MODULE:CLASS of a file of its own, which the logger's "
            "process can import"
        )
    if importlib.util.find_spec(package) is None:
        raise ConfigError(f"logger.factory={config.factory} cannot be imported (there is no {package}); {lookup.WHERE}")


class Loggers:
    """The loggers of a run, from the start of their processes to the end of these.

    Parameters
    ----------
    config : LoggerConfig
    directory : RunDirectory
    note : callable
        Shows the user a line.
    rows : callable
        Returns the number of rows of the run.
    """

    def __init__(
        self, config: LoggerConfig, directory: RunDirectory, note: Callable[[str], None], rows: Callable[[], int]
    ) -> None:
        self._config, self._directory, self._note, self._rows = config, directory, note, rows
        self._feeds: list[_Feed] = []

    def __enter__(self) -> Self:
        for name in _wanted(self._config):
            order = _order(self._config, self._directory.path, name)
            try:
                self._feeds.append(_Feed(order, self._note))
            except (OSError, ConfigError) as error:
                text = f"logger {order['name']}: cannot be started ({error}); the run goes on without it"
                logger.warning(text)
                self._note(text)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        stopped = kind is not None and issubclass(kind, KeyboardInterrupt)
        deadline = time.monotonic() + (_INTERRUPTED if stopped else self._config.wait)
        try:
            for feed in self._feeds:
                feed.tell("finished" if kind is None else "failed")
            self._wait(deadline)
        finally:
            for feed in self._feeds:
                feed.end()
        for feed in self._feeds:
            self._report(feed)

    def _wait(self, deadline: float) -> None:
        """Wait for those that have more to send; say so if it takes a while."""
        soon = time.monotonic() + _SILENT
        for feed in self._feeds:
            feed.wait(min(soon, deadline))
        if left := [feed.name for feed in self._feeds if feed.is_running]:
            self._note(f"waiting for {', '.join(left)} for at most {self._config.wait:g} s (logger.wait)")
            for feed in self._feeds:
                feed.wait(deadline)

    def _report(self, feed: "_Feed") -> None:
        """Say what of a run was not sent."""
        path, rows = self._directory.path, self._rows()
        left = max(rows - Memory(path, feed.name).sent, 0)
        if feed.sent_all and not left:
            return
        what = f"{left:,} of {counted(rows, 'row')} were not sent" if left else "policy and video were not sent"
        how = f"in the {self._config.wait:g} s (logger.wait) after its end" if feed.late else "because it failed"
        to = feed.name if feed.name in OWN else "own"
        rest = f"pyes log {quoted(path)} --to {to} sends the rest"
        text = f"logger {feed.name}: {what} {how}; {rest}; see {feed.log}"
        logger.warning(text)
        self._note(text)


def send(run: Path, name: str) -> int:
    """Send to a logger what it has not had of a run that has ended; return the number of rows.

    Parameters
    ----------
    run : Path
        The run directory.
    name : str
        A key of `OWN`, or "own" for that of ``logger.factory``.

    Raises
    ------
    RunDirectoryError
        There is no run.
    ConfigError
        The run still trains, the logger's library is not installed, or the run has no logger of one's own.
    PyesError
        The logger failed.
    """
    try:
        with locks.unheld(RunDirectory(run).lock_file):
            config = RunDirectory(run).read_config().logger
    except BlockingIOError as error:
        raise ConfigError(f"{run} is still training; wait for its end, or resume it with logger={name}") from error
    if name == "own" and config.factory is None:
        raise ConfigError(f"{run} has no logger.factory; name one of {', '.join(OWN)}")
    _check(config, name)
    if not RunDirectory(run).metrics.exists():
        raise RunDirectoryError(f"no metrics.csv in {run}; {RunDirectory(run).how_to_get_metrics()}")
    from pyes.reports.loggers import companion

    _folder(run)
    return companion.send(_order(config, run, name))


def _folder(run: Path) -> Path:
    """Return the folder in which loggers keep what they have sent; it is made if it is missing."""
    folder = run / "loggers"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot make {folder} ({error.strerror}), in which loggers keep what they have sent; make room for it"
        ) from error
    return folder


def _wanted(config: LoggerConfig) -> list[str]:
    """Return the keys of `OWN` that are on, and "own" for a logger of the user's."""
    return [name for name in OWN if getattr(config, name)] + (["own"] if config.factory else [])


def _order(config: LoggerConfig, run: Path, name: str) -> dict[str, Any]:
    """Return what the process of a logger is told."""
    common = {"run": str(run), "project": config.project, "video": config.video, "wait": config.wait}
    if name in OWN:
        return {"name": name, "factory": OWN[name][0], "kwargs": {}, **common}
    assert config.factory is not None
    return {"name": config.factory.rpartition(":")[2], "factory": config.factory, "kwargs": config.kwargs, **common}


class _Feed:
    """The process of one logger, and the thread that hears what it says."""

    def __init__(self, order: dict[str, Any], note: Callable[[str], None]) -> None:
        self.name = order["name"]
        self.late = False  # whether it did not end in time
        self._note = note
        folder = _folder(Path(order["run"]))
        self.log = folder / f"{self.name}.log"
        path = os.pathsep.join(filter(None, sys.path))  # the user's own modules are where this process finds them
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pyes.reports.loggers.companion"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | {"PYTHONPATH": path},
                # A Ctrl-C on the terminal is for the run, which tells it.
                start_new_session=True,
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        self._write(json.dumps(order))
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    @property
    def sent_all(self) -> bool:
        """Whether it has ended, and sent everything."""
        return self._process.returncode == 0

    def _listen(self) -> None:
        """Show what the process says, until it ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                text, warning = json.loads(line)
            except ValueError:  # it was killed while it wrote
                continue
            said = f"logger {self.name}: {text}"
            logger.log(logging.WARNING if warning else logging.INFO, "%s", said)
            self._note(said)

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()

    def tell(self, ending: str) -> None:
        """Tell it that the run has ended, and how."""
        self._write(ending)
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def wait(self, deadline: float) -> None:
        """Wait until it has ended, but not beyond a time."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(deadline - time.monotonic(), 0.0))

    def end(self) -> None:
        """End it, if it has not ended, with what it has started."""
        self.late = self.is_running
        if self.late:
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
            self._process.wait()
        self._thread.join(1.0)
        assert self._process.stdout is not None
        if not self._thread.is_alive():  # else a program of the logger's has the pipe open, and closing waits for it
            self._process.stdout.close()
