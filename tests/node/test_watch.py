import pytest

from pyes.node.watch import OutOfMemory, Watch


def test_watch_counts_the_time_at_the_same_thing():
    watch = Watch()
    assert watch.look(100.0, [7.0, 0.0]) == [0.0, 0.0]
    assert watch.look(100.5, [7.0, 8.0]) == pytest.approx([0.5, 0.0])
    assert watch.look(101.0, [7.0, 8.0]) == pytest.approx([1.0, 0.5])
    assert watch.look(101.5, [9.0, 8.0]) == pytest.approx([0.0, 1.0])


def test_watch_nothing_may_last():
    watch = Watch()
    assert [watch.look(now, [0.0])[0] for now in (1.0, 1.5, 2.0)] == [0.0, 0.0, 0.0]


def test_watch_of_a_machine_that_was_suspended_counts_one_second():
    watch = Watch()
    watch.look(100.0, [7.0])
    assert watch.look(100.5, [7.0]) == pytest.approx([0.5])
    assert watch.look(4000.5, [7.0]) == pytest.approx([1.5])
    assert watch.look(4001.0, [7.0]) == pytest.approx([2.0])


def test_watch_keeps_what_it_saw_when_the_caller_changes_its_list():
    watch, doing = Watch(), [7.0]
    watch.look(1.0, doing)
    doing[0] = 8.0
    assert watch.look(1.5, doing) == [0.0]


def test_out_of_memory_holds_for_some_seconds_after_the_count_rose():
    memory = OutOfMemory(3)
    assert [memory.look(now, 3) for now in (0.0, 1.0)] == [False, False]
    assert memory.look(2.0, 4)
    assert memory.look(11.0, 4)
    assert not memory.look(13.0, 4)


def test_out_of_memory_without_a_count_is_always_possible():
    memory = OutOfMemory(None)
    assert memory.look(100.0, None)
    assert memory.look(900.0, None)
