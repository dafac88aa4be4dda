"""When the center is evaluated: every ``evaluation.every`` generations, within ``evaluation.share`` of the timesteps.

Owns the rule, which counts timesteps that the journal holds and never looks at a clock. So the generations with an
evaluation follow from the settings, and a resumed run evaluates where an uninterrupted one does.
"""

from dataclasses import dataclass

from pyes.config import EvaluationConfig
from pyes.run.journal import Evaluation, Generation, Kind, Recording


@dataclass
class EvaluationCosts:
    """Timesteps that the evaluations in the journal took.

    Attributes
    ----------
    total : int
        Of all of them.
    last, episodes : int
        Timesteps and episodes of the last one; both 0 before the first.
    """

    total: int = 0
    last: int = 0
    episodes: int = 0

    def add(self, record: Evaluation) -> None:
        """Count one more evaluation; one that was recorded without a share costs nothing."""
        self.last, self.episodes = record.timesteps or 0, len(record.returns)
        self.total += self.last

    def expected(self, episodes: int) -> float:
        """Return the timesteps that so many episodes will take if they are as long as those of the last evaluation."""
        return self.last * episodes / self.episodes if self.episodes else 0.0


def is_due(config: EvaluationConfig, generation: int, timesteps: int, costs: EvaluationCosts) -> bool:
    """Whether the center is to be evaluated after ``generation`` updates.

    Parameters
    ----------
    config : EvaluationConfig
        ``every``, ``episodes`` and ``share``.
    generation : int
        Updates that theta has had.
    timesteps : int
        Of training, so far.
    costs : EvaluationCosts
        Of the evaluations so far; without any, the first one is never skipped.
    """
    if not config.every or generation % config.every:
        return False
    if config.share is None or not costs.episodes:
        return True
    return costs.total + costs.expected(config.episodes) <= config.share * timesteps


def ends_before_one(recording: Recording, config: EvaluationConfig) -> bool:
    """Whether the last record is a generation after which an evaluation is due: the run was stopped in between."""
    generation = recording.generations
    if not generation or recording.entries[-1].kind != Kind.GENERATION:
        return False
    if not config.every or generation % config.every:
        return False  # saves reading the journal
    timesteps, costs = 0, EvaluationCosts()
    for index in range(len(recording)):
        record = recording[index]
        if isinstance(record, Generation):
            timesteps += int(record.lengths.sum())
        elif isinstance(record, Evaluation):
            costs.add(record)
    return is_due(config, generation, timesteps, costs)
