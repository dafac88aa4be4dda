"""What a run can see of its own trouble, said while it learns, with what to try.

Owns the conditions and the wording. Knows only rows of metrics and the evaluation of the initial center. What needs a
person to look is in docs/howto/not_learning.md.
"""

from collections.abc import Iterator

from pyes.run.metrics import MetricsRow
from pyes.system.text import counted, rounded

_EQUAL = 10  # generations
_FAILING = 0.1  # of a generation's members


class Advice:
    """Watches the rows of a run; says each thing once."""

    def __init__(self) -> None:
        self._differed = self._failing = False
        self._rows = 0

    def of(self, row: MetricsRow, members: int) -> Iterator[str]:
        """Yield what is to be said after a generation of so many members."""
        self._differed = self._differed or row.return_std > 0
        self._rows += 1
        from_the_start = row.generation + 1 == self._rows  # a policy that has learned all may have equal returns, too
        if self._rows == _EQUAL and from_the_start and not self._differed:
            yield (
                f"all members of {_EQUAL} generations had the same return, {rounded(row.return_mean)}: there is "
                "nothing to learn from; try a larger algorithm.sigma, network.init=uniform or a denser reward"
            )
        if row.failed_members > _FAILING * members and not self._failing:
            self._failing = True
            yield (
                f"{row.failed_members} of {counted(members, 'member')} failed in generation {row.generation}: a run "
                "learns to avoid failures then; train.log has the reasons"
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
        f"no evaluation was better than {rounded(initial[0])}, that of the untrained center; the page "
        '"My run does not learn" of the documentation says what to look at'
    )
