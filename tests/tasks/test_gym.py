"""Tasks of Gym: in an environment of their own, as Gym wants a NumPy older than ours.

What else pyes depends on, and pyes itself, is borrowed from the environment that runs the tests.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from pyes import tasks
from pyes.errors import ConfigError
from pyes.tasks.gym import GymConfig

TESTS = Path(__file__).parents[1]
#: What the extra installs, and a NumPy that Gym was written for.
PACKAGES = ("gym>=0.26.2,<0.27", "gym_notices", "shimmy>=2.0", "numpy<2")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the environment; returns its interpreter. Skips where the packages cannot be had."""
    if sys.platform == "win32" or sys.version_info >= (3, 13):
        pytest.skip("no NumPy before 2 for Python 3.13; paths of a virtual environment on POSIX")
    folder = tmp_path_factory.mktemp("gym")
    packages = folder / "packages"
    downloaded = pip("download", "--retries=1", "--no-deps", "--no-build-isolation", "--dest", packages, *PACKAGES)
    if downloaded.returncode:
        pytest.skip(f"pip cannot download Gym: {downloaded.stderr.strip().splitlines()[-1]}")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "venv")}))
    borrowed = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"  # behind its own
    (own / "borrowed.pth").write_text(borrowed)
    offline = ("--no-deps", "--no-index", "--no-build-isolation", "--no-compile", "--find-links", packages)
    installed = pip("--python", python, "install", *offline, *PACKAGES)
    assert installed.returncode == 0, installed.stderr
    return python


def pip(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_tasks_of_gym(python: Path, tmp_path: Path):
    options = ("-q", "--no-header", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "inside"))
    command = [str(python), "-m", "pytest", *options, str(TESTS / "in_old_gym.py")]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_command_line_trains_and_keeps_the_screen_clean(python: Path, tmp_path: Path):
    arguments = ["task=gym", "task.env_id=CartPole-v1", "debug=default", "cluster=local", "run_dir=run"]
    command = [str(python), "-m", "pyes", "train", *arguments]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path / 'run'}\n"
    assert done.stderr.startswith("CartPole-v1: 114 parameters")
    assert "unmaintained" not in done.stderr


def test_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "gym", None)  # as Python has it for what cannot be imported
    expected = r"^task.env_id: 'X-v0' needs the packages gym and shimmy: pip install \"pyes-rl\[gym\]\" \(.*\)$"
    with pytest.raises(ConfigError, match=expected):
        tasks.make(GymConfig(env_id="X-v0"))
