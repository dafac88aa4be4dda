"""A ``pyes worker`` that another program starts, and that ends with that program.

Owns its command line, and how it gets its key: by standard input, which stays open for as long as the worker is to
live. So the key is on no disk and in no list of processes, and a worker never outlives the program that started it, or
the connection that carries its standard input, however those end.
"""

import contextlib
import os
import subprocess
import sys
from typing import Any

from pyes.errors import ClusterError, ConfigError, RefusedError
from pyes.remote.wire import keys
from pyes.system.addresses import Address
from pyes.system.lifetime import Closing

_END_SECONDS = 10.0  # that a worker may take to end
_FINAL = (0, ConfigError.exit_status, RefusedError.exit_status)  # exit statuses that another start would not change


def arguments(address: str, workers: int | None, *, key: bool = True) -> list[str]:
    """Return the arguments of ``pyes`` for a worker that reads its key from standard input.

    Parameters
    ----------
    address : str
        Of the head.
    workers : int or None
        Worker processes; None: one a core.
    key : bool
        False: the head has no key, and has started this worker itself, which may therefore run any code.
    """
    access = ["--key", "-"] if key else ["--allow", "*"]
    return ["worker", address, *access, "--tied", *([] if workers is None else ["--workers", str(workers)])]


def start(address: str, key: bytes | None, workers: int, **options: Any) -> "subprocess.Popen[bytes]":
    """Start a worker on this machine; it ends when its standard input is closed.

    Parameters
    ----------
    key : bytes or None
        Content of the nodes' key file.
    options
        Of `subprocess.Popen`.
    """
    command = [sys.executable, "-m", "pyes", *arguments(address, workers, key=key is not None)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, **options)
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # it has ended already, and says why
        process.stdin.write(key or b"")
        process.stdin.flush()
    return process


class OwnNode(Closing):
    """The node on the head's own machine.

    Parameters
    ----------
    address : Address
        Of the head, as this machine reaches it.
    key : str or None
        The head's key file.
    workers : int
        Worker processes.
    """

    def __init__(self, address: Address, key: str | None, workers: int) -> None:
        self._arguments = str(address), None if key is None else keys.for_nodes(key), workers
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the worker, which finds the modules that this process finds.

        Raises
        ------
        ClusterError
            The system does not allow another process.
        """
        path = os.pathsep.join(each or os.getcwd() for each in sys.path)
        try:
            # In a group of its own: Ctrl-C is for the head, which then ends the generation with all of its nodes.
            self._process = start(*self._arguments, env={**os.environ, "PYTHONPATH": path}, process_group=0)
        except OSError as error:
            raise ClusterError(f"cannot start the head's own node: {error.strerror}") from error

    def check(self) -> None:
        """Replace a worker that was killed or failed; if that is impossible now, the next call tries again."""
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
        with contextlib.suppress(OSError):  # what was to be written cannot be, where the worker has ended
            self._process.stdin.close()
