"""A run as a state machine: its setup, the next batch, and the effect of a record.

Owns everything that records change: theta, the algorithm's and the optimiser's state, observation statistics, the
episode limit, the number of episodes, the counters. Knows no process and no file. Invariant: equal setups and equal
records give equal bytes of theta in the live run and when it is rebuilt, since both use `apply`.
"""

import math
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pyes import algorithms, networks, tasks
from pyes import config as configuration
from pyes.algorithms.population import Population
from pyes.config import TaskConfig, TrainConfig, refusal
from pyes.config.schedule import Schedule
from pyes.episodes.batch import Batch, Plan, Results, Status
from pyes.episodes.reference_batch import draw_reference_batch
from pyes.episodes.running_stats import RunningStats
from pyes.errors import JournalError
from pyes.networks import ActionDecoder, ObservationEncoder, Policy, PolicySpec
from pyes.numerics import shaping, streams
from pyes.numerics.noise import NoiseTable, default_entries
from pyes.run.adaptation import Averaging, EpisodeLimit, agreement, next_population_size
from pyes.run.evaluations import EvaluationCosts
from pyes.run.journal import Evaluation, Generation, Record, Start
from pyes.system.limits import usable_cores
from pyes.system.lookup import version
from pyes.system.packing import array_hash, theta_hash
from pyes.system.user_code import witnessed

#: Packages whose versions affect the numbers of a run.
_PACKAGES = ("pyes-rl", "numpy", "gymnasium")


@dataclass(frozen=True)
class Interface:
    """Properties of a task that a policy depends on.

    Attributes
    ----------
    observation_size : int
    shape : tuple of int
        Shape of one observation.
    decoder : ActionDecoder
    max_timesteps : int
        Maximum timesteps of an episode.
    limited : bool
        Whether the environment or the settings have that limit; else `pyes.tasks.make` has set it.
    behaviour_size : int
        Size of an episode's behaviour; 0 if none is wanted.
    encoder : ObservationEncoder or None
        Turns the environment's own observations into the network's input; None for a function.
    packages : tuple of str
        Distributions whose versions decide its episodes.
    """

    observation_size: int
    shape: tuple[int, ...]
    decoder: ActionDecoder
    max_timesteps: int
    limited: bool
    behaviour_size: int
    encoder: ObservationEncoder | None
    packages: tuple[str, ...] = ()

    @property
    def measures(self) -> bool:
        """Whether observations are measurements, which have scales of their own: no image, and not choices alone."""
        parts = () if self.encoder is None else self.encoder.parts
        is_image = len(self.shape) == 3 or (len(self.shape) > 1 and all(part.dtype == "uint8" for part in parts))
        return not is_image and not (parts and all(part.choices for part in parts))

    @classmethod
    def of(cls, config: TaskConfig) -> Self:
        """Make the task, read its properties and close it.

        Raises
        ------
        ConfigError
            The environment is unknown, or its spaces do not fit the settings.
        TaskError
            It could not be made.
        """
        with witnessed(f"while the environment of {config.title} was made and closed"), tasks.make(config) as task:
            decoder = ActionDecoder.for_space(
                task.action_space, config.action, bins=config.bins, noise=config.action_noise
            )
            assert task.max_timesteps is not None, "tasks.make has set one"
            return cls(
                observation_size=task.observation_size,
                shape=task.observation_shape,
                decoder=decoder,
                max_timesteps=task.max_timesteps,
                limited=task.limited,
                behaviour_size=task.behaviour_size,
                encoder=task.encoder,
                packages=task.packages,
            )


