"""Workers: what one process does with the members of the board.

    base      claims, results, failures: what all workers share
    sums      what a member's episodes have come to
    single    one member after another
    vector    many members side by side in one vector of environments

Workers sleep on a pipe while there is nothing to claim.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes import tasks
from pyes.board import Board
from pyes.config import TaskConfig
from pyes.messages import Plan
from pyes.rollout import Workload
from pyes.worker.base import BaseWorker, serve
from pyes.worker.single import Worker
from pyes.worker.vector import VectorWorker

__all__ = ["BaseWorker", "VectorWorker", "Worker", "open_worker", "serve"]


def open_worker(
    slot: int, workload: Workload, plan: Plan, board: Board, table: NDArray[np.generic], *, own_process: bool = False
) -> BaseWorker[Any]:
    """Make the worker that suits a workload; the parameters are those of `BaseWorker`."""
    if isinstance(workload, TaskConfig) and tasks.has_vector(workload):
        return VectorWorker(slot, workload, plan, board, table, own_process=own_process)
    return Worker(slot, workload, plan, board, table, own_process=own_process)
