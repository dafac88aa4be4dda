"""When the center is evaluated: every ``evaluation.every`` generations, within ``evaluation.share`` of the timesteps.

Owns the rule, which depends on the timesteps in the journal and never on a clock. So the settings determine which
generations are evaluated, and a resumed run evaluates the same ones as an uninterrupted run.
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
        Timesteps of all evaluations.
    last, episodes : int
        Timesteps and episodes of the last evaluation; both 0 before the first.
    """

    total: int = 0
    last: int = 0
    episodes: int = 0

    def add(self, record: Evaluation) -> None:
        """Add an evaluation; one that was recorded without a share costs nothing."""
        self.last, self.episodes = record.timesteps or 0, len(record.returns)
        self.total += self.last

    def expected(self, episodes: int) -> float:
        """Return the timesteps of ``episodes`` episodes of the mean length of the last evaluation's."""
        return self.last * episodes / self.episodes if self.episodes else 0.0


def initial(recording: Recording) -> tuple[float, float] | None:
    """Return the mean and the standard deviation of the evaluation of the initial center, if there was one."""
    for index, entry in enumerate(recording.entries):
        if entry.generation or entry.kind == Kind.GENERATION:
            return None
        record = recording[index]
        if isinstance(record, Evaluation):
            return record.summary
    return None


def is_due(config: EvaluationConfig, generation: int, timesteps: int, costs: EvaluationCosts) -> bool:
    """Whether the center is to be evaluated after ``generation`` updates.

    Parameters
    ----------
    config : EvaluationConfig
        ``every``, ``episodes`` and ``share``.
    generation : int
        Number of updates of theta.
    timesteps : int
        Timesteps of training so far.
    costs : EvaluationCosts
        Costs of the evaluations so far; the first one is never skipped.
    """
    if not config.every or generation % config.every:
        return False
    if config.share is None or not costs.episodes:
        return True
    return costs.total + costs.expected(config.episodes) <= config.share * timesteps


def ends_before_one(recording: Recording, config: EvaluationConfig) -> bool:
    """Whether the run was stopped between a generation and the evaluation due after it."""
    generation = recording.generations
    if not generation or recording.entries[-1].kind != Kind.GENERATION:
        return False
    if not config.every or generation % config.every:
        return False  # without reading the journal
    timesteps, costs = 0, EvaluationCosts()
    for index in range(len(recording)):
        record = recording[index]
        if isinstance(record, Generation):
            timesteps += int(record.lengths.sum())
        elif isinstance(record, Evaluation):
            costs.add(record)
    return is_due(config, generation, timesteps, costs)
