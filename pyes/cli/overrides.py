"""Prepares the arguments of ``pyes train`` for Hydra: flags, overrides and directories.

Owns the list of flags, the quoting of values in Hydra's grammar, and the translation of ``resume``, ``run_dir`` and a
``task.env_id`` without a task. Works on text, without Hydra.
"""

import dataclasses
import difflib
import itertools
import json
import os
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from pyes.cli.arguments import Parser
from pyes.config import TrainConfig
from pyes.errors import ConfigError
from pyes.launch import head_arguments
from pyes.system.text import quoted

GROUPS_WITHOUT_KEYS = ("experiment", "sweep", "debug")
_NONE = tuple(f"{group}=null" for group in GROUPS_WITHOUT_KEYS)  # as if they were not given
#: Mappings for which Hydra accepts any key; the class of the kind checks the keys.
_FREE = ("task.env_kwargs", "network.", "algorithm.", "logger.kwargs", "cluster.resources")
#: Keys whose mappings are values as a whole.
_WHOLE = ("env_kwargs", "module_kwargs", "kwargs", "resources")
#: Keys of Hydra that say where, and how many runs there are.
_HYDRAS_PLACES = ("hydra.run.dir", "hydra.sweep.dir", "hydra.output_subdir", "hydra.mode")
#: How a schedule begins, whose words the shell has split.
_SCHEDULE = re.compile(r"(?:linear|cosine|exponential|steps|norm)(?: |$)")
#: Flags of Hydra that show what would be, and run nothing.
_SHOWING = ("--cfg", "-c", "--info", "-i")
#: Resolver for values that Hydra's override grammar cannot express.
AS_WRITTEN = "pyes.written"
#: A number or a truth value, which no option is named by.
_IS_NO_NAME = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?|true|false", re.IGNORECASE)
_PLAIN_ADDRESS = re.compile(r"[\w./:-]+", re.ASCII)  # Hydra reads it without quotes
_PLAIN_KEY = re.compile(r"(?!(?:true|false|null|nan|inf)$)[a-z_]\w*", re.IGNORECASE | re.ASCII)


def directed(arguments: list[str]) -> list[str]:
    """Return the arguments for Hydra: flags, then overrides, with those for the output directory and the task.

    Raises
    ------
    ConfigError
        Hydra does not have a flag, or a directory cannot be used.
    """
    flags, overrides, several, folder = _parsed(arguments)
    if folder is not None:
        _check_folder(folder)
    overrides = [text for text in overrides if text not in _NONE]
    _check_form(overrides)
    several = several or any(text.startswith("sweep=") for text in overrides)
    if path_of(overrides, "algorithm.factory") and path_of(overrides, "algorithm") is None:
        overrides = ["algorithm=plugin", *overrides]
    if path_of(overrides, "network.name") and path_of(overrides, "network") is None:
        overrides = ["~network", *overrides]  # drops the keys of the default network
    overrides = [f"++{text}" if text.startswith(_FREE) else text for text in overrides]
    resumed, directory = path_of(overrides, "resume"), path_of(overrides, "run_dir")
    overrides = [_quoted(text) for text in overrides]
    if resumed is not None:
        _check_resume(resumed, several, overrides)
        return [*flags, *_resumed(Path(resumed), overrides), *overrides]
    place = path_of(overrides, f"hydra.{'sweep' if several else 'run'}.dir") or directory
    if directory is not None:  # an option's file may make it a sweep
        overrides = [f"hydra.sweep.dir={_new_path(directory)}", *overrides]
    overrides = [*_task_of_id(overrides), *overrides]
    if place is not None and not any(flag.partition("=")[0] in _SHOWING for flag in flags):
        _check_place(Path(place), overrides if several else None)
    return [*flags, *overrides]


def of_folder(folder: str | None) -> list[str]:
    """Return the override of Hydra that does what ``--config-dir`` does.

    Raises
    ------
    ConfigError
        There is no such folder, or its options have names of prepared ones.
    """
    if folder is None:
        return []
    _check_folder(folder)
    address = f"file://{folder}"
    return [f"hydra.searchpath=[{address if _PLAIN_ADDRESS.fullmatch(address) else _hydra_value(address)}]"]


