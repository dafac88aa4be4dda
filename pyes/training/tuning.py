"""The search for settings of a task: trials, successive halving, and the confirmation of the best one.

Owns the order of a search and its folder. A trial is the user's overrides with values of a `Space`, trained with
several seeds; trial 0 has no values, that is the defaults. Optuna's TPE (Watanabe 2023) chooses the values of a bracket
of trials from what earlier brackets came to. In a bracket, the better third goes on to three times the timesteps, until
a third of a third has all of them (synchronous successive halving: Jamieson and Talwalkar 2016). The defaults always
have all.

Invariant: a value depends on the arguments alone. The sampler of a trial is made anew from the trials before its
bracket, a trial enters the study in one transaction, and runs repeat bit for bit, so a search that was killed at any
moment goes on to the same end.

FOLDER/tune.json         the arguments
FOLDER/study.db          Optuna's study (SQLite)
FOLDER/runs/TRIAL/SEED   the run directories
FOLDER/lock              locked by the process that searches
"""

import errno
import itertools
import json
import math
import os
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pyes.config.space import Choices, Space, Value
from pyes.errors import ConfigError, RunDirectoryError, TaskError, missing
from pyes.node.process import die_with
from pyes.reports import trials as reports
from pyes.reports.trials import DEFAULTS, Found, Trial
from pyes.run.metrics import read_rows
from pyes.system import locks
from pyes.system.files import write_file
from pyes.system.lifetime import INTERRUPTED, Interrupt, interruptible
from pyes.system.limits import usable_cores
from pyes.system.text import counted, quoted

if TYPE_CHECKING:
    import optuna

FIRST_CONFIRMING_SEED = 100  # those of a search begin at 0
_BRACKET, _KEPT = 9, 3  # trials, and one of how many goes on
_RUNGS = 3  # budgets of a bracket: a ninth, a third, all
_POLL = 0.02  # seconds
_LAST_GENERATION = 60.0  # seconds that a run may take to end after its generation
_LOWEST = -math.inf  # value of a trial that fails
#: Signals by which others end a run; SIGHUP is not one of Windows.
_FROM_OUTSIDE = {getattr(signal, name, None) for name in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")}
#: Words of failures that say nothing of the settings of a run: the disk is full, or another process has the run.
_OF_ELSE = (*(os.strerror(each) for each in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)), locks.HELD)
_NO_OTHER_END = ("generations=null", "time_limit=null", "target_return=null")  # of a run than its timesteps
_ERROR = "pyes: error: "


@dataclass(frozen=True)
class Arguments:
    """What decides a search.

    Attributes
    ----------
    overrides : tuple of str
        Of ``pyes train``, without those of one run: seed, directory, cluster and budgets.
    timesteps : int
        Of each run that goes to its end.
    trials : int
        Settings that are tried beside the defaults.
    seeds, confirm : int
        Runs of each setting in the search, and of the best one and of the defaults afterwards.
    space : mapping
        Content of the file of parameters.
    started_in : str
        Folder that relative paths and modules of the overrides are looked up in.
    config_dir : str, optional
        Folder of the user's own options, ``--config-dir`` of ``pyes train``.
    """

    overrides: tuple[str, ...]
    timesteps: int
    trials: int
    seeds: int
    confirm: int
    space: Mapping[str, Any]
    started_in: str = "."
    config_dir: str | None = None


def begin(folder: Path, arguments: Arguments) -> None:
    """Make the folder of a search.

    Raises
    ------
    ConfigError
        It holds something already, or cannot be written.
    """
    if folder.is_dir() and (folder / "tune.json").exists():
        how = f"go on with: pyes tune --resume {quoted(folder)}"
        raise ConfigError(f"{folder} holds a search; {how}, or choose another folder")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} holds something else; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make {folder} ({error.strerror}); choose another folder") from error
    write_file(folder / "tune.json", json.dumps(asdict(arguments), indent=2).encode())


def read(folder: Path) -> Arguments:
    """Return the arguments of the search in a folder.

    Raises
    ------
    ConfigError
        There is none, or its file is damaged.
    """
    path = folder / "tune.json"
    try:
        values = json.loads(path.read_bytes())
        arguments = Arguments(**values | {"overrides": tuple(values["overrides"])})
        for name in ("timesteps", "trials", "seeds", "confirm"):
            if not isinstance(got := getattr(arguments, name), int):
                raise ValueError(f"{name}: got {got!r}, expected an integer")
        return arguments
    except OSError as error:
        raise RunDirectoryError(f"{folder} holds no search ({error.strerror}: {path.name})") from error
    except (ValueError, TypeError, KeyError) as error:
        raise RunDirectoryError(f"{path} is damaged ({error}); begin again in another folder") from error


