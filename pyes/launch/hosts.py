"""The file that lists hosts for ``pyes launch ssh``, and the command for each.

A line is ``[user@]host [workers=N] [python=PATH | pyes=COMMAND] [dir=PATH]``, in the quoting of a shell; ``#`` begins a
comment. Opens no connection.
"""

import contextlib
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from pyes.errors import ConfigError
from pyes.remote import tied
from pyes.system.addresses import Address

#: Printed by a host just before it becomes a node; earlier output is from ssh or the shell.
REACHED = "pyes: here"
_NAME = re.compile(r"[\w.@:%][\w.@:%-]*")  # ssh would take a name that begins with - for an option
_SETTINGS = ("workers", "python", "pyes", "dir")


@dataclass(frozen=True)
class Host:
    """One line of the file.

    Attributes
    ----------
    name : str
        A host, or an alias in ssh's configuration.
    program : str
        Shell command that runs pyes there.
    directory : str or None
        Working directory, for user code (default: the home directory).
    workers : int or None
        Worker processes (default: one per core).
    """

    name: str
    program: str = "pyes"
    directory: str | None = None
    workers: int | None = None

    def command(self, head: Address) -> str:
        """Return the shell command that makes the host a node of a head until standard input, with the key, closes."""
        there = "" if self.directory is None else f"cd {_path(self.directory)} && "
        worker = shlex.join(tied.arguments(str(head), self.workers))
        return f"{there}echo {shlex.quote(REACHED)} && {{ {self.program} {worker}; }}"


def read(path: Path) -> list[Host]:
    """Read the file.

    Raises
    ------
    ConfigError
        It cannot be read, lists no host, or has a line that is not of the form above.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"cannot read the hosts in {path}: {reason}; expected a file with one host a line") from error
    found = [host for number, line in enumerate(lines, 1) if (host := _host(line, f"{path}:{number}")) is not None]
    if not found:
        raise ConfigError(f"{path} lists no host; expected lines such as: user@node1 workers=8")
    return found


def _host(line: str, where: str) -> Host | None:
    try:
        words = shlex.split(_without_comment(line))
    except ValueError as error:
        _refuse(where, line.strip(), str(error))
    if not words:
        return None
    name, *texts = words
    if not _NAME.fullmatch(name):
        _refuse(where, name, "expected [user@]host first")
    settings: dict[str, str] = {}
    for text in texts:
        key, _, value = text.partition("=")
        if key not in _SETTINGS or not value or key in settings:
            _refuse(where, text, f"expected KEY=VALUE, once each: {', '.join(_SETTINGS)}")
        settings[key] = value
    if {"python", "pyes"} <= settings.keys():
        _refuse(where, line.strip(), "expected python=PATH or pyes=COMMAND, not both")
    program = f"{_path(settings['python'])} -m pyes" if "python" in settings else settings.get("pyes", "pyes")
    return Host(name, program, settings.get("dir"), _workers(settings.get("workers"), where))


def _without_comment(line: str) -> str:
    """Return a line up to its comment, which begins where a word begins with # outside of quotes, as in a shell."""
    for begin in re.finditer(r"(?<!\S)#", line):
        with contextlib.suppress(ValueError):  # it is quoted: the quotes before it are not closed
            shlex.split(line[: begin.start()])
            return line[: begin.start()]
    return line


def _workers(text: str | None, where: str) -> int | None:
    if text is not None and not re.fullmatch(r"[1-9]\d{0,5}", text, re.ASCII):
        _refuse(where, f"workers={text}", "expected an integer >= 1")
    return None if text is None else int(text)


def _path(text: str) -> str:
    """Quote a path for a shell, but keep a leading ~ as the home directory."""
    home, slash, rest = text.partition("/")
    return f'"$HOME"{slash}{shlex.quote(rest) if rest else ""}' if home == "~" else shlex.quote(text)


def _refuse(where: str, got: str, expected: str) -> NoReturn:
    raise ConfigError(f"{where}: got {got!r}, {expected}")
