"""A worker: one process that evaluates members of the board, one after another.

`work` is the whole of it and runs as well in the head's own process (the inline cluster). Workers sleep on a pipe while
there is nothing to claim.
"""

import logging
import math
import time
import traceback
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pyes import _core
from pyes.board import Board
from pyes.messages import Batch, Plan, Status
from pyes.rollout import Evaluator, Workload, open_evaluator

logger = logging.getLogger(__name__)


class Worker:
    """Evaluates members for one slot of a board.

    Parameters
    ----------
    slot : int           this worker's number on the board
    workload : Workload  a task's configuration, or a function of theta
    table : array        the noise table
    own_process : bool   whether want of memory ends the worker, since the process may be damaged, and not the member
    """

    def __init__(
        self,
        slot: int,
        workload: Workload,
        plan: Plan,
        board: Board,
        table: NDArray[np.generic],
        *,
        own_process: bool = False,
    ) -> None:
        self._slot, self._workload, self._plan, self._board, self._table = slot, workload, plan, board, table
        self._own_process = own_process
        self._theta = np.empty(plan.dim, np.float32)
        self._ticket = -1
        self._batch: Batch | None = None
        self._evaluator: Evaluator = open_evaluator(workload, plan)

    def work(self) -> None:
        """Evaluate members until none can be claimed."""
        board, slot = self._board, self._slot
        begun = time.perf_counter()
        while (member := board.claim(slot)) >= 0:
            if board.ticket != self._ticket or self._batch is None:
                self._ticket, self._batch = board.ticket, board.batch()
                self._evaluator.begin(self._batch)
            result = self._evaluate(member, self._batch)
            now = time.perf_counter()
            board.busy[slot] += now - begun
            begun = now
            board.finish(slot, member, result)

    def _evaluate(self, member: int, batch: Batch) -> tuple[float, int, Status]:
        """Run the member's episodes; an environment that raises makes the member fail, not the worker.

        Raises
        ------
        MemoryError    there was too little memory; in a process of its own only
        """
        seeds = batch.seeds[member].tolist()
        episode = 0
        try:
            _core.perturb(
                batch.theta, self._table, int(batch.offsets[member]), float(batch.scales[member]), self._theta
            )
            self._evaluator.load(self._theta, self._board.sums_of(member))
            total, length = 0.0, 0
            for episode, seed in enumerate(seeds):
                self._board.started[self._slot] = time.monotonic()
                episode_return, episode_length = self._evaluator.episode(member, episode, seed)
                total += episode_return
                length += episode_length
        except (Exception, SystemExit) as error:
            if self._own_process and isinstance(error, MemoryError):
                raise
            self._fail(error, f"generation {batch.generation}, member {member}, seed {seeds[episode]}")
            self._board.sums_of(member)  # what a failed member observed does not count
            return math.nan, 0, Status.RAISED
        finally:
            self._board.started[self._slot] = 0.0
        if not math.isfinite(total):
            where = f"generation {batch.generation}, member {member}, seeds {seeds}"
            self._board.report(self._slot, f"the return is {total} ({where})")
            logger.warning("the return is %s (%s)", total, where)
            self._board.sums_of(member)
            return math.nan, length, Status.NOT_FINITE
        return total / len(seeds), length, Status.OK

    def _fail(self, error: BaseException, where: str) -> None:
        """Tell the head, and go on with a new environment: the old one may be in any state."""
        text = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
        self._board.report(self._slot, f"{text} ({where})")
        logger.warning("an episode failed: %s", where, exc_info=error)
        try:
            self._evaluator.close()
        except Exception as failure:
            logger.warning("closing the failed environment raised %s", failure)
        self._evaluator = open_evaluator(self._workload, self._plan)
        assert self._batch is not None
        self._evaluator.begin(self._batch)

    def close(self) -> None:
        """Close the environment."""
        self._evaluator.close()


def serve(worker: Worker, board: Board, wait: Callable[[], bool], done: Callable[[], None]) -> None:
    """Work whenever woken, until ``wait`` says that it is over.

    A new worker works before it first waits: it may be the replacement of one that died over a member.
    """
    while True:
        worker.work()
        if not board.remaining():
            done()
        if not wait():
            return