def plan(arguments: Arguments) -> str:
    """Return in one line what a search will run."""
    runs = 1.0  # of all timesteps: of the defaults
    for bracket in _brackets(arguments.trials):
        count, before = len(bracket), 0.0
        for left in reversed(range(_RUNGS)):
            runs += count * (_KEPT**-left - before)
            count, before = math.ceil(count / _KEPT), _KEPT**-left
    timesteps = arguments.timesteps * (runs * arguments.seeds + 2 * arguments.confirm)
    tried = f"{counted(arguments.trials, 'setting')} and the defaults, {counted(arguments.seeds, 'seed')} each"
    return (
        f"{tried}, then the best one and the defaults with {counted(arguments.confirm, 'other seed')}: "
        f"{timesteps / 1e6:,.3g} million timesteps at most"
    )


def _brackets(trials: int) -> list[range]:
    """Return the trials of each bracket: as few brackets as hold them, of about equal size."""
    count = math.ceil(trials / _BRACKET)
    ends = [1 + trials * index // count for index in range(count + 1)]
    return [range(first, end) for first, end in itertools.pairwise(ends)]


def search(folder: Path, tell: Callable[[str], None]) -> Found:
    """Begin the search of a folder, or go on with it, and return what it came to.

    Parameters
    ----------
    folder : Path
        See `begin`.
    tell : callable
        Is told in one line how far the search is.

    Raises
    ------
    ConfigError
        Optuna is missing, another process works in the folder, or its database cannot be used.
    TaskError
        The defaults cannot be trained, or a disk is full.
    KeyboardInterrupt
        Ctrl-C or SIGTERM: all runs have ended, and can go on.
    """
    arguments = read(folder)
    with locks.held(folder / "lock", "tune"), interruptible() as interrupt, _storing(folder / "study.db"):
        return _Search(folder, arguments, tell, interrupt).go()


@contextmanager
def _storing(study: Path) -> Iterator[None]:
    """Turn what the study's database raises into an error of one line."""
    optuna = _optuna()
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, optuna.exceptions.OptunaError) as error:
        why: BaseException = error
        while why.__cause__ is not None:
            why = why.__cause__
        raise RunDirectoryError(
            f"{study} cannot be used ({str(why).splitlines()[0]}); mend that, and go on with --resume, or begin again "
            "in another folder if it is damaged"
        ) from error


