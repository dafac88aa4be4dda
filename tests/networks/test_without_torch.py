"""Where torch cannot be imported, compiled networks are trained, resumed, evaluated, replayed, drawn and exported."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

#: Runs the program with an import of torch that raises, in this process and in the workers that it forks.
PROGRAM = "import sys; sys.modules['torch'] = None; from pyes.cli import main; sys.exit(main())"
TINY = ["task=pendulum", "network=mlp", "network.hidden=[4]", "debug=default", "cluster=local", "cluster.workers=1"]


def pyes(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=110)


def output(*arguments: str, cwd: Path) -> str:
    done = pyes(*arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_every_command_of_a_run_of_an_mlp_works_without_torch(tmp_path: Path) -> None:
    length = 20
    output("train", *TINY, f"task.max_timesteps={length}", "run_dir=run", cwd=tmp_path)
    output("train", "resume=run", "generations=3", cwd=tmp_path)
    assert json.loads(output("evaluate", "run", "--episodes", "1", "--json", cwd=tmp_path))["lengths"] == [length]
    replayed = json.loads(output("replay", "run", "--generation", "2", "--member", "1", "--json", cwd=tmp_path))
    assert replayed["length"] == length
    output("plot", "run", "-o", "curve.png", cwd=tmp_path)
    output("export", "run", "-o", "policy.safetensors", cwd=tmp_path)
    start = (tmp_path / "run" / "journal.bin").read_bytes()
    assert b"numpy" in start
    assert b"torch" not in start  # its version decides nothing


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", *TINY[:1], "network=torch", "network.module=a:B", "run_dir=run"], "network.name=torch needs the"),
        pytest.param(["export", "run", "-o", "policy.pt"], "export to .pt needs the", marks=pytest.mark.slow),
    ],
)
def test_what_torch_does_is_refused_in_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    if arguments[0] == "export":
        output("train", *TINY, "run_dir=run", cwd=tmp_path)
    done = pyes(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(
        f'pyes: error: {message} package torch: pip install "pyes-rl[torch]"'
    )