@dataclass(frozen=True)
class Setup:
    """Everything that a run has before its first generation.

    Attributes
    ----------
    config : TrainConfig
        Every "auto" that affects theta is resolved.
    spec : PolicySpec
    theta : float32 (dim,)
        Initial parameters.
    interface : Interface
        Properties of the task.
    reference_batch : (n, observation_size) or None
        For virtual batch normalisation.
    """

    config: TrainConfig
    spec: PolicySpec
    theta: NDArray[np.float32]
    interface: Interface
    reference_batch: NDArray[Any] | None = None

    @classmethod
    def of(cls, config: TrainConfig, interface: Interface | None = None) -> Self:
        """Build the network and its initial parameters, and draw the reference batch if it needs one.

        Raises
        ------
        ConfigError, TaskError
            The task, the network or the noise table cannot be made.
        """
        interface = interface or Interface.of(config.task)
        spec, theta = networks.build(
            config.network,
            interface.observation_size,
            interface.decoder,
            config.seed,
            config.task.observation_clip,
            interface.shape,
        )
        if spec.normalized and config.task.normalize_observations is True:
            # The reference batch holds raw observations.
            expected = "false with virtual batch normalisation, which normalises too"
            raise refusal("task.normalize_observations", True, expected)
        task = config.task.decided(interface.measures and not spec.normalized)
        noise = config.noise
        if noise.entries == "auto":
            # An algorithm that does not use the table gets one of minimal size.
            on_table = config.algorithm.on_table
            noise = replace(noise, entries=default_entries(len(theta), noise.dtype) if on_table else len(theta))
        return cls(
            config=replace(config, task=task, noise=noise),
            spec=spec,
            theta=theta,
            interface=interface,
            reference_batch=draw_reference_batch(config.task, config.seed) if spec.normalized else None,
        )

    def start_of(self, generation: int) -> NDArray[np.float32]:
        """Return theta for an attempt that begins in a later generation: with other weights, where they are random."""
        return networks.another_start(self.config.network, self.spec.program, self.theta, self.config.seed, generation)

    def make_table(self) -> NoiseTable:
        """Make the run's noise table in shared memory."""
        noise = self.config.noise
        assert noise.entries != "auto"
        return NoiseTable(noise.entries, noise.seed, noise.dtype, shared=True, threads=usable_cores())

    @property
    def statistics_stride(self) -> int:
        """Only members whose index is a multiple of this count for observation statistics; 0: none."""
        task = self.config.task
        return max(1, round(1 / task.statistics_share)) if task.normalize_observations else 0

    def plan(self, capacity: int) -> Plan:
        """Return the plan for nodes that evaluate this run's population, or batches of ``capacity`` members."""
        config, stride, size = self.config, self.statistics_stride, self.config.capacity
        most = max(size, capacity)
        return Plan(
            seed=config.seed,
            dim=len(self.theta),
            capacity=most,
            episodes=config.averaging.episodes_max or config.task.most_episodes,
            observation_size=self.spec.program.observation_size,
            statistics_rows=-(-size // stride) if stride else 0,
            policy=self.spec,
            vector=min(config.cluster.vector, most),  # every member needs its own policy
            reference_batch=self.reference_batch,
            bases=config.algorithm.bases,
            scaled=config.algorithm.scaled,
            behaviour_size=self.interface.behaviour_size,
            halves=config.averaging.episodes_max is not None,
        )

    def versions(self) -> dict[str, str]:
        """Return the versions of all that affects the numbers of a run, by distribution."""
        names = (*_PACKAGES, *self.config.algorithm.packages, *self.config.network.packages, *self.interface.packages)
        return {"python": platform.python_version()} | {name: version(name) for name in names}


class RunState:
    """The state of a run between two records.

    Parameters
    ----------
    setup : Setup
    table : NoiseTable
        Noise table of the setup.
    """

    def __init__(self, setup: Setup, table: NoiseTable) -> None:
        config = setup.config
        self.setup = setup
        self.table = table
        self.algorithm = algorithms.make(
            config.algorithm, config.optimizer, setup.theta, table, seed=config.seed, threads=usable_cores()
        )
        self.algorithm.start_of = setup.start_of
        least = config.task.reward_min
        self._reward_min = None if least is None else Schedule.parse(least)
        offset = config.task.reward_offset_per_step
        self._reward_offset = None if offset == "auto" else Schedule.parse(offset)
        self._begin()
        self.follow_schedules()
        self._hash: str | None = None
        self.timesteps = self.episodes = 0
        self.failed = 0  # members and evaluation episodes
        self.evaluation_costs = EvaluationCosts()
        self._made_with: Mapping[str, str] = {}  # versions that the journal names

    @property
    def generation(self) -> int:
        """The next generation, which is the number of updates of theta."""
        return self.algorithm.generation

    @property
    def theta_hash(self) -> str:
        """Digest of the center."""
        if self._hash is None:
            self._hash = theta_hash(self.algorithm.theta)
        return self._hash

    # What comes next

    def batch(self) -> Batch:
        """Return the members of the next generation."""
        population = self.algorithm.ask()
        mean, inverse_std = self._normalizer()
        least = self._reward_min
        return Batch(
            population,
            seeds=self._seeds(population.generation, len(population)),
            limit=self.limit.value,
            mean=mean,
            inverse_std=inverse_std,
            statistics_stride=self.setup.statistics_stride,
            reward_min=-math.inf if least is None else least.at(*self.algorithm.progress),
        )

    def center_batch(self, episodes: int) -> Batch:
        """Return the center, once for each of the first ``episodes`` evaluation episodes."""
        mean, inverse_std = self._normalizer()
        return Batch(
            Population.center(self.generation, self.algorithm.theta, episodes),
            seeds=streams.evaluation_seeds(self.setup.config.seed, episodes)[:, None],
            limit=self.setup.interface.max_timesteps,
            mean=mean,
            inverse_std=inverse_std,
            evaluation=True,
        )

    def _seeds(self, generation: int, size: int) -> NDArray[np.int64]:
        """Environment seeds of a generation, shared according to common_random_numbers: int64 (size, episodes)."""
        config = self.setup.config
        pair = 2 if config.algorithm.pairs else 1
        shared = {"none": 1, "pair": pair, "generation": size}[config.task.common_random_numbers]
        columns = [
            np.repeat(streams.environment_seeds(config.seed, generation, episode, -(-size // shared)), shared)
            for episode in range(self.averaging.episodes)
        ]
        return np.stack(columns, axis=1)[:size]

    def _normalizer(self) -> tuple[NDArray[np.float32] | None, NDArray[np.float32] | None]:
        normalizer = None if self.statistics is None else self.statistics.normalizer()
        return (None, None) if normalizer is None else normalizer

    # Records

    def start(self) -> Start:
        """Return the record with which a run, or its continuation under other settings, begins."""
        return Start(
            generation=self.generation,
            settings=configuration.deciding(self.setup.config),
            table=self.table.fingerprint,
            theta_hash=self.theta_hash,
            versions=self.setup.versions(),
            reference=array_hash(self.setup.reference_batch),
        )

    def record(self, results: Results) -> Generation:
        """Return the record of the next generation's results, without changing the state."""
        observations, sums = 0, np.empty(0)
        if self.statistics is not None:
            observations, sums = self.statistics.merged(results.sums, results.sum_lengths)
        return Generation(
            generation=self.generation,
            theta_hash=self.theta_hash,
            returns=results.returns,
            lengths=results.lengths.astype(np.min_scalar_type(int(results.lengths.max(initial=0)))),
            status=results.status,
            observations=observations,
            sums=sums.ravel(),
            behaviours=results.behaviours.ravel() if self.setup.interface.behaviour_size else None,
            agreement=agreement(results.halves) if results.halves.size else None,
        )

    def record_evaluation(self, results: Results, *, counted: bool) -> Evaluation:
        """Return the record of an evaluation of the center, with its timesteps if they are counted."""
        timesteps = int(results.lengths.sum()) if counted else None
        return Evaluation(self.generation, self.theta_hash, results.returns, results.status, timesteps)

    def apply(self, record: Record) -> None:
        """Update the state by a record.

        Raises
        ------
        JournalError
            The record has another generation or theta than this state.
        """
        if isinstance(record, Start):
            self.begin(record)
        if (record.generation, record.theta_hash) != (self.generation, self.theta_hash):
            raise JournalError(
                f"generation {record.generation}: theta is {self.theta_hash} here, the journal was written with "
                f"{record.theta_hash}; {self.suspects()}"
            )
        if isinstance(record, Generation):
            self._learn(record)
        elif isinstance(record, Evaluation):
            self.evaluation_costs.add(record)
            self.failed += int(np.count_nonzero(record.status))

    def _learn(self, record: Generation) -> None:
        episodes, lengths = self.averaging.episodes, record.lengths.astype(np.int64)
        # Copies: an algorithm of the user's may write to them, while the record is sent to nodes.
        returns = self._to_learn_from(record.returns.copy(), lengths, episodes)
        behaviours = None if record.behaviours is None else record.behaviours.reshape(len(returns), -1).copy()
        self.algorithm.tell(returns, behaviours, timesteps=int(lengths.sum()))
        if self.algorithm.progress[0] == 0:  # another attempt begins, as a new run
            self._begin()
        else:
            self._adapt(lengths[record.status == Status.OK], record.agreement, episodes)
            if self.statistics is not None:
                self.statistics.load_state_dict({"count": record.observations, "sums": record.sums.reshape(2, -1)})
        self.follow_schedules()
        self.timesteps += int(lengths.sum())
        self.episodes += len(lengths) * episodes
        self.failed += int(np.count_nonzero(record.status))
        self._hash = None

    @property
    def reward_offset(self) -> float | None:
        """What is added to every reward of the next generation for learning; None: its returns decide that."""
        return None if self._reward_offset is None else self._reward_offset.at(*self.algorithm.progress)

    def _begin(self) -> None:
        """Begin an attempt: what the run itself adapts is as at its start."""
        setup, config = self.setup, self.setup.config
        self.limit = EpisodeLimit(config.episode_limit, setup.interface.max_timesteps, config.task.max_timesteps)
        self.averaging = Averaging(config.averaging, config.task.episodes)
        if config.growth.timesteps is not None:
            self.algorithm.population_size = config.algorithm.population_min
        self.statistics = RunningStats(setup.spec.program.observation_size) if setup.statistics_stride else None

    def _adapt(self, lengths: NDArray[np.int64], agreement: float | None, episodes: int) -> None:
        """Follow the rules of `pyes.run.adaptation`, by the timesteps of the members that did not fail."""
        config = self.setup.config
        self.averaging.update(agreement)
        if not len(lengths):
            return
        self.limit.update(lengths, episodes)
        if config.growth.timesteps is not None:
            self.algorithm.population_size = next_population_size(config.growth, config.algorithm, lengths)

    def _to_learn_from(
        self, returns: NDArray[np.float64], lengths: NDArray[np.int64], episodes: int
    ) -> NDArray[np.float64]:
        """Return what the algorithm learns from; reports keep the task's own returns."""
        offset = self.reward_offset
        if offset is not None:
            with np.errstate(over="ignore"):  # an infinite return counts as that of a failed member
                return returns + offset * lengths / episodes
        return shaping.with_differential(returns, lengths / episodes) if self.algorithm.config.relative else returns

    def follow_schedules(self) -> None:
        """Give the limit and the number of episodes, where they are scheduled, their values in the next generation."""
        self.limit.follow(self.algorithm.progress)
        self.averaging.follow(self.algorithm.progress)

    def begin(self, record: Start) -> None:
        """Note the versions that made what follows; raise JournalError if it began with another reference batch."""
        self._made_with = record.versions
        digest = array_hash(self.setup.reference_batch)
        if record.reference != digest:
            raise JournalError(
                f"generation {record.generation}: the reference batch of the task is {digest} here, the run began with "
                f"{record.reference}; {self.suspects()}"
            )

    def suspects(self) -> str:
        """Return what may be the reason if something does not come out as the journal has it."""
        here = self.setup.versions()
        pairs = ((name, made, here.get(name, "none")) for name, made in self._made_with.items())
        others = [f"{name} {made} ({own} here)" for name, made, own in pairs if own != made]
        if others:
            return f"it was made with {', '.join(others)}: take those"
        same = ", ".join(map(" ".join, here.items()))
        return (
            f"the versions are the same ({same}): is it another kind of processor, another environment, or one that is "
            "not deterministic?"
        )

    # The state as values

    def state_dict(self) -> dict[str, Any]:
        """Return the state as arrays and numbers."""
        return {
            "algorithm": self.algorithm.state_dict(),
            "timesteps": self.timesteps,
            "episodes": self.episodes,
            "failed": self.failed,
            "episode_limit": self.limit.value,
            "episodes_per_member": self.averaging.episodes,
            "evaluation_costs": asdict(self.evaluation_costs),
            "observations": None if self.statistics is None else self.statistics.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state of the same setup."""
        self.algorithm.load_state_dict(state["algorithm"])
        self.timesteps, self.episodes, self.failed = state["timesteps"], state["episodes"], state["failed"]
        self.limit.value = state["episode_limit"]
        self.averaging.episodes = state["episodes_per_member"]
        self.evaluation_costs = EvaluationCosts(**state["evaluation_costs"])
        if self.statistics is not None:
            self.statistics.load_state_dict(state["observations"])
        self._hash = None

    def policy(self, member: int | None = None) -> Policy:
        """Return the current center, or a member drawn around it, as a policy."""
        mean, inverse_std = self._normalizer()
        config = self.setup.config
        return Policy(
            self.setup.spec,
            self.algorithm.theta if member is None else self.algorithm.member(member),
            mean,
            inverse_std,
            reference_batch=self.setup.reference_batch,
            encoder=self.setup.interface.encoder,
            network=configuration.to_mapping(config.network),
            task=configuration.to_mapping(config.task),
            seed=config.seed,
            generation=self.generation,
        )
