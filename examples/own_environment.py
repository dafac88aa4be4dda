"""Train a policy on an environment of your own: push a point to the origin and hold it there.

python examples/own_environment.py

Workers find the environment by the name of its module: "own_environment:Point-v0".
"""

from typing import Any

import gymnasium
import numpy as np

import pyes


class Point(gymnasium.Env):
    """A point on a line, with friction; the action is a force."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.position = self.velocity = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.position, self.velocity = self.np_random.uniform(-1.0, 1.0), 0.0
        return self.observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.velocity = 0.9 * self.velocity + 0.1 * float(action[0])
        self.position += self.velocity
        return self.observe(), -(self.position**2), False, False, {}

    def observe(self) -> np.ndarray:
        return np.array([self.position, self.velocity], np.float32)


# Only once: workers import this program as a module.
if "Point-v0" not in gymnasium.registry:
    gymnasium.register("Point-v0", entry_point="own_environment:Point", max_episode_steps=50)


def main() -> None:
    result = pyes.train(
        {
            "generations": 100,
            "task": {"env_id": "own_environment:Point-v0"},
            "noise": {"entries": 1_000_000},
            "evaluation": {"every": 10, "episodes": 50},
        }
    )
    print(f"mean return {result.objective:.2f} after {result.timesteps:,} timesteps: {result.run_dir}")


if __name__ == "__main__":
    main()
