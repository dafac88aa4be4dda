"""One worker process from start to end: it attaches to the shared memory, serves the board, and logs why it ended."""

import errno
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes import tasks
from pyes.config import TaskConfig
from pyes.episodes.batch import Plan
from pyes.episodes.rollout import Workload
from pyes.node.board import Board
from pyes.node.pipes import WAKE, receive, send
from pyes.node.process import draw_apart, prepare
from pyes.node.vector_worker import VectorWorker
from pyes.node.worker import BaseWorker, Worker
from pyes.numerics.noise import DtypeName, NoiseTable
from pyes.system import memory
from pyes.system.repeats import repeated
from pyes.system.text import origin, reason

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Site:
    """What a worker process needs to attach to the shared memory."""

    plan: Plan
    workers: int
    board: memory.Handle
    table: memory.Handle
    table_seed: int
    table_dtype: DtypeName


def open_worker(
    slot: int, workload: Workload, plan: Plan, board: Board, table: NDArray[np.generic], *, own_process: bool = False
) -> BaseWorker[Any]:
    """Make the worker that suits a workload; the parameters are those of `BaseWorker`."""
    if isinstance(workload, TaskConfig) and tasks.has_vector(workload):
        return VectorWorker(slot, workload, plan, board, table, own_process=own_process)
    return Worker(slot, workload, plan, board, table, own_process=own_process)


def run_worker(
    slot: int,
    site: Site,
    workload: Workload,
    wake: Connection,
    done: Connection,
    log: Callable[[], None] | None,
    parent: int,
) -> None:
    """Run one worker process from start to end."""
    prepare(parent)
    if not isinstance(workload, TaskConfig):  # what an environment draws as it is made is to be the same everywhere
        draw_apart()
    if log is not None:
        log()
    try:
        board = Board(site.plan, site.workers, site.board)
        table = NoiseTable.attach(site.table, site.table_seed, site.table_dtype)
    except OSError as error:  # probably the owner has just ended and removed it
        logger.warning("worker %d cannot attach to the memory of its pool: %s", slot, error)
        sys.exit(errno.EMFILE if error.errno == errno.EMFILE else 1)
    try:
        board.pids[slot] = os.getpid()
        board.started[slot] = time.monotonic()  # making the environment may hang
        worker = open_worker(slot, workload, site.plan, board, table.array, own_process=True)
        board.started[slot] = 0.0
        while True:
            worker.work()  # at first, too: this worker may replace one that died during a batch
            send(done, WAKE)
            if receive(wake) != WAKE:
                break
        worker.close()
    except BaseException as error:
        board.report(slot, reason(error))
        text = f"a worker stopped: {origin(error)}"
        logger.warning("worker %d stopped: %s", slot, reason(error), exc_info=error, extra=repeated(text))
        sys.exit(errno.ENOMEM if isinstance(error, MemoryError) else 1)
