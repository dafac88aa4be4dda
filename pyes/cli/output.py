"""Output of the commands: only results on standard output, an error as one line.

Owns the conversion to JSON, the text of an error, the redirection of what environments print, and the end of processes
that they leave. Knows no command.
"""

import contextlib
import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from typing import Any

from pyes.errors import PyesError
from pyes.system.descendants import children, end_children
from pyes.system.files import NO_MEMORY, what_to_try
from pyes.system.text import finite, one_line


@contextlib.contextmanager
def running_environments() -> Iterator[Callable[[str], None]]:
    """Redirect what environments print to standard error, and end the processes that they leave.

    So standard output has only results. Yields a function that prints a line of results while environments run.
    """
    before = children()
    try:
        with _standard_output() as print_result:
            yield print_result
    finally:
        end_children(but={*before, getattr(resource_tracker._resource_tracker, "_pid", None) or 0})


@contextlib.contextmanager
def _standard_output() -> Iterator[Callable[[str], None]]:
    if sys.stdout is None or sys.stderr is None:  # closed at start: their descriptors may belong to other files now
        yield print
        return
    output = sys.stdout
    output.flush()
    kept = os.dup(1)

    def redirect() -> None:
        with contextlib.suppress(OSError):
            os.dup2(2, 1)

    def restore() -> None:
        """Write to what standard output was at first, whatever environments have made of it."""
        nonlocal output
        with contextlib.suppress(OSError, ValueError, AttributeError):  # it is closed or no file, or what it leads to
            sys.stdout.flush()  # what environments have printed
        os.dup2(kept, 1)
        if output.closed:
            output = open(1, "w", encoding=output.encoding, errors="backslashreplace", closefd=False)  # noqa: SIM115
        sys.stdout = output

    def print_result(line: str) -> None:
        restore()
        try:
            print(line, flush=True)
        finally:
            redirect()

    try:
        redirect()
        yield print_result
    finally:
        restore()
        os.close(kept)


def unwritten() -> OSError | None:
    """Return why standard output cannot take what has been printed, if so; drop that, and all that follows."""
    if sys.stdout is None:
        return None
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        error.filename = "standard output"
        return error
    return None


def print_json(values: dict[str, Any]) -> None:
    """Print values as JSON, with null for NaN and infinity."""
    print(json.dumps(finite(values), allow_nan=False))


def describe(error: Exception) -> str:
    """Return an error as one line."""
    if isinstance(error, PyesError):
        return " ".join([one_line(str(error)), *getattr(error, "__notes__", [])])
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        error = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    if isinstance(error, OSError) and (advice := what_to_try(error)):
        place = f"{error.filename}: " if error.filename else ""
        return " ".join([f"{place}{error.strerror}; {advice}", *getattr(error, "__notes__", [])])
    text = one_line(str(error))
    if isinstance(error, MemoryError):
        return f"not enough memory{': ' if text else ''}{text}; {NO_MEMORY}"
    return f"{type(error).__name__}{': ' if text else ''}{text}; run again with --debug for the traceback"
