"""The training loop: ask, evaluate, tell, record; and how a run begins and ends.

Knows nothing of how members are evaluated (the cluster) or how theta moves (the algorithm).
"""

import contextlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes import algorithms, networks, streams, tasks
from pyes import config as configuration
from pyes.algorithms import EpisodeLimit
from pyes.cluster import Cluster, open_cluster
from pyes.config import NoiseConfig, TrainConfig
from pyes.display import Display
from pyes.errors import ConfigError, PyesError, RunDirectoryError, TaskError
from pyes.hashing import theta_hash
from pyes.logs import run_log
from pyes.messages import Batch, Plan, Results
from pyes.metrics import MetricsWriter, Row
from pyes.networks import ActionHead, Policy, PolicySpec
from pyes.noise import NoiseTable, default_entries, usable_cores
from pyes.population import Population
from pyes.run_directory import RunDirectory
from pyes.running_stats import RunningStats

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    Attributes
    ----------
    run_dir : Path
    objective : float | None    mean return of the last evaluation of the center; None if there was none
    generations, timesteps      of the whole run, earlier parts included
    stopped_by : str            the budget that was reached, or "interrupt"
    """

    run_dir: Path
    objective: float | None
    generations: int
    timesteps: int
    stopped_by: str


def train(config: TrainConfig | Mapping[str, Any], *, display: bool = True) -> RunResult:
    """Train a policy and leave it, with its metrics, in the run directory.

    Parameters
    ----------
    config : TrainConfig or mapping    see `pyes.config`; keys left out take their defaults
    display : bool                     show the progress on standard error

    Raises
    ------
    ConfigError     the configuration cannot be used
    TaskError       the environment cannot be made, or fails every member
    ClusterError    the workers cannot be kept alive
    """
    if not isinstance(config, TrainConfig):
        config = _from_mapping(config)
    directory = RunDirectory(config.resume or config.run_dir)
    if config.resume is not None:
        old = directory.read_config()
        _check_same(old, config)
        config = replace(config, noise=old.noise)
    with ExitStack() as outer, ExitStack() as stack:
        outer.enter_context(directory.locked())
        if config.resume is None:
            directory.create(config)
        shown = stack.enter_context(Display(config, enabled=display))
        prepare = stack.enter_context(run_log(directory.log))
        with tasks.make(config.task) as task:
            head = ActionHead.for_space(
                task.action_space, config.task.action, bins=config.task.bins, noise=config.task.action_noise
            )
            observation_size, most = task.observation_size, task.max_timesteps or sys.maxsize
        # The workers' parent is forked here, before torch is imported.
        cluster = stack.enter_context(open_cluster(config.cluster, config.task, prepare))
        spec, theta = networks.build(config.network, observation_size, head, config.seed, config.task.observation_clip)
        config = _resolve(config, len(theta))
        # Made after the workers' parent, as it takes threads; given back after the workers, which read it.
        table = outer.enter_context(_make_table(config.noise))
        directory.write_config(config)
        size = table.array.nbytes / 2**20
        shown.note(
            f"{config.task.env_id}: {len(theta):,} parameters, {cluster.workers} workers, "
            f"noise table of {len(table):,} {config.noise.dtype} entries ({size:,.0f} MiB)\n{directory.path}"
        )
        run = _Run(config, directory, spec, theta, table, cluster, most, shown)
        metrics = stack.enter_context(
            MetricsWriter(
                directory.metrics, run.generation, directory.tensorboard if config.logger.tensorboard else None
            )
        )
        result = run.go(metrics)
    return result


def _from_mapping(values: Mapping[str, Any]) -> TrainConfig:
    """Check a configuration; of a run that goes on, what is left out is the run's."""
    if values.get("resume") is None:
        return configuration.from_mapping(values)
    kept = configuration.to_mapping(RunDirectory(values["resume"]).read_config())
    return configuration.from_mapping(_merge(kept, values))


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(base.get(key), Mapping)
        merged[key] = _merge(base[key], value) if both else value
    return merged


