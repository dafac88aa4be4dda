"""Whether a node is in step with the run, according to its messages and to what it has been sent.

Owns this decision for one connection; does no input and no output. Knows only the place of the run's state. A node
handles its messages in order, so it is in step as soon as it has been *sent* what it lacks, without waiting for its
answer. Invariant: messages that a node sent before it loaded the last snapshot are outdated and ignored.
"""

from enum import Enum, auto

from pyes.remote import wire

#: Identifies a state: its generation, and the hash of theta.
Place = tuple[int, str]

_MOST_ASTRAY = 3  # wrong updates in a row after which a node is dismissed


class Heard(Enum):
    """Meaning of a node's message about its place."""

    NOTHING = auto()  # outdated or expected
    READY = auto()  # the node waits to enter a batch
    ASTRAY = auto()  # the node was assumed to be in step, but is not


class Standing:
    """The state of one node relative to the run.

    Attributes
    ----------
    ready : bool
        Its workers have been started for this job.
    in_step : bool
        It has learnt or been sent the head's state; only such nodes take part in a batch.
    snapshot : int
        Number of the last snapshot sent to it over this connection.
    answered : bool
        It has reported its place since then.
    """

    def __init__(self) -> None:
        self.ready = self.in_step = False
        self.snapshot = 0
        self.answered = True
        self._sent: Place = (0, "")  # place of the last snapshot
        self._said: Place = (0, "")  # last place that the node has reported
        self._astray = 0  # wrong updates in a row

    @property
    def hopeless(self) -> bool:
        """Whether its updates were wrong so often that another snapshot would not help."""
        return self._astray >= _MOST_ASTRAY

    def hear(self, ready: wire.Ready) -> Heard:
        """Handle a node's message about its place.

        Raises
        ------
        ValueError
            It names a snapshot that it was not sent.
        """
        if ready.snapshot > self.snapshot:
            raise ValueError(f"it names snapshot {ready.snapshot}, it was sent {self.snapshot}")
        if ready.snapshot < self.snapshot:
            return Heard.NOTHING
        answer, self.answered = not self.answered, True
        said: Place = (ready.generation, ready.theta_hash)
        if self.in_step and answer and said == self._sent:
            return Heard.NOTHING
        astray = self.in_step
        self.ready, self.in_step, self._said = True, False, said
        self._astray += astray
        return Heard.ASTRAY if astray else Heard.READY

    def lacks(self, place: Place) -> bool:
        """Return whether the node needs a snapshot to be in step."""
        return not self.in_step and self._said != place

    def correct(self, place: Place) -> int:
        """Record that the node is about to be sent a snapshot; return the number of that snapshot."""
        self.snapshot += 1
        self._sent, self.answered = place, False
        return self.snapshot

    def enter(self) -> None:
        """Record that the node has been sent everything it lacked."""
        self.in_step = True

    def returned(self, generation: int) -> None:
        """Record results of a generation; after that of the last snapshot, the node's own update was right."""
        if generation > self._sent[0]:
            self._astray = 0

    def miss(self) -> None:
        """Record that the node was not sent the record of a generation."""
        self.in_step = False
        self._said = (0, "")

    def leave(self) -> None:
        """Exclude the node until it reports its place again."""
        self.ready = self.in_step = False
