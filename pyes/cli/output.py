"""What the commands print: results alone on standard output, an error as one line.

Owns how values become JSON, how an error reads, and where the prints of environments go. Knows no command.
"""

import contextlib
import json
import math
import os
import sys
from collections.abc import Iterator
from typing import Any

from pyes.errors import PyesError
from pyes.system.text import one_line


@contextlib.contextmanager
def standard_output() -> Iterator[None]:
    """Keep standard output for results: what environments print meanwhile goes to standard error."""
    if sys.stdout is None or sys.stderr is None:  # closed from the start: their numbers may be other files' by now
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        with contextlib.suppress(OSError):
            os.dup2(2, 1)
        yield
        sys.stdout.flush()
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def tell(text: str) -> None:
    """Say on standard error how far something is."""
    if sys.stderr is not None:
        print(text, file=sys.stderr, flush=True)


def print_json(values: dict[str, Any]) -> None:
    """Print values as JSON, which has no NaN and no infinity: null."""
    print(json.dumps({key: _finite(value) for key, value in values.items()}, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def describe(error: Exception) -> str:
    """Return an error as one line."""
    if isinstance(error, PyesError):
        return " ".join([one_line(str(error)), *getattr(error, "__notes__", [])])
    text = one_line(str(error))
    return f"{type(error).__name__}{': ' if text else ''}{text}; run again with --debug for the traceback"
