"""The ray cluster: the head runs in this process, and Ray starts a node on each of its machines.

Owns the connection with Ray, the keys of one run, and a thread that keeps an agent on every node of Ray. Ray only
starts processes and sends them the nodes' key; everything else is done by the socket cluster. The only module that
imports Ray.
"""

import contextlib
import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from pyes.cluster.base import Cluster, check_sendable
from pyes.cluster.socket import SocketCluster, SocketConfig
from pyes.config import ClusterConfig, refusal
from pyes.config.registry import CLUSTERS
from pyes.episodes.rollout import Workload
from pyes.errors import ConfigError, missing
from pyes.remote import tied
from pyes.remote.wire import keys
from pyes.system import addresses
from pyes.system.addresses import Address
from pyes.system.lifetime import Closing

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0  # interval of looks at Ray's nodes
_AGAIN_SECONDS = 30.0  # after which a lost agent is replaced if its node still exists
_END_SECONDS = 10.0  # maximum wait for a look at the end of the run
_ANSWER_SECONDS = 5.0  # maximum wait for what listens at Ray's address
_LONELY = "there is no node yet; Ray starts one on each machine whose CPUs are free"


@dataclass(frozen=True)
class RayConfig(ClusterConfig):
    """A head, and a node on each machine of a Ray cluster."""

    name: Literal["ray"] = "ray"
    address: str = "auto"  # of Ray's head; auto: RAY_ADDRESS, or the Ray cluster that this machine is in
    sync: Literal["auto", "replay", "params"] = "auto"  # nodes learn from the returns, or are sent theta
    resources: dict[str, Any] = field(default_factory=dict)  # that a machine must have and a node takes, beside CPUs

    def check(self) -> None:
        """Reject amounts that are not positive numbers, and CPUs, of which there is one for each worker."""
        super().check()
        for name, amount in self.resources.items():
            if name in ("CPU", "num_cpus"):
                raise refusal(f"cluster.resources.{name}", amount, "cluster.workers=N: each worker takes one CPU")
            if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 < amount < math.inf:
                raise refusal(f"cluster.resources.{name}", amount, "a number > 0, for example 1")


@CLUSTERS.register("ray")
class RayCluster:
    """Opens a `SocketCluster` whose nodes are started by Ray."""

    Config = RayConfig

    @staticmethod
    def open(
        config: ClusterConfig,
        workload: Workload,
        prepare: Callable[[], None] | None,
        tell: Callable[[str], None],
    ) -> AbstractContextManager[Cluster]:
        """Return the cluster, to be entered."""
        check_sendable(config, workload)
        assert isinstance(config, RayConfig)
        return _ray_cluster(config, tell)


@contextmanager
def _ray_cluster(config: RayConfig, tell: Callable[[str], None]) -> Iterator[Cluster]:
    """Run a head whose nodes are started by Ray; ConfigError without the package or a cluster at the address."""
    secret = keys.new()
    with _connection(config.address) as host, keys.in_memory(secret) as key:
        shared = {name: getattr(config, name) for name in config.SHARED}
        here = Address(addresses.own_host(host) or host, 0)
        head = SocketConfig(listen=str(here), key=str(key), sync=config.sync, **shared)
        # In this order, the head dismisses its nodes before Ray ends the remaining processes.
        with (
            _Placement(keys.node_part(secret), config, tell) as placement,
            SocketCluster(head, tell, _LONELY) as cluster,
        ):
            placement.start(cluster.address)
            yield cluster


@contextmanager
def _connection(address: str) -> Iterator[str]:
    """Connect with a Ray cluster, unless this process is connected already; yields the host of Ray's head."""
    try:
        import ray
    except ImportError as error:
        raise missing("cluster=ray", "ray", "ray", error) from error
    ours = not ray.is_initialized()
    if ours:
        try:
            _check_answers(os.environ.get("RAY_ADDRESS", "auto") if address == "auto" else address)
            with _handler_kept(signal.SIGTERM):
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
        except (ImportError, OSError, RuntimeError, ValueError) as error:
            raise ConfigError(
                f"cluster.address: got {address!r}, expected that of a Ray cluster ({_first_sentence(error)}); "
                "start one with: ray start --head"
            ) from error
    try:
        host, _, _ = ray.get_runtime_context().gcs_address.rpartition(":")
        yield host.strip("[]")
    finally:
        if ours:
            ray.shutdown()