#: What may change when a run goes on: nothing that decides theta.
_FREE_ON_RESUME = (
    "generations", "timesteps", "time_limit", "target_return", "run_dir", "resume", "cluster", "logger", "evaluation",
    "snapshot",
)  # fmt: skip


def _check_same(old: TrainConfig, new: TrainConfig) -> None:
    """Refuse to go on with settings that would have given another run."""
    before, after = _flat(configuration.to_mapping(old)), _flat(configuration.to_mapping(new))
    changed = [
        f"{key} (was {before.get(key)!r}, got {after.get(key)!r})"
        for key in sorted(before.keys() | after.keys())
        if key.partition(".")[0] not in _FREE_ON_RESUME and before.get(key) != after.get(key) != "auto"
    ]
    if changed:
        raise ConfigError(f"resume: these settings decide the run and cannot change: {', '.join(changed)}")


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {prefix + key: value}
    return flat


def _resolve(config: TrainConfig, dim: int) -> TrainConfig:
    """Fix the size of the noise table: a run keeps the one it began with, whatever memory is free later."""
    if config.noise.entries != "auto":
        return config
    return replace(config, noise=replace(config.noise, entries=default_entries(dim, config.noise.dtype)))


def _make_table(config: NoiseConfig) -> NoiseTable:
    assert config.entries != "auto"
    return NoiseTable(config.entries, config.seed, config.dtype, shared=True, threads=usable_cores())


