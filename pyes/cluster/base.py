"""What every cluster offers to the training loop, which never knows which one it has."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import ClassVar

from pyes.config import ClusterConfig, TaskConfig, refusal
from pyes.episodes.batch import Batch, Plan, Results
from pyes.episodes.rollout import Workload
from pyes.numerics.noise import NoiseTable
from pyes.run.journal import Generation
from pyes.run.metrics import NodeRow
from pyes.run.state import RunState
from pyes.system.lifetime import Closing, Interrupt


class Abandoned(Exception):
    """There are no workers to evaluate a batch, and the user does not want to wait."""


class Cluster(Closing):
    """Evaluates batches of members; their results do not depend on the cluster.

    Entering it takes what must be taken early (on Linux the workers' parent, forked before any thread exists);
    ``start`` comes when the plan is known.

    Attributes
    ----------
    workers : int
        Worker processes now.
    traffic : (int, int)
        Bytes sent to other machines and received from them.
    interrupt : Interrupt
        Whether the user wants the run to end.
    watch : callable
        Called now and then while a batch is evaluated, with the number of its members that are still to be done.
    """

    Config: ClassVar[type[ClusterConfig]] = ClusterConfig

    workers: int
    traffic = (0, 0)
    interrupt = Interrupt()
    watch: Callable[[int], None] = staticmethod(lambda left: None)

    @classmethod
    def open(
        cls,
        config: ClusterConfig,
        workload: Workload,
        prepare: Callable[[], None] | None,
        tell: Callable[[str], None],
    ) -> AbstractContextManager["Cluster"]:
        """Return a cluster of this kind, to be entered; the parameters are those of `pyes.cluster.open_cluster`."""
        raise NotImplementedError

    def start(self, plan: Plan, table: NoiseTable, state: RunState | None = None) -> None:
        """Make the workers ready for one run.

        Parameters
        ----------
        state : RunState
            Of the run, with which other machines are kept in step; None where they are not.
        """
        raise NotImplementedError

    def evaluate(self, batch: Batch) -> Results:
        """Evaluate a batch.

        Raises
        ------
        ClusterError
            The workers are lost and cannot be replaced.
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
        """Send other machines the record of a generation, before this machine learns from it."""


def check_sendable(config: ClusterConfig, workload: Workload) -> None:
    """Reject a function as the workload of other machines.

    Raises
    ------
    ConfigError
        The workload is a function, which cannot be sent.
    """
    if not isinstance(workload, TaskConfig):
        raise refusal("cluster.name", config.name, "'local' or 'inline' for a function, which cannot be sent")
