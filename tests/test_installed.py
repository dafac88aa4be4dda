"""The wheel, installed in a virtual environment of its own and used from another directory.

It is built from the sdist, so that both are known to be complete. What pyes depends on is borrowed from the environment
that runs the tests; pyes itself is not.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
import yaml

fcntl = pytest.importorskip("fcntl", reason="for POSIX alone, as the paths of a virtual environment here")

ROOT = Path(__file__).parent.parent
EXTRAS = {
    "box2d",
    "torch",
    "bullet",
    "mujoco",
    "atari",
    "envpool",
    "gym",
    "nevergrad",
    "numba",
    "ray",
    "tensorboard",
    "wandb",
    "mlflow",
    "trackio",
    "metrics",
    "explore",
    "tune",
    "video",
    "onnx",
    "umap",
    "dev",
    "all",
}
#: What git does not track, where there is no git to say so: in an unpacked sdist.
UNTRACKED = {"__pycache__", "build", "dist", "runs", "multirun", "outputs", "PKG-INFO", "setup.cfg", "_core.c"}
TINY = ("debug=default", "task=cart_pole")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


def tracked() -> set[str]:
    """Return the project's files: those that git tracks or would, or in an unpacked sdist all that are no output."""
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
        return {name for name in listed if name and (ROOT / name).is_file()}
    files = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return {
        path.as_posix()
        for path in files
        if not UNTRACKED & {*path.parts}
        and not any(part.startswith(".") or part.endswith(".egg-info") for part in path.parts)
        and path.suffix not in (".so", ".pyc")
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build sdist and wheel, once for all processes of these tests; returns their folder."""
    folder = tmp_path_factory.getbasetemp()
    copy = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "source"
    with copy.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not copy.exists():
            build(copy)
    return copy / "dist"


def build(copy: Path) -> None:
    """Build sdist and wheel from a copy of the sources, unoptimised, which is soon done."""
    for name in tracked():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(copy / "dist"), str(copy)]
    environment = {**os.environ, "PYES_DEBUG_BUILD": "1"}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def unpacked(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the sdist; returns its folder."""
    (path,) = built.glob("*.tar.gz")
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(path) as archive:
        archive.extractall(folder, filter="data")
    (project,) = folder.iterdir()
    return project


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
    # The folders alone: their own .pth files, which would bring an editable pyes, are not read.
    borrowed = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "borrowed.pth").write_text("".join(f"{path}\n" for path in borrowed))
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
    own = [Path(name) for name in names if name.startswith("pyes/")]
    page = {".html", ".css", ".js", ".txt"}  # of the explorer
    assert {path.suffix for path in own} == {".py", ".pyi", ".typed", ".yaml", ".so", ".h"} | page
    assert {path.parts[2] for path in own if path.suffix in page} == {"explorer"}
    assert [name for name in names if name.endswith(".h")] == ["pyes/include/pyes_environment.h"]


def test_wheel_holds_every_module_and_every_configuration(wheel: Path):
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "pyes").rglob("*.py*") if path.suffix != ".pyc"}
    configurations = {
        f"pyes/conf/{path.relative_to(ROOT / 'conf').as_posix()}" for path in (ROOT / "conf").rglob("*.yaml")
    }
    assert modules | configurations | {
        "pyes/conf/__init__.py",
        "pyes/include/pyes_environment.h",
        "pyes/py.typed",
    } <= contents(wheel)


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_wheel_metadata_names_extras_licence_and_program(wheel: Path, metadata: Message):
    assert set(metadata.get_all("Provides-Extra", [])) == EXTRAS
    assert (metadata["Name"], metadata["License-Expression"]) == ("pyes-rl", "MIT")
    assert metadata.get_all("License-File") == ["LICENSE", "pyes/reports/explorer/static/vendor/LICENSE.txt"]
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt"))
        assert "pyes = pyes.cli:main" in archive.read(name).decode()


def test_wheel_needs_neither_torch_nor_a_simulator(metadata: Message):
    needed = {re.split("[<>]", each)[0] for each in metadata.get_all("Requires-Dist", []) if "extra ==" not in each}
    base = {"cma", "cryptography", "gymnasium", "hydra-core", "matplotlib", "msgpack", "numpy", "omegaconf", "pyyaml"}
    assert needed == base | {"rich", "safetensors", "threadpoolctl"}


def test_dev_has_every_extra_that_tests_use(metadata: Message):
    lines = [each for each in metadata.get_all("Requires-Dist", []) if re.match(r"pyes-rl\[.*extra == .dev.", each)]
    named = {name for line in lines for name in re.search(r"\[(.*?)\]", line)[1].split(",")}
    # The tests of gym make an environment of their own; those of the loggers are run by `make test-loggers`.
    assert named == EXTRAS - {"dev", "all", "gym", "wandb", "mlflow", "trackio"}


