"""Loggers of a user; ``logger.factory`` is "user_loggers:NAME", with this folder on the path."""

import json
import os
import re
import shutil
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyes
from pyes.reports.loggers.base import LoggedRun, Row


class Notebook(pyes.Logger):
    """Keeps all that it is given in the folder ``notebook`` of the run."""

    def __init__(self, run: LoggedRun, pages: int = 1) -> None:
        super().__init__(run)
        self._folder = run.path / "notebook"
        self._folder.mkdir(exist_ok=True)
        run.memory["parts"] = run.memory.get("parts", 0) + 1
        (self._folder / "config.json").write_text(json.dumps(run.config))
        self._note("pages", pages)

    def _note(self, what: str, value: Any) -> None:
        with open(self._folder / "notes", "a") as file:
            file.write(json.dumps([what, value]) + "\n")

    def log(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._note("row", row)

    def policy(self, files: Sequence[Path]) -> None:
        for file in files:
            shutil.copy(file, self._folder)

    def video(self, file: Path) -> None:
        shutil.copy(file, self._folder)

    def close(self, *, failed: bool) -> None:
        self._note("failed", failed)


class Slow(Notebook):
    """Takes a tenth of a second for a row."""

    def log(self, rows: Sequence[Row]) -> None:
        for row in rows:
            time.sleep(0.1)
            super().log([row])


class RaisesAtStart(pyes.Logger):
    def __init__(self, run: LoggedRun) -> None:
        raise ConnectionRefusedError("nobody is at home")


class Raises(Notebook):
    def log(self, rows: Sequence[Row]) -> None:
        raise ValueError("not these rows")


class RaisesOnce(Notebook):
    def log(self, rows: Sequence[Row]) -> None:
        if not (self._folder / "raised").exists():
            (self._folder / "raised").touch()
            raise ValueError("not now")
        super().log(rows)


class Hangs(pyes.Logger):
    def log(self, rows: Sequence[Row]) -> None:
        time.sleep(1000)


class HangsAtStart(pyes.Logger):
    def __init__(self, run: LoggedRun) -> None:
        time.sleep(1000)


class HoldsTheLock(pyes.Logger):
    """Hangs in C code that lets no other thread of its process run."""

    def log(self, rows: Sequence[Row]) -> None:
        re.match("(a|aa)+$", "a" * 200 + "b")


class HangsAtTheEnd(Notebook):
    def close(self, *, failed: bool) -> None:
        time.sleep(1000)


class Exits(pyes.Logger):
    def log(self, rows: Sequence[Row]) -> None:
        os._exit(7)


class ExitsAsIfDone(pyes.Logger):
    def log(self, rows: Sequence[Row]) -> None:
        os._exit(0)


class Prints(Notebook):
    """Writes more to its output than a pipe holds."""

    def log(self, rows: Sequence[Row]) -> None:
        print("chatter\n" * 100_000, flush=True)
        super().log(rows)


class ToServer(pyes.Logger):
    """Sends generations to an HTTP server, and asks it what it has."""

    def __init__(self, run: LoggedRun, address: str) -> None:
        super().__init__(run)
        self._address = address

    def _ask(self, data: bytes | None = None) -> int:
        with urllib.request.urlopen(self._address, data, timeout=1) as answer:
            return int(answer.read())

    def held(self, sent: int, tried: int) -> int:
        return self._ask()

    def log(self, rows: Sequence[Row]) -> None:
        self._ask(json.dumps([row["generation"] for row in rows]).encode())


no_logger = print
