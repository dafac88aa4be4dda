"""Settings of a run as a whole: its budgets and small sections, and the larger ones from their own modules."""

import time
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pyes.config.algorithm import AlgorithmConfig, OptimizerConfig, algorithm_config
from pyes.config.network import NetworkConfig
from pyes.config.section import AtLeastOne, NotNegative, Positive, Section, Seed, parse, refusal, to_mapping
from pyes.config.task import TaskConfig
from pyes.system import addresses
from pyes.system.text import literal


@dataclass(frozen=True)
class NoiseConfig(Section):
    """The shared table of normal numbers."""

    PATH = "noise"

    entries: Annotated[int, AtLeastOne] | Literal["auto"] = "auto"  # auto: fits the machine's or container's memory
    dtype: Literal["float32", "bfloat16", "int8"] = "float32"
    seed: Annotated[int, Seed] = 0


@dataclass(frozen=True)
class ClusterConfig(Section):
    """Who evaluates the members; the result of a run does not depend on it."""

    PATH = "cluster"

    name: Literal["local", "inline", "socket", "ray"] = "local"
    workers: Annotated[int, NotNegative] | Literal["auto"] = "auto"  # here; ray: on each machine; auto: one a core
    start_method: Literal["auto", "fork", "spawn"] = "auto"
    episode_time_limit: Annotated[float, Positive] = 300.0  # seconds; then its worker is replaced
    attempts: Annotated[int, AtLeastOne] = 3  # a member that cost this many workers is recorded as failed
    vector: Annotated[int, AtLeastOne] = 64  # members that a worker evaluates at once, with task.name=envpool
    listen: str = "tcp://127.0.0.1:5555"  # socket: where nodes find the head
    key: str | None = None  # socket: file of `pyes keygen`, the same on all machines
    address: str = "auto"  # ray: of its head; auto: RAY_ADDRESS, or the Ray cluster that this machine is in
    sync: Literal["auto", "replay", "params"] = "auto"  # socket, ray: nodes learn from the returns, or are sent theta

    @classmethod
    def kind(cls, values: Mapping[str, Any]) -> type[Section]:
        """Return `SocketConfig` where ``name`` is "socket": its ``workers`` are 0 by default."""
        return SocketConfig if values.get("name") == SocketConfig.name else cls

    def check(self) -> None:
        """Refuse a cluster of nobody."""
        if self.workers == 0 and self.name != "socket":
            raise refusal("cluster.workers", 0, f"an integer >= 1, or 'auto', with cluster.name={self.name}")
        if self.name == "socket" and self.key is None and not addresses.parse(self.listen).is_loopback:
            expected = "cluster.key=FILE with it (pyes keygen -o FILE), or tcp://127.0.0.1:PORT for this machine alone"
            raise refusal("cluster.listen", self.listen, expected)
        if self.name == "ray" and self.key is not None:
            raise refusal("cluster.key", self.key, "none with cluster=ray, which makes a key for each run")


@dataclass(frozen=True)
class SocketConfig(ClusterConfig):
    """A head, whose own machine evaluates no members unless it is told to."""

    name: Literal["socket"] = "socket"
    workers: Annotated[int, NotNegative] | Literal["auto"] = 0


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
    algorithm: AlgorithmConfig = field(default_factory=lambda: algorithm_config({}))
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
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
        if self.task.name == "function":
            # One layer without bias, which observes a 1, gives theta itself.
            for key, value in (("name", "linear"), ("bias", False), ("output_activation", "identity")):
                got = getattr(self.network, key)
                if got != value:
                    raise refusal(f"network.{key}", got, f"{literal(value)} with task.name=function")
            entries, dim = self.noise.entries, self.task.dim or 0
            if self.algorithm.on_table and entries != "auto" and dim > entries:
                raise refusal("task.dim", dim, f"at most noise.entries, which is {entries}")

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
