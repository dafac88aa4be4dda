"""Runs the program `pyes` in processes forked from one that has already imported everything.

They behave as if started by a shell: arguments, folder, environment, both outputs and the exit status. Where processes
cannot be forked, Python is started. `running` is for any other program.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LIMIT = 250.0  # seconds for a command; that of the test may end it earlier


def started(*arguments: str | Path, cwd: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of pyes in a folder, in a new Python; return how it ended and what it said."""
    command = [sys.executable, "-m", "pyes", *map(str, arguments)]
    options = {"cwd": cwd, "env": os.environ | environment, "capture_output": True, "text": True}
    return subprocess.run(command, timeout=LIMIT, check=False, **options)


@contextlib.contextmanager
def running(command: list[str], **options: Any) -> "Iterator[subprocess.Popen[str]]":
    """Run a program in a session of its own; leaving the block kills what is left: no failing test waits for it."""
    with subprocess.Popen(command, text=True, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                if sys.platform == "win32":
                    process.kill()
                else:
                    os.killpg(process.pid, signal.SIGKILL)


def pyes(
    *arguments: str | Path, cwd: Path, learning_curve: bool = False, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run a command of pyes in a folder; return how it ended and what it said.

    Only where a test looks at it, a run draws its learning curve, which costs as much as three tiny runs.
    """
    if sys.platform == "win32":
        return started(*arguments, cwd=cwd, **environment)
    import hosts

    words = list(map(str, arguments))
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder) / name for name in ("stdout", "stderr")]
        process = hosts.CONTEXT.Process(
            target=_main, args=(words, str(cwd), dict(os.environ) | environment, outputs, learning_curve)
        )
        process.start()
        try:
            process.join(LIMIT)
        finally:
            process.kill()
            process.join()
        done = subprocess.CompletedProcess(words, process.exitcode or 0, *(path.read_text() for path in outputs))
        process.close()
        return done


def _main(arguments: list[str], cwd: str, environment: dict[str, str], outputs: list[Path], curve: bool) -> None:
    os.setsid()  # as a shell has it; and signals to the tests' group are not for it
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, path in enumerate(outputs, 1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, descriptor)
        os.close(file)
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    sys.argv = ["pyes", *arguments]
    sys.path[:0] = [cwd]  # as `python -m pyes` does
    from pyes.cli import main
    from pyes.training import ending

    if not curve:
        ending.draw_curve = lambda run: None
    sys.exit(main(arguments))
