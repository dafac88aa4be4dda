"""Errors of Hydra, OmegaConf and YAML as one line: what, where, what is allowed.

Must not know what is done with a configuration, or how a run begins.
"""

import re
import traceback
from typing import Any

from pyes.cli.overrides import GROUPS_WITHOUT_KEYS, options
from pyes.config import AlgorithmConfig, unknown_key
from pyes.config.registry import kinds_with_key
from pyes.errors import ConfigError
from pyes.system.text import one_line, short


def explained(error: Exception) -> ConfigError:
    """Convert an error of Hydra or OmegaConf to one line: what, where, what is allowed."""
    from hydra.errors import MissingConfigException, OverrideParseException
    from omegaconf.errors import (
        ConfigAttributeError,
        ConfigKeyError,
        InterpolationKeyError,
        InterpolationResolutionError,
        MissingMandatoryValue,
        UnsupportedInterpolationType,
    )

    if isinstance(error, MissingConfigException) and error.options and error.missing_cfg_file:
        group, _, option = error.missing_cfg_file.rpartition("/")
        return unknown_key("", option, error.options, what=group)
    found = re.search(r"Could not load '(\w+)/(.*)'", str(error))  # one of a list
    if found and found[1] in options():
        return unknown_key("", found[2], options()[found[1]], what=found[1])
    if found := re.search(rf"In '({'|'.join(GROUPS_WITHOUT_KEYS)})/(.*?)': .*@\1\.", str(error)):
        return without_package(found[1], found[2])
    if isinstance(error, OverrideParseException):
        word = error.override.lstrip("+")
        return ConfigError(f"{word}: not a value; quote text that has spaces or any of ,=:{{}}[]()~: KEY='\"TEXT\"'")
    if found := re.match(r"Ambiguous value for argument '(.*?)=(.*)'", str(error)):
        key, values = found[1].lstrip("+"), found[2]
        what = "pyes train -m makes a run of each"
        if key not in options() or key == "logger":
            what += f", a list is {key}=[{values}]"
        return ConfigError(f"{key}: got {values}, several values; {what}")
    cause = error.__cause__ or error
    if isinstance(cause, MissingMandatoryValue):
        return ConfigError(f"{cause.full_key}: missing; give it a value with {cause.full_key}=VALUE")
    if isinstance(cause, InterpolationResolutionError | UnsupportedInterpolationType):
        key = "run_dir" if cause.full_key in ("hydra.run.dir", "hydra.sweep.dir") else cause.full_key
        place = f"{key}: " if key else ""  # --resolve does not say
        hint = "; ${...} takes a key of the configuration" if isinstance(cause, InterpolationKeyError) else ""
        return ConfigError(f"{place}{str(cause).splitlines()[0]}{hint}")
    if isinstance(cause, ConfigKeyError | ConfigAttributeError) and cause.parent_node is not None:
        path, _, key = str(cause.full_key).rpartition(".")
        allowed = {str(each) for each in cause.parent_node} - {"hydra"}
        if not allowed:
            return ConfigError(f"unknown key '{path}.{key}': {path} is a value, with no keys; set it as {path}=VALUE")
        hint = AlgorithmConfig.ELSEWHERE.get(key, "") if path == AlgorithmConfig.PATH else ""
        chosen = str(cause.parent_node.get("name", ""))
        hint = hint or (kinds_with_key(path, key, chosen) if path else _sections_with(cause.parent_node, key))
        return unknown_key(path, key, allowed if path else allowed.union(GROUPS_WITHOUT_KEYS), hint=hint)
    parts = [str(error)] if cause is error else [str(error), str(cause)]
    return ConfigError(one_line("\n".join(parts)))


def unreadable(error: Exception) -> ConfigError:
    """Convert an error in the text of an option's file, which Hydra passes on as it is."""
    import yaml

    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        place = f"{short(error.problem_mark.name)}:{error.problem_mark.line + 1}"
        return ConfigError(f"{place}: {error.problem}; correct this line or the one before")
    if isinstance(error, UnicodeDecodeError):  # it does not say of which file; Hydra's frame does
        places = (frame.f_locals.get("full_path") for frame, _ in traceback.walk_tb(error.__traceback__))
        file = next((short(str(place)) for place in places if place), "an option's file")
        return ConfigError(f"{file}: not UTF-8 ({error.reason}: {error.object[error.start]:#x}); save it as UTF-8")
    return ConfigError(one_line(str(error)))


def without_package(group: str, option: str) -> ConfigError:
    """Return the error of an option that sets keys of its own group, where those of the run are meant."""
    return ConfigError(
        f"{group}={option}: its file sets keys of {group}, not of the run; make '# @package _global_' its first line"
    )


def _sections_with(root: Any, key: str) -> str:
    """Say which sections of the whole configuration have a key that was given without one."""
    sections = [str(name) for name, section in root.items_ex(resolve=False) if name != "hydra" and _has(section, key)]
    sections += [name for name in map(str, root) if name not in sections and kinds_with_key(name, key)]
    return f"it is {' or '.join(f'{section}.{key}' for section in sections)}" if sections else ""


def _has(section: Any, key: str) -> bool:
    from omegaconf import DictConfig

    return isinstance(section, DictConfig) and not section._is_none() and key in section
