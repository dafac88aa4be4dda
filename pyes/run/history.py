"""The history of a run: its journal, applied record by record.

Owns the way from records to states. Invariant: the state at a generation is the one that the live run had there, bit
for bit; each record proves it, as it names the theta that it was made with.
"""

from collections.abc import Iterable
from typing import Any

from pyes import config as configuration
from pyes.errors import ConfigError, JournalError
from pyes.numerics.noise import NoiseTable
from pyes.run.branching import branch
from pyes.run.journal import Kind, Record, Recording, Start
from pyes.run.state import RunState, Setup


def setup_of(recording: Recording) -> Setup:
    """Return the setup that a run began with.

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


def _setup(start: Start) -> Setup:
    return Setup.of(configuration.from_mapping(start.settings))


class History:
    """A run's records, and the state that those applied so far lead to.

    Parameters
    ----------
    recording : Recording
        With at least one record.
    setup : Setup
        The one that the run began with.
    table : NoiseTable
        The one that the setup describes.
    snapshots : Iterable[dict[str, Any]]
        States to begin at, the best one first; one that is not of this journal is passed over.

    Raises
    ------
    JournalError
        The table is another one than the run's.
    """

    def __init__(
        self, recording: Recording, setup: Setup, table: NoiseTable, snapshots: Iterable[dict[str, Any]] = ()
    ) -> None:
        self._recording, self._setup, self._table = recording, setup, table
        start = recording[0]
        if not isinstance(start, Start) or start.table != table.fingerprint:
            raise JournalError(f"{recording.path}: the noise table that its settings make is not the one it was run on")
        self.state = RunState(setup, table)
        self._applied = 0  # records
        for snapshot in snapshots:
            applied = recording.find(snapshot["journal"])
            if applied > 0:
                self._load(snapshot, applied)
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
            It was made with another theta than the one that is rebuilt here.
        """
        record = self._recording[self._applied]
        if isinstance(record, Start) and self._applied:
            self.state = branch(self.state, _setup(record))
        self.state.apply(record)
        self._applied += 1
        return record

    def seek(self, generation: int) -> RunState:
        """Return the state in which the members of ``generation`` were drawn, which must not be changed.

        Raises
        ------
        ConfigError
            The run has not come that far.
        JournalError
            A record on the way was made with another theta than the one that is rebuilt here.
        """
        if not 0 <= generation <= self._recording.generations:
            raise ConfigError(
                f"generation: got {generation}, expected 0 to {self._recording.generations}, as far as the run has come"
            )
        if generation < self.state.generation:
            self.state, self._applied = RunState(self._setup, self._table), 0
        # Another way of the run may begin at this very generation.
        while not self.ended and not self._ends_at(generation):
            self.advance()
        return self.state

    def _ends_at(self, generation: int) -> bool:
        entry = self._recording.entries[self._applied]
        return entry.kind == Kind.GENERATION and entry.generation == generation

    def _load(self, snapshot: dict[str, Any], applied: int) -> None:
        starts = [i for i, entry in enumerate(self._recording.entries[:applied]) if entry.kind == Kind.START]
        record = self._recording[starts[-1]]
        assert isinstance(record, Start)
        self.state = RunState(self._setup if starts == [0] else _setup(record), self._table)
        self.state.check_reference_batch(record)
        self.state.load_state_dict(snapshot)
        self._applied = applied
