"""A ``pyes worker`` that is started by another program and ends with it.

Owns its command line, and how it gets its key: by standard input, which stays open while the worker should run. So the
key is not stored on disk or visible in the process list, and a worker never outlives the program that started it, or
the connection that carries its standard input.
"""

import contextlib
import os
import subprocess
import sys
from typing import Any

from pyes.errors import ClusterError, ConfigError, RefusedError
from pyes.remote.wire import keys
from pyes.system.addresses import Address
from pyes.system.files import what_to_try
from pyes.system.lifetime import Closing

_END_SECONDS = 10.0  # maximum time for a worker to end
_FINAL = (0, ConfigError.exit_status, RefusedError.exit_status)  # exit statuses after which a restart is useless


def arguments(address: str, workers: int | None, *, key: bool = True) -> list[str]:
    """Return the arguments of ``pyes`` for a worker that reads its key from standard input.

    Parameters
    ----------
    address : str
        Address of the head.
    workers : int or None
        Worker processes (default: one per core).
    key : bool
        False: the head has no key and starts this worker itself, which may therefore run any code.
    """
    access = ["--key", "-"] if key else ["--allow", "*"]
    return ["worker", address, *access, "--tied", *([] if workers is None else ["--workers", str(workers)])]


def start(address: str, key: bytes | None, workers: int, **options: Any) -> "subprocess.Popen[bytes]":
    """Start a worker on this machine; it ends when its standard input is closed.

    Parameters
    ----------
    address : str
        Address of the head.
    key : bytes or None
        Content of the nodes' key file.
    workers : int
        Worker processes.
    options
        Options of `subprocess.Popen`.
    """
    command = [sys.executable, "-m", "pyes", *arguments(address, workers, key=key is not None)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, **options)
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # it has already ended and shown the reason
        process.stdin.write(key or b"")
        process.stdin.flush()
    return process


class OwnNode(Closing):
    """The node on the head's own machine.

    Parameters
    ----------
    address : Address
        Address of the head as seen from this machine.
    key : str or None
        The head's key file.
    workers : int
        Worker processes.
    """

    def __init__(self, address: Address, key: str | None, workers: int) -> None:
        self._arguments = str(address), None if key is None else keys.for_nodes(key), workers
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the worker with this process's module search path.

        Raises
        ------
        ClusterError
            The system does not allow another process.
        """
        path = os.pathsep.join(each or os.getcwd() for each in sys.path)
        try:
            # In its own process group: only the head receives Ctrl-C, and then ends the generation with all nodes.
            self._process = start(*self._arguments, env={**os.environ, "PYTHONPATH": path}, process_group=0)
        except OSError as error:
            why = f"{error.strerror}; {what_to_try(error)}"
            raise ClusterError(f"cannot start the head's own node: {why}") from error

    def check(self) -> None:
        """Replace a worker that was killed or failed; if that fails, the next call tries again."""
        if self._process is not None and self._process.poll() not in (None, *_FINAL):
            self._close_standard_input()
            with contextlib.suppress(ClusterError):
                self.start()

    def close(self) -> None:
        """End the worker."""
        if self._process is None:
            return
        self._close_standard_input()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _close_standard_input(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the worker has ended before it has read everything
            self._process.stdin.close()
