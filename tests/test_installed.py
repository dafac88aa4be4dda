"""The wheel, installed in a virtual environment of its own and used from another directory.

It is built from the sdist, so that both are known to be complete. What pyes depends on is borrowed from the environment
that runs the tests; pyes itself is not.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "csrc", "pyes", "conf")
EXTRAS = {
    "bullet",
    "mujoco",
    "atari",
    "envpool",
    "gym",
    "cma",
    "nevergrad",
    "ray",
    "tensorboard",
    "video",
    "onnx",
    "umap",
    "dev",
    "all",
}
TINY = ("debug=default", "task=cart_pole")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform == "win32", reason="paths of a virtual environment on POSIX"),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build sdist and wheel from a copy of the sources, unoptimised, which is soon done; returns their folder."""
    copy = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "_core.c", "build")
            )
        else:
            shutil.copy(source, copy / name)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(copy / "dist"), str(copy)]
    environment = {**os.environ, "PYES_DEBUG_BUILD": "1"}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return copy / "dist"


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel in a new environment; returns its folder of programs."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def run(*command: str | Path, cwd: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_serves_every_later_python(wheel: Path):
    assert wheel.name.startswith("pyes_rl-")
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        assert "-cp311-abi3-" in wheel.name


def test_wheel_holds_the_package_and_nothing_else(wheel: Path):
    names = contents(wheel)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"pyes", "pyes_rl"}
    suffixes = {Path(name).suffix for name in names if name.startswith("pyes/")}
    assert suffixes == {".py", ".pyi", ".typed", ".yaml", ".so"}


def test_wheel_holds_every_module_and_every_configuration(wheel: Path):
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "pyes").rglob("*.py*") if path.suffix != ".pyc"}
    configurations = {
        f"pyes/conf/{path.relative_to(ROOT / 'conf').as_posix()}" for path in (ROOT / "conf").rglob("*.yaml")
    }
    assert modules | configurations | {"pyes/conf/__init__.py", "pyes/py.typed"} <= contents(wheel)


def test_wheel_metadata_names_extras_licence_and_program(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        (folder,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        metadata = Parser().parsestr(archive.read(f"{folder}/METADATA").decode())
        programs = archive.read(f"{folder}/entry_points.txt").decode()
    assert set(metadata.get_all("Provides-Extra", [])) == EXTRAS
    assert (metadata["Name"], metadata["License-Expression"]) == ("pyes-rl", "MIT")
    assert "pyes = pyes.cli:main" in programs


def test_sdist_holds_what_a_build_needs(built: Path):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    kernels = {path.relative_to(ROOT).as_posix() for path in (ROOT / "csrc" / "kernels").iterdir()}
    assert kernels | {"csrc/_core.pyx", "csrc/pyes_kernels.h", "setup.py", "LICENSE", "conf/train.yaml"} <= names


def test_installed_package_is_the_one_of_the_wheel(programs: Path, tmp_path: Path):
    code = "import pyes, pyes._core, pyes.conf; print(pyes.__file__, pyes._core.__file__, pyes.conf.__file__)"
    paths = run(programs / "python", "-c", code, cwd=tmp_path).split()
    assert all(Path(path).is_relative_to(programs.parent) for path in paths)


def test_installed_program_trains_evaluates_and_sweeps_from_another_directory(programs: Path, tmp_path: Path):
    pyes = programs / "pyes"
    assert run(pyes, "train", *TINY, "run_dir=run", cwd=tmp_path) == f"{tmp_path / 'run'}\n"
    assert run(pyes, "evaluate", "run", "--episodes", "2", cwd=tmp_path).startswith("return ")
    jobs = run(pyes, "train", "-m", *TINY, "cluster=local", "seed=0,1", "run_dir=sweep", cwd=tmp_path).splitlines()
    assert jobs == [str(tmp_path / "sweep" / job) for job in "01"]


def test_installed_program_takes_a_folder_of_the_users_own(programs: Path, tmp_path: Path):
    mine = tmp_path / "my" / "experiment" / "mine.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text("# @package _global_\ndefaults:\n  - override /task: cart_pole\n\nseed: 77\n")
    arguments = ("--config-dir", "my", "experiment=mine", "debug=default", "run_dir=run")
    run(programs / "pyes", "train", *arguments, cwd=tmp_path)
    run(programs / "python", "-m", "pyes", "train", "resume=run", "generations=3", cwd=tmp_path)
    config = (tmp_path / "run" / "config.json").read_text(encoding="utf-8")
    assert '"seed": 77' in config
    assert "CartPole-v1" in config


def test_installed_program_finds_its_configuration_in_the_package(programs: Path, tmp_path: Path):
    assert "pkg://pyes.conf" in run(programs / "pyes", "train", "--info", "searchpath", cwd=tmp_path)
