"""A head that packs the state for a node that joins goes on meanwhile, and sends what has followed since."""

import asyncio
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from hosts import hello

from pyes.algorithms.population import Population
from pyes.episodes.batch import Batch, Plan
from pyes.remote import wire
from pyes.remote.door import Door
from pyes.remote.head import Head
from pyes.remote.open_batch import OpenBatch
from pyes.remote.pace import Pace
from pyes.remote.peer import Peer
from pyes.remote.wire.protocol import HeadSide, NodeSide
from pyes.run.journal import Generation
from pyes.system import packing

MEMBERS, HASH = 4, "ab12"
PLAN = Plan(seed=0, dim=1, capacity=MEMBERS, episodes=1, observation_size=1, statistics_rows=0, policy=None)
TOLD = wire.Job("job", {}, "replay")


class _State:
    """A state that is copied when the test lets it."""

    def __init__(self, size):
        self.generation, self.theta_hash = 0, HASH
        self.theta = np.zeros(size, np.float32)
        self.may, self.reading = threading.Event(), threading.Event()

    def state_dict(self):
        self.reading.set()
        assert self.may.wait(20.0)
        return {"theta": self.theta.copy(), "generation": self.generation}


class _Writer:
    """A connection that takes everything, or nothing while it is blocked."""

    def __init__(self):
        self.pieces, self.open = [], asyncio.Event()
        self.open.set()
        self.transport = SimpleNamespace(get_write_buffer_size=lambda: 0, abort=lambda: None)

    def write(self, data):
        self.pieces.append(bytes(data))

    async def drain(self):
        await self.open.wait()
        await asyncio.sleep(0)

    def is_closing(self):
        return False


class _Node:
    """A node as its head sees it."""

    def __init__(self, head, number):
        self._head, self._side = head, NodeSide(2**26)
        self.writer, side = _Writer(), HeadSide(2**26)
        side.receive(self._side.send(hello(node=f"node {number}")))
        self.writer.write(side.send(wire.Welcome()))
        self.peer = Peer(number, hello(node=f"node {number}"), side, self.writer, self.writer.transport, Pace(1))
        head.welcome(self.peer)

    def said(self):
        """Return the messages that it has been sent since the last call."""
        pieces, self.writer.pieces = self.writer.pieces, []
        return self._side.receive(b"".join(pieces))

    def ready(self, generation, theta_hash, snapshot=0):
        self._head.take(self.peer, wire.Ready("job", "digest", "table", theta_hash, generation, snapshot, {}))

    def give(self, batch):
        """Return everything that it has been granted."""
        for message in self.said():
            if isinstance(message, wire.Grant):
                members = wire.members_of(message.ranges)
                returns, lengths = np.zeros(len(members)), np.ones(len(members), np.uint8)
                done = wire.Done(batch, HASH, message.ranges, returns, lengths, None, None, None, None, 0.1, [])
                self._head.take(self.peer, done)


@pytest.fixture
def head():
    return Head(Door(None), "here", lambda text: None, "nobody is there")


class _Job(SimpleNamespace):
    place = property(lambda self: (self.state.generation, self.state.theta_hash))

    def difference(self, ready):
        return None


def _job_of(state):
    return _Job(told=TOLD, state=state, learns=True, state_bytes=2**30, message_limit=2**20)


def _batch(number):
    center = Population.center(number - 1, np.zeros(1, np.float32), MEMBERS)
    return OpenBatch(number, Batch(center, np.zeros((MEMBERS, 1), np.int64), 1), HASH, PLAN)


async def _until(condition):
    async with asyncio.timeout(20.0):
        while not condition():
            await asyncio.sleep(0.005)


async def _finish(node, batch):
    while not batch.complete:
        node.give(batch.number)
        await asyncio.sleep(0)


def _record(generation):
    lengths, status = np.ones(MEMBERS, np.uint64), np.zeros(MEMBERS, np.uint8)
    return Generation(generation, HASH, np.zeros(MEMBERS), lengths, status, 0, np.empty(0), None, None)


def test_a_node_that_joins_does_not_stop_the_others_while_the_state_is_packed(head):
    async def scenario():
        state = _State(2**20)
        head.begin_job(_job_of(state))
        there, late = _Node(head, 1), _Node(head, 2)
        there.ready(0, HASH)
        late.ready(0, "00")
        batch = _batch(1)
        head.begin(batch)
        await _until(state.reading.is_set)
        await _finish(there, batch)  # the state is being read, and the other node works
        await asyncio.sleep(0.05)
        assert not batch.future.done(), "the state may change before it has been read"
        state.may.set()
        await _until(batch.future.done)

        state.generation = 1
        head.teach(_record(0))
        await _until(lambda: head._copy.pieces is not None)
        assert not [each for each in late.said() if isinstance(each, wire.Snapshot)], "there was no batch"
        batch = _batch(2)
        head.begin(batch)
        sent = []
        await _until(lambda: sent.extend(late.said()) or any(isinstance(each, wire.Learn) for each in sent))
        kinds = [type(each) for each in sent if isinstance(each, wire.Snapshot | wire.Learn | wire.Open)]
        assert kinds == [wire.Snapshot, wire.Learn]
        snapshot = next(each for each in sent if isinstance(each, wire.Snapshot))
        found = packing.unpack(snapshot.state)
        assert (snapshot.generation, found["generation"]) == (0, 0)
        assert np.array_equal(found["theta"], state.theta)
        assert 2 not in batch.scheduler, "it needs a while for this, in which nothing waits for it"
        late.ready(0, HASH, snapshot.number)
        assert 2 in batch.scheduler
        await head.settled()

    asyncio.run(scenario())


def test_a_large_snapshot_waits_in_parts_and_other_messages_after_it(head):
    async def scenario():
        node = _Node(head, 1)
        node.said()
        node.ready(0, "00")
        node.writer.open.clear()
        state = (b"head", memoryview(bytes(3 * 2**20)))
        node.peer.correct((0, HASH), state)
        node.peer.send(wire.Close(3))
        await asyncio.sleep(0.01)
        assert sum(map(len, node.writer.pieces)) <= 2**19, "all at once"
        node.writer.open.set()
        await _until(lambda: not node.peer.sending)
        assert max(map(len, node.writer.pieces)) <= 2**18
        snapshot, close = node.said()
        assert (snapshot.state, close.batch) == (b"".join(state), 3)

    asyncio.run(scenario())
