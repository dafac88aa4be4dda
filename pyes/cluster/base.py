"""What every cluster offers to the training loop, which never knows which one it has."""

from types import TracebackType
from typing import Protocol, Self

from pyes.messages import Batch, Plan, Results
from pyes.noise import NoiseTable


class Cluster(Protocol):
    """Evaluates batches of members.

    Entering it takes what must be taken early (on Linux the workers' parent, forked before any thread exists);
    ``start`` comes when the plan is known. The results of a batch do not depend on the cluster.
    """

    workers: int

    def start(self, plan: Plan, table: NoiseTable) -> None:
        """Make the workers ready for one run."""

    def evaluate(self, batch: Batch) -> Results:
        """Evaluate a batch.

        Raises
        ------
        ClusterError    the workers are lost and cannot be replaced
        """

    def close(self) -> None:
        """End the workers and give everything back."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
