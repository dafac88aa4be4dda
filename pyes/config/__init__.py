"""The configuration of a run: one tree of frozen dataclasses, checked once when it is made.

Owns every key, its default, its type and its allowed values; ``conf/*.yaml`` holds the same defaults for the command
line. Must not know Hydra, OmegaConf or how any value is used. Invariant: a config object that exists is valid, so code
below trusts it. Every refusal is a `ConfigError` of one line: key, got, expected.
"""

from pyes.config.adaptation import AveragingConfig, EpisodeLimitConfig, GrowthConfig, RestartConfig
from pyes.config.algorithm import (
    AlgorithmConfig,
    ARSConfig,
    CMAESConfig,
    GAConfig,
    GradientConfig,
    GrowingConfig,
    NevergradConfig,
    NoveltyConfig,
    NSESConfig,
    NSRAESConfig,
    NSRESConfig,
    OpenAIESConfig,
    OptimizerConfig,
    PGPEConfig,
    ScheduledConfig,
    SNESConfig,
    algorithm_config,
)
from pyes.config.cluster import ClusterConfig
from pyes.config.network import NetworkConfig
from pyes.config.run import (
    FREE,
    EvaluationConfig,
    LoggerConfig,
    NoiseConfig,
    SnapshotConfig,
    TrainConfig,
    deciding,
    from_mapping,
)
from pyes.config.section import changes, flat, refusal, to_mapping, unknown_key
from pyes.config.task import EnvironmentConfig, TaskConfig

__all__ = [
    "FREE",
    "ARSConfig",
    "AlgorithmConfig",
    "AveragingConfig",
    "CMAESConfig",
    "ClusterConfig",
    "EnvironmentConfig",
    "EpisodeLimitConfig",
    "EvaluationConfig",
    "GAConfig",
    "GradientConfig",
    "GrowingConfig",
    "GrowthConfig",
    "LoggerConfig",
    "NSESConfig",
    "NSRAESConfig",
    "NSRESConfig",
    "NetworkConfig",
    "NevergradConfig",
    "NoiseConfig",
    "NoveltyConfig",
    "OpenAIESConfig",
    "OptimizerConfig",
    "PGPEConfig",
    "RestartConfig",
    "SNESConfig",
    "ScheduledConfig",
    "SnapshotConfig",
    "TaskConfig",
    "TrainConfig",
    "algorithm_config",
    "changes",
    "deciding",
    "flat",
    "from_mapping",
    "refusal",
    "to_mapping",
    "unknown_key",
]
