"""Settings of a whole run: its budgets, its small sections, and the default run.

Owns the checks that involve several sections. Knows the larger sections only by their base classes.
"""

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pyes.config.adaptation import AveragingConfig, EpisodeLimitConfig, GrowthConfig
from pyes.config.algorithm import AlgorithmConfig, OptimizerConfig, algorithm_config
from pyes.config.cluster import ClusterConfig
from pyes.config.network import NetworkConfig, default_network
from pyes.config.section import (
    JSON_MAPPING,
    AtLeastOne,
    NotNegative,
    Positive,
    Section,
    Seed,
    Share,
    is_json,
    merged,
    parse,
    refusal,
    to_mapping,
)
from pyes.config.task import TaskConfig


@dataclass(frozen=True)
class NoiseConfig(Section):
    """The shared table of normal numbers."""

    PATH = "noise"

    entries: Annotated[int, AtLeastOne] | Literal["auto"] = "auto"  # auto: by the length of theta
    dtype: Literal["float32", "bfloat16", "int8"] = "float32"
    seed: Annotated[int, Seed] = 0


@dataclass(frozen=True)
class LoggerConfig(Section):
    """Where curves, settings, policy and video go in addition to the run directory."""

    PATH = "logger"

    tensorboard: bool = False
    wandb: bool = False
    mlflow: bool = False
    trackio: bool = False
    factory: str | None = None  # MODULE:CLASS of a logger of the user's own ...
    kwargs: dict[str, Any] = field(default_factory=dict)  # ... and its arguments
    project: str = "pyes"  # in wandb, mlflow and trackio
    video: bool = True  # at the end, of an episode of the center
    wait: Annotated[float, NotNegative] = 10.0  # seconds for loggers at the end of the run, at most

    def check(self) -> None:
        """Reject a factory that names no class, and arguments without one or that JSON cannot store."""
        package, _, name = (self.factory or "").partition(":")
        if self.factory is not None and not (package and name.isidentifier()):
            raise refusal("logger.factory", self.factory, "MODULE:CLASS, for example 'my_loggers:Journal'")
        if self.kwargs and self.factory is None:
            raise refusal("logger.kwargs", self.kwargs, "{} without logger.factory")
        if not is_json(self.kwargs):
            raise refusal("logger.kwargs", self.kwargs, JSON_MAPPING)


@dataclass(frozen=True)
class EvaluationConfig(Section):
    """Evaluation of the center, on seeds that training never uses."""

    PATH = "evaluation"

    every: Annotated[int, NotNegative] = 5  # generations; 0: never
    episodes: Annotated[int, AtLeastOne] = 50
    #: Maximum timesteps of evaluations as a share of those of training; beyond it they are skipped. None: no bound.
    share: Annotated[float, Share] | None = 0.1


