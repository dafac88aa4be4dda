"""The worker that evaluates one member after another."""

import time

from pyes.messages import Batch
from pyes.rollout import Evaluator, open_evaluator
from pyes.worker.base import BaseWorker, Result


class Worker(BaseWorker[Evaluator]):
    """Evaluates one member at a time."""

    def _open_evaluator(self) -> Evaluator:
        return open_evaluator(self._workload, self._plan)

    def work(self) -> None:
        """Evaluate members until none can be claimed."""
        self._begun = time.perf_counter()
        while (member := self._board.claim(self._slot)) >= 0:
            self._finish(member, self._evaluate(member, self._open_batch()))

    def _evaluate(self, member: int, batch: Batch) -> Result:
        """Run the member's episodes; an environment that raises makes the member fail, not the worker.

        Raises
        ------
        MemoryError    there was too little memory; in a process of its own only
        """
        seeds = batch.seeds[member].tolist()
        episode = 0
        try:
            self._evaluator.load(self._perturbed(member, batch), self._board.sums_of(member))
            sums = self._sums(batch)
            for episode, seed in enumerate(seeds):
                self._board.started[self._slot] = time.monotonic()
                episode_return, length = self._evaluator.episode(member, episode, seed)
                behaviour = self._evaluator.behaviour() if self._plan.behaviour_size else None
                sums.add(episode_return, length, behaviour)
        except (Exception, SystemExit) as error:
            if self._is_fatal(error):
                raise
            result = self._failed(error, member, batch, episode)
            self._renew(batch)
            return result
        finally:
            self._board.started[self._slot] = 0.0
        return self._summed_up(member, batch, sums)
