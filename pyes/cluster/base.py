"""The interface between the training loop and every cluster."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
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
    """There are no workers to evaluate a batch, and the user has interrupted the run."""


class Cluster(Closing):
    """Evaluates batches of members; their results do not depend on the cluster.

    Entering it does what must be done early (on Linux, forking the workers' parent before any thread exists); `start`
    is called when the plan is known.

    Attributes
    ----------
    workers : int
        Present number of worker processes.
    traffic : (int, int)
        Bytes sent to other machines and received from them.
    lost : int
        Members that were lost with other machines.
    interrupt : Interrupt
        Whether the user wants the run to end.
    watch : callable
        Called now and then while a batch is evaluated, with the number of its members that are still to be done.
    """

    Config: ClassVar[type[ClusterConfig]] = ClusterConfig

    workers: int
    traffic = (0, 0)
    lost = 0
    interrupt = Interrupt()
    watch: Callable[[int], None] = staticmethod(lambda left: None)
    traceback: TracebackType | None = None  # of the last failed member, if it was evaluated in this process

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
        """Prepare the workers for one run.

        Parameters
        ----------
        plan : Plan
        table : NoiseTable
        state : RunState or None
            State of the run, needed by clusters that keep other machines in step with it.
        """
        raise NotImplementedError

    def evaluate(self, batch: Batch) -> Results:
        """Evaluate a batch.

        Raises
        ------
        ClusterError
            The workers are lost and cannot be replaced.
        Abandoned
            There are no workers at present, and the user wants the run to end.
        """
        raise NotImplementedError

    def nodes(self, generation: int, seconds: float) -> list[NodeRow]:
        """Return each node's row since the last call, for ``generation``, whose evaluation took ``seconds``."""
        return []

    def remarks(self) -> list[str]:
        """Return one line for each kind of unusual event."""
        return []

    def advance(self, record: Generation) -> None:
        """Send the record of a generation to other machines, before this one learns from it."""


def check_sendable(config: ClusterConfig, workload: Workload) -> None:
    """Reject a function as the workload of other machines, since it cannot be sent."""
    if not isinstance(workload, TaskConfig):
        raise refusal("cluster.name", config.name, "'local' or 'inline' for a function, which cannot be sent")
