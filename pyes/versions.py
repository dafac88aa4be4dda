"""Versions of what is installed."""

import functools
import importlib.metadata


@functools.cache  # a head compares it with that of every node that comes
def version(distribution: str) -> str:
    """Return the version of an installed distribution, or "not installed"."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
