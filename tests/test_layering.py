"""Imports run downward through these layers, without cycles; Hydra and torch are imported only where they may be."""

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "pyes"

# From the top to the ground: a folder (or module) imports from itself and from those after it, never from one before.
LAYERS = (
    "__main__", "cli", "bench", "launch", "blackbox", "native", "training", "reports", "cluster", "remote", "node",
    "run", "episodes", "algorithms", "tasks", "networks", "numerics", "config", "system", "reference", "_core",
    "errors",
)  # fmt: skip
RANKS = {name: len(LAYERS) - index for index, name in enumerate(LAYERS)}
MODULES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(path) for path in MODULES} | {"_core"}


@functools.cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the full name of every module that a tree imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                is_module = full.removeprefix("pyes.") in NAMES
                yield full if is_module else node.module


def imported_from_pyes(path: Path) -> set[str]:
    """Return the modules of pyes that a module imports, without the prefix."""
    names = imported(parsed(path))
    return {name.removeprefix("pyes.") for name in names if name.startswith("pyes.")}


def at_top(path: Path) -> set[str]:
    """Return the names of the modules that importing a module imports."""
    tree = parsed(path)
    body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return {name for node in body for name in imported(node)}


def test_imports_run_downward():
    unknown = {module_name(path).split(".")[0] for path in MODULES if module_name(path)} - RANKS.keys()
    assert not unknown, f"give {unknown} a layer in {Path(__file__).name}"
    upward = [
        f"{module_name(path)} imports {name}"
        for path in MODULES
        if module_name(path)
        for name in imported_from_pyes(path)
        if RANKS[name.split(".")[0]] > RANKS[module_name(path).split(".")[0]]
    ]
    assert upward == []


def test_top_level_holds_what_users_import_and_the_folders():
    top = {path.stem for path in PACKAGE.glob("*.py")}
    assert top == {"__init__", "__main__", "blackbox", "errors", "native", "reference"}
    assert len({path.parent for path in PACKAGE.glob("*/__init__.py")}) <= 16


def test_no_module_is_too_small_to_be_a_room():
    lines = {
        path.relative_to(PACKAGE).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in MODULES
        if path.name not in ("__init__.py", "__main__.py")
    }
    assert [name for name, count in lines.items() if count < 25] == []


def test_modules_have_no_import_cycle():
    graph = {module_name(path): imported_from_pyes(path) - {module_name(path)} for path in MODULES if module_name(path)}
    tuple(TopologicalSorter(graph).static_order())  # raises CycleError


def test_hydra_is_imported_by_the_command_train_and_its_errors_alone():
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in MODULES
        if {name.split(".")[0] for name in imported(parsed(path))} & {"hydra", "omegaconf"}
    }
    assert users == {"cli/train.py", "cli/hydra_errors.py"}


@pytest.mark.slow
def test_torch_is_imported_at_the_top_of_one_sub_package():
    """So that everything else, compiled networks first of all, runs where it is not installed."""
    users = {
        path.parent.relative_to(PACKAGE).as_posix()
        for path in MODULES
        if any(f"{name}.".startswith(("torch.", "pyes.networks.torch.")) for name in at_top(path))
    }
    assert users == {"networks/torch"}


#: What tells the wall clock, which may jump; `time` names are of that module, the others of datetime's classes.
WALL_CLOCK = {"time": {"time", "time_ns", "localtime", "gmtime", "ctime", "asctime", "strftime", "clock_gettime"}}
OF_DATETIME = {"now", "utcnow", "today", "fromtimestamp"}
#: Where people are told the time: the lines of a node, a new run's directory, what loggers send, Prometheus.
TELLS_THE_TIME = {
    "remote/agent.py": ["time.strftime"],
    "run/directory.py": ["time.strftime"],
    "reports/loggers/base.py": ["time.time"],
    "reports/loggers/tensorboard.py": ["time.time"],
    "training/exporter.py": ["time.time"],
}


def wall_clocks(tree: ast.AST) -> Iterator[str]:
    """Yield each use of the wall clock, and each import that would hide one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield f"from time import {node.names[0].name}"
        if isinstance(node, ast.Attribute):
            of = node.value.id if isinstance(node.value, ast.Name) else ""
            if node.attr in WALL_CLOCK.get(of, set()) | OF_DATETIME:
                yield f"{of}.{node.attr}"


def test_no_logic_follows_the_wall_clock():
    trees = {path.relative_to(PACKAGE).as_posix(): parsed(path) for path in MODULES}
    found = {name: list(wall_clocks(tree)) for name, tree in trees.items()}
    assert {name: uses for name, uses in found.items() if uses} == TELLS_THE_TIME


def test_wall_clocks_are_found_however_they_are_spelt():
    code = "time.time; x = field(default_factory=time.time_ns); datetime.now(UTC); from time import time as t; a.time()"
    found = list(wall_clocks(ast.parse(code.replace("; ", "\n"))))
    assert sorted(found) == ["datetime.now", "from time import time", "time.time", "time.time_ns"]


@pytest.mark.parametrize("module", ["pyes", "pyes.cli", "pyes.networks", "pyes.node.worker_process", "pyes.config"])
def test_import_does_not_bring_torch_or_hydra(module: str):
    code = f"import sys, {module}; print(sorted({{'torch', 'hydra', 'matplotlib'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("module", ["pyes", "pyes.cli", "pyes.config"])
def test_import_is_light(module: str):
    code = f"import sys, {module}; print(sorted({{'numpy', 'gymnasium', 'rich'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
