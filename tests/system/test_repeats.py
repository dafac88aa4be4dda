import itertools

from pyes.system.repeats import Repeats


def _shown(repeats, kind, times):
    return [seen for seen in (repeats.count(kind) for _ in range(times)) if seen is not None]


def test_the_first_of_each_kind_are_shown_and_all_are_counted():
    repeats = Repeats(first=3, clock=lambda: 0.0)
    assert [seen.total for seen in _shown(repeats, "a", 1000)] == [1, 2, 3]
    assert len(_shown(repeats, "b", 2)) == 2
    ((kind, count),) = repeats.left_out().items()
    assert (kind, count.left_out, count.total) == ("a", 997, 1000)


def test_a_message_is_shown_again_after_a_minute_then_two_then_four_up_to_an_hour():
    now = 0.0
    repeats = Repeats(first=1, clock=lambda: now)
    times = []
    for second in range(6 * 3600):
        now = float(second)
        if (seen := repeats.count("a")) is not None:
            times.append(second)
            assert seen.total == second + 1
            assert seen.left_out == (times[-1] - times[-2] - 1 if len(times) > 1 else 0)
    assert times[:5] == [0, 60, 180, 420, 900]
    assert {after - before for before, after in itertools.pairwise(times[7:])} == {3600}
    assert repeats.count("a") is None


def test_what_is_shown_after_some_were_left_out_says_how_many():
    now = 0.0
    repeats = Repeats(first=1, clock=lambda: now)
    assert repeats.count("a").remark == ""
    _shown(repeats, "a", 1499)
    now = 61.0
    assert repeats.count("a").remark == " (and 1,499 more like this, 1,501 in all)"
    assert repeats.left_out() == {}


def test_kinds_beyond_the_limit_are_one():
    repeats = Repeats(first=2, kinds=10, clock=lambda: 0.0)
    assert sum(len(_shown(repeats, f"kind {number}", 5)) for number in range(1000)) == 2 * 11
    assert sum(count.total for count in repeats.left_out().values()) == 5000
