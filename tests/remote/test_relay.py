"""What a relay makes of the members that it is granted and of its nodes' results, without connections."""

import asyncio
import socket
from types import SimpleNamespace

import numpy as np
import pytest

from pyes.algorithms.population import Population
from pyes.episodes.batch import Batch, Plan
from pyes.remote import wire
from pyes.remote.door import Door
from pyes.remote.pace import Pace
from pyes.remote.relay import RelaySession, _Nodes
from pyes.system.addresses import Address

MEMBERS = 10
PLAN = Plan(seed=0, dim=1, capacity=MEMBERS, episodes=1, observation_size=2, statistics_rows=4, policy=None)
BATCH = Batch(
    Population.center(0, np.zeros(1, np.float32), MEMBERS), np.zeros((MEMBERS, 1), np.int64), 1, statistics_stride=3
)


@pytest.fixture
def nodes():
    """Return the nodes of a relay, none of which is real, with one that has four workers in the open batch."""
    head = SimpleNamespace(begin=lambda share: None, close_batch=lambda: None, hand_out_soon=lambda: None, workers=4)
    made = _Nodes(head)
    made.open(BATCH, "hash", PLAN)
    made._share.scheduler.join(7, Pace(4))
    return made


def _returned(nodes, *members, errors=()):
    """Let the node return members, whose returns are their numbers."""
    members = np.array(members)
    summed = members[members % 3 == 0]
    sums = np.broadcast_to(summed[:, None, None], (len(summed), 2, 2)).astype(np.float64) if len(summed) else None
    ranges, lengths = wire.ranges_of(members), np.ones(len(members), np.uint8)
    done = wire.Done(1, "hash", ranges, members.astype(float), lengths, None, sums, None, None, 0.5, list(errors))
    nodes._share.take(7, done, 1.0)


def _granted(nodes):
    return [members.tolist() for _, members in nodes._share.scheduler.grants(0.0)]


def test_results_are_collected_in_parts_with_the_sums_of_their_members(nodes):
    nodes.offer(0, 10)
    nodes._share.scheduler._nodes[7].pace.record(1000.0, 1000)
    granted = _granted(nodes)[0]
    assert granted[:7] == [0, 1, 2, 3, 4, 5, 6]
    assert nodes.running().tolist() == granted
    _returned(nodes, 3, 4)
    _returned(nodes, 0, 6)
    results = nodes.collect()
    assert results.members.tolist() == results.returns.tolist() == [0, 3, 4, 6]
    assert results.sums[:, 0, 0].tolist() == [0.0, 3.0, 6.0]
    assert results.sum_lengths.tolist() == [1, 1, 1]
    assert (results.busy_seconds, nodes.remaining()) == (1.0, 6)
    assert len(nodes.collect().members) == 0


def test_results_are_looked_for_when_all_are_back(nodes):
    stirred = []
    nodes.watch(lambda: stirred.append(nodes.remaining()))
    nodes.open(BATCH, "hash", PLAN)
    nodes._share.scheduler.join(7, Pace(4))
    nodes.offer(0, 3)
    assert _granted(nodes) == [[0, 1, 2]]
    _returned(nodes, 0, 1)
    assert stirred == []
    _returned(nodes, 2)
    assert stirred == [0]


def test_errors_are_passed_on_once(nodes):
    nodes.offer(0, 3)
    _granted(nodes)
    _returned(nodes, 0, errors=["one", "one"])
    assert nodes.collect().errors == ["one"]
    _returned(nodes, 1, errors=["two"])
    assert nodes.collect().errors == ["two"]


def test_members_that_are_withdrawn_are_not_collected(nodes):
    nodes.offer(0, 3)
    _granted(nodes)
    nodes.withdraw(1, 2**31)
    assert nodes.remaining() == 1
    _returned(nodes, 0, 1)
    assert nodes.collect().members.tolist() == [0]
    assert nodes.remaining() == 0


def test_a_batch_that_is_opened_again_has_another_number(nodes):
    """Results of the first time, which may be on their way, are not for it."""
    first = nodes._share.number
    nodes.close_batch()
    nodes.open(BATCH, "hash", PLAN)
    assert nodes._share.number != first
    nodes.close_batch()
    nodes.withdraw(0, 5)
    assert (nodes.remaining(), nodes.running().tolist()) == (0, [])


def test_a_relay_stays_with_a_head_that_has_no_job_yet_while_its_node_prepares():
    sent, said = [], []
    nothing = wire.Leave(0, wire.ranges_of(np.zeros(0, np.int64)))
    ready = wire.Ready("job", "settings", "table", "theta", 0, 0, {})
    replica = SimpleNamespace(job="job", check=lambda: None, retire=lambda: (None, nothing), ready=lambda: ready)
    nodes = SimpleNamespace(workers=0, expected=1)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        session = RelaySession(Address("127.0.0.1", 1), None, listening, Door(None), None, said.append)
        session._head, session._replica = nodes, replica  # which it has from its last connection
        session._hello()
        session._look_after(replica, sent.append)
        assert asyncio.run(session._join(wire.Job("job", {}, "replay"))) is None
        session._look_after(replica, sent.append)
        assert (sent, said) == ([], [])
        nodes.workers = 1
        session._look_after(replica, sent.append)
        assert sent.pop() is ready
        nodes.workers = nodes.expected = 0
        session._look_after(replica, sent.append)
        assert (sent, said) == ([nothing], ["leaving the head until there is a node"])
