"""What is installed: the user's own objects, which a configuration names as PACKAGE:OBJECT, and versions of packages.

Owns the import. Must not know what an object is for. Invariant: every refusal is one line that begins with the key.
"""

import functools
import importlib
import importlib.metadata
from typing import Any

from pyes.errors import ConfigError
from pyes.system.text import reason


def find(key: str, name: str, example: str) -> Any:
    """Return the object that ``name``, the value of ``key``, stands for.

    Raises
    ------
    ConfigError    the name is no PACKAGE:OBJECT, or the object cannot be imported
    """
    package, _, attribute = name.partition(":")
    if not package or not attribute:
        raise ConfigError(f"{key}: got {name!r}, expected {example}")
    try:
        found: Any = importlib.import_module(package)
    except Exception as error:
        where = "is it in the current folder, installed or on PYTHONPATH?"
        raise ConfigError(f"{key}={name} cannot be imported ({reason(error)}); {where}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{key}={name} is not there: {package} has no {attribute}")
        found = getattr(found, part)
    return found


@functools.cache  # a head compares it with that of every node that comes
def version(distribution: str) -> str:
    """Return the version of an installed distribution, or "not installed"."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
