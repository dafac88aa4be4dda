"""What every cluster offers to the training loop, which never knows which one it has."""

from pyes.episodes.batch import Batch, Plan, Results
from pyes.numerics.noise import NoiseTable
from pyes.run.journal import Generation
from pyes.run.metrics import NodeRow
from pyes.run.state import RunState
from pyes.system.lifetime import Closing, Interrupt


class Abandoned(Exception):
    """Nobody is there to evaluate a batch, and the user does not want to wait."""


class Cluster(Closing):
    """Evaluates batches of members; their results do not depend on the cluster.

    Entering it takes what must be taken early (on Linux the workers' parent, forked before any thread exists);
    ``start`` comes when the plan is known.

    Attributes
    ----------
    workers : int    that it has now
    traffic : (int, int)    bytes sent to other machines and received from them
    interrupt : Interrupt   whether the user wants the run to end
    """

    workers: int
    traffic = (0, 0)
    interrupt = Interrupt()

    def start(self, plan: Plan, table: NoiseTable, state: RunState | None = None) -> None:
        """Make the workers ready for one run.

        Parameters
        ----------
        state : RunState    of the run, with which other machines are kept in step; None where they are not
        """
        raise NotImplementedError

    def evaluate(self, batch: Batch) -> Results:
        """Evaluate a batch.

        Raises
        ------
        ClusterError    the workers are lost and cannot be replaced
        Abandoned       there are none for now, and the user wants the run to end
        """
        raise NotImplementedError

    def nodes(self, generation: int, seconds: float) -> list[NodeRow]:
        """Return what each node has done since the last call: for ``generation``, which took so many seconds."""
        return []

    def remarks(self) -> list[str]:
        """Return what was out of the ordinary, in a line each."""
        return []

    def advance(self, record: Generation) -> None:
        """Tell other machines what a generation came to, before this one learns from it."""
