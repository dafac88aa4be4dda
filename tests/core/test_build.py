"""What rebuilds the compiled kernels: each of their files, for setuptools and for make."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIST_FILES = """
import json
from distutils.core import run_setup
(core,) = run_setup("setup.py", stop_after="init").ext_modules
print(json.dumps([*core.sources, *core.depends]))
"""


def sources_of_the_core() -> set[str]:
    """Return every file that the extension is made of, but for what Cython writes."""
    files = {path for path in (ROOT / "csrc").rglob("*") if path.suffix in (".pyx", ".pxi", ".pxd", ".h", ".c")}
    names = {path.relative_to(ROOT).as_posix() for path in files}
    return {name for name in names if not name.startswith("csrc/tests/")} - {"csrc/_core.c"}


@pytest.mark.slow
def test_setup_depends_on_every_source() -> None:
    pytest.importorskip("setuptools")
    command = [sys.executable, "-W", "ignore", "-c", f"import setuptools\n{LIST_FILES}"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert set(json.loads(printed.splitlines()[-1])) == sources_of_the_core()


@pytest.mark.skipif(shutil.which("make") is None or sys.platform == "win32", reason="the Makefile is for POSIX")
def test_make_installs_again_after_a_change_of_any_source() -> None:
    command = ["make", "--print-data-base", "--question", "help"]
    printed = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True).stdout
    (line,) = [line for line in printed.splitlines() if line.startswith("SOURCES := ")]
    assert sources_of_the_core() <= set(line.split()[2:])
