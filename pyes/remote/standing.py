"""Whether a node is in step with the run: judged by what it says and by what it has been sent.

Owns that judgement for one connection; does no input and no output. Knows of the run's state only its place. A node
takes its messages in order, so it is in step as soon as it has been *sent* what brings it there; the run does not wait
for its answer. Invariant: what a node said before it took in the last snapshot is outdated and changes nothing.
"""

from enum import Enum, auto

from pyes.remote import wire

#: Where a state is: its generation, and the hash of theta.
Place = tuple[int, str]

_MOST_ASTRAY = 3  # wrong updates in a row after which a node is dismissed


class Heard(Enum):
    """What follows from a node's message about its place."""

    NOTHING = auto()  # it is outdated, or was expected
    READY = auto()  # the node waits to enter a batch
    ASTRAY = auto()  # the node was taken to be in step, and is not


class Standing:
    """Where one node stands.

    Attributes
    ----------
    ready : bool
        Its workers have been started for this job.
    in_step : bool
        It has learnt, or been sent, all that the head has; only such nodes take part in a batch.
    snapshot : int
        Number of the last snapshot sent to it over this connection.
    """

    def __init__(self) -> None:
        self.ready = self.in_step = False
        self.snapshot = 0
        self._answered = True  # whether the node has said where it is since the last snapshot
        self._sent: Place = (0, "")  # place of the last snapshot
        self._said: Place = (0, "")  # place that the node has named
        self._astray = 0  # wrong updates in a row

    @property
    def hopeless(self) -> bool:
        """Whether its updates were wrong so often that another snapshot would not help."""
        return self._astray >= _MOST_ASTRAY

    def hear(self, ready: wire.Ready) -> Heard:
        """Take a node's message about its place.

        Raises
        ------
        ValueError
            It names a snapshot that it was not sent.
        """
        if ready.snapshot > self.snapshot:
            raise ValueError(f"it names snapshot {ready.snapshot}, it was sent {self.snapshot}")
        if ready.snapshot < self.snapshot:
            return Heard.NOTHING
        answer, self._answered = not self._answered, True
        said: Place = (ready.generation, ready.theta_hash)
        if self.in_step and answer and said == self._sent:
            return Heard.NOTHING
        astray = self.in_step
        self.ready, self.in_step, self._said = True, False, said
        self._astray += astray
        return Heard.ASTRAY if astray else Heard.READY

    def lacks(self, place: Place) -> bool:
        """Return whether the node must be sent a snapshot to be where the run is."""
        return not self.in_step and self._said != place

    def correct(self, place: Place) -> int:
        """Record that the node is about to be sent a snapshot; return the number of that snapshot."""
        self.snapshot += 1
        self._sent, self._answered = place, False
        return self.snapshot

    def enter(self) -> None:
        """Record that the node has been sent all that it lacked."""
        self.in_step = True

    def returned(self, generation: int) -> None:
        """Record results of a generation; after that of the last snapshot, the node's own update was right."""
        if generation > self._sent[0]:
            self._astray = 0

    def miss(self) -> None:
        """Record that the node was not sent the record of a generation."""
        self.in_step = False

    def leave(self) -> None:
        """Take the node out of the run until it names its place again."""
        self.ready = self.in_step = False
