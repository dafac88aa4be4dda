"""Whether a node is in step, by what it says and what it was sent: the races between the two, one by one."""

import pytest

from pyes import wire
from pyes.cluster.standing import Standing

HERE, NEXT, WRONG = (3, "right"), (4, "next"), (4, "one bit off")


def ready(place, snapshot=0):
    return wire.Ready("job", "digest", "table", place[1], place[0], snapshot)


@pytest.fixture
def standing():
    """Return that of a node that came late, and has been sent a snapshot."""
    standing = Standing()
    assert standing.hear(ready((0, "")))
    assert standing.lacks(HERE)
    assert standing.correct(HERE)
    standing.in_step = True
    assert standing.snapshot == 1
    return standing


def test_a_node_that_is_where_the_run_is_needs_no_snapshot():
    standing = Standing()
    assert standing.hear(ready(HERE))
    assert not standing.lacks(HERE)
    assert standing.lacks(NEXT)


def test_the_answer_to_a_snapshot_is_no_news(standing):
    assert not standing.hear(ready(HERE, 1))
    assert standing.in_step


def test_what_was_said_before_the_snapshot_came_is_of_the_past(standing):
    assert not standing.hear(ready((0, ""), 0))
    assert not standing.hear(ready(HERE, 0))
    assert standing.in_step
    assert not standing.hear(ready(HERE, 1))


def test_a_node_that_stays_where_the_snapshot_was_is_out_of_step(standing):
    """It could not learn: it says the same as in its answer, once more."""
    standing.hear(ready(HERE, 1))
    assert standing.hear(ready(HERE, 1))
    assert standing.ready
    assert not standing.in_step
    assert standing.lacks(NEXT)


def test_one_wrong_update_counts_once_however_often_it_is_said(standing):
    standing.hear(ready(HERE, 1))
    for _ in range(10):
        standing.returned(3)
        assert standing.hear(ready(WRONG, standing.snapshot))
        assert standing.correct(NEXT)  # the first message is dealt with before the second, third and fourth come
        standing.in_step = True
        assert not any(standing.hear(ready(WRONG, standing.snapshot - 1)) for _ in range(3))
        assert not standing.hear(ready(NEXT, standing.snapshot))
        standing.returned(5)


def test_snapshots_end_where_no_update_comes_out_right(standing):
    standing.hear(ready(HERE, 1))
    for _ in range(2):
        standing.returned(3)  # an evaluation, or the generation of the snapshot itself
        assert standing.hear(ready(WRONG, standing.snapshot))
        assert standing.correct(HERE)
        standing.in_step = True
        assert not standing.hear(ready(HERE, standing.snapshot))
    assert standing.hear(ready(WRONG, standing.snapshot))
    assert not standing.correct(HERE)


def test_who_leaves_is_neither_ready_nor_in_step(standing):
    standing.leave()
    assert not standing.ready
    assert not standing.in_step
