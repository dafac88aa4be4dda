"""What a run can see of its own trouble, said while it learns, with what to try.

Owns the conditions and the wording. Knows only rows of metrics and the evaluation of the initial center. What needs a
person to look is in docs/howto/not_learning.md.
"""

import math
from collections.abc import Iterator

from pyes.run.metrics import MetricsRow
from pyes.system.text import counted, rounded

_PAGE = "https://github.com/pyes-rl/pyes/blob/main/docs/howto/not_learning.md"
_EQUAL = 10  # generations
_FAILING = 0.1  # of a generation's members
_STILL = 5  # evaluations
_WITHOUT_GAIN = 10  # evaluations
#: What simulators give for a timestep of not having fallen.
_BONUSES = (1, 2, 5)
_EARLY = 0.9  # of the limit: episodes of which a generation's mean length is shorter end early
_MUCH_LESS = 0.8  # of what the bonus alone is worth


class Advice:
    """Watches the rows of a run; says each thing once.

    Parameters
    ----------
    initial : float or None
        Mean return in the evaluation of the initial center.
    offset : float
        Added to every reward in training; whoever has a schedule for it sets it anew.
    chance : bool
        Whether episodes of one policy may differ.
    zero : bool
        Whether theta, or that of the last layer, is zero at the start.
    episodes : int
        Of each member.
    """

    def __init__(
        self,
        initial: float | None = None,
        *,
        offset: float = 0.0,
        chance: bool = True,
        zero: bool = False,
        episodes: int = 1,
    ) -> None:
        self._initial, self.offset, self._chance, self._zero, self._episodes = initial, offset, chance, zero, episodes
        self._shortest = math.inf  # mean length of a generation's episodes, as a share of their limit
        self._rate = math.nan  # mean return of a timestep in the last generation
        self._differed = self._failing = self._still = self._idle = self._infinite = False
        self._rows = 0
        self._evaluations: list[float] = []

    def of(self, row: MetricsRow, members: int, workers: int) -> Iterator[str]:
        """Yield what is to be said after a generation of so many members, evaluated by so many workers."""
        self._differed = self._differed or row.return_std > 0
        self._rows += 1
        self._shortest = min(self._shortest, row.length_mean / row.episode_limit)
        self._rate = row.return_mean / max(row.length_mean, 1.0)
        from_the_start = row.generation + 1 == self._rows  # a policy that has learned all may have equal returns, too
        if self._rows == _EQUAL and from_the_start and not self._differed:
            yield (
                f"in each of {_EQUAL} generations all members had the same return, {rounded(row.return_mean)} in the "
                "last: there is nothing to learn from; try a larger algorithm.sigma"
                + ", network.init=uniform" * self._zero
                + " or a denser reward"
            )
        if row.failed_members > _FAILING * members and not self._failing:
            self._failing = True
            yield (
                f"{row.failed_members} of {counted(members, 'member')} failed in generation {row.generation}: a run "
                "learns to avoid failures then; train.log has the reasons"
            )
        if workers > members and not self._idle:
            self._idle = True
            yield (
                f"a generation has {counted(members, 'member')}, so {workers - members} of {workers} workers have "
                f"nothing to do; try algorithm.population_size={2 * workers}"
            )

    def of_observations(self, left_out: int, seen: int) -> Iterator[str]:
        """Yield what is to be said where some of the observations of a generation are left out of its statistics."""
        if left_out and not self._infinite:
            self._infinite = True
            yield (
                f"{left_out:,} of {seen:,} observations are of episodes in which some number is infinite, or too large "
                "for its square: their normalisation leaves them out, and a policy that sees an infinity may give "
                "actions that are no numbers; let the environment give finite ones"
            )

    def of_evaluation(self, mean: float, std: float, limit: int) -> Iterator[str]:
        """Yield what is to be said after an evaluation of the center, in episodes of at most ``limit`` timesteps."""
        self._evaluations.append(mean)
        still = self._chance and _stands_still(self._evaluations[-_STILL:], std, limit)  # a function has no bonus
        if still and not self._still and self._may_be_for_a_bonus(mean, limit):
            self._still = True
            bonus = round(mean / limit)
            told = (
                f"the center's return stays near {bonus} a timestep ({rounded(mean)} in {limit:,}): it may only stand"
            )
            if self.offset > -bonus:
                yield (
                    f"{told} still for a bonus of being alive; try task.reward_offset_per_step=-{bonus}, or half of "
                    "that if episodes then end early"
                )
            else:
                yield f"{told} still, though training is without that bonus; try a larger algorithm.sigma"
        initial = math.inf if self._initial is None else self._initial
        best = max((each for each in self._evaluations if not math.isnan(each)), default=-math.inf)  # NaN: failed
        if len(self._evaluations) == _WITHOUT_GAIN and best <= initial < math.inf:
            yield (
                f"none of {_WITHOUT_GAIN} evaluations was better than {rounded(initial)}, that of the untrained "
                "center; try a larger algorithm.sigma"
                + f", or task.episodes={max(8, 2 * self._episodes)} if returns differ by their starts alone"
                * self._chance
            )

    def _may_be_for_a_bonus(self, mean: float, limit: int) -> bool:
        """Whether a return near a bonus of every timestep may be for staying alive, rather than for what was learned.

        Not where the bonus is the whole reward; nor where episodes have never ended early, but the untrained center
        earned much less.
        """
        bonus = round(mean / limit)
        if math.isclose(self._rate, bonus, rel_tol=1e-9):
            return False
        initial = -math.inf if self._initial is None else self._initial
        return self._shortest < _EARLY or initial > _MUCH_LESS * bonus * limit


def _stands_still(means: list[float], std: float, limit: int) -> bool:
    """Whether returns are near a bonus of every timestep, but not that alone, which may be the whole reward."""
    rate = means[-1] / limit
    return (
        len(means) == _STILL
        and math.isfinite(rate)
        and round(rate) in _BONUSES
        and 0 < abs(rate - round(rate)) <= 0.1
        and std <= 0.02 * means[-1]
        and max(means) - min(means) <= 0.02 * means[-1]
    )


def verdict(initial: tuple[float, float] | None, best: tuple[int, float] | None) -> str:
    """Return what there is to say at the end of a run about its evaluations; empty if nothing is wrong.

    Parameters
    ----------
    initial : (float, float) or None
        Mean and standard deviation of the evaluation of the initial center.
    best : (int, float) or None
        The best evaluation of the run: its generation and its mean.
    """
    if initial is None or best is None or not best[1] <= initial[0]:  # NaN if all its episodes failed
        return ""
    return (
        f"no evaluation was better than {rounded(initial[0])}, that of the untrained center; what to look at: "
        f'"My run does not learn" ({_PAGE})'
    )
