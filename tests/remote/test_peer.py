"""What the head sends to a node with a congested connection."""

from types import SimpleNamespace

import numpy as np
from hosts import hello

from pyes.remote import wire
from pyes.remote.pace import Pace
from pyes.remote.peer import Peer
from pyes.remote.wire.protocol import HeadSide

LIMIT = 2**22


def test_lessons_do_not_pile_up_without_end():
    """A node that takes nothing in is sent some, and once it is back, the state instead of those that it missed."""
    peer, waiting = _peer()
    peer.standing.enter()
    waiting.bytes = 2 * LIMIT
    lesson = _lesson(50_000)
    for _ in range(100):
        peer.teach(lesson)
    assert LIMIT < peer.side.bytes_sent < LIMIT + 10**6
    assert not peer.standing.in_step

    waiting.bytes = 0
    peer.correct((3, "ab12"), bytes(100))
    peer.standing.enter()
    waiting.bytes = 2 * LIMIT  # that snapshot
    peer.teach(lesson)
    assert peer.standing.in_step


def test_a_node_that_keeps_up_gets_all_lessons():
    peer, _ = _peer()
    peer.standing.enter()
    before, lesson = peer.side.bytes_sent, _lesson(50_000)
    for _ in range(30):
        peer.teach(lesson)
    assert peer.side.bytes_sent - before == 30 * len(wire.encode(lesson))
    assert peer.standing.in_step


def _peer():
    """Return a node, and how much waits to be sent to it."""
    waiting = SimpleNamespace(bytes=0)
    transport = SimpleNamespace(get_write_buffer_size=lambda: waiting.bytes)
    writer = SimpleNamespace(transport=transport, is_closing=lambda: False, write=lambda data: None)
    side = HeadSide(2**20)
    side.receive(wire.encode(hello()))
    side.send(wire.Welcome("head"))
    return Peer(1, hello(), side, writer, transport, Pace(1)), waiting


def _lesson(members):
    returns, lengths = np.zeros(members), np.zeros(members, np.uint8)
    everyone = np.array([[0, members]])
    return wire.Learn(3, "ab12", everyone, returns, lengths, None, 0, np.zeros(0), None, 0.0)
