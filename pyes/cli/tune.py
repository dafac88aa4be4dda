"""``pyes tune``: arguments, the check of every setting before the first run, and what is written at the end."""

import argparse
import os
import re
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pyes.cli import recipes
from pyes.cli.arguments import Add, add_config_dir, count
from pyes.cli.overrides import of_folder, path_of
from pyes.config import TrainConfig
from pyes.config.space import Space
from pyes.errors import ConfigError
from pyes.system.text import quoted, tell

#: Keys that belong to one run, or end one at a time that another machine does not repeat.
_OWN = (
    "seed", "run_dir", "resume", "force", "generations", "time_limit", "target_return", "learning_curve",
    "sweep", "debug", "cluster", "hydra",
)  # fmt: skip

_RECIPE = "recipe"  # the experiment that a search writes
#: What makes the configuration of some words, beside those of the command line.
_Settings = Callable[[Sequence[str]], TrainConfig]


def add_commands(add: Add) -> None:
    """Add this command to the program."""
    text = "search settings for a task: pyes tune task=TASK timesteps=N -o FOLDER"
    parser = add("tune", _tune, text)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as of pyes train; what is given is kept")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("-o", "--output", metavar="FOLDER", type=Path, help="new folder for the search and its recipe")
    where.add_argument("--resume", metavar="FOLDER", type=Path, help="go on with the search in this folder")
    numbers = (
        ("--trials", 24, "settings to try beside the defaults"),
        ("--seeds", 2, "runs of each setting"),
        ("--confirm", 5, "runs of the best setting and of the defaults at the end, with other seeds"),
    )
    for name, default, what in numbers:
        parser.add_argument(name, metavar="N", type=count, help=f"{what} (default: {default})")
    what = "YAML file of the parameters and their values (default: that of the algorithm)"
    parser.add_argument("--space", metavar="FILE", type=Path, help=what)
    add_config_dir(parser)
    parser.set_defaults(standard={name.removeprefix("--"): default for name, default, _ in numbers})


def _tune(options: argparse.Namespace) -> None:
    from pyes.cli import train
    from pyes.reports import trials
    from pyes.training import tuning

    folder = options.resume or options.output
    if options.resume is None:
        tuning.begin(folder, _arguments(options))
    elif options.overrides or any(
        getattr(options, name) is not None for name in ("space", "config_dir", *options.standard)
    ):
        raise ConfigError("--resume: a search goes on with the arguments that it has; leave out all others")
    arguments = tuning.read(folder)
    if Path(arguments.started_in) != Path.cwd() and Path(arguments.started_in).is_dir():
        folder = folder.absolute()
        os.chdir(arguments.started_in)

    def settings(words: Sequence[str]) -> TrainConfig:
        return train.settings([*words, f"timesteps={arguments.timesteps}"], arguments.config_dir)

    try:  # before a search goes on, too: what it does not find would count against trials
        settings(arguments.overrides)
    except ConfigError as error:
        if options.resume:
            error.add_note(f"(the search began in {arguments.started_in}; restore what it had there)")
        raise
    tell(tuning.plan(arguments))
    try:
        found = tuning.search(folder, tell)
    except KeyboardInterrupt:
        tell(f"stopped; go on with: pyes tune --resume {quoted(folder)}")
        raise
    words = [*arguments.overrides, *Space.parse(arguments.space, "space").overrides(found.best.values)]
    recipe = folder / "experiment" / f"{_RECIPE}.yaml"
    recipes.write(recipe, words, settings(words), trials.comment(found))
    trials.draw(found, folder / "trials.png")
    print(trials.to_markdown(found))
    tell(f"trials: {folder / 'trials.png'}")
    if told := trials.doubt(found):
        tell(told)
    own_options = arguments.config_dir and str(Path(arguments.config_dir).absolute())
    command = ["pyes", "train", "--config-dir", str(folder), *of_folder(own_options), f"experiment={_RECIPE}"]
    tell(f"train with it: {' '.join(map(quoted, command))} ({recipe})")


