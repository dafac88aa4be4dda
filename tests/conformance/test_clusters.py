"""Conformance of clusters: a run is the same, byte for byte, wherever its members are evaluated.

Each cluster trains each kind of run below. The journal and the policy must be those of the run in one process, also
when members fail and when workers die or hang. A new cluster is tested by one more entry in `CLUSTERS`. That no cluster
leaves a process or shared memory behind is checked after every test, by ``conftest.py``.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from heads import check_equal, merge, rows_of
from hosts import Host, new_address, start_server

import pyes
from pyes.config import registry

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="has nodes on addresses of 127.0.0.0/8")

BASE = {
    "task": {"env_id": "faulty:Faulty-v0"},
    "algorithm": {"population_size": 8},
    "generations": 4,
    "evaluation": {"every": 2, "episodes": 4},
    "noise": {"entries": 100_000},
}
#: Two episodes a member, statistics of some members, evaluations of the center, a least reward that changes.
EVERYTHING = {
    "task": {
        "normalize_observations": True,
        "episodes": 2,
        "common_random_numbers": "none",
        "statistics_share": 0.3,
        "reward_min": "steps -0.5 then -1.5 at 2 generations",
    }
}
#: What members, batches and generations can carry, and so must survive the way to a worker and back.
RUNS: dict[str, dict[str, Any]] = {
    "everything": EVERYTHING,
    "averaging": {
        "averaging": {"episodes_max": 4},
        "task": {"episodes": 2, "common_random_numbers": "none"},
    },
    "growth": {
        "growth": {"timesteps": 120, "population_max": 20},
        "task": {"env_id": "CartPole-v1"},
    },
    "chains of slices": {"algorithm": {"name": "ga"}},
    "dense vectors": {"algorithm": {"name": "cma_es"}},
    "an optimizer that is no state": {"algorithm": {"name": "nevergrad"}},
    "behaviours": {"algorithm": {"name": "nsra_es"}, "task": {"behaviour": "final_observation"}},
    "a simulator": {"task": {"env_id": "BipedalWalker-v3", "normalize_observations": True, "max_timesteps": 60}},
    "memory": {
        "task": {"env_id": "Pendulum-v1", "normalize_observations": True, "episodes": 2, "max_timesteps": 30},
        "network": {"name": "lstm", "hidden": [8]},
    },
    "vector tasks": {"task": {"name": "envpool", "env_id": "CartPole-v1"}, "cluster": {"vector": 3}},
    "a function": {
        "task": {"name": "function", "factory": "user_functions:sphere", "dim": 5},
        "network": {"bias": False, "init": "zero"},
    },
    # At every eleventh seed, and in the same way whatever the worker had evaluated before.
    **{
        f"failing: {fault}": {
            "task": {"env_kwargs": {"fault": fault, "every": 11}, "common_random_numbers": "none"},
            "evaluation": {"every": 0},
        }
        for fault in ("raise", "nan", "inf", "shape", "bytes", "panic", "keyboard", "memory", "close_panic")
    },
}
CLUSTERS: dict[str, dict[str, Any]] = {
    "one worker": {"name": "local", "workers": 1},
    "five workers": {"name": "local", "workers": 5},
    "spawned workers": {"name": "local", "workers": 2, "start_method": "spawn"},
    "two nodes": {"name": "socket"},
    "two nodes told theta": {"name": "socket", "sync": "params"},
}
#: What `make test` runs; `make test-slow` runs every kind of run on every cluster, but for failures in spawned workers,
#: which differ from forked ones in how they start.
QUICK = {
    "one worker": (),
    "five workers": ("everything", "memory", "vector tasks"),
    "spawned workers": (),
    "two nodes": ("everything", "dense vectors"),
    "two nodes told theta": ("everything",),
}


@pytest.fixture(scope="module", autouse=True)
def nodes() -> Iterator[str]:
    """Lend the address at which two nodes wait for one head after the other."""
    start_server()
    address = new_address()
    with Host(address, 1) as one, Host(address, 2) as two:
        yield address
        assert one.running
        assert two.running


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory):
    """Return the run with some settings that was evaluated in one process; each is made once."""
    made: dict[str, Path] = {}

    def make(settings: dict[str, Any], cluster: dict[str, Any] | None = None) -> Path:
        key = json.dumps([settings, cluster])
        if key not in made:
            made[key] = tmp_path_factory.mktemp("reference") / "run"
            train(made[key], settings, cluster or {"name": "inline"})
        return made[key]

    return make


@pytest.fixture(
    params=[name if name == "two nodes" else pytest.param(name, marks=pytest.mark.slow) for name in CLUSTERS]
)
def cluster(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the settings of each cluster in turn."""
    return settings_of(request.param, request)


