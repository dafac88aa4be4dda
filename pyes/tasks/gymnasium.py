"""Tasks from Gymnasium's registry.

Owns the look-up of an id and of the class that runs it: some families of environments have their own class, a `Family`.
Knows no family by name: each is a module of this folder and defines which ids belong to it.
"""

import copy
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import gymnasium
from gymnasium.envs.registration import EnvSpec

from pyes.config import refusal
from pyes.config.registry import TASKS
from pyes.system.process_wide import ignoring
from pyes.tasks.base import Task
from pyes.tasks.parity import check_versions, first_difference
from pyes.tasks.wrapped import WrappedConfig, WrappedTask

#: Arguments of `gymnasium.make` that are not the user's: the rollout enforces the episode limit, and a wrapper for it
#: would only cost time.
_GIVEN: Mapping[str, Any] = {"max_episode_steps": -1, "disable_env_checker": True}


@dataclass(frozen=True)
class GymnasiumConfig(WrappedConfig):
    """Settings of an environment from Gymnasium's registry."""

    name: str = "gymnasium"
    env_id: str = "LunarLanderContinuous-v3"

    @property
    def title(self) -> str:
        """The environment's id."""
        return self.env_id

    def check(self) -> None:
        """Reject a missing ``env_id``."""
        super().check()
        if not self.env_id:
            raise refusal("task.env_id", self.env_id, "the id of a Gymnasium environment, for example 'CartPole-v1'")


@TASKS.register("gymnasium")
class GymnasiumTask(WrappedTask):
    """A registered environment as a task.

    Parameters and errors are those of `WrappedTask`; the error for an unknown id suggests similar ones.
    """

    Config = GymnasiumConfig

    @classmethod
    def suited(cls, config: GymnasiumConfig) -> type[Task]:
        """Return the class of the environment's family, or else this one."""
        return next((family for family in _families() if family.knows(family.plain(config.env_id))), GymnasiumTask)

    def _label(self) -> str:
        return f"task.env_id: {self._config.env_id!r}"

    def _create(self, arguments: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
        for name in _GIVEN:
            if name in arguments:
                expected = "no such argument, since pyes gives it; the limit of an episode is task.max_timesteps"
                raise refusal(f"task.env_kwargs.{name}", arguments[name], expected)
        with self._making(gymnasium.error.Error):
            try:
                spec = self._spec()
            except gymnasium.error.Error as error:
                guesses = (family.guess(self._config.env_id) for family in _families())
                if guess := next(filter(None, guesses), None):
                    text = f"{str(error).rstrip('.')}; did you mean {guess!r}?"
                    raise gymnasium.error.Error(text) from error
                name = self._config.env_id.rpartition(":")[2]
                if versions := sorted(id for id, each in gymnasium.registry.items() if each.name == name):
                    raise gymnasium.error.Error(f"it has no version; there are {', '.join(versions)}") from error
                if isinstance(error, gymnasium.error.UnregisteredEnv) and ":" not in self._config.env_id:
                    text = f"{str(error).rstrip('.')}; of a module that registers it: MODULE:{self._config.env_id}"
                    raise gymnasium.error.Error(text) from error
                raise
            given = dict(_GIVEN)
            if spec.additional_wrappers:  # which may see the limit
                del given["max_episode_steps"]
            if "render_mode" not in arguments:
                return gymnasium.make(spec, **given, **arguments)
            # A film of what cannot be drawn ends with an error that says so.
            with ignoring(r".*WARN: .*render.?mode", UserWarning):
                return gymnasium.make(spec, **given, **arguments)

    def _spec(self) -> EnvSpec:
        """Look up the id; for "module:id" the module is imported first, which registers it."""
        module, _, name = self._config.env_id.rpartition(":")
        if module:
            importlib.import_module(module)
        spec = copy.deepcopy(gymnasium.spec(name))
        spec.order_enforce = False  # the rollout calls reset and step in the right order
        return spec

    def _own_limit(self) -> int | None:
        return self._spec().max_episode_steps


class Family(GymnasiumTask):
    """Base of classes that run some registered environments in a faster way, with the same results.

    Equality is tested with the simulator versions in ``VERIFIED``. With another version, a process compares the first
    task of each environment with the original for a few timesteps.
    """

    #: For each distribution: the versions with which every environment of the family was compared with the original.
    VERIFIED: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    #: Package that registers the environments.
    PACKAGE: ClassVar[str] = "gymnasium"
    ALL: ClassVar[list[type["Family"]]] = []

    def __init_subclass__(cls) -> None:
        """Register a family."""
        cls.packages = tuple(cls.VERIFIED)
        cls.ALL.append(cls)

    @classmethod
    def knows(cls, env_id: str) -> bool:
        """Whether an id, without its package, belongs to the family; must not import a simulator."""
        raise NotImplementedError

    @classmethod
    def plain(cls, env_id: str) -> str:
        """Return an id without the package before it, which may be named, as for environments of a module."""
        return env_id.removeprefix(f"{cls.PACKAGE}:")

    @classmethod
    def guess(cls, env_id: str) -> str | None:
        """Return the family's id that an unknown id may mean, or None."""
        return None

    def __init__(self, config: GymnasiumConfig, render_mode: str | None = None) -> None:
        config = replace(config, env_id=self.plain(config.env_id))
        super().__init__(config, render_mode)
        advice = (
            f", or run the original: task=python task.factory=gymnasium:make task.env_kwargs.id={config.env_id} "
            "task.remake=true"
        )
        try:
            check_versions(self._label(), self.VERIFIED, self._compare, advice)
        except BaseException:
            self.close()
            raise

    @classmethod
    def original(cls, config: GymnasiumConfig) -> gymnasium.Env[Any, Any]:
        """Make the original environment."""
        return gymnasium.make(config.env_id, disable_env_checker=True, **config.env_kwargs)

    def _comparable(self) -> GymnasiumConfig:
        """Return the settings used for the comparison with the original."""
        return GymnasiumConfig(env_id=self._config.env_id, env_kwargs=self._config.env_kwargs)

    def _compare(self) -> str | None:
        """Return the first difference from the original."""
        config = self._comparable()
        with type(self)(config) as task:
            original = self.original(config)
            try:
                return first_difference(task, original)
            finally:
                original.close()


def _families() -> list[type[Family]]:
    TASKS.classes()  # imports the modules of this folder, which registers their families
    return Family.ALL
