"""The board: claims by one process, by several, and by processes that are killed at random moments."""

import mmap
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pyes import _core

needs_fork = pytest.mark.skipif(sys.platform != "linux", reason="forks processes that are killed")


class Board:
    """A board and a tally of evaluations in memory that forked processes share."""

    def __init__(self, capacity: int) -> None:
        self._memory = mmap.mmap(-1, 8 + 8 * capacity)
        self.cursor: NDArray[np.int64] = np.frombuffer(self._memory, np.int64, 1)
        self.states: NDArray[np.int32] = np.frombuffer(self._memory, np.int32, capacity, 8)
        self.results: NDArray[np.int32] = np.frombuffer(self._memory, np.int32, capacity, 8 + 4 * capacity)

    def open(self, count: int) -> None:
        _core.board_withhold(self.states, count)
        _core.board_offer(self.cursor, self.states, 0, count)

    def claim(self, count: int, worker: int) -> int:
        return _core.board_claim(self.cursor, self.states, count, worker)


def work(board: Board, count: int, worker: int) -> None:
    """Claim, "evaluate" and finish members until none is free."""
    while (member := board.claim(count, worker)) >= 0:
        board.results[member] = member + 1
        assert _core.board_finish(board.states, member, worker)


def test_board_gives_each_member_once_in_order() -> None:
    board = Board(10)
    board.open(7)
    assert [board.claim(7, worker % 3) for worker in range(9)] == [0, 1, 2, 3, 4, 5, 6, -1, -1]
    assert board.states.tolist() == [1, 2, 3, 1, 2, 3, 1, 0, 0, 0]


def test_board_released_members_are_claimed_again() -> None:
    board = Board(4)
    board.open(4)
    for worker in range(4):
        board.claim(4, worker)
    _core.board_release(board.states, 4, 2)
    assert board.claim(4, 0) == 2
    assert board.claim(4, 0) == -1


def test_board_finish_needs_the_claim() -> None:
    board = Board(2)
    board.open(2)
    member = board.claim(2, 5)
    assert not _core.board_finish(board.states, member, 4)
    assert _core.board_finish(board.states, member, 5)
    assert not _core.board_finish(board.states, member, 5)
    _core.board_release(board.states, 2, 5)
    assert _core.board_remaining(board.states, 2) == 1


def test_board_member_drawn_but_never_claimed_is_found() -> None:
    """A worker killed between the cursor and the claim leaves a free member behind the cursor."""
    board = Board(3)
    board.open(3)
    board.cursor[0] += 1
    assert [board.claim(3, 0) for _ in range(4)] == [1, 2, 0, -1]


@given(
    st.integers(0, 12), st.booleans(), st.lists(st.tuples(st.sampled_from("cfrowt"), st.integers(0, 3)), max_size=80)
)
def test_board_against_a_model(count: int, offered: bool, operations: list[tuple[str, int]]) -> None:
    """Any sequence of operations keeps each member in exactly one state."""
    board = Board(12)
    if offered:
        board.open(count)
    else:
        _core.board_withhold(board.states, count)
    held: dict[int, list[int]] = {worker: [] for worker in range(4)}
    free, withheld, done = (set(range(count)), set[int](), set[int]()) if offered else (set(), set(range(count)), set())
    for operation, worker in operations:
        if operation == "c":
            member = board.claim(count, worker)
            assert (member in free) if free else member == -1
            if member >= 0:
                free.remove(member)
                held[worker].append(member)
        elif operation == "f" and held[worker]:
            member = held[worker].pop()
            assert _core.board_finish(board.states, member, worker)
            done.add(member)
        elif operation == "r":
            _core.board_release(board.states, count, worker)
            free.update(held[worker])
            held[worker].clear()
        elif operation == "t":
            assert _core.board_collect(board.states, count).tolist() == sorted(done)
            withheld, done = withheld | done, set()
        elif operation in "ow":
            part = set(range(count * worker // 4, count * (worker + 1) // 4))
            begin, end = min(part, default=0), max(part, default=-1) + 1
            if operation == "o":
                _core.board_offer(board.cursor, board.states, begin, end)
                free, withheld = free | part & withheld, withheld - part
            else:
                _core.board_withdraw(board.states, begin, end)
                free, withheld = free - part, withheld | part & free
        assert _core.board_remaining(board.states, count) == count - len(done) - len(withheld)


@needs_fork
def test_board_shared_by_processes_gives_each_member_once() -> None:
    count = 20_000
    board = Board(count)
    board.open(count)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(board, count, worker)) for worker in range(4)]
    for process in workers:
        process.start()
    for process in workers:
        process.join()
        assert process.exitcode == 0  # every finish met its own claim
    assert _core.board_remaining(board.states, count) == 0
    np.testing.assert_array_equal(board.results, np.arange(1, count + 1))


def fork(function: Callable[..., Any], *arguments: Any) -> int:
    """Run a function in a forked process; return its process id."""
    pid = os.fork()
    if pid == 0:
        try:
            function(*arguments)
        finally:
            os._exit(0)
    return pid


@pytest.mark.slow
@pytest.mark.timeout(300)
@needs_fork
def test_board_survives_workers_killed_at_random_moments() -> None:
    """Workers are killed and replaced; nothing is lost, and a finished member is never handed out again."""
    count, chance, kills = 30_000, random.Random(0), 0
    while kills < 10:  # on a busy machine, workers may be done before the second one
        board = Board(count)
        kills += storm(board, count, chance)
        assert _core.board_remaining(board.states, count) == 0
        np.testing.assert_array_equal(board.results, np.arange(1, count + 1))


def storm(board: Board, count: int, chance: random.Random) -> int:
    """Have three workers, killed again and again, finish a board; return the number of kills."""
    board.open(count)
    pids = {worker: fork(work, board, count, worker) for worker in range(3)}
    kills, done = 0, np.zeros(count, bool)
    while _core.board_remaining(board.states, count) and kills < 1000:
        time.sleep(chance.uniform(0, 0.004))
        worker = chance.randrange(3)
        os.kill(pids[worker], signal.SIGKILL)
        os.waitpid(pids[worker], 0)
        kills += 1
        _core.board_release(board.states, count, worker)
        assert (board.states[done] == -1).all()
        done = board.states == -1
        pids[worker] = fork(work, board, count, worker)
    for pid in pids.values():
        os.waitpid(pid, 0)
    return kills


def test_board_refuses_wrong_arguments() -> None:
    board = Board(4)
    with pytest.raises(ValueError, match="count: got 5, expected 0 <= count <= 4"):
        board.claim(5, 0)
    with pytest.raises(ValueError, match="member: got 4, expected 0 <= member < 4"):
        _core.board_finish(board.states, 4, 0)
    with pytest.raises(ValueError, match="worker: got -1"):
        board.claim(4, -1)
    with pytest.raises(TypeError, match="states: got dtype int64, expected int32"):
        _core.board_remaining(np.zeros(4, np.int64), 4)  # type: ignore[arg-type]
