"""Environments that fail in every way there is; ``env_id`` is "faulty:Faulty-v0", with this folder on the path."""

import ctypes
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Faulty(gymnasium.Env[np.ndarray, np.ndarray]):
    """Ten timesteps of tracking a target drawn from the seed; one seed in ``every`` fails as ``fault`` says.

    A fault with a ``once`` folder happens once for each seed, then never again: the mark is a file there.
    """

    observation_space = spaces.Box(-10, 10, (3,))
    action_space = spaces.Box(-1, 1, (2,))

    def __init__(
        self, fault: str = "", every: int = 4, once: str = "", sleep: float = 0.0, render_mode: str | None = None
    ) -> None:
        self.render_mode = render_mode
        self._fault = "" if fault.endswith("_at_start") else fault  # what an episode does
        self._every, self._once, self._sleep = every, once, sleep
        if fault == "make":
            raise RuntimeError("cannot be made")
        if multiprocessing.parent_process() is not None:  # in workers only
            if fault == "kill_at_start":
                os.kill(os.getpid(), signal.SIGKILL)
            if fault == "hang_at_start" and not (Path(once) / "hung").exists():
                (Path(once) / "hung").touch()
                time.sleep(3600)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._seed = seed or 0
        self._target = self.np_random.uniform(-1, 1, 2)
        self._time = 0
        return self._observe(), {}

    def _observe(self) -> np.ndarray:
        return np.array([*self._target, self._time / 10], np.float32)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._time += 1
        if self._sleep:
            time.sleep(self._sleep)
        if self._fault and self._time == 5 and self._seed % self._every == 0 and self._first():
            return self._fail()
        reward = -float(((np.asarray(action) - self._target) ** 2).sum())
        return self._observe(), reward, self._time >= 10, False, {}

    def _first(self) -> bool:
        if not self._once:
            return True
        mark = Path(self._once) / str(self._seed)
        if mark.exists():
            return False
        mark.touch()
        return True

    def _fail(self) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if self._fault == "raise":
            raise RuntimeError("the simulator is unhappy")
        if self._fault == "segfault":
            ctypes.string_at(0)
        if self._fault == "exit":
            os._exit(3)
        if self._fault == "sys_exit":
            sys.exit("leaving")
        if self._fault == "hang":
            time.sleep(3600)
        if self._fault == "hold_gil":
            ctypes.PyDLL(None).sleep(3600)
        reward = {"nan": float("nan"), "inf": float("inf")}.get(self._fault, 0.0)
        observation = np.zeros(7, np.float32) if self._fault == "shape" else self._observe()
        return observation, reward, False, False, {}


gymnasium.register("Faulty-v0", entry_point=Faulty)