def _arguments(options: argparse.Namespace) -> Any:
    """Return the arguments of a new search, checked: all values of `Space.samples` make a valid configuration."""
    from pyes.cli import train
    from pyes.training import tuning

    keys = [word.lstrip("+~").partition("=")[0] for word in options.overrides]
    _check_own(keys)
    if path_of(options.overrides, "experiment") == _RECIPE:
        raise ConfigError(
            f"experiment: got {_RECIPE}, the name of what a search writes; rename {_RECIPE}.yaml, and give that name"
        )

    def settings(words: Sequence[str]) -> TrainConfig:
        return train.settings([*options.overrides, *words], options.config_dir)

    config = settings([])
    if config.timesteps is None:
        raise ConfigError("timesteps: missing; say how long the best runs train, as timesteps=1e6")
    _check_evaluated(config)
    path = options.space or _standard_space(config.algorithm.factory or config.algorithm.name)
    space = Space.read(path)
    _check_own(key for name in space.parameters for key in space.keys(name))
    if any("timesteps" in space.keys(name) for name in space.parameters):
        raise ConfigError(f"{path}: timesteps: a search sets it for each of its runs; give the most as timesteps=N")
    space = space.without(keys)
    if not space.parameters:
        raise ConfigError(f"{path}: all of its parameters are given on the command line; leave one of them out")
    problem = _problem(space, settings)
    if problem and options.space is None:
        space = _fitting(space, settings)
        problem = _problem(space, settings)
    if problem:
        raise ConfigError(f"{path}: {problem}")
    numbers = {name: getattr(options, name) or default for name, default in options.standard.items()}
    if numbers["seeds"] > tuning.FIRST_CONFIRMING_SEED:
        most = f"at most {tuning.FIRST_CONFIRMING_SEED}: seeds from there on confirm the best setting"
        raise ConfigError(f"--seeds: got {numbers['seeds']}, expected {most}")
    overrides = tuple(word for word in options.overrides if not word.startswith("timesteps="))
    there = str(Path.cwd())
    own = {"space": space.to_mapping(), "started_in": there, "config_dir": options.config_dir}
    return tuning.Arguments(overrides, config.timesteps, **numbers, **own)


def _fitting(space: Space, settings: _Settings) -> Space:
    """Return an algorithm's standard parameters without those that a task or a network does not have.

    Raises
    ------
    ConfigError
        None is left.
    """
    alone = {name: _problem(Space({name: each}), settings) for name, each in space.parameters.items()}
    for name, problem in alone.items():
        if problem:
            tell(f"not searched: {name}, which does not fit what is given ({problem})")
    kept = Space({name: each for name, each in space.parameters.items() if not alone[name]})
    if not kept.parameters:
        raise ConfigError("none of the standard parameters fits; name a file of your own with --space")
    return kept


def _problem(space: Space, settings: _Settings) -> str:
    """Return why not all of a space's values make a valid configuration; empty if they do."""
    for values in space.samples():
        try:
            _check_evaluated(settings(space.overrides(values)))
        except ConfigError as error:
            return str(error)
    return ""


def _check_evaluated(config: TrainConfig) -> None:
    if not config.evaluation.every:
        raise ConfigError("evaluation.every: got 0, expected an integer >= 1: a search goes by the last evaluations")


def _check_own(keys: Iterable[str]) -> None:
    for key in keys:
        if re.split(r"[./@]", key)[0] in _OWN:
            raise ConfigError(f"{key}: a search sets it for each of its runs; leave it out")


def _standard_space(algorithm: str) -> Path:
    """Return the file of an algorithm's parameters."""
    folder = Path(str(resources.files("pyes.conf"))) / "tune"
    path = folder / f"{algorithm}.yaml"
    if not path.exists():
        known = ", ".join(sorted(each.stem for each in folder.glob("*.yaml")))
        raise ConfigError(
            f"algorithm: there are no parameters for {algorithm}; name a file with --space, or use {known}"
        )
    return path
