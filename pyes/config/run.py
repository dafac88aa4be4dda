"""Settings of a run as a whole: its budgets and small sections, and the larger ones from their own modules."""

import time
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pyes.config.algorithm import AlgorithmConfig, OpenAIESConfig, OptimizerConfig
from pyes.config.cluster import ClusterConfig
from pyes.config.network import NetworkConfig
from pyes.config.section import AtLeastOne, NotNegative, Positive, Section, Seed, parse, refusal, to_mapping
from pyes.config.task import TaskConfig, default_task


@dataclass(frozen=True)
class NoiseConfig(Section):
    """The shared table of normal numbers."""

    PATH = "noise"

    entries: Annotated[int, AtLeastOne] | Literal["auto"] = "auto"  # auto: fits the machine's or container's memory
    dtype: Literal["float32", "bfloat16", "int8"] = "float32"
    seed: Annotated[int, Seed] = 0


@dataclass(frozen=True)
class LoggerConfig(Section):
    """Where metrics go beside metrics.csv."""

    PATH = "logger"

    tensorboard: bool = False


@dataclass(frozen=True)
class EvaluationConfig(Section):
    """Evaluation of the unperturbed policy, on seeds of its own."""

    PATH = "evaluation"

    every: Annotated[int, NotNegative] = 5  # generations; 0: never
    episodes: Annotated[int, AtLeastOne] = 50


@dataclass(frozen=True)
class SnapshotConfig(Section):
    """How often the whole state is written to disk."""

    PATH = "snapshot"

    every: Annotated[int, NotNegative] = 10  # generations; 0: only at the end


@dataclass(frozen=True)
class TrainConfig(Section):
    """A whole run. Of the budgets (the first four after seed), the first one reached ends it."""

    seed: Annotated[int, Seed] = 0
    generations: Annotated[int, AtLeastOne] | None = 200
    timesteps: Annotated[int, AtLeastOne] | None = None
    time_limit: Annotated[float, Positive] | None = None  # seconds
    target_return: float | None = None  # mean return of an evaluation
    run_dir: str = field(default_factory=lambda: time.strftime("runs/%Y-%m-%d/%H-%M-%S"))
    resume: str | None = None
    force: bool = False  # with resume: go another way from here on when settings that decide theta have changed
    algorithm: AlgorithmConfig = field(default_factory=OpenAIESConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    task: TaskConfig = field(default_factory=default_task)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    snapshot: SnapshotConfig = field(default_factory=SnapshotConfig)

    def check(self) -> None:
        """Refuse what does not go together across sections."""
        self.algorithm.check_optimizer(self.optimizer)
        if self.algorithm.needs_behaviours and self.task.behaviour == "none":
            expected = f"'final_observation', 'final_position' or 'ram' with algorithm.name={self.algorithm.name}"
            raise refusal("task.behaviour", "none", expected)
        self._check_averaging()
        if self.force and self.resume is None:
            raise refusal("force", True, "false without resume=RUN")
        entries = self.noise.entries if self.algorithm.on_table else "auto"
        self.task.check_beside(self.network, None if entries == "auto" else entries)

    def _check_averaging(self) -> None:
        """Refuse to compare the halves of one episode, and a largest number below the first."""
        most, episodes = self.algorithm.averaging.episodes_max, self.task.episodes
        if most is None:
            return
        if episodes < 2:
            raise refusal("task.episodes", episodes, "at least 2 with algorithm.averaging, which compares two halves")
        if most < episodes:
            expected = f"at least task.episodes, which is {episodes}"
            raise refusal("algorithm.averaging.episodes_max", most, expected)


#: Keys, and sections, that do not decide theta: they may change whenever a run goes on.
FREE = (
    "generations", "timesteps", "time_limit", "target_return", "run_dir", "resume", "force", "cluster", "logger",
    "evaluation", "snapshot",
)  # fmt: skip


def from_mapping(mapping: Mapping[str, Any]) -> TrainConfig:
    """Check a nested mapping and make a `TrainConfig` of it; keys left out take their defaults.

    Raises
    ------
    ConfigError    an unknown key (the allowed ones are listed), a wrong type or an impossible value
    """
    return typing.cast(TrainConfig, parse(TrainConfig, mapping, ""))


def deciding(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that decide theta, as `to_mapping` has them."""
    return {key: value for key, value in to_mapping(config).items() if key not in FREE}
