"""Settings of the task: the environment, and what an episode of it counts for."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pyes.config.section import (
    JSON_MAPPING,
    AtLeastOne,
    NotNegative,
    Positive,
    Section,
    Share,
    is_json,
    refusal,
)
from pyes.system.text import literal


@dataclass(frozen=True)
class TaskConfig(Section):
    """The environment, and what an episode of it counts for."""

    PATH = "task"

    name: Literal["gymnasium", "gym", "python", "function", "envpool"] = "gymnasium"
    env_id: str = "LunarLanderContinuous-v3"  # gymnasium, gym, envpool
    factory: str | None = None  # PACKAGE:FUNCTION; python: FUNCTION(**env_kwargs); function: FUNCTION(theta, ...)
    dim: Annotated[int, AtLeastOne] | None = None  # function: length of theta
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    episodes: Annotated[int, AtLeastOne] = 1  # a member and generation; their mean is the member's return
    max_timesteps: Annotated[int, AtLeastOne] | None = None  # None: the environment's own limit
    common_random_numbers: Literal["none", "pair", "generation"] = "generation"  # who shares environment seeds
    normalize_observations: bool = False
    observation_clip: Annotated[float, Positive] = 5.0  # standard deviations; only when normalized
    statistics_share: Annotated[float, Share] = 1.0  # share of the members whose observations feed the statistics
    reward_offset_per_step: float = 0.0  # added in training only; evaluation reports the task's own returns
    frame_skip: Annotated[int, AtLeastOne] | Literal["auto"] = "auto"  # steps of an action; auto: Atari 4, else 1
    action: Literal["auto", "argmax", "identity", "clip", "tanh", "bins"] = "auto"
    bins: Annotated[int, NotNegative] = 0  # values an action component can take, with action=bins
    action_levels: Annotated[int, NotNegative] = 0  # evenly spread values that the task rounds components to; 0: any
    action_noise: Annotated[float, NotNegative] = 0.0  # standard deviation, training only
    hide_observations: tuple[Annotated[int, NotNegative], ...] = ()  # indices that the policy does not see ...
    hide_by: Literal["remove", "zero"] = "remove"  # ... because they are left out, or always zero
    behaviour: Literal["none", "final_observation", "final_position", "ram"] = "none"  # what tells episodes apart
    remake: bool = False  # rebuild the environment for every episode: for those whose reset is no clean slate

    def check(self) -> None:
        """Refuse environments without a name, a single action level, and bins that do not go with the action."""
        self._check_environment()
        self._check_function()
        self._check_foreign()
        if self.name == "envpool" and self.behaviour not in ("none", "final_observation"):
            raise refusal("task.behaviour", self.behaviour, "'none' or 'final_observation' with task.name=envpool")
        if self.action == "bins" and self.bins < 2:
            raise refusal("task.bins", self.bins, "an integer >= 2 with task.action=bins")
        if not is_json(self.env_kwargs):
            raise refusal("task.env_kwargs", self.env_kwargs, JSON_MAPPING)
        if self.action_levels == 1:
            raise refusal("task.action_levels", 1, "0 (any value) or an integer >= 2")
        if self.action != "bins" and self.bins:
            raise refusal("task.bins", self.bins, f"0 with task.action={self.action} (or task.action=bins)")

    @property
    def title(self) -> str:
        """What the task is called: the environment's id, or the function's name."""
        return self.factory or self.env_id

    def _check_environment(self) -> None:
        """Refuse an environment that is named in no way, or in two; with a factory, the id is empty."""
        if self.name in ("python", "function"):
            if not self.factory:
                raise refusal("task.factory", self.factory, "PACKAGE:FUNCTION, for example 'my_tasks:make'")
            if self.env_id not in ("", TaskConfig.env_id):
                raise refusal("task.env_id", self.env_id, f"nothing with task.name={self.name}")
            object.__setattr__(self, "env_id", "")
            return
        if self.factory is not None:
            raise refusal("task.factory", self.factory, "nothing without task.name=python or function")
        if not self.env_id:
            raise refusal("task.env_id", self.env_id, "the id of a Gymnasium environment, for example 'CartPole-v1'")

    def _check_function(self) -> None:
        """Refuse a function without the length of its argument, and that length without a function."""
        if self.name != "function":
            if self.dim is not None:
                raise refusal("task.dim", self.dim, "nothing without task.name=function")
            return
        if self.dim is None:
            raise refusal("task.dim", None, "an integer >= 1: how many numbers the function takes")

    def _check_foreign(self) -> None:
        """Refuse keys that have no meaning for this kind of task."""
        for key in _FOREIGN.get(self.name, ()):
            value, default = getattr(self, key), getattr(TaskConfig, key)
            if value != default:
                raise refusal(f"task.{key}", value, f"{literal(default)} with task.name={self.name}")


#: Keys of a task that some kinds do not have: a function has no policy, EnvPool's environments are its own affair.
_FOREIGN = {
    "function": (
        "normalize_observations", "frame_skip", "action", "action_levels", "action_noise", "hide_observations",
        "behaviour",
    ),
    "envpool": ("frame_skip", "action_levels", "remake"),
}  # fmt: skip