def _parsed(arguments: list[str]) -> tuple[list[str], list[str], bool, str | None]:
    """Separate flags from overrides, in any order; return also whether there are several runs, and ``--config-dir``."""
    parser = Parser(prog="pyes train", add_help=False)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--multirun", "-m", action="store_true")
    for names in (["--help", "-h"], ["--hydra-help"], ["--version"], ["--resolve"], ["--run", "-r"]):
        parser.add_argument(*names, action="store_true")
    parser.add_argument("--shell-completion", "-sc", action="store_true")
    parser.add_argument("--cfg", "-c", choices=["job", "hydra", "all"])
    for names in (["--package", "-p"], ["--config-path", "-cp"], ["--config-name", "-cn"], ["--config-dir", "-cd"]):
        parser.add_argument(*names)
    about = ["all", "config", "defaults", "defaults-tree", "plugins", "searchpath"]
    parser.add_argument("--info", "-i", nargs="?", choices=about)
    for number, text in enumerate(arguments):
        word, equals, value = text.removeprefix("--").partition("=")
        if text.startswith("--") and _is_key(word):
            following = [value] if equals else _without_key(arguments[number + 1 :])[:1]
            raise ConfigError(f"got {text!r}, expected KEY=VALUE; {_meant(word, following)}")
    parsed = parser.parse_intermixed_args(arguments)
    rest, flags = list(parsed.overrides), []
    for text in arguments:
        if rest and text == rest[0]:
            rest.pop(0)
        else:
            flags.append(text)
    shows = parsed.cfg or parsed.info or parsed.shell_completion
    if shows and parsed.multirun:
        raise ConfigError("--multirun: one configuration is shown, not those of several runs; leave out -m")
    if parsed.resolve and not parsed.cfg:
        raise ConfigError("--resolve: expected --cfg job with it")
    return flags, parsed.overrides, parsed.multirun, parsed.config_dir


def _check_folder(folder: str) -> None:
    """Refuse what is no folder of options, and options that Hydra would not find: prepared ones have their names."""
    if not folder:
        raise ConfigError("--config-dir: got nothing, expected a folder; is a variable of the shell not set?")
    if not Path(folder).is_dir():
        raise ConfigError(
            f"--config-dir: {folder} is no folder; name one that has folders task, network, algorithm, ..."
        )
    for path in sorted(Path(folder).glob("*/*.yaml")):
        if path.stem in options().get(path.parent.name, ()):
            raise ConfigError(
                f"{path}: a prepared option is called {path.parent.name}={path.stem}, too, and would be taken; give "
                "this file another name"
            )


def _check_form(overrides: list[str]) -> None:
    """Refuse what is not KEY=VALUE, and say what was meant.

    Raises
    ------
    ConfigError
        A word has no key or no value, or is part of a value that the shell has split.
    """
    for number, word in enumerate(overrides):
        key, equals, value = word.lstrip("+~").partition("=")
        rest = _without_key(overrides[number + 1 :])
        if equals and key and key not in options() and _SCHEDULE.match(value) and rest:
            split = " ".join([value, *rest])
            raise ConfigError(f"got {word!r}, a schedule that the shell has split; quote it: '{key}={split}'")
        if equals and key and _is_open(value):
            whole = next((text for text in _joined([value, *overrides[number + 1 :]]) if not _is_open(text)), None)
            advice = (
                "close its brackets" if whole is None else f"quote it for the shell: '{word[: -len(value)]}{whole}'"
            )
            raise ConfigError(f"got {word!r}, a value that does not end; {advice}")
        if not (key and (equals or word.startswith("~"))):
            raise ConfigError(f"got {word!r}, expected KEY=VALUE; {_meant(word, overrides[number + 1 :][:1])}")
        without = value == "null" or word.startswith("~")
        if without and key in options() and key not in GROUPS_WITHOUT_KEYS:
            got = word if word.startswith("~") else value
            raise ConfigError(f"{key}: got {got}, expected one of {', '.join(options()[key])}")
        if key in options() and ((value.startswith("[") and key != "logger") or _IS_NO_NAME.fullmatch(value)):
            raise ConfigError(f"{key}: got {value}, expected one of {', '.join(options()[key])}")
        if key == "run_dir" and value == "null":
            raise ConfigError("run_dir: got null, expected a path; leave it out for one by date and time")
        if key in ("resume", "run_dir") and not value.strip("'\""):
            raise ConfigError(f"{key}: got nothing, expected a path; is a variable of the shell not set?")


def options() -> dict[str, list[str]]:
    """Return the groups of the configuration, and the options of each, sorted."""
    found: dict[str, list[str]] = {}
    for path in sorted(resources.files("pyes.conf").glob("*/*.yaml")):  # type: ignore[attr-defined]
        found.setdefault(path.parent.name, []).append(path.stem)
    return found


