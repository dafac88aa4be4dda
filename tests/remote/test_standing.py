"""Whether a node is in step, by its messages and those sent to it: the races between them, one by one."""

import pytest

from pyes.remote import wire
from pyes.remote.standing import Heard, Standing

HERE, NEXT, WRONG = (3, "right"), (4, "next"), (4, "one bit off")


def ready(place, snapshot=0):
    return wire.Ready("job", "digest", "table", place[1], place[0], snapshot, {})


@pytest.fixture
def standing():
    """Return that of a node that came late, and has been sent a snapshot."""
    standing = Standing()
    assert standing.hear(ready((0, ""))) is Heard.READY
    _correct(standing, HERE)
    assert standing.snapshot == 1
    return standing


def _correct(standing, place):
    assert standing.lacks(place)
    assert not standing.hopeless
    standing.correct(place)
    standing.enter()


def test_a_node_that_is_where_the_run_is_needs_no_snapshot():
    standing = Standing()
    assert standing.hear(ready(HERE)) is Heard.READY
    assert not standing.lacks(HERE)
    assert standing.lacks(NEXT)


def test_the_answer_to_a_snapshot_is_no_news(standing):
    assert standing.hear(ready(HERE, 1)) is Heard.NOTHING
    assert standing.in_step


def test_what_was_said_before_the_snapshot_came_is_of_the_past(standing):
    assert standing.hear(ready((0, ""), 0)) is Heard.NOTHING
    assert standing.hear(ready(HERE, 0)) is Heard.NOTHING
    assert standing.in_step
    assert standing.hear(ready(HERE, 1)) is Heard.NOTHING


def test_a_node_that_stays_where_the_snapshot_was_is_out_of_step(standing):
    """It could not learn: it says the same as in its answer, once more."""
    standing.hear(ready(HERE, 1))
    assert standing.hear(ready(HERE, 1)) is Heard.ASTRAY
    assert standing.ready
    assert not standing.in_step
    assert standing.lacks(NEXT)


def test_one_wrong_update_counts_once_however_often_it_is_said(standing):
    standing.hear(ready(HERE, 1))
    for _ in range(10):
        standing.returned(3)
        assert standing.hear(ready(WRONG, standing.snapshot)) is Heard.ASTRAY
        before = standing.snapshot
        _correct(standing, NEXT)  # before what it has said besides, at the same place, is here
        assert {standing.hear(ready(WRONG, before)) for _ in range(3)} == {Heard.NOTHING}
        assert standing.hear(ready(NEXT, standing.snapshot)) is Heard.NOTHING
        standing.returned(5)


def test_a_node_whose_updates_all_come_out_wrong_is_hopeless(standing):
    standing.hear(ready(HERE, 1))
    for _ in range(2):
        standing.returned(3)  # an evaluation, or the generation of the snapshot itself
        assert standing.hear(ready(WRONG, standing.snapshot)) is Heard.ASTRAY
        _correct(standing, HERE)
        assert standing.hear(ready(HERE, standing.snapshot)) is Heard.NOTHING
    assert standing.hear(ready(WRONG, standing.snapshot)) is Heard.ASTRAY
    assert standing.hopeless


def test_a_node_that_was_not_sent_all_is_sent_a_snapshot_as_often_as_it_takes(standing):
    for _ in range(10):
        standing.miss()
        _correct(standing, NEXT)


def test_a_snapshot_that_was_never_sent_is_a_lie(standing):
    with pytest.raises(ValueError, match="it names snapshot 2, it was sent 1"):
        standing.hear(ready(HERE, 2))


def test_who_leaves_is_neither_ready_nor_in_step(standing):
    standing.leave()
    assert not standing.ready
    assert not standing.in_step
