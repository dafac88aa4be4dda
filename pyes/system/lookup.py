"""Look-up of users' own objects, which a configuration names as MODULE:OBJECT, and of versions of packages.

Owns the import, and the packages that are allowed: all, unless this process has called `allow_only`, as a node does,
since its settings come from another machine. Must not know what an object is used for. Invariant: every error is one
line that begins with the key.
"""

import functools
import importlib
import importlib.metadata
from collections.abc import Sequence
from typing import Any

from pyes.errors import ConfigError
from pyes.system.text import reason
from pyes.system.user_code import let_through

#: Packages that settings may name in this process; None: all.
_allowed: tuple[str, ...] | None = None
#: Modules that are always allowed. Not all of pyes is: parts of it make an environment of any address in memory.
_OWN = ("pyes.tasks.functions", "pyes.tasks.maze")


def allow_only(packages: Sequence[str] | None) -> None:
    """Allow only these packages in the settings of this process; None allows all."""
    global _allowed
    _allowed = None if packages is None else (*_OWN, *packages)


def check_allowed(key: str, name: str, module: str) -> None:
    """Reject a module that settings may not name here.

    Parameters
    ----------
    key, name : str
        The setting and its value, for the message.
    module : str
        Full name of the module, or what stands for it where there is none.

    Raises
    ------
    ConfigError
        The module is not in one of the packages of `allow_only`.
    """
    if _allowed is None or any(f"{module}.".startswith(f"{each}.") for each in _allowed):
        return
    package = module.partition(".")[0]
    allow = package if package.isidentifier() else "'*'"  # a shared library, or an object of no package
    raise ConfigError(f"{key}: this worker may not run {name!r}; allow it with: pyes worker --allow {allow}")


#: What to ask about a module that cannot be imported.
WHERE = "is it in the current folder, installed or on PYTHONPATH?"


def find(key: str, name: str, example: str) -> Any:
    """Return the object named by ``name``, the value of ``key``.

    Raises
    ------
    ConfigError
        The name is not a MODULE:OBJECT, the object cannot be imported, or its package is not allowed.
    """
    package, _, attribute = name.partition(":")
    if not package or not attribute:
        raise ConfigError(f"{key}: got {name!r}, expected {example}")
    check_allowed(key, name, package)
    try:
        found: Any = importlib.import_module(package)
    except BaseException as error:
        let_through(error)
        is_file = package.endswith(".py") and "/" not in package
        advice = f"did you mean {package.removesuffix('.py')}:{attribute}?" if is_file else WHERE
        raise ConfigError(f"{key}={name} cannot be imported ({reason(error)}); {advice}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{key}={name} is not there: {package} has no {attribute}")
        found = getattr(found, part)
    check_allowed(key, name, str(getattr(found, "__module__", "")))  # it may be imported from another package
    return found


@functools.cache  # a head compares it with that of every node
def version(distribution: str) -> str:
    """Return the version of an installed distribution, or "not installed"."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
