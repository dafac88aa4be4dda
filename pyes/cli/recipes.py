"""Recipes: the experiments with the name of a task, whose files say what they were measured to reach.

Owns which task has one. Reads conf/ as text, without Hydra.
"""

import re
from importlib import resources

_MEASURED = re.compile(r"^# Measured: (median .*)$", re.MULTILINE)


def advice(option: str, env_id: str) -> str | None:
    """Return a line about the recipe of a task, or None if it has none that was measured.

    Parameters
    ----------
    option : str
        Option of the group ``task`` that was chosen.
    env_id : str
        Id of the environment, which finds the option where ``gymnasium`` or another general one was chosen.
    """
    name = option if _measured(option) else _option_of(env_id)
    measured = name and _measured(name)
    return f"there is a recipe for this task: experiment={name} ({measured})" if measured else None


def _measured(name: str) -> str | None:
    """Return what a recipe reaches."""
    file = resources.files("pyes.conf").joinpath("experiment", f"{name}.yaml")
    found = _MEASURED.search(file.read_text(encoding="utf-8")) if file.is_file() else None
    return found[1] if found else None


def _option_of(env_id: str) -> str | None:
    """Return the option of an environment that is named in its file."""
    line = re.compile(rf"^env_id: {re.escape(env_id)}$", re.MULTILINE)
    files = resources.files("pyes.conf").joinpath("task").iterdir()
    names = (file.name.removesuffix(".yaml") for file in files if line.search(file.read_text(encoding="utf-8")))
    return min(names, key=len, default=None)  # the plainest, where variants have names of their own