class _Run:
    """One run between its first and its last generation."""

    def __init__(
        self,
        config: TrainConfig,
        directory: RunDirectory,
        spec: PolicySpec,
        theta: NDArray[np.float32],
        table: NoiseTable,
        cluster: Cluster,
        most: int,
        display: Display,
    ) -> None:
        task, size = config.task, config.algorithm.population_size
        self._config, self._directory, self._display = config, directory, display
        self._spec, self._cluster, self._most = spec, cluster, most
        self._algorithm = algorithms.make(
            config.algorithm, config.optimizer, theta, table, seed=config.seed, threads=usable_cores()
        )
        self._limit = EpisodeLimit(config.algorithm.episode_limit, most)
        self._stats = RunningStats(spec.program.observation_size) if task.normalize_observations else None
        self._stride = max(1, round(1 / task.statistics_share)) if task.normalize_observations else 0
        self._timesteps = self._episodes = 0
        self._failed = 0
        self._evaluation: tuple[float, float] | None = None
        self._seconds_before = 0.0  # of the parts of the run before this one
        if config.resume is not None:
            self._load(directory.newest_snapshot())
        cluster.start(
            Plan(
                seed=config.seed,
                dim=len(theta),
                capacity=max(size, config.evaluation.episodes),
                episodes=task.episodes,
                observation_size=spec.program.observation_size,
                statistics_rows=-(-size // self._stride) if self._stride else 0,
                policy=spec,
            ),
            table,
        )

    @property
    def generation(self) -> int:
        """The next generation."""
        return self._algorithm.generation

    def go(self, metrics: MetricsWriter) -> RunResult:
        """Run generations until a budget is reached or the user interrupts; save; draw."""
        self._begun = time.perf_counter() - self._seconds_before
        with _interruptible() as interrupted:
            stopped_by = self._reached() or self._target_reached()
            self._save()  # from here on there is something to go on from
            try:
                while stopped_by is None:
                    stopped_by = self._generation(metrics, interrupted)
            except PyesError:
                self._display.close()
                self._save()  # what was reached before the task or the workers failed for good
                raise
        self._display.close()
        self._save()
        self._draw()
        self._summarize(stopped_by)
        objective = None if self._evaluation is None else self._evaluation[0]
        return RunResult(self._directory.path, objective, self.generation, self._timesteps, stopped_by)

    def _generation(self, metrics: MetricsWriter, interrupted: threading.Event) -> str | None:
        """Run one generation; return what ends the run after it, if anything."""
        config, algorithm = self._config, self._algorithm
        population, limit = algorithm.ask(), self._limit.value
        sigma, learning_rate = algorithm.sigma, algorithm.learning_rate
        asked = time.perf_counter()
        results = self._cluster.evaluate(self._batch(population))
        evaluated = time.perf_counter()
        self._check(results)
        self._learn(results)
        told = time.perf_counter()
        self._timesteps += int(results.lengths.sum())
        self._episodes += len(population) * config.task.episodes
        self._failed += results.failed
        stopped_by = "interrupt" if interrupted.is_set() else self._reached()
        evaluation = self._evaluate_if_due(stopped_by)
        row = Row(
            generation=population.generation,
            timesteps=self._timesteps,
            episodes=self._episodes,
            seconds=self._seconds(),
            **_summary(results.returns),
            length_mean=float(results.lengths.mean()) / config.task.episodes,
            eval_return_mean=None if evaluation is None else evaluation[0],
            eval_return_std=None if evaluation is None else evaluation[1],
            theta_norm=float(np.linalg.norm(algorithm.theta)),
            gradient_norm=algorithm.gradient_norm,
            sigma=sigma,
            learning_rate=learning_rate,
            episode_limit=limit,
            theta_hash=theta_hash(algorithm.theta),
            steps_per_second=float(results.lengths.sum()) / (evaluated - asked),
            evaluate_seconds=evaluated - asked,
            update_seconds=told - evaluated,
            idle_fraction=max(0.0, 1.0 - results.busy_seconds / (self._cluster.workers * (evaluated - asked))),
            failed_members=results.failed,
            bytes_sent=0,
            bytes_received=0,
        )
        metrics.write(row)
        self._display.show(row)
        if config.snapshot.every and self.generation % config.snapshot.every == 0:
            self._save()
        if interrupted.is_set():  # perhaps during the evaluation
            return "interrupt"
        return stopped_by or self._reached() or self._target_reached()

    def _batch(self, population: Population) -> Batch:
        mean, inverse_std = self._normalizer()
        return Batch(
            generation=population.generation,
            offsets=population.offsets,
            scales=population.scales,
            seeds=self._seeds(population.generation, len(population)),
            theta=self._algorithm.theta,
            limit=self._limit.value,
            mean=mean,
            inverse_std=inverse_std,
            statistics_stride=self._stride,
            action_noise=True,
        )

    def _seeds(self, generation: int, size: int) -> NDArray[np.int64]:
        """Environment seeds of a generation: int64 (size, episodes), shared as common_random_numbers says."""
        shared = {"none": 1, "pair": 2, "generation": size}[self._config.task.common_random_numbers]
        columns = [
            np.repeat(streams.environment_seeds(self._config.seed, generation, episode, -(-size // shared)), shared)
            for episode in range(self._config.task.episodes)
        ]
        return np.stack(columns, axis=1)[:size]

    def _normalizer(self) -> tuple[NDArray[np.float32] | None, NDArray[np.float32] | None]:
        normalizer = None if self._stats is None else self._stats.normalizer()
        return (None, None) if normalizer is None else normalizer

    def _check(self, results: Results) -> None:
        """Stop when no member could be evaluated: then the task is broken, not the members."""
        if results.failed == len(results.returns):
            reason = results.errors[0] if results.errors else "their workers were killed or hung; see train.log"
            raise TaskError(f"{self._config.task.env_id}: all {results.failed} members failed: {reason}")

    def _learn(self, results: Results) -> None:
        task = self._config.task
        # Only what is learnt from carries the offset; everything reported is the task's own return.
        self._algorithm.tell(results.returns + task.reward_offset_per_step * results.lengths / task.episodes)
        self._limit.update(results.lengths, task.episodes)
        if self._stats is not None:
            self._stats.merge(results.sums, results.sum_lengths)

    def _seconds(self) -> float:
        """Wall clock since the run's first generation began, without the time between its parts."""
        return time.perf_counter() - self._begun

    def _reached(self) -> str | None:
        """Return the budget that has been reached, if any."""
        config = self._config
        if config.generations is not None and self.generation >= config.generations:
            return "generations"
        if config.timesteps is not None and self._timesteps >= config.timesteps:
            return "timesteps"
        if config.time_limit is not None and self._seconds() >= config.time_limit:
            return "time_limit"
        return None

    def _target_reached(self) -> str | None:
        target = self._config.target_return
        return "target_return" if target is not None and self._evaluation and self._evaluation[0] >= target else None

    def _evaluate_if_due(self, stopped_by: str | None) -> tuple[float, float] | None:
        """Evaluate the center every so many generations, and after the last one unless the user is waiting."""
        every = self._config.evaluation.every
        last = stopped_by not in (None, "interrupt")
        if not every or not (last or self.generation % every == 0):
            return None
        results = self._cluster.evaluate(self._center_batch())
        self._check(results)
        self._failed += results.failed
        # NaN when an episode failed: a mean over the others would flatter the policy.
        self._evaluation = float(results.returns.mean()), float(results.returns.std())
        return self._evaluation

    def _center_batch(self) -> Batch:
        episodes = self._config.evaluation.episodes
        mean, inverse_std = self._normalizer()
        return Batch(
            generation=self.generation,
            offsets=np.zeros(episodes, np.int64),
            scales=np.zeros(episodes, np.float32),
            seeds=streams.evaluation_seeds(self._config.seed, episodes)[:, None],
            theta=self._algorithm.theta,
            limit=self._most,
            mean=mean,
            inverse_std=inverse_std,
        )

    def _save(self) -> None:
        """Write a snapshot and the policy."""
        state: dict[str, Any] = {
            "algorithm": self._algorithm.state_dict(),
            "timesteps": self._timesteps,
            "episodes": self._episodes,
            "episode_limit": self._limit.value,
            "evaluation": self._evaluation,
            "seconds": self._seconds(),
        }
        if self._stats is not None:
            state["observations"] = self._stats.state_dict()
        self._directory.save_snapshot(self.generation, state)
        self._policy().save(self._directory.path)

    def _load(self, state: dict[str, Any]) -> None:
        self._algorithm.load_state_dict(state["algorithm"])
        self._timesteps, self._episodes = state["timesteps"], state["episodes"]
        self._limit.value = state["episode_limit"]
        self._evaluation = state["evaluation"]
        self._seconds_before = state["seconds"]
        if self._stats is not None:
            self._stats.load_state_dict(state["observations"])

    def _policy(self) -> Policy:
        mean, inverse_std = self._normalizer()
        return Policy(
            self._spec,
            self._algorithm.theta,
            mean,
            inverse_std,
            network=configuration.to_mapping(self._config.network),
            task=configuration.to_mapping(self._config.task),
            seed=self._config.seed,
            generation=self.generation,
        )

    def _draw(self) -> None:
        from pyes import plots

        try:
            plots.plot([self._directory.path], self._directory.learning_curve)
        except RunDirectoryError as error:  # a run without a single generation has nothing to draw
            logger.warning("no learning curve: %s", error)

    def _summarize(self, stopped_by: str) -> None:
        show = self._display.note
        show(f"stopped by {stopped_by} after {self.generation:,} generations and {self._timesteps:,} timesteps")
        if self._evaluation is not None:
            show(f"evaluation: {self._evaluation[0]:.2f} ± {self._evaluation[1]:.2f}")
        if self._failed:
            show(f"{self._failed} members or evaluation episodes failed; {self._directory.log} says why")
        if stopped_by == "interrupt":
            show(f"go on with: pyes train resume={self._directory.path}")


def _summary(returns: NDArray[np.float64]) -> dict[str, float]:
    """Mean, standard deviation, least and greatest of the returns of those that did not fail."""
    known = returns[np.isfinite(returns)]
    return {
        "return_mean": float(known.mean()),
        "return_std": float(known.std()),
        "return_min": float(known.min()),
        "return_max": float(known.max()),
    }


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C or SIGTERM into an event that ends the generation; a second one ends at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only there can handlers be set
        yield event
        return

    def interrupt(number: int, frame: object) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    previous = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in previous.items():
            with contextlib.suppress(TypeError):  # a handler that was not set from Python cannot be put back
                signal.signal(number, handler)