def _is_open(value: str) -> bool:
    """Whether a list or mapping begins here that ends in another word."""
    return value.startswith(("[", "{")) and sum(map(value.count, "[{")) > sum(map(value.count, "]}"))


def _joined(words: list[str]) -> Iterator[str]:
    """Yield the first word, the first two as one, and so on: key=[32, 32] as it was typed."""
    for count in range(2, len(words) + 1):
        yield " ".join(words[:count])


def _without_key(words: list[str]) -> list[str]:
    """Return the words up to the first override."""
    return list(itertools.takewhile(lambda word: "=" not in word and not word.startswith("~"), words))


def _is_key(word: str) -> bool:
    return word in options() or word in (each.name for each in dataclasses.fields(TrainConfig))


def _meant(word: str, following: list[str]) -> str:
    """Return what a word that is no override may stand for, with the one after it."""
    if _is_key(word):
        value = following[0] if following and "=" not in following[0] and following[0][:1] != "-" else "VALUE"
        return f"did you mean {word}={value}?"
    every = [(group, option) for group, names in options().items() for option in names]
    groups = [group for group, option in every if option == word]
    if groups:
        return f"did you mean {' or '.join(f'{group}={word}' for group in groups)}?"
    if Path(word).is_dir():
        return f"did you mean resume={word}?"
    close = difflib.get_close_matches(word, [option for _, option in every], n=1)
    if close:
        return f"did you mean {next(group for group, option in every if option == close[0])}={close[0]}?"
    return "for example seed=1 (keys of a task: pyes train --cfg job task=TASK)"


def _check_resume(resumed: str, several: bool, overrides: list[str]) -> None:
    if "${" in resumed:  # Hydra would resolve it in the path of its own output
        raise ConfigError(f"resume: got {resumed!r}, expected the path of a run, with no ${{...}} in it")
    if several:
        raise ConfigError("resume: one run goes on at a time; leave out -m and sweep")
    for key in ("run_dir", *_HYDRAS_PLACES):
        if path_of(overrides, key) is not None:
            raise ConfigError(f"{key}: a resumed run stays where it is; leave out {key}, or resume")


def _check_place(place: Path, sweep: list[str] | None) -> None:
    """Refuse a directory that holds a run, before Hydra writes into it; for the jobs of a sweep, those of another one.

    The same overrides as the earlier sweep's run the jobs that are missing in it. Their order numbers the jobs.
    """
    import yaml

    from pyes.run.directory import RunDirectory, runs_below

    if sweep is None:
        RunDirectory(place).check_free()
        return
    if not runs_below(place):
        RunDirectory(place).check_free()
        return
    try:
        record = yaml.safe_load((place / "multirun.yaml").read_bytes())  # Hydra's
        words = record["hydra"]["overrides"]
        earlier = [*_own(words["task"]), *_own(words["hydra"])]
    except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError):  # runs of no sweep, perhaps with other names
        return
    names_its_jobs = any(text.startswith("hydra.sweep.subdir=") for text in sweep)  # so that they are others
    own = sorted(_own(sweep), key=lambda word: word.lstrip("+~").startswith("hydra."))  # which Hydra records apart
    if own != earlier and not names_its_jobs:
        raise ConfigError(
            f"run_dir: {place} has runs of another sweep ({' '.join(map(quoted, earlier))}); give the same words in "
            "the same order to run its missing jobs, or choose another folder"
        )


def _own(overrides: list[str]) -> list[str]:
    """Return the overrides that say what jobs there are, but not where: `pyes launch` has new addresses each time."""
    elsewhere, jobs = ("run_dir=", "cluster=", "cluster.", "hydra.", "hydra/"), "hydra.sweeper.params."
    words = {text: text.lstrip("+~") for text in overrides}
    return [text for text, word in words.items() if word.startswith(jobs) or not word.startswith(elsewhere)]


def _task_of_id(overrides: list[str]) -> list[str]:
    """Add ``task=gymnasium`` for an id without a task, since the default task has its own settings."""
    keys = {text.lstrip("+").partition("=")[0] for text in overrides}
    return ["task=gymnasium"] if "task.env_id" in keys and keys.isdisjoint({"task", "experiment"}) else []


