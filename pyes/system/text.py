"""Parts of one-line messages: counts, values, errors, joined lines; values as JSON has them; the line that tells one.

Must not know what a message is about.
"""

import difflib
import json
import math
import os
import re
import shlex
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_FEW_NAMES = 5
_PYES = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\](\w+)")
#: Simulators and the like: their frames say less than those of the code that calls them.
_LIBRARIES = (
    "ale_py", "Box2D", "cma", "envpool", "gym", "gymnasium", "mujoco", "nevergrad", "numpy", "pybullet",
    "pybullet_envs_gymnasium", "pygame", "torch",
)  # fmt: skip


def tell(text: str) -> None:
    """Print a line on standard error; nothing happens where that is closed, or nobody reads it any more."""
    if sys.stderr is not None:  # otherwise print would use standard output
        with suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)


def quoted(word: object) -> str:
    """Return a word of a command as it is typed in a POSIX shell; on Windows in double quotes, as both shells have."""
    if sys.platform == "win32":
        return str(word) if re.fullmatch(r"[\w.:\\/=+-]+", str(word)) else f'"{word}"'
    return shlex.quote(str(word))


def counted(number: int, noun: str) -> str:
    """Return "1 worker", "2 workers", "1,440 workers"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def rounded(value: float, *beside: float) -> str:
    """Return a number with two decimals, or more where the largest of those beside it would have less than four digits.

    For example 123.40, 0.01234 and, below a millionth, -1.234e-09.
    """
    largest = max((abs(each) for each in (value, *beside) if math.isfinite(each)), default=0.0)
    if 0 < largest < 1e-6:
        return f"{value:z.3e}"
    decimals = max(2, 3 - math.floor(math.log10(largest))) if largest else 2
    return f"{value:z.{decimals}f}"


def spread(mean: float, std: float) -> str:
    """Return a mean and a standard deviation with equal decimals: "123.40 ± 5.60"."""
    return f"{rounded(mean, std)} ± {rounded(std, mean)}"


def reason(error: BaseException) -> str:
    """Return an exception of the user's own code as one line, with its place: "KeyError: 'x' (task.py:12 in step)".

    The line is UTF-8, whatever the error says; one whose text cannot be made has its type alone.
    """
    line = " ".join(f"{type(error).__name__}: {message(error)}".split()).removesuffix(":")
    place = _place(error)
    return f"{line} ({place})" if place else line


def no_number(value: Any) -> str:
    """Say what a value is that should be a number: "an array of shape (2,)", "NoneType None"."""
    shape = getattr(value, "shape", None)
    return f"an array of shape {shape}" if shape is not None else f"{type(value).__name__} {value!r:.40}"


def message(error: BaseException) -> str:
    """Return the text of an error as UTF-8, whatever it is; what stands for it where it cannot be made."""
    try:
        text = str(error)
    except BaseException as failure:  # of the user's code, too
        text = f"(its text cannot be made: {type(failure).__name__})"
    return text.encode(errors="backslashreplace").decode()  # file names of another encoding have halves of letters


def _place(error: BaseException) -> str:
    """Return the last frame of the user's own code: file:line in function; empty where there is none.

    Without such a frame it is that of an installed package which is none of `_LIBRARIES`.
    """
    own = installed = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = frame.f_code.co_filename
        if path.startswith((_PYES, "<frozen ", "csrc")):
            continue
        package = _INSTALLED.search(path)
        text = f"{short(path)}:{line} in {frame.f_code.co_name}"
        if package is None and not path.startswith(_LIBRARY):
            own = text
        elif package is not None and package[1] not in _LIBRARIES:
            installed = text
    return (own or installed).encode(errors="backslashreplace").decode()


def short(path: str) -> str:
    """Return a path as seen from the current folder if it lies in it."""
    with suppress(OSError):
        folder = os.path.join(os.getcwd(), "")
        return path.removeprefix(folder)
    return path


def origin(error: BaseException) -> str:
    """Return an error's type and the line of code that raised it, equal for errors that differ only in values."""
    frames = traceback.extract_tb(error.__traceback__)
    text = f"{type(error).__name__} in {frames[-1].filename}:{frames[-1].lineno}" if frames else type(error).__name__
    return text.encode(errors="backslashreplace").decode()


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


def instead_of(path: Path) -> str:
    """Return what to say of a folder that does not exist: the nearest one that does, or what else there is."""
    parent = next((each for each in path.absolute().parents if each.is_dir()), None)
    if parent is None:  # a drive that is not there
        return ""
    shown = next((each for each in path.parents if each.is_dir()), Path())
    try:
        names = sorted(each.name for each in parent.iterdir() if each.is_dir() and not each.name.startswith("."))
    except OSError:
        return ""
    missing = path.absolute().relative_to(parent).parts[0]
    if close := difflib.get_close_matches(missing, names, n=1):
        return f"; did you mean {shown / close[0]}?"
    return f"; {shown} has {', '.join(names[:_FEW_NAMES])}{', ...' if names[_FEW_NAMES:] else ''}" if names else ""


def finite(value: Any) -> Any:
    """Return a JSON value with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
