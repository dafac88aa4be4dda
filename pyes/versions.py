"""Versions of what is installed."""

import importlib.metadata


def version(distribution: str) -> str:
    """Return the version of an installed distribution, or "not installed"."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
