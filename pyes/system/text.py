"""How things read in a message of one line: numbers of things, values, errors, several lines.

Must not know what a message is about.
"""

import json
from collections.abc import Mapping
from typing import Any


def counted(number: int, noun: str) -> str:
    """Return "1 worker", "2 workers", "1,440 workers"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def reason(error: BaseException) -> str:
    """Return in one line what the user's own code raised."""
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")


def one_line(text: str) -> str:
    """Return a text's lines as one, with semicolons between them."""
    return "; ".join(line.strip().rstrip(";") for line in text.splitlines() if line.strip())


def literal(value: Any) -> str:
    """Return a value as a message has it, in YAML's words: 'linear', false, null, 1, [64, 64], {'a': true}."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(key)}: {literal(item)}" for key, item in value.items()) + "}"
    return f"[{', '.join(map(literal, value))}]" if isinstance(value, list | tuple) else repr(value)
