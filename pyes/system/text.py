"""Parts of one-line messages: counts, values, errors, joined lines.

Must not know what a message is about.
"""

import json
import traceback
from collections.abc import Mapping
from typing import Any


def counted(number: int, noun: str) -> str:
    """Return "1 worker", "2 workers", "1,440 workers"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def reason(error: BaseException) -> str:
    """Return an exception of the user's own code as one line."""
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")


def origin(error: BaseException) -> str:
    """Return an error's type and the line of code that raised it, equal for errors that differ only in values."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} in {frames[-1].filename}:{frames[-1].lineno}" if frames else type(error).__name__


def one_line(text: str) -> str:
    """Return a text's lines as one, with semicolons between them."""
    return "; ".join(line.strip().rstrip(";") for line in text.splitlines() if line.strip())


def literal(value: Any) -> str:
    """Return a value for a message, in the words of YAML: 'linear', false, null, 1, [64, 64], {'a': true}."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(key)}: {literal(item)}" for key, item in value.items()) + "}"
    return f"[{', '.join(map(literal, value))}]" if isinstance(value, list | tuple) else repr(value)
