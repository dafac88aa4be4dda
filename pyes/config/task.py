"""Common settings of all tasks; each kind adds its own beside its class in `pyes.tasks`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pyes.config.network import NetworkConfig
from pyes.config.registry import TASKS
from pyes.config.schedule import most
from pyes.config.section import (
    JSON_MAPPING,
    AnyNumber,
    AtLeastOne,
    NotNegative,
    Positive,
    Range,
    Scheduled,
    Section,
    Share,
    is_json,
    refusal,
)

_Limit = Range(minimum=1, maximum=10**9)
#: The default kind of task.
_DEFAULT = "gymnasium"


def task_class(name: object, factory: object) -> Any:
    """Return the class of a kind of task.

    Parameters
    ----------
    name : str
        Value of ``task.name``; empty to use ``factory``.
    factory : str or None
        Value of ``task.factory``; without a name, the MODULE:CLASS of the kind.

    Raises
    ------
    ConfigError
        There is no such kind, or the class cannot be a kind of task.
    """
    if not name and factory:
        return TASKS.from_factory(factory, "MODULE:CLASS, for example 'my_tasks:GridTask'")
    return TASKS.get(name)


@dataclass(frozen=True)
class TaskConfig(Section):
    """Base of the settings of every kind of task; a kind narrows ``name`` to its own and adds its keys."""

    PATH = "task"
    #: Defaults of a run of this kind that differ from the general ones, as nested mappings.
    RUN_DEFAULTS: ClassVar[Mapping[str, Any]] = {}

    name: str = ""
    env_kwargs: dict[str, Any] = field(default_factory=dict)  # arguments of the environment or function
    #: Per member and generation; their mean is the member's return.
    episodes: Annotated[int | str, Scheduled(AtLeastOne, whole=True)] = 1
    #: Of an episode, those of training by a schedule, all others by its largest value; None: the task's own limit.
    max_timesteps: Annotated[int | str, Scheduled(_Limit, whole=True)] | None = None

    # Values that a run reads for every task. Without annotations these are constants, not keys, for tasks without
    # observations, actions and seeds. `EnvironmentConfig` turns them into keys.
    common_random_numbers = "generation"
    normalize_observations = cast(bool | Literal["auto"], False)
    observation_clip = 5.0
    statistics_share = 1.0
    reward_offset_per_step = cast(float | str, 0.0)
    reward_min = cast(float | str | None, None)
    action = "auto"
    bins = 0
    action_noise = 0.0
    behaviour = "none"

    @classmethod
    def kind(cls, values: Mapping[str, Any]) -> type[Section]:
        """Return the settings' class of the named kind of task."""
        if cls is not TaskConfig:
            return cls
        factory = values.get("factory")
        return cast(type[Section], task_class(values.get("name", "" if factory else _DEFAULT), factory).Config)

    @property
    def title(self) -> str:
        """Name of the task: the environment's id, or the name of the function or class."""
        return getattr(self, "factory", None) or self.name

    @property
    def most_episodes(self) -> int:
        """Largest number of episodes of a member that the settings lead to, averaging not counted."""
        return most(self.episodes)

    @property
    def most_timesteps(self) -> int | None:
        """Largest limit of an episode that the settings lead to; None: the task's own."""
        return None if self.max_timesteps is None else most(self.max_timesteps)

    def check(self) -> None:
        """Reject the name of another kind, and arguments that are not JSON values."""
        if self.name != type(self).name:
            raise refusal("task.name", self.name, f"{type(self).name!r} with settings of {type(self).__name__}")
        if not is_json(self.env_kwargs):
            raise refusal("task.env_kwargs", self.env_kwargs, JSON_MAPPING)

    def decided(self, normalized: bool) -> Self:
        """Return these settings with ``normalized`` in place of an "auto" of ``normalize_observations``."""
        return self

    def check_beside(self, network: NetworkConfig, entries: int | None) -> None:
        """Reject settings of other sections that do not fit the task.

        Parameters
        ----------
        network : NetworkConfig
            The policy network.
        entries : int or None
            Length of the noise table; None if it is not known yet or not used.
        """


@dataclass(frozen=True)
class EnvironmentConfig(TaskConfig):
    """Base of the settings of tasks with episodes in which a policy observes and acts."""

    common_random_numbers: Literal["none", "pair", "generation"] = "generation"  # members that share environment seeds
    normalize_observations: bool | Literal["auto"] = "auto"  # auto: unless they are images or choices
    observation_clip: Annotated[float, Positive] = 5.0  # standard deviations; only when normalized
    statistics_share: Annotated[float, Share] = 1.0  # of the members: every nth feeds the statistics
    #: Added to every reward for learning alone: reported returns are the task's own. "auto": 0, but if the algorithm is
    #: ``relative``, a bonus for being alive has half of the weight; see `pyes.numerics.shaping.with_differential`.
    reward_offset_per_step: Annotated[float | str, Scheduled(AnyNumber)] | Literal["auto"] = "auto"
    #: Smaller rewards of a timestep count as this one, in training only; None: none do.
    reward_min: Annotated[float | str, Scheduled(AnyNumber)] | None = None
    action: Literal["auto", "argmax", "identity", "clip", "scale", "tanh", "bins"] = "auto"
    bins: Annotated[int, NotNegative] = 0  # values an action component can take, with action=bins
    action_noise: Annotated[float, NotNegative] = 0.0  # standard deviation, training only
    hide_observations: tuple[Annotated[int, NotNegative] | str, ...] = ()  # indices, or names of parts, not seen ...
    hide_by: Literal["remove", "zero"] = "remove"  # ... because they are left out, or always zero
    behaviour: str = "none"  # what tells episodes apart, for novelty search

    def decided(self, normalized: bool) -> Self:
        """Return these settings with ``normalized`` in place of an "auto" of ``normalize_observations``."""
        return replace(self, normalize_observations=normalized) if self.normalize_observations == "auto" else self

    def check(self) -> None:
        """Reject ``bins`` that do not fit ``action``."""
        super().check()
        if self.action == "bins" and self.bins < 2:
            raise refusal("task.bins", self.bins, "an integer >= 2 with task.action=bins")
        if self.action != "bins" and self.bins:
            raise refusal("task.bins", self.bins, f"0 with task.action={self.action} (or task.action=bins)")
