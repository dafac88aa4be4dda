"""Episodes of many members at once: one call steps all environments, another computes all actions.

Owns the loop over timesteps of a vector of environments. Knows nothing of populations or processes. Invariant: each
episode equals, bit for bit, that of `pyes.episodes.rollout` for the same member and seed.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes import _core
from pyes.algorithms.population import Member
from pyes.episodes.batch import Batch, Plan
from pyes.tasks import VectorTask


@dataclass(frozen=True)
class Ended:
    """An episode that has ended: its slot, return, length, and behaviour if wanted."""

    slot: int
    return_: float
    length: int
    behaviour: NDArray[Any] | None


class VectorEvaluator:
    """Evaluates policies in a vector of environments, one per slot; owns the task."""

    def __init__(self, task: VectorTask, plan: Plan) -> None:
        assert plan.policy is not None
        self._task = task
        self._seed = plan.seed
        self._clip = plan.policy.observation_clip
        batch = plan.reference_batch
        self._runners: list[Any] = [plan.policy.runner(reference_batch=batch) for _ in range(plan.vector)]
        self._policies = _core.PolicyBatch(self._runners)
        self._characterised = plan.behaviour_size > 0
        self._limit = self._generation = 0
        self._least = np.float64(-np.inf)

    def begin(self, batch: Batch) -> None:
        """Set the normalisation, the episode limit, the least reward, and whether actions are noisy."""
        self._limit, self._generation = batch.limit, batch.generation
        self._least = np.float64(batch.reward_min)
        for runner in self._runners:
            runner.normalize(batch.mean, batch.inverse_std, self._clip)
            runner.set_action_noise(not batch.evaluation)

    def load(self, slot: int, parameters: Member, sums: NDArray[np.float64] | None) -> None:
        """Load a member's parameters into a slot; its observations are added to ``sums``."""
        self._runners[slot].load(*parameters)
        self._runners[slot].collect(sums)

    def episode(self, members: Sequence[int], episode: int, seeds: Sequence[int]) -> Iterator[Ended]:
        """Run one episode of each of the loaded members; yield each as it ends.

        Parameters
        ----------
        members : Sequence[int]
            Members in the first slots.
        episode : int
            Index of the episode.
        seeds : Sequence[int]
            Environment seed of each member.
        """
        for slot, member in enumerate(members):
            self._runners[slot].begin_episode(self._seed, self._generation, member, episode)
        observations = self._task.reset(seeds)
        slots, totals = np.arange(len(members)), np.zeros(len(members))
        for length in range(1, (self._limit or sys.maxsize) + 1):
            actions = self._policies.act(observations, slots)
            observations, rewards, ended = self._task.step(slots, actions)
            totals[slots] += np.maximum(rewards.astype(np.float64), self._least)
            if length == self._limit:
                ended = np.ones_like(ended)
            if ended.any():
                for row in np.flatnonzero(ended).tolist():
                    self._runners[slots[row]].check(observations[row])  # no policy has seen the last ones
                    behaviour = np.ravel(observations[row]) if self._characterised else None
                    yield Ended(int(slots[row]), float(totals[slots[row]]), length, behaviour)
                slots, observations = slots[~ended], observations[~ended]
                if not len(slots):
                    return

    def close(self) -> None:
        """Close the environments."""
        self._task.close()
