"""The history of a run: its journal, applied record by record.

Owns the way from records to states. Invariant: the rebuilt state of a generation equals that of the live run bit for
bit; this is checked at each record, which contains the hash of its theta.
"""

import logging
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from pyes import config as configuration
from pyes.config import TrainConfig
from pyes.errors import ConfigError, JournalError, PyesError
from pyes.numerics.noise import NoiseTable
from pyes.run.branching import branch
from pyes.run.journal import Kind, Record, Recording, Start
from pyes.run.state import RunState, Setup

logger = logging.getLogger(__name__)


def setup_of(recording: Recording) -> Setup:
    """Return the setup at the start of a run.

    Raises
    ------
    JournalError
        Nothing has been recorded yet.
    """
    if not len(recording):
        raise JournalError(f"{recording.path} holds no generation yet; train first")
    start = recording[0]
    if not isinstance(start, Start):
        raise JournalError(f"{recording.path} is damaged: it does not begin with the settings of its run")
    return _setup(start)


#: Settings of a task that no evaluation depends on.
_OF_TRAINING = {
    "episodes",
    "common_random_numbers",
    "statistics_share",
    "reward_offset_per_step",
    "reward_min",
    "action_noise",
    "behaviour",
}


def task_began(recording: Recording, config: TrainConfig | None = None) -> int:
    """Return the generation from which on evaluations are of one task: the last one, or that of a configuration.

    0 if it was the same all along; else their returns cannot be compared with those before.
    """
    if len(recording.starts) + (config is not None) < 2:
        return 0
    made = [(each.generation, configuration.from_mapping(each.settings)) for each in recording.starts]
    if config is not None:
        made.append((recording.generations, config))
    tasks = [(generation, _evaluated(each)) for generation, each in made]
    return max((now[0] for before, now in pairwise(tasks) if now[1] != before[1]), default=0)


def _evaluated(config: TrainConfig) -> dict[str, Any]:
    """Return what an evaluation of a center depends on."""
    task = configuration.to_mapping(config)["task"] | {"max_timesteps": config.task.most_timesteps}
    return {key: value for key, value in task.items() if key not in _OF_TRAINING}


def _setup(start: Start) -> Setup:
    return Setup.of(configuration.from_mapping(start.settings))


class History:
    """A run's records, and the state after those applied so far.

    Parameters
    ----------
    recording : Recording
        At least one record.
    setup : Setup
        Setup at the start of the run.
    table : NoiseTable
        Noise table of the setup.
    snapshots : Iterable[dict[str, Any]]
        States to begin with, the best one first; those of another journal or of another version are skipped.

    Raises
    ------
    JournalError
        The table differs from the run's.
    """

    def __init__(
        self, recording: Recording, setup: Setup, table: NoiseTable, snapshots: Iterable[dict[str, Any]] = ()
    ) -> None:
        self._recording, self._setup, self._table = recording, setup, table
        start = recording[0]
        if not isinstance(start, Start) or start.table != table.fingerprint:
            recorded = start.table if isinstance(start, Start) else "none"
            raise JournalError(
                f"{recording.path}: its settings make the noise table {table.fingerprint}, it was written with "
                f"{recorded}; take the version of pyes that wrote it"
            )
        self.state = RunState(setup, table)
        self._applied = 0  # records
        for snapshot in snapshots:
            applied = recording.find(snapshot.get("journal", ""))
            if applied > 0 and self._loaded(snapshot, applied):
                break

    @property
    def ended(self) -> bool:
        """Whether all records have been applied."""
        return self._applied == len(self._recording)

    def advance(self) -> Record:
        """Apply the next record and return it.

        Raises
        ------
        JournalError
            Its theta differs from the one rebuilt here.
        """
        record = self._recording[self._applied]
        if isinstance(record, Start) and self._applied:
            self.state = branch(self.state, _setup(record))
        self.state.apply(record)
        self._applied += 1
        return record

    def follow(self, recording: Recording) -> None:
        """Go on with a journal that begins with the records of this one."""
        self._recording = recording

    def seek(self, generation: int) -> RunState:
        """Return the state from which the members of ``generation`` were drawn; it must not be changed.

        Raises
        ------
        ConfigError
            The run has not reached that generation.
        JournalError
            The theta of an earlier record differs from the one rebuilt here.
        """
        if not 0 <= generation <= self._recording.generations:
            raise ConfigError(
                f"generation: got {generation}, expected 0 to {self._recording.generations}, the generations of the run"
            )
        if generation < self.state.generation:
            self.state, self._applied = RunState(self._setup, self._table), 0
        # A new start with other settings may be recorded at this very generation.
        while not self.ended and not self._ends_at(generation):
            self.advance()
        return self.state

    def _ends_at(self, generation: int) -> bool:
        entry = self._recording.entries[self._applied]
        return entry.kind == Kind.GENERATION and entry.generation == generation

    def _loaded(self, snapshot: dict[str, Any], applied: int) -> bool:
        """Load a snapshot; False if it is one of another version, which the records do without."""
        try:
            self._load(snapshot, applied)
        except (PyesError, KeyError, TypeError, ValueError) as error:
            logger.warning("a snapshot cannot be used (%s): is it of another version? trying the previous one", error)
            self.state, self._applied = RunState(self._setup, self._table), 0
            return False
        return True

    def _load(self, snapshot: dict[str, Any], applied: int) -> None:
        starts = [i for i, entry in enumerate(self._recording.entries[:applied]) if entry.kind == Kind.START]
        record = self._recording[starts[-1]]
        assert isinstance(record, Start)
        self.state = RunState(self._setup if starts == [0] else _setup(record), self._table)
        self.state.begin(record)
        self.state.load_state_dict(snapshot)
        self._applied = applied
