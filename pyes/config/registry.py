"""Registries from names to classes: one each for algorithms, tasks, networks and clusters.

A *kind* is a class with its settings beside it::

    @ALGORITHMS.register("ars")
    class ARS(Algorithm):
        Config = ARSConfig    # a frozen dataclass, the section's settings for this kind

Owns the look-up. Knows no kind by name: a module registers what it defines when it is imported, and a module is
imported when its name is asked for. So a new kind is one file in its folder, or one entry point of another package.
"""

import dataclasses
import importlib
import importlib.metadata
import pkgutil
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pyes.config.section import Section, refusal
from pyes.errors import ConfigError
from pyes.system import lookup
from pyes.system.text import reason

K = TypeVar("K", bound=type[Any])


class Registry(Generic[K]):
    """The kinds of one section of the configuration.

    Parameters
    ----------
    section : str
        Section whose ``name`` chooses the kind, for example ``"algorithm"``.
    package : str
        Package that contains pyes' own kinds, one module per kind or family of kinds. Also the name of the entry-point
        group with which an installed package adds kinds.
    base : str
        MODULE:CLASS from which every kind of other packages must derive.
    """

    def __init__(self, section: str, package: str, base: str = "builtins:object") -> None:
        self.section, self.package, self.base = section, package, base
        self._kinds: dict[str, K] = {}

    def register(self, name: str) -> Callable[[K], K]:
        """Return a class decorator that registers a class under a name and sets its attribute ``kind`` to it."""

        def enter(kind: K) -> K:
            kind.kind = name
            self._kinds[name] = kind
            return kind

        return enter

    def get(self, name: object) -> K:
        """Return the class of a name.

        Raises
        ------
        ConfigError
            There is no such kind (the message lists all kinds), or its module cannot be imported.
        """
        if isinstance(name, str) and name not in self._kinds:
            self._import_named(name)
        if not isinstance(name, str) or name not in self._kinds:
            raise refusal(f"{self.section}.name", name, f"one of {', '.join(map(repr, self.names()))}")
        return self._kinds[name]

    def names(self) -> list[str]:
        """Return the names of all kinds, sorted; imports every module of the package, but no entry point."""
        self._import_all()
        return sorted(self._kinds.keys() | {point.name for point in self._entry_points()})

    def with_key(self, key: str, chosen: str = "") -> str:
        """Return a hint which of the package's own kinds, other than the chosen one, have a key; empty if none has."""
        kinds = (kind for kind in self.classes().values() if kind.kind != chosen)
        names = sorted(kind.kind for kind in kinds if key in {each.name for each in dataclasses.fields(kind.Config)})
        return f"it is a key of {self.section}={', '.join(names)}" if names else ""

    def classes(self) -> dict[str, K]:
        """Return the classes of pyes' own kinds by their Python names; imports every module of the package."""
        self._import_all()
        return {kind.__name__: kind for kind in self._kinds.values() if kind.__module__.startswith(self.package)}

    def title(self, name: str) -> str:
        """Return the title of a kind, for example "OpenAI-ES"; the name itself if it is unknown."""
        try:
            return getattr(self.get(name), "title", "") or name
        except ConfigError:
            return name

    def from_factory(self, factory: object, expected: str) -> K:
        """Return the user's own class named by ``factory``, a MODULE:CLASS.

        Parameters
        ----------
        factory : str
            Value of the section's key ``factory``.
        expected : str
            Expected form with an example, for the message.

        Raises
        ------
        ConfigError
            It cannot be imported, or it is not such a class.
        """
        key = f"{self.section}.factory"
        if not isinstance(factory, str):
            raise refusal(key, factory, expected)
        return self._checked(lookup.find(key, factory, expected), f"{key}={factory}")

    def _checked(self, found: Any, what: str) -> K:
        """Check that a class of another package can be a kind, and return it."""
        module, _, name = self.base.partition(":")
        base = getattr(importlib.import_module(module), name)
        if not (isinstance(found, type) and issubclass(found, base)):
            advice = "; for what makes an environment take task.name=python" if self.section == "task" else ""
            raise ConfigError(f"{what} is not a class that derives from {base.__module__}.{base.__qualname__}{advice}")
        config = getattr(found, "Config", None)
        if not (isinstance(config, type) and issubclass(config, Section) and dataclasses.is_dataclass(config)):
            raise ConfigError(f"{what} has no settings: give it Config, a frozen dataclass of its keys")
        if "__dataclass_params__" not in vars(config):
            raise ConfigError(
                f"{what}: its Config is not a dataclass of its own; put @dataclass(frozen=True) before it"
            )
        return found  # type: ignore[return-value]

    def _import_named(self, name: str) -> None:
        """Import the module that may register a name: the one of that name, or else all, or else an entry point."""
        if name in self._modules():
            importlib.import_module(f"{self.package}.{name}")
        if name not in self._kinds:
            self._import_all()
        if name in self._kinds:  # looking for installed packages takes long
            return
        for point in self._entry_points():
            if point.name == name:
                self.register(name)(self._checked(self._loaded(point), f"{self.section}.name={name} ({point.value})"))

    def _loaded(self, point: importlib.metadata.EntryPoint) -> Any:
        try:
            return point.load()
        except Exception as error:
            raise ConfigError(
                f"{self.section}.name={point.name}: {point.value} of an installed package cannot be imported "
                f"({reason(error)})"
            ) from error

    def _import_all(self) -> None:
        for name in self._modules():
            importlib.import_module(f"{self.package}.{name}")

    def _modules(self) -> list[str]:
        """Return the modules of the package, without sub-packages, which may import large libraries."""
        path = importlib.import_module(self.package).__path__
        return [module.name for module in pkgutil.iter_modules(path) if not module.ispkg]

    def _entry_points(self) -> importlib.metadata.EntryPoints:
        return importlib.metadata.entry_points(group=self.package)


#: The folders of kinds belong to higher layers than this one, and are imported only by name.
ALGORITHMS: Registry[Any] = Registry("algorithm", "pyes.algorithms", "pyes.algorithms.base:Algorithm")
TASKS: Registry[Any] = Registry("task", "pyes.tasks", "pyes.tasks.base:Task")
NETWORKS: Registry[Any] = Registry("network", "pyes.networks", "pyes.networks.base:Network")
CLUSTERS: Registry[Any] = Registry("cluster", "pyes.cluster")


def kinds_with_key(section: str, key: str, chosen: str = "") -> str:
    """Return a hint which other kinds of a section have a key; empty if none has, or if the section has no kinds."""
    registries = {each.section: each for each in (ALGORITHMS, TASKS, NETWORKS, CLUSTERS)}
    return registries[section].with_key(key, chosen) if section in registries else ""
