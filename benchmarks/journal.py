"""The journal: its size, and what it costs to write, to rebuild a run from and to go on from.

    python benchmarks/journal.py [size] [rebuild] [resume] [cost]

Runs are real; where rollouts do not matter, their episodes are two timesteps long. Figures are medians.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from parts import run_parts

import pyes
from pyes.reports import replay
from pyes.run import journal
from pyes.run.metrics import read_rows

#: Networks by their number of parameters, on eight observations and two actions.
NETWORKS: dict[int, dict[str, Any]] = {
    18: {"name": "linear"},
    165_202: {"name": "mlp", "hidden": [400, 400]},
    1_003_002: {"name": "mlp", "hidden": [996, 996]},
}
MEMBERS = 1000


class Cheap(gymnasium.Env[np.ndarray, np.ndarray]):
    """Eight observations and two actions at no cost: two timesteps, but 300 for one seed in 500.

    Lengths that do not fit into a byte are what real tasks have.
    """

    observation_space = spaces.Box(-10, 10, (8,))
    action_space = spaces.Box(-1, 1, (2,))

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self._left = 300 if seed is not None and seed % 500 == 0 else 2
        self._observation = np.full(8, ((seed or 0) % 1000) / 500 - 1, np.float32)
        return self._observation, {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._left -= 1
        return self._observation, float(action[0] * self._observation[0]), self._left <= 0, False, {}


if __name__ == "journal":  # as "journal:Cheap-v0" imports it
    gymnasium.register("Cheap-v0", entry_point=Cheap)


def main() -> None:
    """Run the parts that the command line names, or all."""
    run_parts(__doc__, {"size": size, "rebuild": rebuild, "resume": resume, "cost": cost})


def size() -> None:
    """Look at the bytes of 200 generations of 1,000 members, whatever the network."""
    for parameters in (18, 1_003_002):
        with tempfile.TemporaryDirectory() as folder:
            train(folder, parameters, generations=200, evaluation={"every": 5, "episodes": 50})
            written = (Path(folder) / "journal.bin").stat().st_size
        print(
            f"journal of 200 generations of 1,000 members, {parameters:,} parameters: {written / 1e6:.2f} MB  (aim 2.5)"
        )


def rebuild() -> None:
    """Rebuild a run from its journal alone: generations a second."""
    with tempfile.TemporaryDirectory() as folder:
        train(folder, 165_202, generations=100)
        with replay.open(folder) as run:
            run.theta(10)
            begun = time.perf_counter()
            run.theta(run.generations)
            speed = (run.generations - 10) / (time.perf_counter() - begun)
    print(f"rebuilt from the journal alone, 165,202 parameters, 1,000 members: {speed:.1f} generations/s  (aim 20)")


def resume() -> None:
    """Go on from the newest snapshot: from the command to the first new record, less that generation's evaluation."""
    times = []
    with tempfile.TemporaryDirectory() as folder:
        train(folder, 165_202, generations=98, snapshot={"every": 10})
        for generation in range(98, 103):
            begun = time.perf_counter()
            written = (Path(folder) / "journal.bin").stat().st_size
            command = [sys.executable, "-m", "pyes", "train", f"resume={folder}", f"generations={generation + 1}"]
            environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
            with subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ) as head:
                while (Path(folder) / "journal.bin").stat().st_size <= written:
                    if head.poll() is not None:
                        raise RuntimeError(f"the run ended with exit status {head.returncode}")
                    time.sleep(0.005)
                seconds = time.perf_counter() - begun
            times.append(seconds - float(read_rows(Path(folder) / "metrics.csv")[-1]["evaluate_seconds"]))
    print(f"command to first new record, 165,202 parameters, 1,000 members: {statistics.median(times):.2f} s  (aim 3)")


def cost() -> None:
    """Append the records of a run again: seconds, against those of its generations."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"algorithm": {"population_size": 256}, "generations": 10, "evaluation": {"every": 0}}
        pyes.train({"run_dir": folder, **settings}, display=False)
        seconds = [float(row["seconds"]) for row in read_rows(Path(folder) / "metrics.csv")]
        generation = statistics.median(np.diff(seconds))
        recording = journal.read(Path(folder) / "journal.bin")
        times = []
        with journal.Journal(journal.Recording(Path(folder) / "again.bin")) as again:
            for index in range(len(recording)):
                record = recording[index]
                begun = time.perf_counter()
                again.append(record)
                times.append(time.perf_counter() - begun)
    spent = statistics.median(times)
    print(
        f"LunarLander, 256 members: a record takes {spent * 1e3:.2f} ms, its generation {generation * 1e3:,.0f} ms: ",
        end="",
    )
    print(f"{spent / generation:.3%}  (aim at most 1 %)")


def train(folder: str, parameters: int, **settings: Any) -> None:
    """Train on the cheap task in this folder."""
    run = {
        "run_dir": folder,
        "task": {"env_id": "journal:Cheap-v0", "common_random_numbers": "none", "normalize_observations": False},
        "network": NETWORKS[parameters],
        "algorithm": {"population_size": MEMBERS},
        "noise": {"entries": 2**22},
        "evaluation": {"every": 0},
        "snapshot": {"every": 0},
    }
    pyes.train({**run, **settings}, display=False)


if __name__ == "__main__":
    main()
