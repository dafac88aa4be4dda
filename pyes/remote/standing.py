"""Whether a node is where the run is: judged by what it says and by what it has been sent.

Owns that judgement for one connection; does no input and no output. Knows of the run's state only its place. A node
takes its messages in order, so it is in step as soon as it has been *sent* what brings it there; the run does not wait
for its answer. Invariant: what a node said before it took in the last snapshot is of the past, and changes nothing.
"""

from enum import Enum, auto

from pyes.remote import wire

#: Where a state is: its generation, and the hash of theta.
Place = tuple[int, str]

_MOST_ASTRAY = 3  # times, with no right update of its own between them: such a node computes something else


class Heard(Enum):
    """What a node's word about where it is comes to."""

    NOTHING = auto()  # it is of the past, or what was expected
    READY = auto()  # the node waits to enter a batch
    ASTRAY = auto()  # it was thought to be in step, and is not


class Standing:
    """Where one node stands.

    Attributes
    ----------
    ready : bool      its workers are there, for this job
    in_step : bool    it has learnt, or been sent, all that the head has; only such nodes take part in a batch
    snapshot : int    number of the last snapshot sent to it, by this connection
    """

    def __init__(self) -> None:
        self.ready = self.in_step = False
        self.snapshot = 0
        self._answered = True  # the last snapshot: a node says where it then is
        self._sent: Place = (0, "")  # by that one
        self._said: Place = (0, "")  # where the node said that it is
        self._astray = 0

    @property
    def hopeless(self) -> bool:
        """Whether it was astray so often that another snapshot would not help."""
        return self._astray >= _MOST_ASTRAY

    def hear(self, ready: wire.Ready) -> Heard:
        """Take note of where a node says it is.

        Raises
        ------
        ValueError    it names a snapshot that it was not sent
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
        """Take note that the node is about to be sent a snapshot; return the number of that."""
        self.snapshot += 1
        self._sent, self._answered = place, False
        return self.snapshot

    def enter(self) -> None:
        """Take note that the node has been sent all that it lacked."""
        self.in_step = True

    def returned(self, generation: int) -> None:
        """Take note of results of a generation: beyond that of the last snapshot, the node has learnt by itself."""
        if generation > self._sent[0]:
            self._astray = 0

    def miss(self) -> None:
        """Take note that the node was not sent what the run went on by."""
        self.in_step = False

    def leave(self) -> None:
        """Take the node out of the run, until it says again where it is."""
        self.ready = self.in_step = False
