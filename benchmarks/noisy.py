"""A noisy quadratic, five seeds: few episodes a member, many, and as many as the noise wants, at equal episodes.

    python benchmarks/noisy.py [ALGORITHM ...]

The return is minus the squared distance of 20 parameters from a point, 20 at first, plus normal noise of standard
deviation 1. Prints the median over the seeds of the center's return without noise after a tenth, a half and all of
20,000 episodes, and how many episodes a member had at last. ALGORITHM: any (default: openai_es, snes, cma_es, ga).
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

import pyes
import pyes.reports.replay

SEEDS, DIM, NOISE, EPISODES, POPULATION = range(5), 20, 1.0, 20_000, 20
SETTINGS: dict[str, dict[str, Any]] = {
    "openai_es": {"sigma": 0.3, "learning_rate": 0.1},
    "snes": {"sigma": 0.3},
    "cma_es": {"sigma": 0.3},
    "ga": {"sigma": 0.1},
}
MOST = 32
#: Name of each way, episodes per member, and more settings of the run.
WAYS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("1", 1, {}),
    ("2", 2, {}),
    (f"{MOST}", MOST, {}),
    (f"2 to {MOST}", 2, {"averaging": {"episodes_max": MOST}}),
)


class Quadratic(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """One timestep, whose action is theta."""

    observation_space = spaces.Box(1, 1, (1,), np.float32)
    action_space = spaces.Box(-np.inf, np.inf, (DIM,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """End it."""
        noisy = value(action) + NOISE * self.np_random.standard_normal()
        return np.ones(1, np.float32), noisy, True, False, {}


def value(theta: NDArray[np.float32]) -> float:
    """Return what is to be maximised, without noise."""
    return -float(((theta - 1) ** 2).sum())


def main() -> None:
    """Print one line an algorithm and way."""
    print(f"{'algorithm':<12}{'episodes':>10}{'a tenth':>10}{'a half':>10}{'all':>10}{'at last':>10}")
    for algorithm in sys.argv[1:] or SETTINGS:
        for name, episodes, settings in WAYS:
            cells = np.median([measure(algorithm, episodes, settings, seed) for seed in SEEDS], axis=0)
            numbers = "".join(f"{cell:>10.3f}" for cell in cells[:-1])
            print(f"{algorithm:<12}{name:>10}{numbers}{cells[-1]:>10.0f}", flush=True)


def measure(algorithm: str, episodes: int, settings: dict[str, Any], seed: int) -> list[float]:
    """Train once; return the center's values after a tenth, a half and all episodes, and the episodes at last."""
    with tempfile.TemporaryDirectory(prefix="noisy-") as folder:
        run = Path(folder) / "run"
        config = {
            "seed": seed, "run_dir": str(run), "generations": None, "timesteps": EPISODES,
            "algorithm": {"name": algorithm, "population_size": POPULATION, **SETTINGS.get(algorithm, {})},
            "task": {
                "name": "python", "factory": "noisy:Quadratic", "episodes": episodes, "action": "identity",
                "common_random_numbers": "none",
            },
            "network": {"bias": False, "init": "zero"}, "noise": {"entries": 1_000_000}, "evaluation": {"every": 0},
            "snapshot": {"every": 0}, "cluster": {"name": "inline"}, **settings,
        }  # fmt: skip
        pyes.train(config, display=False)
        with pyes.reports.replay.open(run) as replay:
            spent = np.cumsum([0, *(int(replay.lengths(each).sum()) for each in range(replay.generations))])
            places = [int(np.searchsorted(spent, share * EPISODES)) for share in (0.1, 0.5, 1)]
            last = (spent[-1] - spent[-2]) / POPULATION
            return [value(replay.theta(place)) for place in places] + [last]


if __name__ == "__main__":
    main()