def settings_of(name: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    settings = CLUSTERS[name]
    return settings | {"listen": request.getfixturevalue("nodes")} if settings["name"] == "socket" else settings


def train(run: Path, settings: dict[str, Any], cluster: dict[str, Any], **changes: Any) -> None:
    where = {"run_dir": str(run)}
    base = {**BASE, "task": {}} if settings.get("task", {}).get("name") == "function" else BASE
    pyes.train(merge(merge(base, settings), {"cluster": cluster, **where, **changes}), display=False)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=() if kind in QUICK[name] else pytest.mark.slow)
        for name in CLUSTERS
        for kind in RUNS
        if name != "spawned workers" or not kind.startswith("failing: ")
    ],
)
def test_run_is_the_one_of_a_single_process(name, kind, tmp_path, reference, request):
    train(tmp_path / "run", RUNS[kind], settings_of(name, request))
    check_equal(reference(RUNS[kind]), tmp_path / "run")


def test_every_registered_cluster_is_tested():
    """Ray's test needs a network of its own and minutes: ``tests/cluster/test_ray.py``."""
    assert {each["name"] for each in CLUSTERS.values()} | {"inline", "ray"} == set(registry.CLUSTERS.names())


@pytest.mark.slow
def test_runs_are_not_all_the_same(reference):
    """Without this, a suite that compares runs could compare nothing."""
    kinds = ("everything", "averaging", "chains of slices", "dense vectors", "behaviours", "memory", "a function")
    assert len({(reference(RUNS[kind]) / "policy.safetensors").read_bytes() for kind in kinds}) == len(kinds)
    for fault in ("raise", "nan", "inf", "shape"):
        rows = rows_of(reference(RUNS[f"failing: {fault}"]))
        assert sum(int(row["failed_members"]) for row in rows) > 0
        assert all(np.isfinite(float(row["return_mean"])) for row in rows)


def test_run_that_began_elsewhere_goes_on(cluster, tmp_path, reference):
    train(tmp_path / "run", EVERYTHING, {"name": "inline"}, generations=2)
    train(tmp_path / "run", EVERYTHING, cluster, resume=str(tmp_path / "run"))
    check_equal(reference(EVERYTHING), tmp_path / "run")


@pytest.fixture(
    params=["five workers", *(pytest.param(name, marks=pytest.mark.slow) for name in ("spawned workers", "two nodes"))]
)
def faulty(request, reference, tmp_path, monkeypatch) -> Iterator[dict[str, Any]]:
    """Lend each cluster of processes with environments that fail once at some seeds, each time in another way."""
    reference(EVERYTHING)  # made while nothing fails
    faults = {"fault": "segfault,exit,memory,kill,hang,hold_gil", "every": 5, "once": str(tmp_path / "marks")}
    (tmp_path / "marks").mkdir()
    if request.param != "two nodes":
        monkeypatch.setenv("FAULTY", json.dumps(faults))
        yield CLUSTERS[request.param]
        return
    address, environment = new_address(), {"FAULTY": json.dumps(faults)}
    with Host(address, 1, environment=environment), Host(address, 2, environment=environment):
        yield {"name": "socket", "listen": address}


@pytest.mark.slow
def test_workers_that_die_or_hang_change_nothing(faulty, tmp_path, reference):
    train(tmp_path / "run", EVERYTHING, faulty | {"episode_time_limit": 1.0})
    assert len(list((tmp_path / "marks").iterdir())) > 5
    check_equal(reference(EVERYTHING), tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["five workers", "spawned workers", "two nodes"])
def test_members_that_always_kill_or_hang_are_recorded_alike(name, tmp_path, reference, request):
    settings = {
        "task": {"env_kwargs": {"fault": "exit,hang,segfault", "every": 5}, "common_random_numbers": "none"},
        "evaluation": {"every": 0},
        "generations": 2,
    }
    limits = {"episode_time_limit": 2.0, "attempts": 2}
    train(tmp_path / "run", settings, settings_of(name, request) | limits)
    alone = reference(settings, CLUSTERS["one worker"] | limits)
    assert sum(int(row["failed_members"]) for row in rows_of(alone)) > 1
    check_equal(alone, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
def test_functions_have_the_same_maximum_with_any_workers(workers):
    def paraboloid(theta):
        return -float(((theta - [0.5, 0.1, -0.3]) ** 2).sum())

    alone, together = (
        pyes.maximize(paraboloid, np.zeros(3), workers=each, population_size=20, generations=20)
        for each in (1, workers)
    )
    np.testing.assert_array_equal(alone.theta, together.theta)
    np.testing.assert_array_equal(alone.history, together.history)
