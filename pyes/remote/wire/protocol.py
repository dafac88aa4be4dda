"""Which messages head and node may send to each other, and when; does no input and no output.

Owns the states of a connection; knows neither sockets nor what messages do. Invariant: ``receive`` returns only
messages that the other end may send now; until the head has accepted it, at most one kibibyte of it is stored.

    NEW      nothing has been sent; the node begins
    HELLO    a node has asked to be accepted        WATCH      a watcher has
    NODE     it is accepted: the job's messages     WATCHER    it is accepted: reports
    OVER     the head has refused it; further messages are dropped

The head may refuse at any time. Both ends go through the same states, each by what it sends and receives.
"""

from enum import Enum, auto

from pyes.errors import ProtocolError
from pyes.remote import wire
from pyes.remote.wire import Decoder, Hello, Message, Refused, Watch, Welcome


class State(Enum):
    """State of a connection."""

    NEW = auto()
    HELLO = auto()
    WATCH = auto()
    NODE = auto()
    WATCHER = auto()
    OVER = auto()


Said = dict[State, frozenset[type[Message]]]

_NODE_SAYS: Said = {
    State.NEW: frozenset({Hello, Watch}),
    State.HELLO: frozenset(),
    State.WATCH: frozenset(),
    State.NODE: frozenset(
        {wire.Ready, wire.Unable, wire.Done, wire.Leave, wire.Workers, wire.Log, wire.Beat, wire.Echo}
    ),
    State.WATCHER: frozenset(),
    State.OVER: frozenset(),
}
_HEAD_SAYS: Said = {
    State.NEW: frozenset({Refused}),
    State.HELLO: frozenset({Welcome, Refused}),
    State.WATCH: frozenset({Welcome, Refused}),
    State.NODE: frozenset(
        {
            Refused,
            wire.Job,
            wire.Learn,
            wire.Snapshot,
            wire.Open,
            wire.Vectors,
            wire.Bases,
            wire.Grant,
            wire.Granted,
            wire.Withdraw,
            wire.Close,
            wire.End,
            wire.Beat,
            wire.Echo,
        }
    ),
    State.WATCHER: frozenset({Refused, wire.Report}),
    State.OVER: frozenset(),
}
_NEXT: dict[tuple[State, type[Message]], State] = {
    (State.NEW, Hello): State.HELLO,
    (State.NEW, Watch): State.WATCH,
    (State.HELLO, Welcome): State.NODE,
    (State.WATCH, Welcome): State.WATCHER,
    **{(state, Refused): State.OVER for state in State},
}


class _Side:
    """One end of a connection.

    Parameters
    ----------
    limit : int
        Maximum bytes of a message from the other end after the handshake.
    """

    _says: Said
    _hears: Said

    def __init__(self, limit: int) -> None:
        self.state = State.NEW
        self.bytes_sent = 0
        self.bytes_received = 0
        self._limit = limit
        self._decoder = Decoder()

    def receive(self, data: bytes) -> list[Message]:
        """Process received bytes and return the messages that are complete.

        Raises
        ------
        ProtocolError
            The other end may not send this now; the connection is to be closed.
        """
        self.bytes_received += len(data)
        messages: list[Message] = []
        if self.state is not State.OVER:
            self._decoder.append(data)
        # One by one, since a message may raise the limit for the next one in the same bytes.
        while self.state is not State.OVER and (message := self._decoder.next()) is not None:
            self._move(message, self._hears, "got")
            messages.append(message)
        return messages

    def send(self, message: Message, encoded: bytes | None = None) -> bytes:
        """Return the bytes to send for a message.

        Parameters
        ----------
        message : Message
        encoded : bytes or None
            Result of ``wire.encode`` for it, to send one message to many nodes.

        Raises
        ------
        ProtocolError
            This end may not send it now, or a field has a value that the other end would reject.
        """
        data = wire.encode(message) if encoded is None else encoded
        self._move(message, self._says, "cannot send")
        self.bytes_sent += len(data)
        return data

    def send_pieces(self, message: Message) -> list[wire.Piece]:
        """Return the bytes to send for a message in pieces, for one that is too large to be copied; see `send`."""
        pieces = wire.pieces_of(message)
        self._move(message, self._says, "cannot send")
        self.bytes_sent += sum(map(len, pieces))
        return pieces

    def _move(self, message: Message, allowed: Said, what: str) -> None:
        """Check that a message is allowed now, and change to the next state."""
        kind = type(message)
        if kind not in allowed[self.state]:
            expected = " or ".join(sorted(each.__name__ for each in allowed[self.state])) or "nothing"
            raise ProtocolError(f"{what} {kind.__name__} in state {self.state.name}, expected {expected}")
        self.state = _NEXT.get((self.state, kind), self.state)
        if kind is Welcome:
            self._decoder.limit = self._limit


class HeadSide(_Side):
    """The head's end of a connection."""

    _says = _HEAD_SAYS
    _hears = _NODE_SAYS


class NodeSide(_Side):
    """The end of a node or of a watcher, which differ by their first message."""

    _says = _NODE_SAYS
    _hears = _HEAD_SAYS


def check_hello(hello: Hello | Watch, package: str, kernels: str) -> str | None:
    """Return why a head with this package version and digest of kernels refuses a greeting, or None.

    The kernels of a watcher do not matter.
    """
    if hello.protocol != wire.PROTOCOL:
        return (
            f"the node has protocol {hello.protocol}, the head {wire.PROTOCOL}; install the head's version of pyes-rl"
        )
    if hello.package != package:
        return f"the node has pyes-rl {hello.package}, the head {package}; install the same version on both"
    if isinstance(hello, Hello) and hello.kernels != kernels:
        return (
            f"the node has the kernels {hello.kernels}, the head {kernels}: their numbers differ (pyes info shows the "
            "digest); install the same build on both"
        )
    return None
