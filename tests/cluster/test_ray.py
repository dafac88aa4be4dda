"""Runs over Ray: the journal is the one of a run in one process, also when Ray loses a node and gets another.

Ray runs in a network of the test's own: nobody else can reach it. It takes half a minute, and needs the extra `ray`.
"""

import importlib.util
import os
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from heads import count_of, merge, until
from hosts import Program, start_server
from ray_machines import environment_of, machine, make_network

import pyes
from pyes.cluster import open_cluster
from pyes.cluster.ray import RayConfig
from pyes.config import TaskConfig, from_mapping
from pyes.errors import ConfigError
from pyes.remote.wire import keys

SETTINGS = {
    "task": {"env_id": "faulty:Faulty-v0", "normalize_observations": True},
    "algorithm": {"population_size": 8},
    "evaluation": {"every": 5, "episodes": 4},
    "noise": {"entries": 100_000},
}


_START = 150.0  # seconds that nodes of Ray may take to start where others work
_CLUSTER = {"name": "ray", "resources": {"simulator": 1.5}}


@pytest.fixture(scope="module")
def server():
    start_server()


def test_ray_without_its_package_is_refused_with_the_extra_that_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"cluster=ray needs the package ray: pip install \"pyes-rl\[ray\]\""):
        open_cluster(RayConfig(), TaskConfig()).__enter__()


def test_ray_is_refused_to_a_function_with_no_workers_and_with_a_key():
    with pytest.raises(ConfigError, match=r"cluster\.name: got 'ray', expected 'local' or 'inline' for a function"):
        open_cluster(RayConfig(), lambda theta: 0.0)
    with pytest.raises(ConfigError, match=r"cluster\.workers: got 0, expected an integer >= 1, .* cluster\.name=ray"):
        RayConfig(workers=0)
    for name, amount, expected in (("CPU", 2, "cluster.workers=N"), ("sim", 0, "a number > 0"), ("sim", "x", "a num")):
        with pytest.raises(ConfigError, match=rf"cluster\.resources\.{name}: got {amount!r}, expected {expected}"):
            RayConfig(resources={name: amount})
    with pytest.raises(ConfigError, match=r"^unknown key 'cluster\.key'"):
        from_mapping({"cluster": {"name": "ray", "key": "key"}})


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="nodes run on Linux and macOS")
def test_agent_returns_how_its_worker_ended_and_what_it_said_last():
    from pyes.cluster.ray import _Agent

    status, last = _Agent().run("nowhere", keys.node_part(keys.new()), 1)
    assert (status, last[:41]) == (2, "pyes: error: address: got 'nowhere', expe")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("ip"), reason="makes a network")
def test_a_run_whose_ray_loses_a_node_and_gets_another_equals_one_in_one_process(tmp_path, server):
    if importlib.util.find_spec("ray") is None:
        pytest.fail('Ray is missing: pip install "pyes-rl[ray]"')
    run = tmp_path / "run"
    with tempfile.TemporaryDirectory(prefix="pyes-ray-", dir="/tmp") as short:  # paths of sockets have 107 bytes
        environment = {"FAULTY": '{"sleep": 0.006}', **environment_of(short)}  # a member takes 60 ms
        with Program(_train_while_nodes_change, run, environment=environment, apart=True) as program:
            until(lambda: not program.running, f"the end of {program.said}", 3 * _START)
            program.succeed()
            assert "joins with 1 worker" in program.said
            assert "Traceback" not in (run / "train.log").read_text()
    pyes.train(
        merge(SETTINGS, {"run_dir": str(tmp_path / "reference"), "generations": count_of(run)})
        | {"cluster": {"name": "inline"}},
        display=False,
    )
    for name in ("journal.bin", "policy.safetensors"):
        assert (run / name).read_bytes() == (tmp_path / "reference" / name).read_bytes()


def _train_while_nodes_change(run: Path) -> None:
    """Train on two nodes of Ray, of which one is killed and another one comes."""
    from ray.cluster_utils import Cluster

    make_network()
    cluster = Cluster(shutdown_at_exit=False)  # hooks can be set by the main thread alone
    _, victim = (cluster.add_node(**machine(number)) for number in (1, 2))
    cluster.add_node(**machine(4) | {"resources": {}})  # gets no node
    failed: list[BaseException] = []

    def change() -> None:
        try:
            until(lambda: len(_nodes(run)) == 2, "rows of both nodes", _START)
            cluster.remove_node(victim, allow_graceful=False)
            _more_rows(run, 2)
            known = _nodes(run)
            cluster.add_node(**machine(3))
            until(lambda: _nodes(run) - known, "a row of the third node", _START)
            _more_rows(run, 1)
        except BaseException as error:
            failed.append(error)
        os.kill(os.getpid(), signal.SIGTERM)

    changes = threading.Thread(target=change)
    changes.start()
    settings = {"run_dir": str(run), "generations": 10**6, "cluster": _CLUSTER | {"address": cluster.address}}
    result = pyes.train(merge(SETTINGS, settings))
    changes.join()
    cluster.shutdown()
    if failed:
        raise failed[0]
    assert result.stopped_by == "interrupt"


def _nodes(run: Path) -> set[str]:
    """Return the nodes that have had a part in a generation that was written down."""
    path = run / "nodes.csv"
    rows = [row.split(",") for row in path.read_text().splitlines()[1:]] if path.exists() else []
    return {row[1] for row in rows if len(row) > 3 and row[3] != "0"}


def _more_rows(run: Path, rows: int) -> None:
    before = count_of(run)
    until(lambda: count_of(run) >= before + rows, f"{rows} more rows")
