"""The socket cluster: this process is the head; nodes join and leave over TCP.

Owns the listening socket and the thread that talks with the nodes (`pyes.remote.head`). The training loop's thread
only passes batches to it and waits. Invariant: while a batch is open, the training loop does not change the state.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pyes.cluster.base import Abandoned, Cluster, check_sendable
from pyes.config import ClusterConfig, refusal
from pyes.config.registry import CLUSTERS
from pyes.config.section import NotNegative
from pyes.episodes.batch import Batch, Plan, Results
from pyes.episodes.rollout import Workload
from pyes.errors import ClusterError, ConfigError
from pyes.numerics.noise import NoiseTable
from pyes.remote.door import Door, listen
from pyes.remote.head import Head
from pyes.remote.job import OpenJob
from pyes.remote.open_batch import OpenBatch
from pyes.remote.tied import OwnNode
from pyes.remote.wire import keys
from pyes.run.journal import Generation
from pyes.run.metrics import NodeRow
from pyes.run.state import RunState
from pyes.system import addresses
from pyes.system.lifetime import COMMAND
from pyes.system.limits import usable_cores
from pyes.system.text import counted, quoted

_LOOK_SECONDS = 0.5  # between checks for an interrupt by the user

_T = TypeVar("_T")


@dataclass(frozen=True)
class SocketConfig(ClusterConfig):
    """A head; by default its own machine evaluates no members."""

    may_be_idle: ClassVar[bool] = True

    name: Literal["socket"] = "socket"
    workers: Annotated[int, NotNegative] | Literal["auto"] = 0  # workers of a node on this machine
    listen: str = "tcp://127.0.0.1:5555"  # address of the head
    key: str | None = None  # the head's file of `pyes keygen`
    sync: Literal["auto", "replay", "params"] = "auto"  # nodes learn from the returns, or are sent theta

    def check(self) -> None:
        """Reject an address beyond this machine without a key, and nodes on Windows."""
        super().check()
        if self.workers != 0 and os.name != "posix":
            raise refusal("cluster.workers", self.workers, "0 with cluster.name=socket: nodes run on Linux and macOS")
        try:
            address = addresses.parse(self.listen)
        except ConfigError:
            expected = "tcp://HOST:PORT, for example tcp://0.0.0.0:5555"
            raise refusal("cluster.listen", self.listen, expected) from None
        if self.key is None and not address.is_loopback:
            expected = "cluster.key=FILE with it (pyes keygen -o FILE), or tcp://127.0.0.1:PORT for this machine alone"
            raise refusal("cluster.listen", self.listen, expected)


@CLUSTERS.register("socket")
class SocketCluster(Cluster):
    """The head of many nodes.

    Parameters
    ----------
    tell : callable
        Shows the user a line about what the head waits for.
    lonely : str
        Message while there is no node (default: how to start one, unless this machine has one of its own).

    Attributes
    ----------
    address : Address
        Address of the head.

    Raises
    ------
    ConfigError
        It cannot listen at the address, or the key cannot be used.
    """

    Config = SocketConfig

    @classmethod
    def open(
        cls,
        config: ClusterConfig,
        workload: Workload,
        prepare: Callable[[], None] | None,
        tell: Callable[[str], None],
    ) -> "SocketCluster":
        """Return the cluster, to be entered."""
        check_sendable(config, workload)
        assert isinstance(config, SocketConfig)
        return cls(config, tell)

    def __init__(self, config: SocketConfig, tell: Callable[[str], None], lonely: str = "") -> None:
        self._config, self._tell, self._lonely = config, tell, lonely
        self.address = addresses.parse(config.listen)
        self._door = Door(config.key)
        self._job: OpenJob | None = None
        self._batches = 0
        self._own: OwnNode | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._socket = listen(self.address, "cluster.listen")
        self.address = addresses.Address(self.address.host, self._socket.getsockname()[1])
        key = "" if self._config.key is None else f" --key {quoted(keys.node_path(self._config.key))}"
        workers = usable_cores() if self._config.workers == "auto" else self._config.workers
        how = "" if workers else f"there is no node yet; start one with: pyes worker {self.address.named}{key}"
        if how and COMMAND in os.environ:
            how = "there is no node yet; those that were launched with this run are on their way"
        self._head = Head(self._door, str(self.address), self._tell, self._lonely or how)
        try:
            if workers:
                self._own = OwnNode(self.address.local, self._config.key, workers)
                self._own.start()
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="head", daemon=True)
            self._thread.start()
            self._ask(self._head.serve(self._socket, None if self._own is None else self._own.check))
        except BaseException:
            self.close()
            raise
        return self

    @property
    def workers(self) -> int:  # type: ignore[override]
        """Worker processes of all nodes that are ready."""
        return self._head.workers

    @property
    def traffic(self) -> tuple[int, int]:  # type: ignore[override]
        """Bytes sent and received, without TLS."""
        return self._head.traffic

    @property
    def lost(self) -> int:  # type: ignore[override]
        """Members that were lost with their nodes."""
        return self._head.lost

    def start(self, plan: Plan, table: NoiseTable, state: RunState | None = None) -> None:
        """Send the job to all nodes, including those that join later."""
        assert state is not None, "nodes are kept in step with a run"
        self._job = OpenJob.of(plan, table, state, self._config.sync)
        self._loop.call_soon_threadsafe(self._head.begin_job, self._job)

    def evaluate(self, batch: Batch) -> Results:
        """Let the nodes evaluate a batch, and wait for the results."""
        assert self._job is not None, "start comes before evaluate"
        self._batches += 1
        open_batch = OpenBatch(self._batches, batch, self._job.state.theta_hash, self._job.plan)
        self._loop.call_soon_threadsafe(self._head.begin, open_batch)
        while True:
            try:
                return open_batch.future.result(_LOOK_SECONDS)
            except TimeoutError:
                self._check()
                self.watch(open_batch.scheduler.remaining)
                if self.interrupt and not self.workers:
                    raise Abandoned from None

    def advance(self, record: Generation) -> None:
        """Send the record of a generation to the nodes if they learn."""
        assert self._job is not None, "start comes before advance"
        if self._job.learns:
            self._loop.call_soon_threadsafe(self._head.teach, record)

    def close(self) -> None:
        """Dismiss all nodes, and end the thread."""
        try:
            if self._thread is not None and self._thread.is_alive():
                self._ask(self._head.end())
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._loop.close()
        finally:
            self._thread = None
            self._socket.close()
            if self._own is not None:
                self._own.close()
                self._own = None

    def nodes(self, generation: int, seconds: float) -> list[NodeRow]:
        """Return each node's row since the last call."""
        return self._ask(self._head.rows(generation, seconds))

    def remarks(self) -> list[str]:
        """Return how many members were run again, and why."""
        reasons = ((self._head.lost, "was lost"), (self._head.rerun, "was slow"))
        return [f"{_were(members)} run again because their node {what}" for members, what in reasons if members]

    def _ask(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the head's thread, and wait for its result."""
        asking = asyncio.run_coroutine_threadsafe(work, self._loop)
        while True:
            try:
                return asking.result(_LOOK_SECONDS)
            except TimeoutError:
                if asking.done():
                    raise
                self._check()

    def _check(self) -> None:
        """Raise ClusterError if the head's thread has ended."""
        if self._thread is None or not self._thread.is_alive():
            raise ClusterError("the head's thread has ended; see train.log, resume the run")


def _were(members: int) -> str:
    return f"{counted(members, 'member')} {'was' if members == 1 else 'were'}"
