"""Workers: they claim members on the board, evaluate them, and write results and failures to it.

`BaseWorker` has what all workers share and does not know how members are evaluated; `Worker` evaluates one member
after another. Invariant: if an environment raises, the member fails, not the worker.
"""

import logging
import math
import time
import traceback
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pyes.episodes.batch import Batch, Plan, Status
from pyes.episodes.rollout import Evaluator, Workload, open_evaluator
from pyes.node.board import Board
from pyes.system.repeats import repeated
from pyes.system.text import origin, reason
from pyes.system.user_code import is_ctrl_c, way_back


class Sums:
    """Sums over the episodes of a member, in order.

    Parameters
    ----------
    episodes : int
        Number of episodes.
    behaviour_size : int
        Size of each episode's behaviour.

    Attributes
    ----------
    total : float
        Sum of returns.
    length : int
        Sum of timesteps.
    behaviour : float64 (behaviour_size,)
        Sum of behaviours.
    """

    def __init__(self, episodes: int, behaviour_size: int) -> None:
        self.episodes = episodes
        self.total, self.length, self.behaviour = 0.0, 0, np.zeros(behaviour_size)
        self._first = episodes // 2  # episodes of the first half
        self._halves = [0.0, 0.0]
        self._added = 0

    def add(self, episode_return: float, length: int, behaviour: NDArray[Any] | None) -> None:
        """Add the next episode; its behaviour is None if not wanted."""
        self.total += episode_return
        self.length += length
        if behaviour is not None:
            self.behaviour += behaviour
        self._halves[int(self._added >= self._first)] += episode_return
        self._added += 1

    @property
    def halves(self) -> NDArray[np.float64]:
        """Mean return over each half of the episodes, (2,); NaN with a single episode."""
        if not self._first:
            return np.full(2, np.nan)
        return np.array(self._halves) / (self._first, self.episodes - self._first)


logger = logging.getLogger(__name__)

Result = tuple[float, int, Status]


class _Evaluator(Protocol):
    def begin(self, batch: Batch) -> None: ...

    def close(self) -> None: ...


E = TypeVar("E", bound=_Evaluator)


class BaseWorker(ABC, Generic[E]):
    """Evaluates members for one slot of a board.

    Parameters
    ----------
    slot : int
        This worker's number on the board.
    workload : Workload
        A task's configuration, or a function of theta.
    plan : Plan
    board : Board
    table : array
        The noise table.
    own_process : bool
        Whether a MemoryError ends the worker, whose process may be damaged, instead of failing the member.
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
        self._go_back = way_back()
        self._ticket = -1
        self._batch: Batch | None = None
        self._begun = 0.0  # begin of the time that counts as work
        self.traceback: TracebackType | None = None  # of the last failed member, in the owner's own process
        self._evaluator: E = self._open_evaluator()

    @abstractmethod
    def _open_evaluator(self) -> E:
        """Make the evaluator."""

    @abstractmethod
    def work(self) -> None:
        """Evaluate members until none can be claimed."""

    def _open_batch(self) -> Batch:
        """Return the batch on the board, with the evaluator ready for it; a member of it must be claimed."""
        if self._board.ticket != self._ticket or self._batch is None:
            self._ticket, self._batch = self._board.ticket, self._board.batch()
            self._evaluator.begin(self._batch)
        return self._batch

    def _finish(self, member: int, result: Result) -> None:
        """Write a member's result, and the time since the last one."""
        now = time.perf_counter()
        self._board.busy[self._slot] += now - self._begun
        self._begun = now
        self._board.finish(self._slot, member, result)

    def _sums(self, batch: Batch) -> Sums:
        """Return empty sums for a member's episodes."""
        return Sums(batch.seeds.shape[1], self._plan.behaviour_size)

    def _summed_up(self, member: int, batch: Batch, sums: Sums) -> Result:
        """Return the result of a member after its episodes; write its behaviour and halves to the board."""
        total = sums.total
        if not math.isfinite(total):
            where = f"generation {batch.generation}, member {member}, seeds {batch.seeds[member].tolist()}"
            self._board.report(self._slot, f"the return is {total} ({where})")
            logger.warning("the return is %s (%s)", total, where, extra=repeated(f"the return is {total}"))
            self._board.forget(member)  # observations of a failed member do not count
            return math.nan, sums.length, Status.NOT_FINITE
        if self._plan.behaviour_size:
            self._board.behaviours[member] = sums.behaviour / sums.episodes
        if self._plan.halves:
            self._board.halves[member] = sums.halves
        return total / sums.episodes, sums.length, Status.OK

    def _failed(self, error: BaseException, member: int, batch: Batch, episode: int) -> Result:
        """Return the result of a member whose episode raised; report the error to the owner."""
        where = f"generation {batch.generation}, member {member}, seed {batch.seeds[member, episode]}"
        text = f"{reason(error)} ({where})"
        self._board.report(self._slot, text)
        logger.warning(
            "an episode failed: %s", text, exc_info=error, extra=repeated(f"an episode failed: {origin(error)}")
        )
        if not self._own_process and error.__traceback__ is not None:
            self.traceback = error.__traceback__.tb_next  # without the frame of this worker, which is not over
            traceback.clear_frames(self.traceback)  # their variables hold the environment and the board
        self._board.forget(member)
        # In a process of its own, want of memory has cost the member that process.
        return math.nan, 0, Status.KILLED if isinstance(error, MemoryError) else Status.RAISED

    def _is_fatal(self, error: BaseException) -> bool:
        """Whether an error ends the worker."""
        return self._own_process and isinstance(error, MemoryError)

    def _renew(self, batch: Batch) -> None:
        """Go on with a new environment: one that raised may be in any state.

        The member is finished: if the old environment hangs as it closes, or the new one as it is made, the worker is
        replaced and the member is none the worse.
        """
        self._board.started[self._slot] = time.monotonic()
        self._evaluator.close()
        self._go_back()
        self._evaluator = self._open_evaluator()
        self._evaluator.begin(batch)

    def close(self) -> None:
        """Close the environment."""
        self._evaluator.close()


class Worker(BaseWorker[Evaluator]):
    """Evaluates one member at a time."""

    def _open_evaluator(self) -> Evaluator:
        return open_evaluator(self._workload, self._plan)

    def work(self) -> None:
        """Evaluate members until none can be claimed."""
        self._begun = time.perf_counter()
        while (member := self._board.claim(self._slot)) >= 0:
            self._evaluate(member, self._open_batch())

    def _evaluate(self, member: int, batch: Batch) -> None:
        """Run the member's episodes; if the environment raises, the member fails, not the worker.

        Raises
        ------
        MemoryError
            There was too little memory; only in a worker process.
        """
        seeds = batch.seeds[member].tolist()
        episode = 0
        try:
            self._evaluator.load(batch.population.member(member, self._table), self._board.sums_of(member))
            sums = self._sums(batch)
            for episode, seed in enumerate(seeds):
                self._board.started[self._slot] = time.monotonic()
                episode_return, length = self._evaluator.episode(member, episode, seed)
                behaviour = self._evaluator.behaviour() if self._plan.behaviour_size else None
                sums.add(episode_return, length, behaviour)
        except BaseException as error:
            if is_ctrl_c(error) or self._is_fatal(error):
                raise
            self._finish(member, self._failed(error, member, batch, episode))
            self._renew(batch)
        else:
            self._finish(member, self._summed_up(member, batch, sums))
        finally:
            self._board.started[self._slot] = 0.0
