"""docs/benchmarks.md: the page is drawn from results/benchmarks/, and says by itself where pyes loses."""

import csv
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DATA = ROOT / "results" / "benchmarks"
ABOUT = {
    "commands": ["make peers"],
    "commits": ["abc"],
    "machine": {"processor": "A", "cores": 2},
    "versions": {"ray": "2"},
}


def page(data: Path, docs: Path) -> str:
    command = [sys.executable, str(ROOT / "tools" / "make_benchmarks.py"), str(data), str(docs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (docs / "benchmarks.md").read_text(encoding="utf-8")


def write(file: Path, *rows: Iterable[object]) -> None:
    with file.open("w", newline="", encoding="utf-8") as lines:
        csv.writer(lines, lineterminator="\n").writerows(rows)


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """Every part, with few rows: pyes loses to EnvPool in speed, in memory, and to pycma; and wins elsewhere."""
    data = tmp_path / "data"
    data.mkdir()
    speeds = {"pyes": 100, "pyes_native": 900, "evotorch": 50, "ars": 20, "gymnasium": 70, "envpool": 1000}
    cases = [("cart_pole", name, 2, speed) for name, speed in speeds.items()]
    cases += [("lunar_lander", name, workers, workers * speeds[name]) for name in ("pyes", "ars") for workers in (1, 2)]
    rows = [
        (case, name, workers, again, speed, 4, 1 + again) for case, name, workers, speed in cases for again in (0, 1)
    ]
    write(data / "speed.csv", ("case", "method", "workers", "repetition", "timesteps", "episodes", "seconds"), *rows)
    write(data / "start.csv", ("method", "repetition", "seconds"), ("pyes", 0, 1.25), ("ars", 0, 5.5))
    write(
        data / "memory.csv", ("method", "repetition", "mebibytes", "processes"), ("pyes", 0, 99, 4), ("ars", 0, 50, 3)
    )
    sizes = [(name, 18, 1000, 3, size) for name, size in (("pyes", 8880), ("evotorch", 84000))]
    write(data / "wire.csv", ("method", "dim", "members", "nodes", "bytes"), *sizes)
    write_curves(data)
    searches = {"cma_es": "1 9", "pycma with restarts": "1 2 3", "Nevergrad CMA": "", "Nevergrad OnePlusOne": "1"}
    found = [(search, dim, "sphere", 0, counts) for search, counts in searches.items() for dim in (5, 20)]
    write(data / "blackbox.csv", ("search", "dim", "function", "seed", "evaluations"), *found)
    parts = dict.fromkeys(("speed", "start", "wire", "blackbox", "learning"), ABOUT)
    (data / "about.json").write_text(json.dumps(parts), encoding="utf-8")
    return data


def write_curves(data: Path) -> None:
    (data / "minutes").write_text("1\n", encoding="utf-8")
    curves = [
        (task, method, seed, 1000 * minute, 30.0 * minute, mean * minute, 1.0)
        for task, method, mean in (("lunar_lander", "pyes", 140), ("lunar_lander", "ppo", 100), ("hopper", "pyes", 9))
        for seed in (100, 101)
        for minute in (1, 2)
    ]
    write(data / "curves.csv", ("task", "method", "seed", "timesteps", "seconds", "mean", "std"), *curves)


@pytest.mark.slow
def test_page_says_what_the_data_say(sample: Path, tmp_path: Path) -> None:
    text = page(sample, tmp_path)
    for words in (
        "CartPole-v1, linear: pyes loses to EnvPool alone (750 against 75)",
        "CartPole-v1, linear: pyes, task in C loses to EnvPool alone (750 against 675)",
        "| 75 (50 to 100) | 675 (450 to 900) | 38 (25 to 50) |",
        "| pyes | 75 (50 to 100) | 150 (100 to 200) | 2.00 (2.00 to 2.00) |",
        "| pyes | 1.25 |",
        "MiB: pyes loses to SB3-contrib, ARS (50 against 99)",
        "| 18 | 8,880 | 84,000 |",
        "| pyes | 2 | 33 | 2/2 | 60 | 2,000 | 280.0 |",
        "over\n2 seeds of LunarLanderContinuous-v3.",
        "| pyes.maximize | 0.065 |",
        "5 parameters, 100 evaluations for each: pyes.maximize loses to pycma with restarts (0.097 against 0.065)",
        "*`make peers` at abc; A, 2 cores; ray 2.*",
    ):
        assert words in text
    assert text.count("pyes loses to none of them here.") == 4  # workers, start, bytes, LunarLander
    for name in ("speed", "curves", "targets", "blackbox"):
        assert f"(benchmarks/{name}.png)" in text
        assert (tmp_path / "benchmarks" / f"{name}.png").stat().st_size > 10_000


def test_page_has_only_what_was_measured(sample: Path, tmp_path: Path) -> None:
    (sample / "about.json").write_text(json.dumps({"start": ABOUT}), encoding="utf-8")
    text = page(sample, tmp_path)
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## Start", "## Memory"]


@pytest.mark.slow
def test_page_is_drawn_from_the_results(tmp_path: Path) -> None:
    assert page(DATA, tmp_path) == (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for picture in (tmp_path / "benchmarks").iterdir():
        assert (ROOT / "docs" / "benchmarks" / picture.name).exists()
