"""Overrides of ``pyes train`` in Hydra's grammar: what the user gave, and what a run to go on with was given.

Owns the quoting of values, and where our own keys (``resume``, ``run_dir``) lead Hydra. Works on text alone, without
Hydra.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyes.errors import ConfigError

GROUPS_WITHOUT_KEYS = ("experiment", "sweep", "debug")
_FLAGS_OF_SWEEPS = {"-m", "--multirun"}
#: Mappings that take any key: what stands there is for a constructor or a library.
_FREE = ("task.env_kwargs", "network.module_kwargs", "algorithm.options")


def directed(arguments: list[str]) -> list[str]:
    """Tell Hydra about the directories that our own keys name: the run's to go on with, a new one's, or a sweep's."""
    arguments = [f"++{text}" if text.startswith(_FREE) else text for text in arguments]
    resumed, directory = path_of(arguments, "resume"), path_of(arguments, "run_dir")
    arguments = [_quoted(text) for text in arguments]
    sweeps = not _FLAGS_OF_SWEEPS.isdisjoint(arguments) or any(
        text.startswith("sweep=") and text != "sweep=null" for text in arguments
    )
    if resumed is not None:
        if "${" in resumed:  # Hydra would look it up in the path of its own output
            raise ConfigError(f"resume: got {resumed!r}, expected the path of a run, with no ${{...}} in it")
        if sweeps:
            raise ConfigError("resume: one run goes on at a time; leave out -m and sweep")
        if directory is not None:
            raise ConfigError("run_dir: a resumed run stays where it is; leave out run_dir, or resume")
        return _inserted(_resumed(Path(resumed), arguments), arguments)
    if directory is None:
        return arguments
    if sweeps:
        return _inserted([f"hydra.sweep.dir={_new_path(directory)}"], arguments)
    from pyes.run.directory import RunDirectory

    RunDirectory(directory).check_free()  # before Hydra writes into it
    return arguments


def _inserted(overrides: list[str], arguments: list[str]) -> list[str]:
    """Put overrides where the first one stands: Hydra's parser wants all of them in one place."""
    first = next(i for i, text in enumerate(arguments) if "=" in text and not text.startswith("-"))
    return [*arguments[:first], *overrides, *arguments[first:]]


def path_of(arguments: list[str], key: str) -> str | None:
    """Return the last path that the command line gives a key, without the quotes of Hydra's grammar."""
    values = [text.partition("=")[2] for text in arguments if text.startswith(f"{key}=")]
    if not values or values[-1] in ("", "null"):
        return None
    text = values[-1]
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1].replace(f"\\{text[0]}", text[0])
    return text


def _quoted(text: str) -> str:
    """Return an override of ours whose value is a path so that Hydra takes it as it is: commas, spaces, any letter."""
    key = text.partition("=")[0]
    path = path_of([text], key) if key in ("resume", "run_dir") else None
    if path is None:
        return text
    return f"{key}={_new_path(path) if key == 'run_dir' else _hydra_value(path)}"


def _new_path(path: str) -> str:
    """Return a path to make in Hydra's override grammar; ${...} in it is looked up."""
    return _hydra_value(path).replace("\\${", "${")


def _resumed(run: Path, arguments: list[str]) -> list[str]:
    """Return a run's whole configuration as overrides, less the groups that the command line chooses anew."""
    from pyes.run.directory import RunDirectory
    from pyes.training import resume

    chosen = {text.partition("=")[0] for text in arguments}
    for group in chosen.intersection(GROUPS_WITHOUT_KEYS):
        raise ConfigError(f"{group}: a resumed run keeps its configuration; override single keys, or start a new run")
    values = resume.kept(RunDirectory(run))
    kept = {key: value for key, value in values.items() if key not in chosen | {"run_dir", "resume", "force"}}
    # Each algorithm and each kind of task has keys of its own: those of another one must not be there.
    algorithm = [f"algorithm={kept['algorithm']['name']}"] if "algorithm" in kept else []
    task = ["~task"] if "task" in kept else []
    directory = [f"hydra.run.dir={_hydra_value(str(run))}", "hydra.output_subdir=null"]
    return [*algorithm, *task, *_overrides(kept), *directory]


def _overrides(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Flatten a configuration to Hydra's overrides; ++ sets a key whether or not the chosen groups have it."""
    for key, value in values.items():
        if isinstance(value, dict) and key not in ("env_kwargs", "module_kwargs"):
            yield from _overrides(value, f"{prefix}{key}.")
        else:
            yield f"++{prefix}{key}={_hydra_value(value)}"


def _hydra_value(value: Any) -> str:
    """Return a JSON value in Hydra's override grammar (which has no quotes around the keys of a mapping)."""
    if isinstance(value, str):
        # Backslashes count only before a quote, and before the closing one; ${ would be looked up.
        value = re.sub(r"(\\+)(?='|$)", r"\1\1", value).replace("'", "\\'").replace("${", "\\${")
        return f"'{value}'"
    if isinstance(value, list):
        return "[" + ",".join(map(_hydra_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_hydra_value(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)