def path_of(arguments: list[str], key: str) -> str | None:
    """Return the last path that the command line sets for a key, without the quotes of Hydra's grammar.

    A run may be in the user's own folder, ``~/``, also where the shell has left that as it is.
    """
    values = head_arguments.values(arguments, key)
    if not values or values[-1] in ("", "null"):
        return None
    text = values[-1]
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1].replace(f"\\{text[0]}", text[0])
    return os.path.expanduser(text) if key in ("resume", "run_dir") else text


def _quoted(text: str) -> str:
    """Quote a path or an address, so that Hydra accepts any characters in it."""
    key = text.lstrip("+").partition("=")[0]
    path = path_of([text], key) if key in ("resume", "run_dir", "cluster.listen") else None
    if path is None:
        return text
    return f"{key}={_new_path(path) if key == 'run_dir' else _hydra_value(path)}"


def _new_path(path: str) -> str:
    """Return a new path in Hydra's override grammar; ${...} in it is resolved."""
    return _hydra_value(path).replace("\\${", "${")


def _resumed(run: Path, overrides: list[str]) -> list[str]:
    """Return a run's configuration as overrides, without keys and groups that the command line sets."""
    from pyes.run.directory import RunDirectory
    from pyes.training import resume

    given = [text.lstrip("+").partition("=") for text in overrides]
    chosen = {key for key, _, _ in given}
    for group in chosen.intersection(GROUPS_WITHOUT_KEYS):
        raise ConfigError(f"{group}: a resumed run keeps its configuration; override single keys, or start a new run")
    force = (path_of(overrides, "force") or "").lower() == "true"
    directory = RunDirectory(run)
    directory.check_begun()
    values = resume.kept(directory, force=force)
    if path_of(overrides, "cluster") == values.get("cluster", {}).get("name"):  # as `pyes launch` gives it
        chosen.discard("cluster")
    kept = {key: value for key, value in values.items() if key not in chosen | {"run_dir", "resume", "force"}}
    resume.lift_generations(kept, {key: None if value == "null" else value for key, _, value in given})
    for key in chosen:
        section, _, name = key.partition(".")
        if name in _WHOLE and isinstance(kept.get(section), dict):  # Hydra would merge the two
            kept[section] = {each: value for each, value in kept[section].items() if each != name}
    if "logger" in chosen and "logger" in values:  # the group's options only switch loggers on
        kept["logger"] = {key: value for key, value in values["logger"].items() if key not in options()["logger"]}
    # Each kind of algorithm, task and network has its own keys, so those of the default kinds are dropped.
    algorithm = ["algorithm=plugin"] if "algorithm" in kept else []
    others = [f"~{group}" for group in ("task", "network") if group in kept and f"~{group}" not in chosen]
    place = [f"hydra.run.dir={_hydra_value(str(run))}", "hydra.output_subdir=null"]
    return [*algorithm, *others, *_overrides(kept), *place]


def _overrides(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Flatten a configuration to Hydra's overrides; ++ sets a key whether or not the chosen groups have it."""
    for key, value in values.items():
        if isinstance(value, dict) and key not in _WHOLE:
            yield from _overrides(value, f"{prefix}{key}.")
        elif _has_odd_keys(value):
            yield f"++{prefix}{key}=${{{AS_WRITTEN}:x{json.dumps(value).encode().hex()}}}"
        else:
            yield f"++{prefix}{key}={_hydra_value(value)}"


def written(text: str) -> Any:
    """Return the JSON value of a text in hexadecimal, after an x: what the resolver `AS_WRITTEN` stands for."""
    return json.loads(bytes.fromhex(text.removeprefix("x")))


def _has_odd_keys(value: Any) -> bool:
    """Whether a mapping has keys that Hydra's override grammar, which does not quote them, takes for something else."""
    if isinstance(value, list):
        return any(map(_has_odd_keys, value))
    if not isinstance(value, dict):
        return False
    return any(not _PLAIN_KEY.fullmatch(key) for key in value) or any(map(_has_odd_keys, value.values()))


def _hydra_value(value: Any) -> str:
    """Return a JSON value, whose mappings have no odd keys, in Hydra's override grammar."""
    if isinstance(value, str):
        # Backslashes need escaping only before a quote, including the closing one; ${ would be resolved.
        value = re.sub(r"(\\+)(?='|$)", r"\1\1", value).replace("'", "\\'").replace("${", "\\${")
        return f"'{value}'"
    if isinstance(value, list):
        return "[" + ",".join(map(_hydra_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_hydra_value(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)
