"""The processes that send a run to trackers while it trains: one each, so that none can slow, stop or change the run.

Owns these processes and their end. What they send they read from the run directory: see `pyes.reports.trackers`.
"""

import logging
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from pyes.config import LoggerConfig
from pyes.system.lifetime import Closing

logger = logging.getLogger(__name__)

_END_SECONDS = 10.0  # for all of them, after the run has ended


class Loggers(Closing):
    """A process for each tracker of a run; `check` warns of those that have failed.

    Parameters
    ----------
    run : Path
        Run directory.
    config : LoggerConfig
    """

    def __init__(self, run: Path, config: LoggerConfig) -> None:
        self._run = run
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        names = [*config.names, *(["own"] if config.factory else [])]
        with ExitStack() as stack:
            stack.push(self)  # a process that cannot be started ends the others
            for name in names:
                self._start(name)
            stack.pop_all()

    def _start(self, name: str) -> None:
        folder = self._run / "loggers"
        folder.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "pyes", "log", str(self._run), "--to", name, "--tied"]
        with open(folder / f"{name}.log", "ab") as log:
            # In its own process group: Ctrl-C ends the run, which ends it.
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, process_group=0
            )

    def check(self) -> None:
        """Warn of trackers that have ended, once each."""
        for name, process in list(self._processes.items()):
            if process.poll() is not None:
                self._ended(name)

    def _ended(self, name: str) -> None:
        process = self._processes.pop(name)
        assert process.stdin is not None
        process.stdin.close()
        if process.returncode:
            lines = (self._run / "loggers" / f"{name}.log").read_text(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else f"exit status {process.returncode}"
            logger.warning("logger %s: %s; the run goes on, and %s sends the rest", name, reason, self._later(name))

    def _later(self, name: str) -> str:
        return f"pyes log {self._run} --to {name}"

    def close(self) -> None:
        """Let them send what is left, for some seconds; then end them."""
        for process in self._processes.values():
            assert process.stdin is not None
            process.stdin.close()
        deadline = time.monotonic() + _END_SECONDS
        for name, process in list(self._processes.items()):
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                logger.warning("logger %s took too long and was ended; %s sends the rest", name, self._later(name))
                del self._processes[name]
        self.check()
