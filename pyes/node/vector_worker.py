"""The worker that evaluates many members at once, for tasks that step a vector of environments in one call.

It claims members in *waves*: the episodes of a wave begin together and end independently. Invariant: results are those
of each member evaluated alone. If a wave raises or kills its worker, each of its members is evaluated again in a wave
of its own, so that no member fails because of another.
"""

import logging
import time

from pyes import tasks
from pyes.config import TaskConfig
from pyes.episodes.batch import Batch
from pyes.episodes.vector_rollout import VectorEvaluator
from pyes.node.worker import BaseWorker, Sums
from pyes.system.repeats import repeated
from pyes.system.text import origin
from pyes.system.user_code import is_ctrl_c

logger = logging.getLogger(__name__)


class VectorWorker(BaseWorker[VectorEvaluator]):
    """Evaluates up to ``plan.vector`` members at a time."""

    def _open_evaluator(self) -> VectorEvaluator:
        assert isinstance(self._workload, TaskConfig)
        return VectorEvaluator(tasks.make_vector(self._workload), self._plan)

    def work(self) -> None:
        """Evaluate members until none can be claimed."""
        self._begun = time.perf_counter()
        while waves := self._claim():
            for members in waves:
                self._evaluate(members, self._open_batch())

    def _claim(self) -> list[list[int]]:
        """Claim members; return the waves in which to evaluate them.

        A member that may have killed a worker is claimed and evaluated last and alone: if it kills this worker, no
        other member is held.
        """
        together: list[int] = []
        for _ in range(self._board.wave(self._plan.vector)):
            member = self._board.claim(self._slot)
            if member < 0:
                break
            if self._board.alone[member]:
                return [together, [member]] if together else [[member]]
            together.append(member)
        return [together] if together else []

    def _evaluate(self, members: list[int], batch: Batch) -> None:
        """Run the episodes of a wave; if it raises, evaluate each unfinished member in a wave of its own.

        Raises
        ------
        MemoryError
            There was too little memory; only in a worker process.
        """
        wave = _Wave(members, [self._sums(batch) for _ in members])
        try:
            self._run(wave, batch)
        except BaseException as error:
            if is_ctrl_c(error) or self._is_fatal(error):
                raise
            if len(members) == 1:
                self._finish(wave.unfinished.pop(), self._failed(error, members[0], batch, wave.episode))
            else:
                text = "members that were evaluated together failed; each is evaluated again by itself"
                logger.warning("%d %s", len(members), text, exc_info=error, extra=repeated(f"{text}: {origin(error)}"))
            self._renew(batch)
        finally:
            self._board.started[self._slot] = 0.0
        for member in wave.unfinished:
            self._evaluate([member], batch)

    def _run(self, wave: "_Wave", batch: Batch) -> None:
        members, last = wave.members, batch.seeds.shape[1] - 1
        for slot, member in enumerate(members):
            self._evaluator.load(slot, batch.population.member(member, self._table), self._board.sums_of(member))
        for wave.episode in range(last + 1):
            self._board.started[self._slot] = time.monotonic()
            seeds = batch.seeds[members, wave.episode].tolist()
            for ended in self._evaluator.episode(members, wave.episode, seeds):
                self._board.started[self._slot] = time.monotonic()
                wave.sums[ended.slot].add(ended.return_, ended.length, ended.behaviour)
                if wave.episode == last:
                    member = members[ended.slot]
                    self._finish(member, self._summed_up(member, batch, wave.sums[ended.slot]))
                    wave.unfinished.remove(member)


class _Wave:
    """Members that are evaluated together, and their sums so far."""

    def __init__(self, members: list[int], sums: list[Sums]) -> None:
        self.members, self.sums = members, sums
        self.unfinished = list(members)
        self.episode = 0
