"""Whether a node is where the run is: judged by what it says and by what it has been sent.

Owns that judgement for one connection; does no input and no output. Knows of the run's state only its place: the
generation and the hash of theta. A node takes its messages in order, so it is in step as soon as it has been *sent*
what brings it there; the run does not wait for its answer. Invariant: what a node said before it came to the last
snapshot sent to it is of the past, and changes nothing.
"""

from pyes import wire

Place = tuple[int, str]
_CORRECTIONS = 3  # snapshots with no right update of its own between them, after which a node computes something else


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
        self._corrections = 0

    def hear(self, ready: wire.Ready) -> bool:
        """Take note of where a node says it is; return whether it is news, and the node out of step until it enters."""
        if ready.snapshot != self.snapshot:
            return False
        answer, self._answered = not self._answered, True
        said: Place = (ready.generation, ready.theta_hash)
        if self.in_step and answer and said == self._sent:
            return False
        self.ready, self.in_step, self._said = True, False, said
        return True

    def lacks(self, place: Place) -> bool:
        """Return whether the node must be sent a snapshot to be where the run is."""
        return not self.in_step and self._said != place

    def correct(self, place: Place) -> bool:
        """Take note that the node is about to be sent a snapshot; False: it would not help, there were too many."""
        self._corrections += 1
        self._sent, self._answered = place, False
        self.snapshot += 1
        return self._corrections <= _CORRECTIONS

    def returned(self, generation: int) -> None:
        """Take note of results of a generation: beyond that of the last snapshot, the node has learnt by itself."""
        if generation > self._sent[0]:
            self._corrections = 0

    def leave(self) -> None:
        """Take the node out of the run, until it says again where it is."""
        self.ready = self.in_step = False
