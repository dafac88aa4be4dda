"""The measurements run; their results are not checked."""

import ast
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pyes import bench
from pyes.bench import kernels, networks, rollouts
from pyes.errors import ConfigError

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
@pytest.mark.parametrize("name", networks.CASES)
def test_networks_are_measured(name: str) -> None:
    config, _ = networks.CASES[name]
    assert min(networks.speeds(config, repetitions=1)) > 0


def test_policies_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    kernels.policy(1)
    assert capsys.readouterr().out.count("PolicyRunner.act") == 2


def test_a_compiler_that_fails_is_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cc").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert kernels.compiled_read(str(tmp_path)) is None


def test_a_rollout_that_lacks_a_package_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compare(env_id: str, network: object, normalize: bool) -> tuple[list[float], list[float]]:
        if env_id != "Pendulum-v1":
            raise ConfigError(f"{env_id} needs a package")
        return [2.0], [1.0]

    monkeypatch.setattr(rollouts, "compare", compare)
    rollouts.measure()
    said = capsys.readouterr().out
    assert said.count("left out: ") == len(rollouts.CASES) - 2
    assert said.count("bare") == 1 + 2


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "LunarLander-v3"])
def test_rollouts_and_the_bare_environment_step_the_same_actions(env_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if env_id == "LunarLander-v3":
        pytest.importorskip("Box2D")
    lengths: list[list[int]] = []

    def speed(work: Callable[[], int]) -> float:
        lengths.append([work() for _ in range(2)])
        return 1.0

    monkeypatch.setattr(rollouts, "speed", speed)
    monkeypatch.setattr(rollouts, "ROUNDS", 1)
    rollouts.compare(env_id, rollouts.LINEAR, False)
    (first, again), bare = lengths
    assert first == again > 5 * 5
    assert bare == [first, again]


def test_a_speed_counts_at_least_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the machine stood still before it."""
    monkeypatch.setattr(rollouts, "SECONDS", 0.0)
    assert rollouts.speed(lambda: 7) > 0


def _unknown(tree: ast.AST) -> Iterator[str]:
    """Yield the names of pyes that a program uses and that are not there."""
    modules: dict[str, object] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("pyes"):
            for name in node.names:
                try:
                    there: object = getattr(importlib.import_module(str(node.module)), name.name, None)
                    modules[name.asname or name.name] = there or importlib.import_module(f"{node.module}.{name.name}")
                except ImportError:
                    yield f"{node.module}.{name.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if isinstance(module, ModuleType) and not hasattr(module, node.attr):
                yield f"{node.value.id}.{node.attr}"


def test_benchmarks_use_what_is_there() -> None:
    """They run for minutes, and other tests run few of them."""
    files = sorted(BENCHMARKS.glob("*.py"))
    assert len(files) > 10
    assert [(file.name, name) for file in files for name in _unknown(ast.parse(file.read_text("utf-8")))] == []


@pytest.mark.parametrize(
    ("program", "words", "said"),
    [
        ("ask_tell", "0", "got 0, expected a number that is at least 1"),
        ("atari", "task=cart_pole", "task: got gymnasium, expected a game of Atari"),
        ("atari", "task=ping", "unknown task 'ping'"),
        ("blackbox", "--dims 20 --searches any", "with 20 parameters, got any, expected of openai_es"),
        ("blackbox", "--seeds 0", "got 0, expected"),
        ("bullet", "antt", "invalid choice: 'antt'"),
        ("churn", "joins", "got joins, expected a number that is greater than 0"),
        ("churn", "join 0", "got 0, expected"),
        ("deceptive", "nsr", "invalid choice: 'nsr'"),
        ("lander_algorithms", "folder nsr", "invalid choice: 'nsr'"),
        ("large_policies", "many", "got many, expected"),
        ("mujoco_tasks", "Hopper", "invalid choice: 'Hopper'"),
        ("recipes", "cart_pole --seeds 0", "got 0, expected"),
        ("start", "--runs 0", "got 0, expected"),
        ("update_step", "float16", "invalid choice: 'float16'"),
        ("update_step", "int8 0", "got 0, expected"),
        ("make_benchmarks", "nowhere", "expected nowhere"),
        ("make_gallery", "cart", "invalid choice: 'cart'"),
        ("make_results", "nowhere", "expected nowhere"),
    ],
)
def test_words_that_name_nothing_are_refused_before_anything_is_done(
    program: str, words: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (BENCHMARKS, BENCHMARKS.parent / "tools"):
        monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "argv", [program, *words.split()])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(program).main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.fixture
def many_workers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the benchmark, whose members are few."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    module = importlib.import_module("many_workers")
    monkeypatch.setattr(module, "MEMBERS_OF_A_WORKER", 1)
    monkeypatch.setattr(module, "GENERATIONS", 1)
    return module


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="starts a head, as the tests of clusters do")
def test_a_head_is_measured_with_simulated_workers(many_workers: ModuleType) -> None:
    workers, nodes, members, efficiency, *_ = many_workers.measure(18, 0).split()
    assert (workers, nodes, members) == ("18", "1", "18")
    assert 0.0 < float(efficiency) <= 1.0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="starts a head, as the tests of clusters do")
def test_a_head_is_not_measured_without_its_nodes(many_workers: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_workers, "simulate", print)
    with pytest.raises(SystemExit, match="the process of the nodes has ended with status 0"):
        many_workers.measure(18, 0)


def test_what_lacks_a_package_is_left_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(kernels, "measure", lambda full: print("kernels"))
    monkeypatch.setattr(rollouts, "measure", lambda: print("rollouts"))
    bench.run()
    kernel, *_, left, rollout = capsys.readouterr().out.splitlines()
    assert (kernel, rollout) == ("kernels", "rollouts")
    assert left.startswith("left out: the comparison with torch needs the package torch: pip install")