@dataclass(frozen=True)
class SnapshotConfig(Section):
    """How often the whole state is written to disk."""

    PATH = "snapshot"

    every: Annotated[int, NotNegative] = 10  # generations; 0: only at the end


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Section):
    """A whole run. It ends when the first of its budgets (the four keys after seed) is reached.

    Every key except ``task`` has a default; `from_mapping` also has a default task, see `DEFAULT_RUN`.
    """

    seed: Annotated[int, Seed] = 0
    generations: Annotated[int, AtLeastOne] | None = "auto"  # type: ignore[assignment]  # resolved by __post_init__
    timesteps: Annotated[int, AtLeastOne] | None = None
    time_limit: Annotated[float, Positive] | None = None  # seconds
    target_return: float | None = None  # mean return of an evaluation
    run_dir: str | None = None  # None: a new one, by date and time
    resume: str | None = None
    force: bool = False  # with resume: settings that affect theta may change from here on
    learning_curve: bool = True  # drawn at the end
    task: TaskConfig
    algorithm: AlgorithmConfig = field(default_factory=lambda: algorithm_config({}))
    optimizer: OptimizerConfig = None  # type: ignore[assignment]  # the algorithm's own
    network: NetworkConfig = field(default_factory=default_network)
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    growth: GrowthConfig = field(default_factory=GrowthConfig)
    averaging: AveragingConfig = field(default_factory=AveragingConfig)
    episode_limit: EpisodeLimitConfig = field(default_factory=EpisodeLimitConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    snapshot: SnapshotConfig = field(default_factory=SnapshotConfig)

    def __post_init__(self) -> None:
        """Choose the optimizer and the budget where none is named, then check all fields."""
        if typing.cast(object, self.generations) == "auto":
            named = self.timesteps is not None or self.time_limit is not None
            object.__setattr__(self, "generations", None if named else _GENERATIONS)
        algorithm = typing.cast(AlgorithmConfig, parse(AlgorithmConfig, self.algorithm, AlgorithmConfig.PATH))
        object.__setattr__(self, "optimizer", OptimizerConfig.of(self.optimizer, algorithm.default_optimizer))
        super().__post_init__()

    @property
    def capacity(self) -> int:
        """Largest number of members that a generation can have."""
        return self.algorithm.capacity(self.growth.population_max or self.algorithm.population_max)

    def check(self) -> None:
        """Reject sections that contradict each other."""
        self.algorithm.check_optimizer(self.optimizer)
        if self.algorithm.needs_behaviours and self.task.behaviour == "none":
            expected = f"'final_observation', 'final_position' or 'ram' with algorithm.name={self.algorithm.name}"
            raise refusal("task.behaviour", "none", expected)
        self._check_schedules()
        self._check_averaging()
        self._check_growth()
        for key in ("run_dir", "resume"):
            if getattr(self, key) == "":
                raise refusal(key, "", "a path, or null")
        if self.force and self.resume is None:
            raise refusal("force", True, "false without resume=RUN")
        if self.target_return is not None and not self.evaluation.every:
            raise refusal("target_return", self.target_return, "null with evaluation.every=0, which evaluates nothing")
        entries = self.noise.entries if self.algorithm.on_table else "auto"
        self.task.check_beside(self.network, None if entries == "auto" else entries)

    def _check_schedules(self) -> None:
        """Reject two rules for one number: a schedule, and an adaptation to the results."""
        for key, scheduled, rule, adapts in (
            ("task.episodes", self.task.episodes, "averaging.episodes_max", self.averaging.episodes_max),
            ("algorithm.population_size", self.algorithm.population_size, "growth.timesteps", self.growth.timesteps),
            ("task.max_timesteps", self.task.max_timesteps, "episode_limit.initial", self.episode_limit.initial),
        ):
            if isinstance(scheduled, str) and adapts is not None:
                raise refusal(rule, adapts, f"null with a schedule of {key} (or a number as {key})")

    def _check_averaging(self) -> None:
        """Reject averaging with a single episode, which has no halves to compare, and a maximum below the minimum."""
        most, episodes = self.averaging.episodes_max, self.task.most_episodes
        if most is None:
            return
        if episodes < 2:
            raise refusal("task.episodes", episodes, "at least 2 with averaging, which compares two halves")
        if most < episodes:
            raise refusal("averaging.episodes_max", most, f"at least task.episodes, which is {episodes}")

    def _check_growth(self) -> None:
        """Reject growth of a population of fixed size, and a largest population that cannot be reached."""
        algorithm, most = self.algorithm, self.growth.population_max
        if most is None:
            return
        if not algorithm.grows:
            expected = f"null with algorithm.name={algorithm.name}, whose population has a fixed size"
            raise refusal("growth.timesteps", self.growth.timesteps, expected)
        if most < algorithm.population_max:
            expected = f"at least algorithm.population_size, which is {algorithm.population_max}"
            raise refusal("growth.population_max", most, expected)
        algorithm.check_even("growth.population_max", most)


_GENERATIONS = 200  # of a run for which no budget is named
#: Keys of ``task`` that choose a task.
_NAMES_OF_TASKS = ("name", "env_id", "factory")
#: The default run, if none of them is given: ``experiment=lunar_lander`` of the command line.
DEFAULT_RUN: Mapping[str, Any] = {
    "task": {
        "env_id": "LunarLanderContinuous-v3",
        "common_random_numbers": "pair",
        "normalize_observations": True,
        "reward_offset_per_step": -0.1,
    },
    "episode_limit": {"initial": 400},
    "algorithm": {"name": "openai_es"},
    "network": {"name": "linear"},
}

#: Keys and sections that do not affect theta: they may change when a run is resumed.
FREE = (
    "generations", "timesteps", "time_limit", "target_return", "run_dir", "resume", "force", "learning_curve",
    "cluster", "logger", "evaluation", "snapshot",
)  # fmt: skip


def from_mapping(mapping: Mapping[str, Any]) -> TrainConfig:
    """Check a nested mapping and convert it to a `TrainConfig`; missing keys have their defaults.

    Raises
    ------
    ConfigError
        A key is unknown (the message lists the allowed ones), or a value is invalid.
    """
    complete = _completed(mapping) if isinstance(mapping, Mapping) else mapping
    return typing.cast(TrainConfig, parse(TrainConfig, complete, ""))


def _completed(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add the defaults of a run that depend on its task and its algorithm."""
    task = mapping.get("task", {})
    base: Mapping[str, Any] = {}
    if isinstance(task, Mapping) and task.keys().isdisjoint(_NAMES_OF_TASKS):
        base = DEFAULT_RUN
    elif isinstance(task, Mapping):
        base = typing.cast(type[TaskConfig], TaskConfig.kind(task)).RUN_DEFAULTS
    return merged(base, mapping)


def deciding(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that affect theta, as in `to_mapping`."""
    return {key: value for key, value in to_mapping(config).items() if key not in FREE}