def test_description_has_the_readmes_links_and_images_for_any_site(metadata: Message):
    links = re.findall(r"\]\(([^)\s]+)\)", metadata.get_payload())
    assert not [link for link in links if not link.startswith(("https://", "#"))]
    images = {link for link in links if link.endswith((".png", ".gif"))}
    assert images
    for image in images:
        place = f"https://raw.githubusercontent.com/pyes-rl/pyes/v{metadata['Version']}/"
        assert image.startswith(place)
        assert (ROOT / image.removeprefix(place)).is_file()
    assert {"Homepage", "Documentation", "Changelog", "Issues"} == {
        each.split(",")[0] for each in metadata.get_all("Project-URL", [])
    }


def test_sdist_holds_what_git_has(unpacked: Path):
    """All of it but what only the forge reads, so that one can build, test and read; and nothing that was built."""
    names = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    made = {name for name in names if name in ("PKG-INFO", "setup.cfg") or ".egg-info/" in name}
    assert names - made == {name for name in tracked() if not name.startswith(".")}


def test_sdists_own_tests_are_collected_from_it(unpacked: Path, programs: Path):
    """Every helper and every file that they read on import is there. -P: not the pyes beside the tests."""
    collect = ("-P", "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider")
    printed = run(programs / "python", *collect, cwd=unpacked)
    assert re.search(r"^\d+ tests collected", printed, re.MULTILINE)


def test_check_of_a_wheel_passes(unpacked: Path, programs: Path, tmp_path: Path):
    """As release jobs run it, where torch is not installed, but for a few of its tests."""
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('it is not installed')\n")
    check = str(unpacked / "tests" / "check_wheel.py")
    code = f"import runpy, sys; sys.path.insert(0, '.'); runpy.run_path({check!r}, run_name='__main__')"
    collected = run(programs / "python", "-c", code, "--collect-only", cwd=tmp_path)
    assert "test_environment.py::" in collected
    assert "touch_memory" not in collected  # a test for hours, which builds the extension
    printed = run(programs / "python", "-c", code, "-k", "digest or centered_ranks or float_control", cwd=tmp_path)
    assert f"pyes in {programs.parent}" in printed
    assert " passed" in printed


@pytest.mark.skipif(not (ROOT / ".github").exists(), reason="an sdist has no workflows")
def test_nothing_is_published_before_all_jobs_have_passed():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "wheels.yml").read_text(encoding="utf-8"))
    jobs = workflow["jobs"]
    assert set(jobs["publish"]["needs"]) == jobs.keys() - {"publish"}
    assert jobs["ci"]["uses"] == "./.github/workflows/ci.yml"
    ci = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    assert "workflow_call" in ci[True]  # YAML 1.1 reads the key `on` as true


@pytest.mark.skipif(not (ROOT / ".github").exists(), reason="an sdist has no workflows")
def test_workflows_leave_out_the_tests_that_make_test_leaves_out():
    """For want of what they need: hours, or packages that the extra dev does not install."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (words,) = re.findall(r'\$\(PYTEST\) -m "(not slow and .*)"', text)
    quick = set(words.split(" and "))
    ci = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    steps = [step.get("run", "") for job in ci["jobs"].values() for step in job["steps"]]
    found = [set(words.split(" and ")) for step in steps for words in re.findall(r'pytest .*-m "(.*)"', step)]
    assert found == [quick - {"not slow"}, quick]


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


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("unshare"), reason="makes a root folder, as root"
)
def test_installed_program_runs_in_a_root_without_programs_as_nobody_without_a_home(programs: Path, tmp_path: Path):
    """No compiler, no shell, no name of the user, nothing to write to but one folder; what is there is read-only."""
    root, work = tmp_path / "root", tmp_path / "work"
    shared = {programs.parent, Path(sys.base_prefix), *map(Path, ("/lib", "/lib64", "/usr/lib"))}
    shared |= {Path(path) for path in sys.path if Path(path).name in ("site-packages", "dist-packages")}
    mounts = [f"mount --rbind {path} {root}{path} && mount -o remount,bind,ro {root}{path}" for path in sorted(shared)]
    for path in ("/proc", "/dev/shm", "/mine", *map(str, shared)):
        (root / path[1:]).mkdir(parents=True, exist_ok=True)
    work.mkdir()
    os.chown(work, 65534, 65534)
    for name in ("null", "urandom"):
        (root / "dev" / name).touch()
        mounts.append(f"mount --bind /dev/{name} {root}/dev/{name}")
    mounts += [f"mount -t proc proc {root}/proc", f"mount -t tmpfs -o mode=1777 tmpfs {root}/dev/shm"]
    mounts.append(f"mount --bind {work} {root}/mine")
    variables = "env -i PATH=/bin HOME=/nonexistent TMPDIR=/mine"
    inside = f"exec {variables} {shutil.which('chroot')} --userspec=65534:65534 {root} {programs}"
    overrides = " ".join((*TINY, "cluster=local", "cluster.workers=2", "run_dir=/mine/run"))
    for command in (f"pyes train {overrides}", "pyes evaluate /mine/run --episodes 2"):
        script = " && ".join((*mounts, f"{inside}/{command}"))
        printed = run("unshare", "--mount", "--pid", "--fork", "sh", "-c", script, cwd=tmp_path)
    assert printed.startswith("return ")
    assert {path.stat().st_uid for path in (work / "run").iterdir()} == {65534}
