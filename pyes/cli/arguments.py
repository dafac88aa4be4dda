"""Arguments that several commands have: runs, files, seeds, and numbers within bounds.

Owns their names, their types and their errors. Knows no command.
"""

import argparse
import contextlib
import difflib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from pyes.errors import ConfigError, RunDirectoryError
from pyes.system.files import READABLE
from pyes.system.text import instead_of

#: Runs a command with parsed arguments.
Command = Callable[[argparse.Namespace], None]
#: Adds a command to the program: its name, its function and a help line; returns the parser of its arguments.
Add = Callable[[str, Command, str], argparse.ArgumentParser]


class Parser(argparse.ArgumentParser):
    """A parser with errors of one line; where a command takes overrides, they may stand between its flags."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the parsed arguments; ConfigError for what no command knows."""
        options, rest = self.parse_known_args(args, namespace)
        words = [each for each in rest if "=" in each and not each.startswith("-")]
        if unknown := [each for each in rest if each not in words or not hasattr(options, "overrides")]:
            hint = "; put -- before train" if unknown[0] == "train" else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        if words:
            options.overrides = [*options.overrides, *words]
        return options

    def error(self, message: str) -> NoReturn:
        """Raise a ConfigError; for an invalid choice, suggest the closest valid one."""
        if found := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            close = difflib.get_close_matches(found[1], re.findall(r"[\w-]+", found[2]), n=1)
            if close:
                message = message.replace("invalid choice", f"did you mean {close[0]!r}? invalid choice", 1)
        raise ConfigError(f"{message} (see {self.prog} --help)")


def _integer(text: str, minimum: int, maximum: int) -> int:
    with contextlib.suppress(ValueError):
        if minimum <= int(text) <= maximum:
            return int(text)
    raise argparse.ArgumentTypeError(f"got {text!r}, expected an integer >= {minimum} and <= {maximum}")


def count(text: str) -> int:
    """Return a number of at least one."""
    return _integer(text, 1, 10**9)


def seconds(text: str) -> float:
    """Return a time to wait in seconds."""
    with contextlib.suppress(ValueError):
        if 0.1 <= float(text) <= 3600.0:
            return float(text)
    raise argparse.ArgumentTypeError(f"got {text!r}, expected seconds, a number >= 0.1 and <= 3600")


def seed(text: str) -> int:
    """Return a seed."""
    return _integer(text, 0, 2**64 - 1)


def index(text: str) -> int:
    """Return the index of a generation or a member, from 0."""
    return _integer(text, 0, 2**32 - 1)


def port(text: str) -> int:
    """Return the number of a TCP port."""
    return _integer(text, 1, 65535)


def port_or_any(text: str) -> int:
    """Return the number of a TCP port, or 0 for any that is free."""
    return _integer(text, 0, 65535)


def _output(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("got nothing, expected a path; is a variable of the shell not set?")
    return Path(text)


def add_run(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Add RUN, or RUN..."""
    if several:
        parser.add_argument("run", metavar="RUN", type=Path, nargs="+", help="run directory, or folder of a sweep")
    else:
        parser.add_argument("run", metavar="RUN", type=Path, help="run directory")


def check_runs(options: argparse.Namespace) -> None:
    """Refuse a RUN that is not there, or is something else, and say which one may be meant.

    Raises
    ------
    ConfigError
        There is no such folder or file.
    RunDirectoryError
        It is another file than a policy, or a folder of runs where one is expected.
    """
    runs: Any = getattr(options, "run", [])
    several = isinstance(runs, list)
    given = [(run, several) for run in (runs if several else [runs])]
    given += [(getattr(options, name), False) for name in ("first", "second") if hasattr(options, name)]
    for run, several in given:
        try:
            if not run.exists():
                raise ConfigError(f"no run directory at {run}{instead_of(run)}")
            begun = run.suffix == ".safetensors" or (run / "journal.bin").exists()
        except OSError as error:
            advice = READABLE if isinstance(error, PermissionError) else "expected a run directory"
            raise RunDirectoryError(f"cannot read {run}: {error.strerror}; {advice}") from error
        if not begun:
            from pyes.run.directory import RunDirectory  # takes long

            RunDirectory(run).check_folder(several=several)


def add_output(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the file to write."""
    parser.add_argument("-o", "--output", metavar="FILE", type=_output, required=True, help=text)


def add_episodes(parser: argparse.ArgumentParser, default: int | None, shown: str) -> None:
    """Add the number of episodes, and their seed."""
    text = f"number of episodes (default: {shown})"
    parser.add_argument("--episodes", metavar="N", type=count, default=default, help=text)
    parser.add_argument("--seed", metavar="S", type=seed, help="seed of the episodes (default: the run's own)")


def add_generation(parser: argparse.ArgumentParser) -> None:
    """Add the center to use: ``generation`` is a number, "best" or None."""
    which = parser.add_mutually_exclusive_group()
    text = "generation whose center to use (default: the last saved policy)"
    which.add_argument("--generation", metavar="G", type=index, help=text)
    text = "use the center with the best evaluation"
    which.add_argument("--best", dest="generation", action="store_const", const="best", help=text)


def add_config_dir(parser: argparse.ArgumentParser) -> None:
    """Add the folder of the user's own options, as of ``pyes train``."""
    parser.add_argument("--config-dir", metavar="DIR", help="folder of your own options, as in pyes train")


def add_json(parser: argparse._ActionsContainer) -> None:
    """Add the flag for JSON output."""
    parser.add_argument("--json", action="store_true", help="print only JSON on standard output")