class _Search:
    """A search in progress."""

    def __init__(self, folder: Path, arguments: Arguments, tell: Callable[[str], None], interrupt: Interrupt) -> None:
        self._folder, self._arguments, self._tell, self._interrupt = folder, arguments, tell, interrupt
        self._space = Space.parse(arguments.space, str(folder / "tune.json"))
        self._optuna = _optuna()
        self._study = self._open()
        self._rungs = [max(1, arguments.timesteps // _KEPT**left) for left in range(_RUNGS)][::-1]
        # Its folder may have moved, and with that the one that it was started in.
        decided = json.dumps(asdict(replace(arguments, started_in="")))
        if not self._study.trials:
            self._study.set_user_attr("arguments", decided)
        elif self._study.user_attrs.get("arguments") != decided:
            raise RunDirectoryError(
                f"{folder / 'tune.json'} was changed after the search had begun; restore it, or begin again in "
                "another folder"
            )

    def go(self) -> Found:
        if not self._study.trials:
            self._add({})
        for numbers in _brackets(self._arguments.trials):
            self._bracket(numbers)
        trials = self._trials()
        best = max(trials, key=lambda trial: (trial.means.get(self._arguments.timesteps, _LOWEST), -trial.number))
        self._tell(f"best: trial {best.number} ({best.settings})")
        confirmed = self._confirm(best)
        return Found(trials, best, confirmed, self._importances(), self._arguments.timesteps, self._arguments.seeds)

    def _bracket(self, numbers: range) -> None:
        """Try some settings; the defaults are run beside the first ones."""
        while len(self._study.trials) < numbers.stop:
            self._add(self._chosen(len(self._study.trials), numbers.start))
        kept = list(numbers)
        for rung, timesteps in enumerate(self._rungs):
            beside = {DEFAULTS: self._arguments.timesteps} if rung == 0 else {}  # once: they are entered then
            wanted = beside | dict.fromkeys(kept, timesteps)
            self._evaluate(wanted)
            if rung < _RUNGS - 1:
                trials = self._trials()
                ordered = sorted(kept, key=lambda each: (-trials[each].means[timesteps], each))
                going_on = ordered[: math.ceil(len(ordered) / _KEPT)]
                kept = sorted(each for each in going_on if math.isfinite(trials[each].means[timesteps]))
                self._tell(f"trials that go on, of {len(ordered)}: {', '.join(map(str, kept)) or 'none'}")
        for each in numbers:
            self._end(each)

    def _evaluate(self, wanted: Mapping[int, int]) -> None:
        """Train trials to so many timesteps each, where that is not done, and enter their means.

        Raises
        ------
        TaskError
            No run of any trial began, which says more of the machine or of the whole space than of these settings.
        """
        trials = self._trials()
        wanted = {number: steps for number, steps in wanted.items() if steps not in trials[number].means}
        seeds = range(self._arguments.seeds)
        jobs = [self._job(trials[number], seed, steps) for number, steps in wanted.items() for seed in seeds]
        returns: dict[int, list[float]] = {number: [] for number in wanted}
        means: dict[int, float] = {}

        def ended(job: "_Job") -> None:
            of_trial = returns[job.trial]
            if job.failure and job.trial == DEFAULTS:
                why = f"the defaults cannot be trained: {job.failure}"
                raise TaskError(f"{why}; mend that and go on with --resume, or begin again in another folder")
            of_trial.append(self._result(job))
            if len(of_trial) == len(seeds):
                mean, trial = statistics.mean(of_trial), trials[job.trial]
                means[job.trial] = mean
                steps = f"{job.timesteps:,} timesteps"
                settings = "" if trial.means else f" ({trial.settings})"
                self._tell(f"trial {job.trial}: {reports.number(mean)} after {steps}{settings}")

        _run_all(jobs, ended, self._interrupt)
        tried = [job for job in jobs if job.trial != DEFAULTS]
        several = len(wanted.keys() - {DEFAULTS}) > 1 or any(job.resumed for job in tried)
        if tried and several and all(job.refused for job in tried):
            raise TaskError(f"no run of these trials began: {tried[-1].failure}; mend that, and go on with --resume")
        for number, steps in wanted.items():
            self._report(number, steps, means[number])

    def _result(self, job: "_Job") -> float:
        """Return the return of a run that has ended."""
        if job.failure:
            self._tell(f"trial {job.trial}, seed {job.seed} failed: {job.failure}")
            return _LOWEST
        found = job.found()
        assert found is not None  # or its process would have failed
        return found

    def _confirm(self, best: Trial) -> dict[int, list[float]]:
        """Return the returns of the defaults and of the best trial with seeds of their own."""
        first, count = FIRST_CONFIRMING_SEED, self._arguments.confirm
        trials = {trial.number: trial for trial in (self._trials()[DEFAULTS], best)}
        jobs = [
            self._job(trial, seed, self._arguments.timesteps)
            for trial in trials.values()
            for seed in range(first, first + count)
        ]
        ends: dict[tuple[int, int], float] = {}

        def ended(job: "_Job") -> None:
            ends[job.trial, job.seed] = self._result(job)
            self._tell(f"trial {job.trial}, seed {job.seed}: {reports.number(ends[job.trial, job.seed])}")

        _run_all(jobs, ended, self._interrupt)
        return {number: [ends[number, seed] for seed in range(first, first + count)] for number in trials}

    def _job(self, trial: Trial, seed: int, timesteps: int) -> "_Job":
        own = self._arguments.config_dir
        flags = [] if own is None else ["--config-dir", own]
        words = [*flags, *self._arguments.overrides, *self._space.overrides(trial.values)]
        return _Job(self._folder / "runs" / str(trial.number) / str(seed), trial.number, seed, timesteps, words)

    def _importances(self) -> dict[str, float]:
        """Return the share of each parameter in what made trials good (PED-ANOVA: Watanabe et al. 2023).

        By what all trials came to after the timesteps of the first rung. Empty with too few trials to tell.
        """
        study = self._optuna.create_study(direction="maximize")
        distributions = self._distributions()
        trials = self._trials()[DEFAULTS + 1 :]
        returns = [trial.means[self._rungs[0]] for trial in trials]
        known = [value for value in returns if math.isfinite(value)]
        if 3 * len(known) <= len(returns):  # the best third has failures
            return {}
        for trial, value in zip(trials, returns, strict=True):
            value = max(value, min(known) - 1.0)  # failures are worse
            study.add_trial(
                self._optuna.trial.create_trial(value=value, params=trial.values, distributions=distributions)
            )
        if len({trial.value for trial in study.trials}) < _BRACKET or len(distributions) < 2:
            return {}
        # The third whose values the table shows: of a tenth, the default, there are two or three trials.
        evaluator = self._optuna.importance.PedAnovaImportanceEvaluator(target_quantile=1 / 3)
        found: dict[str, float] = self._optuna.importance.get_param_importances(study, evaluator=evaluator)
        return found

    # The study.

    def _open(self) -> "optuna.Study":
        """Open the study in the folder's database."""
        path = self._folder / "study.db"
        from sqlalchemy.pool import NullPool

        # Opened by path: as a URL, a folder with a question mark in its name would be another one.
        connect = {"creator": lambda: sqlite3.connect(path), "poolclass": NullPool}  # none is left open
        storage = self._optuna.storages.RDBStorage("sqlite://", engine_kwargs=connect)
        study: optuna.Study = self._optuna.create_study(
            storage=storage, study_name="pyes", direction="maximize", load_if_exists=True
        )
        return study

    def _trials(self) -> list[Trial]:
        return [
            Trial(each.number, dict(each.params), dict(each.intermediate_values))
            for each in self._study.get_trials(deepcopy=False)
        ]

    def _distributions(self) -> "dict[str, optuna.distributions.BaseDistribution]":
        distributions = self._optuna.distributions
        found: dict[str, optuna.distributions.BaseDistribution] = {}
        for name, each in self._space.parameters.items():
            if isinstance(each, Choices):
                found[name] = distributions.CategoricalDistribution(list(each.overrides))
            else:
                kind = distributions.IntDistribution if each.whole else distributions.FloatDistribution
                found[name] = kind(each.low, each.high, log=each.log)
        return found

    def _chosen(self, number: int, first: int) -> dict[str, Value]:
        """Return the values of a new trial of the bracket that begins with trial ``first``.

        They are random in the first bracket, later ones from the trials of earlier brackets and those chosen for this.
        """
        at_random = _BRACKET if first == DEFAULTS + 1 else 0
        sampler = self._optuna.samplers.TPESampler(
            seed=number, n_startup_trials=at_random, multivariate=True, constant_liar=True
        )
        study = self._optuna.create_study(direction="maximize", sampler=sampler)
        states = self._optuna.trial.TrialState
        for trial in self._study.get_trials()[DEFAULTS + 1 :]:
            if trial.state == states.FAIL:  # the sampler would leave it out: one that was stopped at once is the worst
                trial = self._optuna.trial.create_trial(
                    state=states.PRUNED, params=trial.params, distributions=trial.distributions
                )
            study.add_trial(trial)
        return dict(study.ask(self._distributions()).params)

    def _add(self, values: Mapping[str, Value]) -> None:
        """Enter a trial."""
        distributions = self._distributions() if values else {}
        running = self._optuna.trial.TrialState.RUNNING
        self._study.add_trial(
            self._optuna.trial.create_trial(state=running, params=dict(values), distributions=distributions)
        )

    def _report(self, number: int, timesteps: int, mean: float) -> None:
        self._optuna.trial.Trial(self._study, self._study.trials[number]._trial_id).report(mean, timesteps)

    def _end(self, number: int) -> None:
        """Give a trial its final state: complete after all timesteps, else pruned, or failed."""
        states = self._optuna.trial.TrialState
        trial = self._study.trials[number]
        if trial.state != states.RUNNING:
            return
        last = trial.intermediate_values[max(trial.intermediate_values)]
        if not math.isfinite(last):
            self._study.tell(number, state=states.FAIL)
        elif self._arguments.timesteps in trial.intermediate_values:
            self._study.tell(number, last)
        else:
            self._study.tell(number, state=states.PRUNED)


class _Job:
    """One run of a trial, to so many timesteps."""

    def __init__(self, run: Path, trial: int, seed: int, timesteps: int, words: Sequence[str]) -> None:
        self.run, self.trial, self.seed, self.timesteps = run, trial, seed, timesteps
        self.failure = ""
        self.resumed = False
        #: Whether the program did not begin: its settings, or its surroundings, are wrong.
        self.refused = False
        self._before = 0  # bytes of the journal when it was started
        self._words = words
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None

    def found(self) -> float | None:
        """Return the return of the run's center after the last of its timesteps; None if that is not there.

        The lowest one if all episodes of that evaluation failed.
        """
        metrics = self.run / "metrics.csv"
        last = read_rows(metrics)[-1:] if metrics.exists() else []
        if not last or int(last[0]["timesteps"]) < self.timesteps or not last[0]["eval_return_mean"]:
            return None
        value = float(last[0]["eval_return_mean"])
        return value if math.isfinite(value) else _LOWEST

    def _recorded(self) -> int:
        """Return the bytes of the journal."""
        journal = self.run / "journal.bin"
        return journal.stat().st_size if journal.exists() else 0

    def start(self, workers: int) -> None:
        """Start the run, or go on with it."""
        self._before = self._recorded()
        self.resumed = self._before > 0
        if self.resumed:
            words = [f"resume={self.run}"]
        else:
            shutil.rmtree(self.run, ignore_errors=True)
            words = [*self._words, *_NO_OTHER_END, f"seed={self.seed}", f"run_dir={self.run}"]
        command = [sys.executable, "-m", "pyes", "train", *words, "learning_curve=false", f"timesteps={self.timesteps}"]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the run has ended
        self._process = subprocess.Popen(
            [*command, f"cluster.workers={workers}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            preexec_fn=partial(die_with, os.getpid()) if sys.platform == "linux" else None,
        )

    def is_running(self) -> bool:
        """Return whether the run goes on; when it has ended, note why it failed.

        Raises
        ------
        KeyboardInterrupt
            The user has stopped it.
        TaskError
            Another program, or the system, has ended it, another process works in its folder, or its disk is full.
        """
        assert self._process is not None
        assert self._errors is not None
        status = self._process.poll()
        if status is None:
            return True
        if status == INTERRUPTED:
            raise KeyboardInterrupt
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").splitlines()
        self._errors.close()
        if -status in _FROM_OUTSIDE:  # says nothing about its settings
            name = signal.Signals(-status).name
            raise TaskError(f"{self.run}: {name} ended its process, maybe for want of memory; go on with --resume")
        if not status and self.found() is None:
            raise TaskError(f"{self.run}: it ended before its last evaluation; go on with --resume")
        if status:
            said = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)] or lines
            self.failure = said[-1] if said else f"ended with status {status}"
            if any(text in self.failure for text in _OF_ELSE):
                raise TaskError(f"{self.run}: {self.failure}; then go on with --resume")
            self.refused = status == ConfigError.exit_status and self._recorded() == self._before
        return False

    def ask_to_stop(self) -> None:
        """Tell the run, if it goes on, to end after its generation."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def stop(self) -> None:
        """Wait for the end of a run that was told to; kill it if that takes too long. It can be resumed."""
        if self._process is not None:
            try:
                self._process.wait(_LAST_GENERATION)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._errors is not None:
            self._errors.close()


def _run_all(jobs: Iterable[_Job], ended: Callable[[_Job], None], interrupt: Interrupt) -> None:
    """Run all jobs that have not been, as many at a time as there are cores; tell of each, in order of their end.

    Raises
    ------
    KeyboardInterrupt
        The user wants an end, or has ended a run.
    """
    waiting: deque[_Job] = deque()
    for job in jobs:
        if job.found() is None:
            waiting.append(job)
        else:
            ended(job)
    cores = usable_cores()
    workers = max(1, cores // max(1, len(waiting)))
    running: list[_Job] = []
    try:
        while waiting or running:
            if interrupt:  # before any run is asked how it ended: the same signal may have ended it
                raise KeyboardInterrupt
            for job in [each for each in running if not each.is_running()]:
                running.remove(job)
                ended(job)
            while waiting and len(running) < cores:
                running.append(waiting.popleft())
                running[-1].start(workers)
            time.sleep(_POLL)
    finally:
        for job in running:
            job.ask_to_stop()
        for job in running:
            job.stop()


def _optuna() -> Any:
    """Return Optuna, which says nothing of its own."""
    try:
        import optuna
    except ImportError as error:
        raise missing("pyes tune", "optuna", "tune", error) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
