"""Test the kernels of the pyes that is installed: `python tests/check_wheel.py [PYTEST-OPTION ...]`, from anywhere.

Runs the digest of all kernels (``pyes info`` shows it) and the tests against their NumPy twins; wheels are published
only if these pass where they will run. Needs pytest, pytest-timeout, hypothesis and scipy, but neither torch nor a
simulator.
"""

import sys
from pathlib import Path

import pytest

import pyes
from pyes import _core

TESTS = Path(__file__).resolve().parent


def main() -> int:
    """Return pytest's exit status."""
    print(f"pyes in {Path(pyes.__file__).parent}, levels {', '.join(_core.levels())}", flush=True)
    others = {"test_build.py", "test_conv.py", "test_torch.py"}  # about this folder, and against torch
    found = {path for path in (TESTS / "core").glob("test_*.py") if path.name not in others}
    files = sorted(map(str, found | {TESTS / "node" / "test_selftest.py"}))
    if len(files) < 2:
        sys.exit(f"{TESTS}: got {len(files)} files with tests of the kernels, expected them all")
    return pytest.main(["-q", "-p", "no:cacheprovider", "-m", "not soak", *sys.argv[1:], *files])


if __name__ == "__main__":
    sys.exit(main())
