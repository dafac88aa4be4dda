"""A batch at the head: what it takes from nodes, and what it notes where they do not agree."""

import numpy as np
import pytest

from pyes.algorithms.population import Population
from pyes.episodes.batch import Batch, Plan
from pyes.remote import wire
from pyes.remote.open_batch import OpenBatch
from pyes.remote.pace import Pace

HASH = "ab12"
EPISODES = 3


def opened(limit: int) -> OpenBatch:
    """Return a batch of one member, which both of two nodes have been given."""
    center = Population.center(0, np.zeros(1, np.float32), 1)
    plan = Plan(seed=0, dim=1, capacity=1, episodes=EPISODES, observation_size=1, statistics_rows=0, policy=None)
    batch = OpenBatch(1, Batch(center, np.zeros((1, EPISODES), np.int64), limit), HASH, plan)
    for node in (1, 2):
        batch.scheduler.join(node, Pace(1))
    given = [node for seconds in (0.0, 1000.0) for node, _ in batch.scheduler.grants(seconds)]
    assert given == [1, 2]
    return batch


def done(returned: float, length: int) -> wire.Done:
    returns, lengths = np.array([returned]), np.array([length], np.uint64)
    return wire.Done(1, HASH, np.array([[0, 1]]), returns, lengths, None, None, None, None, 0.1, [])


def test_a_member_has_at_most_the_timesteps_of_its_episodes():
    batch = opened(limit=10)
    with pytest.raises(ValueError, match="returned a member with 31 timesteps, expected at most 30"):
        batch.take(1, done(1.0, 31), 0.0)
    assert len(batch.take(1, done(1.0, 30), 0.0)) == 1
    assert batch.results().lengths.tolist() == [30]


@pytest.mark.parametrize(("second", "disputed"), [((1.0, 20), []), ((1.5, 20), [(0, 1, 2)]), ((1.0, 21), [(0, 1, 2)])])
def test_two_nodes_that_return_other_results_of_a_member_are_noted(
    second: tuple[float, int], disputed: list[tuple[int, int, int]]
):
    batch = opened(limit=10)
    batch.take(1, done(1.0, 20), 0.0)
    assert len(batch.take(2, done(*second), 0.0)) == 0
    assert batch.disputed == disputed
    assert batch.results().returns.tolist() == [1.0]
