"""The run directory: the names of a run's files, its configuration, and its snapshots."""

import bisect
import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyes import config as configuration
from pyes.config import TrainConfig
from pyes.errors import ConfigError, RunDirectoryError
from pyes.system import locks, packing
from pyes.system.files import make_folder, new_folder, remove_leftovers, write_file
from pyes.system.lifetime import how_to_go_on
from pyes.system.text import instead_of, quoted

logger = logging.getLogger(__name__)

_SNAPSHOTS_KEPT = 3
_RUNS_NAMED = 3  # in a message


def new_directory() -> str:
    """Make a directory by date and time, which no other run has, and return its path.

    Raises
    ------
    RunDirectoryError
        It cannot be made.
    """
    path = time.strftime("runs/%Y-%m-%d/%H-%M-%S")
    try:
        return new_folder(path)
    except OSError as error:
        raise RunDirectoryError(f"run_dir: cannot make {path} ({error.strerror}); choose another one") from error


def runs_below(folder: Path) -> list[Path]:
    """Return the runs that a folder holds, such as a sweep's, in the order of their numbers."""
    return sorted((each.parent for each in folder.glob("*/journal.bin")), key=lambda run: (len(run.name), run.name))


class RunDirectory:
    """The files of one run.

    lock                 locked by the process that writes the run; contains its id and host
    config.json          the resolved configuration
    journal.bin          returns of the members of each generation, from which the run can be rebuilt
    train.log            log of the head and its workers
    nodes.csv            one row per generation and node, with several nodes
    metrics.csv          one row per generation
    snapshots/           the newest complete states, for a fast resume
    policy.safetensors   the last center policy, with policy.json
    best.safetensors     the center policy with the best evaluation, with best.json
    learning_curve.png   drawn at the end, if wanted
    loggers/             what loggers say, and how far each has read
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.lock_file = self.path / "lock"
        self.config = self.path / "config.json"
        self.journal = self.path / "journal.bin"
        self.log = self.path / "train.log"
        self.metrics = self.path / "metrics.csv"
        self.nodes = self.path / "nodes.csv"
        self.snapshots = self.path / "snapshots"
        self.best = self.path / "best.safetensors"
        self.learning_curve = self.path / "learning_curve.png"

    @contextmanager
    def locked(self, *, hand_over: bool = False) -> Iterator[None]:
        """Lock the directory for this process; the kernel releases the lock however the process ends.

        With ``hand_over`` the lock is held for a run that this thread begins in the block.

        Raises
        ------
        RunDirectoryError
            Another process holds it, or it cannot be made.
        """
        try:
            make_folder(self.snapshots)
        except OSError as error:
            raise RunDirectoryError(
                f"run_dir: cannot write to {self.path} ({error.strerror}); make it writable, or choose another one"
            ) from error
        with locks.held(self.lock_file, "run_dir", hand_over=hand_over):
            remove_leftovers(self.path, exclusive=False)
            remove_leftovers(self.snapshots, exclusive=True)
            yield

    def add_to_log(self, text: str) -> None:
        """Append to the log when no run is in progress; does nothing if another process holds the lock."""
        with (
            suppress(OSError),
            locks.unheld(self.lock_file),
            open(self.log, "a", encoding="utf-8", errors="backslashreplace") as log,
        ):
            log.write(text)

    def create(self, config: TrainConfig) -> None:
        """Make the directory and write the configuration.

        Raises
        ------
        RunDirectoryError
            It cannot be made or written, or it holds another run.
        """
        self.check_free()
        try:
            make_folder(self.snapshots)
            self.write_config(config)
        except (OSError, ConfigError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise RunDirectoryError(f"run_dir: cannot write to {self.path} ({reason}); choose another one") from error

    def _check_files(self) -> None:
        """Refuse what is no file where the run has its files: some are written at its end only."""
        policy = self.path / "policy.safetensors"
        files = [self.config, self.journal, self.log, self.metrics, self.nodes, policy, self.best, self.learning_curve]
        for path in [*files, policy.with_suffix(".json"), self.best.with_suffix(".json")]:
            if path.is_dir() or path.is_fifo() or path.is_socket():
                got = "a directory" if path.is_dir() else "a pipe or a socket"
                raise RunDirectoryError(
                    f"run_dir: {path}: got {got}, expected a file; move it away or choose another run_dir"
                )

    def how_to_get_metrics(self) -> str:
        """Return what to do where metrics.csv is missing: the journal has what is in it."""
        if self.journal.exists():
            return f"{how_to_go_on(self.path)} writes it anew"
        return "give a directory that pyes train has printed"

    def check_folder(self, *, several: bool = False) -> None:
        """Refuse a file and, unless there may be ``several`` runs, a folder of runs: a RunDirectoryError."""
        if self.path.is_file():
            run = next((each for each in self.path.parents if (each / "journal.bin").exists()), None)
            raise RunDirectoryError(f"{self.path} is a file, expected a run directory{f': {run}' if run else ''}")
        if several or self.config.exists() or self.journal.exists() or self.policy_files():
            return
        if runs := runs_below(self.path):
            names = f"{', '.join(map(str, runs[:_RUNS_NAMED]))}{', ...' if runs[_RUNS_NAMED:] else ''}"
            raise RunDirectoryError(f"{self.path} is a folder of runs; name one of them: {names}")

    def check_begun(self) -> None:
        """Check that there is a run to resume; RunDirectoryError otherwise."""
        self.check_folder()
        self._check_files()
        if not self.path.exists():
            raise RunDirectoryError(f"no run directory at {self.path}{instead_of(self.path)}")
        if not self.config.exists() and not self.journal.exists():
            raise RunDirectoryError(f"{self.path} holds no run: there is no {self.config.name} in it")
        if not self.journal.exists() and not self.has_results() and self.policy_files():
            raise RunDirectoryError(f"{self.path} holds an exported policy without a journal, and cannot go on")

    def check_free(self) -> None:
        """Check that there is no run yet; RunDirectoryError otherwise."""
        self._check_files()
        if (self.journal.exists() and self.journal.stat().st_size > 0) or self.has_results():
            how = quoted(f"resume={self.path}")
            raise RunDirectoryError(
                f"run_dir: {self.path} already holds a run; go on with it ({how}) or choose another one"
            )
        for file in self.policy_files():
            raise RunDirectoryError(f"run_dir: {file} would be replaced; choose another one")
        if self.config.exists() and not self._is_of_a_start():
            raise RunDirectoryError(
                f"run_dir: {self.config} is not of a run, and would be replaced; choose another one"
            )

    def _is_of_a_start(self) -> bool:
        """Whether config.json is of a run, such as one that was killed as it began."""
        try:
            self.read_config()
        except RunDirectoryError:
            return False
        return True

    def has_results(self) -> bool:
        """Whether there are files that only a run with a journal writes."""
        rows = self.metrics.read_bytes().count(b"\n") - 1 if self.metrics.exists() else 0
        return rows > 0 or bool(self._snapshots())

    def policy_files(self) -> list[Path]:
        """Return the files there are of the last and the best policy."""
        files = (self.path / f"{name}.{kind}" for name in ("policy", "best") for kind in ("safetensors", "json"))
        return [file for file in files if file.exists()]

    def write_config(self, config: TrainConfig) -> None:
        """Write the configuration.

        Raises
        ------
        ConfigError
            It cannot be written; the old file is unchanged.
        """
        write_file(self.config, (json.dumps(configuration.to_mapping(config), indent=2) + "\n").encode())

    def read_config(self) -> TrainConfig:
        """Return the configuration in config.json.

        Raises
        ------
        RunDirectoryError
            There is no run, or its configuration cannot be used; the message says where it is wrong.
        """
        try:
            return configuration.from_mapping(json.loads(self.config.read_bytes()))
        except FileNotFoundError as error:
            raise RunDirectoryError(f"{self.path} holds no run: there is no {self.config.name} in it") from error
        except (OSError, ValueError, RecursionError, ConfigError) as error:
            why = "its lists or mappings are nested too deeply" if isinstance(error, RecursionError) else error
            raise RunDirectoryError(f"{self.config} cannot be used: {why}; correct it") from error

    def save_snapshot(self, generation: int, state: dict[str, Any]) -> None:
        """Write a snapshot, and delete all but the newest few; later ones are of a journal that the run had before.

        Raises
        ------
        ConfigError
            It cannot be written; the older snapshots are unchanged.
        """
        saved = self.snapshots / f"generation-{generation:08d}.safetensors"
        with suppress(OSError):  # writing says what is wrong, as where the run's folder has been renamed
            self.snapshots.mkdir()
        write_file(saved, packing.pack(state))
        every = self._snapshots()
        newest = bisect.bisect_right(every, saved)
        for path in every[: max(0, newest - _SNAPSHOTS_KEPT)] + every[newest:]:
            with suppress(OSError):  # the next save tries again
                path.unlink()

    def whole_snapshots(self) -> Iterator[dict[str, Any]]:
        """Yield the intact snapshots, the newest first; damaged ones are named in the log."""
        for path in reversed(self._snapshots()):
            try:
                yield packing.unpack(path.read_bytes())
            except (OSError, ValueError) as error:
                logger.warning("snapshot %s is damaged (%s); trying the previous one", path.name, error)

    def _snapshots(self) -> list[Path]:
        return sorted(self.snapshots.glob("generation-*.safetensors"))
