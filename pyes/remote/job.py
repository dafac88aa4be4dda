"""A job: the run that a head works on, and its description for nodes.

Owns which settings nodes need, and the digests that identify jobs. Invariant: two setups with equal digests evaluate
every member equally and learn equally.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self

from pyes import config as configuration
from pyes.config import TrainConfig, refusal
from pyes.episodes.batch import Plan
from pyes.numerics.noise import NoiseTable
from pyes.remote import wire
from pyes.remote.standing import Place
from pyes.run.state import RunState, Setup
from pyes.system import lookup
from pyes.system.packing import array_hash

Sync = Literal["replay", "params"]

_OVERHEAD_BYTES = 2**16  # of a message, in addition to its arrays


@dataclass(frozen=True)
class OpenJob:
    """The job that a head works on, and the values that a node must share with it.

    Attributes
    ----------
    told : Job
        The message that describes the job to nodes.
    state : RunState
        State of the run, with which nodes are kept in step.
    plan : Plan
        Sizes of the head's buffers.
    digest : str
        Digest of the settings that affect the results of members.
    table : str
        Fingerprint of the noise table.
    """

    told: wire.Job
    state: RunState
    plan: Plan
    digest: str
    table: str

    @cached_property
    def versions(self) -> dict[str, str]:
        """Versions of all that affects a node's numbers, by distribution: of the algorithm's only if it learns."""
        unused = {"python"} if self.learns else {"python", *self.state.setup.config.algorithm.packages}
        return {name: each for name, each in self.state.setup.versions().items() if name not in unused}

    @classmethod
    def of(cls, plan: Plan, table: NoiseTable, state: RunState, sync: Literal["auto"] | Sync) -> Self:
        """Return the job of a run; ``sync`` is ``cluster.sync``.

        Raises
        ------
        ProtocolError
            Its settings cannot be sent.
        ConfigError
            See `sync_of`.
        """
        config = state.setup.config
        settings, chosen = settings_of(config), sync_of(config, sync)
        told = wire.Job(name_of(settings, table.fingerprint, chosen), settings, chosen)
        wire.encode(told)
        return cls(told, state, plan, digest_of(state.setup), table.fingerprint)

    @property
    def place(self) -> Place:
        """Generation and hash of theta."""
        return self.state.generation, self.state.theta_hash

    @property
    def state_bytes(self) -> int:
        """About the size of the state of the run: theta and two moments."""
        return 3 * int(self.state.algorithm.theta.nbytes)

    @property
    def learns(self) -> bool:
        """Whether nodes update theta themselves."""
        return self.told.sync == "replay"

    @property
    def message_limit(self) -> int:
        """Maximum size in bytes of a node's message: the results of all members."""
        plan = self.plan
        row = 8 + 8 + 1 + 4 * plan.behaviour_size + 16 * plan.halves + 16
        return _OVERHEAD_BYTES + plan.capacity * row + plan.statistics_rows * 16 * plan.observation_size

    def difference(self, ready: wire.Ready) -> str | None:
        """Return the difference between a node that is ready and the head, or None."""
        for name, expected in self.versions.items():
            if (got := ready.versions.get(name)) != expected:
                return f"{name} is {got or 'missing'} at the node, {expected} at the head; install the same version"
        for what, got, expected in (
            ("settings", ready.digest, self.digest),
            ("noise table", ready.table, self.table),
        ):
            if got != expected:
                return f"the node's {what}: {got}, the head's: {expected}; install the same version of pyes-rl on both"
        return None


def settings_of(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that nodes need, as JSON values."""
    cluster = configuration.to_mapping(config.cluster)
    shared = {key: cluster[key] for key in configuration.ClusterConfig.SHARED}
    evaluation = {"episodes": config.evaluation.episodes}  # determines the size of the board
    return configuration.deciding(config) | {"cluster": shared, "evaluation": evaluation}


def config_of(settings: dict[str, Any], workers: int) -> TrainConfig:
    """Return the configuration of a node with this number of workers; ConfigError for unknown settings."""
    return configuration.from_mapping(settings | {"cluster": settings["cluster"] | {"workers": workers}})


def sync_of(config: TrainConfig, wanted: Literal["auto"] | Sync) -> Sync:
    """Return how nodes get theta; ``auto``: they learn from the returns if the algorithm allows it.

    Raises
    ------
    ConfigError
        The algorithm computes other numbers on other machines.
    """
    if wanted == "auto":
        return "replay" if config.algorithm.on_table else "params"
    if wanted == "replay" and not config.algorithm.on_table:
        raise refusal("cluster.sync", wanted, f"auto or params with algorithm={config.algorithm.name}")
    return wanted


def digest_of(setup: Setup) -> str:
    """Return a digest of everything that affects the results of members: settings, network and reference batch."""
    values = [
        configuration.deciding(setup.config),
        repr(setup.spec),
        setup.interface.max_timesteps,
        array_hash(setup.reference_batch),
    ]
    return _digest(values)


def name_of(settings: dict[str, Any], table: str, sync: Sync) -> str:
    """Return the name of a job, which does not change when its head is started again."""
    return _digest([settings, table, sync])


def _digest(values: list[Any]) -> str:
    return hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=8).hexdigest()


def check_allowed(settings: dict[str, Any]) -> None:
    """Reject settings that name code which this process does not allow; see `pyes.system.lookup.allow_only`.

    Code is named by MODULE:OBJECT, or by MODULE:ENVIRONMENT, which Gymnasium imports. Since arguments of
    environments and networks may contain such names, too, every text with a colon counts as one.
    """
    for key, text in _texts(settings, ""):
        module, colon, _ = text.partition(":")
        if colon:
            lookup.check_allowed(key, text, module)


def _texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Yield all texts in JSON values with their dotted keys."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _texts(item, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, key)
