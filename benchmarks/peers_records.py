"""The raw data of `peers.py`: rows of CSV files, and what they were measured on.

Owns how a file of rows grows, so that a program that was stopped goes on where it was, and ``about.json``: for each
part its command, the machine, the versions and the commits. Must not know what the rows mean.
"""

import csv
import json
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from recipes import commit, processor

from pyes.system.lookup import version

PACKAGES = (
    "pyes-rl", "numpy", "gymnasium", "mujoco", "box2d", "torch", "ray", "evotorch", "stable-baselines3", "sb3-contrib",
    "envpool", "cma", "nevergrad",
)  # fmt: skip


def append(file: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Add rows to a file, which begins with the names of its columns."""
    new = not file.exists()
    with file.open("a", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerows([columns, *rows] if new else rows)


def read(file: Path) -> list[dict[str, str]]:
    """Return the rows of a file; none if it is not there."""
    if not file.exists():
        return []
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def missing(file: Path, jobs: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the jobs that do not begin a row of the file."""
    done = [tuple(row.values()) for row in read(file)]
    return [job for job in jobs if job not in {row[: len(job)] for row in done}]


def check(folder: Path, part: str) -> None:
    """Check that what is measured now may stand beside what a folder has of a part.

    Raises
    ------
    SystemExit
        The part was begun on another kind of machine, or with other versions.
    """
    earlier, now = read_about(folder).get(part), conditions()
    if not earlier:
        return
    if any(earlier["machine"][key] != now["machine"][key] for key in ("processor", "cores")):
        raise SystemExit(f"{folder}: {part} was begun on a {earlier['machine']['processor']}; give another folder")
    if earlier["versions"] != now["versions"]:
        raise SystemExit(f"{folder}: {part} was begun with {earlier['versions']}; give another folder")


def note(folder: Path, part: str, command: str) -> None:
    """Write down on what a part was measured; one that goes on later may have several commands and commits."""
    about = read_about(folder)
    earlier = about.get(part, {})
    about[part] = {
        "commands": list(dict.fromkeys([*earlier.get("commands", ()), command])),
        "commits": list(dict.fromkeys([*earlier.get("commits", ()), commit()])),
        **conditions(),
    }
    (folder / "about.json").write_text(f"{json.dumps(about, indent=2)}\n", encoding="utf-8")


def read_about(folder: Path) -> dict[str, Any]:
    """Return what is known of each part; nothing of a new folder."""
    file = folder / "about.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


def conditions() -> dict[str, Any]:
    """Return the machine and the versions of now."""
    return {
        "machine": {"processor": processor(), "cores": os.cpu_count(), "system": platform.platform()},
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
    }
