"""Recipes: experiments that say what they were measured to reach; those of ``conf/`` have the name of a task.

Owns which task has one, and how the file of a new one is written. Reads conf/ as text, without Hydra.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pyes.cli.overrides import directed
from pyes.config import TrainConfig, to_mapping
from pyes.errors import ConfigError
from pyes.system.files import write_file

_ENV_ID = re.compile(r"^env_id: (\S+)$", re.MULTILINE)
_INCLUDED = re.compile(r"^defaults:\n  - (\w+)$", re.MULTILINE)
#: Median, and after the range: seeds, timesteps and time; commits come last.
_MEASURED = re.compile(r"^# Measured: median (\S+) \(.*? to .*?\) (of .*? cores?)", re.MULTILINE)


def advice(option: str, env_id: str) -> str | None:
    """Return a line about the recipe of a task, or None if it has none that was measured.

    Parameters
    ----------
    option : str
        Option of the group ``task`` that was chosen.
    env_id : str
        Id of the environment, which finds the option where ``gymnasium`` or another general one was chosen.
    """
    files = resources.files("pyes.conf").joinpath("task").iterdir()
    texts = {file.name.removesuffix(".yaml"): file.read_text(encoding="utf-8") for file in files}
    ids = {name: _id_in(texts, name) for name in texts}
    # The plainest, where variants have names of their own.
    of_id = min((name for name, found in ids.items() if found and found == env_id), key=len, default="")
    own = ids.get(option) in (None, env_id)
    name = option if own and _measured(option) else of_id
    measured = _measured(name)
    return f"there is a recipe for this task: pyes train experiment={name} ({measured})" if measured else None


def _id_in(texts: Mapping[str, str], option: str) -> str | None:
    """Return the environment of an option, whose file may include that of another one."""
    text = texts.get(option, "")
    if found := _ENV_ID.search(text):
        return found[1]
    included = _INCLUDED.search(text)
    return _id_in(texts, included[1]) if included else None


def _measured(name: str) -> str | None:
    """Return what a recipe reaches, and what that takes."""
    file = resources.files("pyes.conf").joinpath("experiment", f"{name}.yaml")
    found = _MEASURED.search(file.read_text(encoding="utf-8")) if file.is_file() else None
    return f"median return {round(float(found[1]), 1):g} {found[2]}" if found else None


def write(path: Path, words: Sequence[str], config: TrainConfig, comment: Sequence[str]) -> None:
    """Write an experiment that makes a configuration.

    Parameters
    ----------
    path : Path
        File; its folder is made if there is none.
    words : sequence of str
        Overrides of ``pyes train``, of which it consists.
    config : TrainConfig
        What they make, with its budget of timesteps.
    comment : sequence of str
        Lines on top.

    Raises
    ------
    ConfigError
        The file cannot be written.
    """
    groups = {each.name for each in resources.files("pyes.conf").iterdir() if each.is_dir()}
    given = dict(word.lstrip("+~").partition("=")[::2] for word in directed(list(words)) if "=" in word)
    choices = {key: value for key, value in given.items() if key in groups}
    if "network.name" in given:  # without the group
        choices["network"] = given["network.name"]
    included = [f"  - {value}" for key, value in choices.items() if key == "experiment"]
    included += [f"  - override /{key}: {value}" for key, value in choices.items() if key != "experiment"]
    # Trials had no other end than their timesteps: those that an experiment sets are taken back.
    ends = {key: None for key in ("time_limit", "target_return") if getattr(config, key) is not None}
    values: dict[str, Any] = {"generations": None, "timesteps": config.timesteps, **ends}
    if config.algorithm.factory is None:
        values["algorithm"] = {"name": config.algorithm.name}
    for key in sorted(given.keys() - groups - {"timesteps"}):
        _copy(to_mapping(config), key.split("."), values)
    lines = ["# @package _global_", *(f"# {line}" for line in comment)]
    lines += ["defaults:", *included, ""] if included else [""]
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make {path.parent} ({error.strerror}); choose another place") from error
    write_file(path, "\n".join([*lines, *_yaml(values), ""]).encode())


def _copy(source: Any, path: Sequence[str], values: dict[str, Any]) -> None:
    """Copy the value at a path to the same path of ``values``; of a list the whole, whose elements no file can set."""
    for depth, key in enumerate(path, 1):
        source = source[key]
        if depth == len(path) or not isinstance(source, Mapping):
            values[key] = source
            return
        values = values.setdefault(key, {})


def _yaml(values: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield the lines of nested mappings, sorted as pyes writes them: a section's name first, then its keys."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield f"{indent}{_scalar(key)}:"
            yield from _yaml(dict(sorted(value.items(), key=lambda item: item[0] != "name")), f"{indent}  ")
        else:
            yield f"{indent}{_scalar(key)}: {_scalar(value)}"


def _scalar(value: Any) -> str:
    """Return a key, or a value without a block of its own, as the reader of these files reads it back."""
    import yaml

    if isinstance(value, list | dict) or (isinstance(value, str) and _is_number(value)):
        return json.dumps(value, ensure_ascii=False)
    text: str = yaml.safe_dump(value, width=1000, allow_unicode=True)
    return text.removesuffix("...\n").strip()


def _is_number(text: str) -> bool:
    """Whether Hydra reads a number where PyYAML, which writes it without quotes, reads a text: 1e3."""
    try:
        float(text)
    except ValueError:
        return False
    return True
