"""The figures of a run for Prometheus, as an OpenMetrics page that this process serves (``cluster.metrics``).

Owns the names of the metrics and the thread that serves them. Invariant: a scrape reads only what the loop published
after its last generation, so it neither waits for the run nor changes it.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from pyes.errors import missing
from pyes.run.metrics import MetricsRow, NodeRow
from pyes.system.addresses import Address, cannot_listen
from pyes.system.lifetime import Closing

if TYPE_CHECKING:
    from prometheus_client.core import Metric

#: Name, column of `MetricsRow`, and help. What the row does not have is left out.
_GAUGES = (
    ("pyes_generation", "generation", "last complete generation"),
    ("pyes_return_mean", "return_mean", "mean return of its members"),
    ("pyes_return_max", "return_max", "return of its best member"),
    ("pyes_episode_length_mean", "length_mean", "timesteps of an episode"),
    ("pyes_steps_per_second", "steps_per_second", "timesteps a second"),
    ("pyes_idle_ratio", "idle_fraction", "share of the workers' time without work"),
    ("pyes_evaluate_seconds", "evaluate_seconds", "seconds of its evaluation"),
    ("pyes_update_seconds", "update_seconds", "seconds of its update"),
)
_COUNTERS = (
    ("pyes_timesteps", "timesteps", "training timesteps of the whole run"),
    ("pyes_episodes", "episodes", "training episodes of the whole run"),
)
#: Name, column of `NodeRow`, and help.
_NODE_GAUGES = (
    ("pyes_node_workers", "workers", "worker processes of a node"),
    ("pyes_node_steps_per_second", "steps_per_second", "timesteps a second of a node"),
    ("pyes_node_idle_ratio", "idle_fraction", "share of its workers' time without work"),
    ("pyes_node_round_trip_seconds", "round_trip", "seconds of a message to a node and its answer"),
)


@dataclass
class _Totals:
    """What a node, or this process, has counted so far."""

    members: int = 0
    sent: int = 0
    received: int = 0

    def plus(self, members: int, sent: int, received: int) -> "_Totals":
        return _Totals(self.members + members, self.sent + sent, self.received + received)


@dataclass(frozen=True)
class _Snapshot:
    """What the loop has published; never changed afterwards."""

    row: MetricsRow
    evaluation: float | None
    workers: int
    lost: int
    whole: _Totals  # its members are those that failed
    nodes: dict[str, NodeRow] = field(default_factory=dict)
    totals: dict[str, _Totals] = field(default_factory=dict)
    time: float = field(default_factory=time.time)


class Exporter(Closing):
    """Serves the figures of a run.

    Parameters
    ----------
    address : Address or None
        Where to listen; None serves nothing.
    labels : dict
        Of the metric ``pyes_run_info``.

    Attributes
    ----------
    url : str
        Address of the page; empty if nothing is served.

    Raises
    ------
    ConfigError
        The package is not installed, or it cannot listen there.
    """

    def __init__(self, address: Address | None, labels: dict[str, str]) -> None:
        self._address, self._labels = address, labels
        self._snapshot: _Snapshot | None = None
        self._server: Any = None
        self._thread: threading.Thread | None = None
        self.url = ""

    def __enter__(self) -> Self:
        if self._address is None:
            return self
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError as error:
            raise missing("cluster.metrics", "prometheus-client", "metrics", error) from error
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        host, port = self._address.host, self._address.port
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            where = f"{self._address}".removeprefix("tcp://")
            raise cannot_listen("cluster.metrics", where, error, "does another run serve its metrics there?") from error
        shown = f"{Address(host, self._server.server_port)}".removeprefix("tcp://")
        self.url = f"http://{shown}/metrics"
        return self

    def close(self) -> None:
        """End the thread and free the port."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            assert self._thread is not None
            self._thread.join()
            self._server = None

    def publish(self, row: MetricsRow, nodes: Sequence[NodeRow], workers: int, lost: int) -> None:
        """Serve the figures of a generation from now on.

        Parameters
        ----------
        row : MetricsRow
        nodes : sequence of NodeRow
            Nodes that take part.
        workers : int
            Worker processes.
        lost : int
            Members that were lost with their nodes so far.
        """
        if self._server is None:
            return
        before = self._snapshot
        evaluation = row.eval_return_mean
        if evaluation is None and before is not None:
            evaluation = before.evaluation
        whole = _Totals() if before is None else before.whole
        totals = {}
        for node in nodes:
            known = _Totals() if before is None else before.totals.get(node.node, _Totals())
            totals[node.node] = known.plus(node.members, node.bytes_sent, node.bytes_received)
        self._snapshot = _Snapshot(
            row=row,
            evaluation=evaluation,
            workers=workers,
            lost=lost,
            whole=whole.plus(row.failed_members, row.bytes_sent, row.bytes_received),
            nodes={node.node: node for node in nodes},
            totals=totals,
        )

    def collect(self) -> "Iterator[Metric]":
        """Yield all metrics; prometheus-client calls it for each scrape, in a thread of its own."""
        from prometheus_client.core import InfoMetricFamily

        yield InfoMetricFamily("pyes_run", "the run", self._labels)
        now = self._snapshot  # the run may publish another one meanwhile
        if now is not None:
            yield from _of_run(now)
            yield from _of_nodes(now)


def _of_run(now: _Snapshot) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    values = [(name, getattr(now.row, column), text) for name, column, text in _GAUGES]
    values += [
        ("pyes_evaluation_return", now.evaluation, "mean return of the last evaluation of the center"),
        ("pyes_workers", now.workers, "worker processes"),
        ("pyes_nodes", len(now.nodes), "nodes that take part"),
        ("pyes_last_generation_timestamp_seconds", now.time, "time at which the last generation was complete"),
    ]
    for name, value, text in values:
        if value is not None:
            yield GaugeMetricFamily(name, text, value)
    counts = [(name, getattr(now.row, column), text) for name, column, text in _COUNTERS]
    counts += [
        ("pyes_failed_members", now.whole.members, "failed members since this process began"),
        ("pyes_lost_members", now.lost, "members lost with their nodes since this process began"),
    ]
    for name, value, text in counts:
        yield CounterMetricFamily(name, text, value)
    moved = CounterMetricFamily("pyes_bytes", "bytes from and to other machines", labels=["direction"])
    moved.add_metric(["sent"], now.whole.sent)
    moved.add_metric(["received"], now.whole.received)
    yield moved


def _of_nodes(now: _Snapshot) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for name, column, text in _NODE_GAUGES:
        gauge = GaugeMetricFamily(name, text, labels=["node"])
        for node, row in now.nodes.items():
            gauge.add_metric([node], getattr(row, column))
        yield gauge
    members = CounterMetricFamily("pyes_node_members", "members that a node has evaluated", labels=["node"])
    moved = CounterMetricFamily("pyes_node_bytes", "bytes from and to a node", labels=["node", "direction"])
    for node, total in now.totals.items():
        members.add_metric([node], total.members)
        moved.add_metric([node, "sent"], total.sent)
        moved.add_metric([node, "received"], total.received)
    yield members
    yield moved
