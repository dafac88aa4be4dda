"""The configuration of a run: one tree of frozen dataclasses, checked once when it is made.

Owns every key, its default, its type and its allowed values; ``conf/*.yaml`` holds the same defaults for the command
line. Must not know Hydra, OmegaConf or how any value is used. Invariant: every config object is valid, so other code
trusts it. Every error is a `ConfigError` of one line: key, got, expected.
"""

from pyes.config.adaptation import AveragingConfig, EpisodeLimitConfig, GrowthConfig
from pyes.config.algorithm import (
    AlgorithmConfig,
    OptimizerConfig,
    OptimizerForm,
    RestartConfig,
    algorithm_class,
    algorithm_config,
)
from pyes.config.cluster import ClusterConfig
from pyes.config.network import NetworkConfig
from pyes.config.run import (
    DEFAULT_RUN,
    FREE,
    EvaluationConfig,
    LoggerConfig,
    NoiseConfig,
    SnapshotConfig,
    TrainConfig,
    deciding,
    from_mapping,
)
from pyes.config.section import (
    AtLeastOne,
    NotNegative,
    Positive,
    Range,
    Scheduled,
    Section,
    Share,
    changes,
    flat,
    merged,
    refusal,
    schedules,
    to_mapping,
    unknown_key,
)
from pyes.config.task import EnvironmentConfig, TaskConfig

__all__ = [
    "DEFAULT_RUN",
    "FREE",
    "AlgorithmConfig",
    "AtLeastOne",
    "AveragingConfig",
    "ClusterConfig",
    "EnvironmentConfig",
    "EpisodeLimitConfig",
    "EvaluationConfig",
    "GrowthConfig",
    "LoggerConfig",
    "NetworkConfig",
    "NoiseConfig",
    "NotNegative",
    "OptimizerConfig",
    "OptimizerForm",
    "Positive",
    "Range",
    "RestartConfig",
    "Scheduled",
    "Section",
    "Share",
    "SnapshotConfig",
    "TaskConfig",
    "TrainConfig",
    "algorithm_class",
    "algorithm_config",
    "changes",
    "deciding",
    "flat",
    "from_mapping",
    "merged",
    "refusal",
    "schedules",
    "to_mapping",
    "unknown_key",
]