def _check_answers(address: str) -> None:
    """Raise OSError if nothing listens at an address of the form HOST:PORT, for which Ray would wait for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in address:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()


@contextmanager
def _handler_kept(number: int) -> Iterator[None]:
    """Restore the handler of a signal, which a library may change in the block."""
    before = signal.getsignal(number)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(number, before)


@dataclass
class _Placed:
    """The agent on one node of Ray."""

    name: str
    actor: Any
    ended: Any  # Ray's reference to the result of `_Agent.run`
    again: float = 0.0  # time at which to start another one; 0 while this one runs


class _Placement(Closing):
    """Keeps an agent on each node of Ray, including those that are added later.

    Parameters
    ----------
    key : bytes
        Content of the nodes' key file.
    config : RayConfig
        Worker processes and resources of each agent.
    """

    def __init__(self, key: bytes, config: RayConfig, tell: Callable[[str], None]) -> None:
        self._key, self._workers, self._resources, self._tell = key, config.workers, config.resources, tell
        self._placed: dict[str, _Placed] = {}
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, address: Address) -> None:
        """Begin to place agents for the head at this address."""
        self._address = str(address)
        self._thread = threading.Thread(target=self._keep, name="ray", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End all agents, and with them the nodes."""
        import ray

        self._over.set()
        if self._thread is not None:
            self._thread.join(_END_SECONDS)  # Ray may not answer
            self._thread = None
        for placed in list(self._placed.values()):
            with contextlib.suppress(ray.exceptions.RayError):  # if Ray is lost, the agent ends by itself
                ray.kill(placed.actor)
        self._placed.clear()

    def _keep(self) -> None:
        said = ""
        while not self._over.is_set():
            try:
                self._look()
                said = ""
            except Exception as error:  # any failure leaves the existing nodes running
                text = _first_sentence(error)
                if text != said:
                    logger.warning("cannot look after the nodes of Ray", exc_info=error)
                    self._tell(f"cannot look after the nodes of Ray ({text}); trying again")
                said = text
            self._over.wait(_LOOK_SECONDS)

    def _look(self) -> None:
        """Start agents on new nodes, and handle those that have ended."""
        import ray

        alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        for name in self._placed.keys() - alive.keys():
            del self._placed[name]
        for name, node in alive.items():
            if self._over.is_set():
                return
            placed, cpus = self._placed.get(name), int(node["Resources"].get("CPU", 0))
            if placed is not None and not placed.again:
                self._check(placed)
            elif cpus and self._suits(node) and (placed is None or placed.again < time.monotonic()):
                self._placed[name] = self._place(name, node["NodeManagerAddress"], cpus)

    def _suits(self, node: dict[str, Any]) -> bool:
        """Return whether a node of Ray has the resources."""
        return all(node["Resources"].get(name, 0.0) >= amount for name, amount in self._resources.items())

    def _place(self, node: str, host: str, cpus: int) -> _Placed:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        workers = cpus if self._workers == "auto" else self._workers
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        claimed = {"num_cpus": min(workers, cpus), "resources": self._resources}
        actor = ray.remote(_Agent).options(**claimed, scheduling_strategy=there).remote()
        # The key is sent in a call, since Ray stores the constructor's arguments in its tables.
        return _Placed(f"{host} ({node[:8]})", actor, actor.run.remote(self._address, self._key, workers))

    def _check(self, placed: _Placed) -> None:
        """Report an agent that has ended; try its node again unless the agent was refused."""
        import ray

        if not ray.wait([placed.ended], timeout=0)[0]:
            return
        try:
            status, last = ray.get(placed.ended)
        except ray.exceptions.RayError as error:
            status, last = -1, _first_sentence(error)
        lost = status < 0  # otherwise it has ended by itself, and would do so again
        placed.again = time.monotonic() + _AGAIN_SECONDS if lost else float("inf")
        self._say(f"Ray's node {placed.name}: {last}; {'trying it again' if lost else 'going on without it'}")
        ray.kill(placed.actor)

    def _say(self, text: str) -> None:
        logger.warning("%s", text)
        self._tell(text)


def _first_sentence(error: Exception) -> str:
    """Return the first sentence of a long error message of Ray."""
    return str(error).strip().partition("\n")[0].partition(". ")[0] or type(error).__name__


class _Agent:
    """An actor on a node of Ray that runs ``pyes worker``, which ends with it."""

    def run(self, address: str, key: bytes, workers: int) -> tuple[int, str]:
        """Run until the worker ends; return its exit status and its last message."""
        # Ray sets OMP_NUM_THREADS to the claimed CPUs, but each of our processes needs only one thread.
        environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        last = b"it said nothing"
        with tied.start(address, key, workers, env=environment, **pipes) as process:
            assert process.stderr is not None
            for line in process.stderr:
                sys.stderr.write(line.decode(errors="replace"))  # Ray's log of this process
                last = line.strip() or last
            return process.wait(), last.decode(errors="replace")
