"""What a job is, for machines that have never heard of it: settings as plain values, and digests that tell jobs apart.

Owns what of a configuration concerns nodes. Invariant: two setups of equal digest evaluate every member alike and learn
alike.
"""

import hashlib
import json
from typing import Any, Literal

from pyes import config as configuration
from pyes.config import TrainConfig
from pyes.run.state import Setup
from pyes.system.packing import array_hash

Sync = Literal["replay", "params"]


def settings_of(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that nodes need, as JSON values."""
    cluster = configuration.to_mapping(config.cluster)
    shared = {key: cluster[key] for key in ("episode_time_limit", "attempts", "vector")}
    evaluation = {"episodes": config.evaluation.episodes}  # sizes the board
    return configuration.deciding(config) | {"cluster": shared, "evaluation": evaluation}


def config_of(settings: dict[str, Any], workers: int) -> TrainConfig:
    """Return the configuration of a node with so many workers.

    Raises
    ------
    ConfigError    this version does not know a setting
    """
    return configuration.from_mapping(settings | {"cluster": settings["cluster"] | {"workers": workers}})


def sync_of(config: TrainConfig, wanted: Literal["auto"] | Sync) -> Sync:
    """Return how nodes come by theta: ``auto`` has them learn from the returns wherever they can."""
    if wanted != "auto":
        return wanted
    return "replay" if config.algorithm.on_table else "params"


def digest_of(setup: Setup) -> str:
    """Return a digest of all that decides what members come to: settings, network and reference batch."""
    values = [
        configuration.deciding(setup.config),
        repr(setup.spec),
        setup.max_timesteps,
        array_hash(setup.reference_batch),
    ]
    return _digest(values)


def name_of(settings: dict[str, Any], table: str, sync: Sync) -> str:
    """Return the name of a job: the same whenever a head is started again with it."""
    return _digest([settings, table, sync])


def _digest(values: list[Any]) -> str:
    return hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=8).hexdigest()
