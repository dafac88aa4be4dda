"""Resuming a run: which settings it keeps, which may change, and which cannot.

Owns the meaning of ``resume`` and ``force``. Knows no process; reads the run directory and writes nothing.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyes import config as configuration
from pyes.config import TrainConfig
from pyes.errors import ConfigError, JournalError, RunDirectoryError
from pyes.run import journal
from pyes.run.directory import RunDirectory
from pyes.run.journal import Recording, Start
from pyes.system.text import literal

logger = logging.getLogger(__name__)

#: Sections whose keys depend on their kind.
_OF_SEVERAL_KINDS = ("task", "algorithm", "optimizer", "network", "cluster")
_WITHOUT = (
    "go on without it with force=true: what decides the run is in its journal, and budgets, cluster, evaluation, "
    "snapshot and logger take their defaults"
)


def _is_fixed(key: str, config: TrainConfig) -> bool:
    """Whether a setting can never change: theta depends on the network, the members on the noise."""
    section = key.partition(".")[0]
    if section == "algorithm":
        name = key.partition(".")[2]
        return name in ("name", "factory") or config.algorithm.is_fixed(name)
    if key == "task.behaviour":
        return config.algorithm.needs_behaviours  # an archive holds one kind of behaviour
    return section in ("network", "noise")


def settings(values: Mapping[str, Any]) -> TrainConfig:
    """Check a configuration; with ``resume``, missing settings are those of the run.

    Raises
    ------
    ConfigError
        A key is unknown, or a value is invalid.
    RunDirectoryError
        There is no run to resume.
    """
    if not isinstance(values.get("resume"), str | os.PathLike):
        return configuration.from_mapping(values)
    _check_place(values["resume"], values.get("run_dir"))
    before = kept(RunDirectory(values["resume"]), force=bool(values.get("force")))
    for section in _OF_SEVERAL_KINDS:
        given, own = values.get(section), before.get(section) or {}
        if isinstance(given, Mapping) and _is_of_another_kind(given, own):
            before[section] = {}  # with other keys
    lift_generations(before, values)
    return configuration.from_mapping(configuration.merged(before, values))


def _check_place(resumed: str | os.PathLike[str], directory: object) -> None:
    """Refuse another directory for a run that goes on: it stays where it is."""
    if isinstance(directory, str | os.PathLike) and Path(directory).resolve() != Path(resumed).resolve():
        raise ConfigError(
            f"run_dir: got {directory}, but the run stays in {resumed}; leave run_dir out, or copy the directory first"
        )


def lift_generations(before: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Take the limit of generations out of a run's settings if another budget is given alone, as for a new run."""
    if "generations" not in given and any(given.get(key) is not None for key in ("timesteps", "time_limit")):
        before["generations"] = None


def _is_of_another_kind(given: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Whether settings of a section name another kind, by its name or, for one of the user's own, by its factory."""
    changed = {key for key in ("name", "factory") if given.get(key) not in (None, own.get(key))}
    return "name" in changed or ("factory" in changed and not own.get("name"))


def kept(directory: RunDirectory, *, force: bool) -> dict[str, Any]:
    """Return the configuration of a run: settings that affect theta from its journal, others from config.json.

    Parameters
    ----------
    force : bool
        Whether to do without ``config.json`` if it cannot be used.

    Raises
    ------
    RunDirectoryError
        There is no run, or its journal or its configuration is damaged.
    """
    start = last_start(journal.read(directory.journal))
    try:
        config = configuration.to_mapping(directory.read_config())
    except RunDirectoryError:
        if start is None:
            raise
        unusable_configuration(directory, force=force)  # raises, unless it may be left out
        return start.settings
    return config if start is None else config | start.settings


def unusable_configuration(directory: RunDirectory, *, force: bool) -> RunDirectoryError | None:
    """Return why the ``config.json`` of a run that goes on cannot be used; None if it can, or if there is none.

    Raises
    ------
    RunDirectoryError
        It cannot be used, and nobody has said that it is to be replaced.
    """
    try:
        directory.read_config()
    except RunDirectoryError as error:
        if force:
            return error
        if directory.config.exists():
            raise RunDirectoryError(f"{error}, or {_WITHOUT}") from error
    return None


def recording_to_go_on(directory: RunDirectory) -> Recording:
    """Read the journal of a new or resumed run.

    Raises
    ------
    JournalError
        It is damaged, or missing although the run has begun.
    """
    recording = journal.read(directory.journal)
    if not len(recording) and directory.has_results():
        raise JournalError(f"{directory.journal} is missing or empty; restore it from a copy, or start the run again")
    if recording.torn:
        logger.warning("journal.bin: %d bytes of an unfinished or damaged last record are cut off", recording.torn)
    return recording


def last_start(recording: Recording) -> Start | None:
    """Return the last record with settings, or None."""
    return next(reversed(recording.starts), None)


def as_decided(config: TrainConfig, before: TrainConfig) -> TrainConfig:
    """Return a configuration with what an earlier one has in place of each "auto" that affects theta."""
    if config.noise.entries == "auto":
        config = replace(config, noise=replace(config.noise, entries=before.noise.entries))
    return replace(config, task=config.task.decided(before.task.normalize_observations is True))


def going_on(recording: Recording, config: TrainConfig) -> tuple[TrainConfig, bool]:
    """Return the configuration of a resumed run, and whether settings that affect theta have changed.

    Raises
    ------
    ConfigError
        Such settings have changed without ``force`` (the message has old and new values), or can never change.
    """
    start = last_start(recording)
    if start is None:
        return config, False
    before = configuration.from_mapping(start.settings)
    config = as_decided(config, before)
    changes = configuration.changes(configuration.deciding(before), configuration.deciding(config))
    refused = {
        key: map(literal, change) for key, change in changes.items() if not config.force or _is_fixed(key, before)
    }
    if refused:
        listed = ", ".join(f"{key} (was {old}, got {new})" for key, (old, new) in refused.items())
        forceable = not any(_is_fixed(key, before) for key in refused)
        way_out = "add force=true to continue with them, or start a new run" if forceable else "start a new run"
        raise ConfigError(f"resume: these settings decide the run and cannot change: {listed}; {way_out}")
    return config, bool(changes)
