"""Environments that fail in every way there is; ``env_id`` is "faulty:Faulty-v0", with this folder on the path."""

import ctypes
import errno
import faulthandler
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Unreadable(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise Panic("there is none")


class Panic(BaseException):
    """What extensions in Rust raise when they panic."""


#: What an environment may raise that is no usual error.
RAISED: dict[str, Callable[[], BaseException]] = {
    "bytes": lambda: RuntimeError("cannot open caf\udce9.xml"),  # a file name of another encoding
    "no_text": Unreadable,
    "panic": Panic,
    "keyboard": KeyboardInterrupt,
    "generator": GeneratorExit,
}


class Faulty(gymnasium.Env[np.ndarray, np.ndarray]):
    """Ten timesteps of tracking a target drawn from the seed; one seed in ``every`` fails as ``fault`` says.

    Several faults, with commas between them, take turns: which one it is follows from the seed. A fault with a ``once``
    folder happens once for each seed, then never again: the mark is a file there. The settings in the environment
    variable FAULTY, JSON of the keywords, win: the same run with and without faults.
    """

    observation_space = spaces.Box(-10, 10, (3,))
    action_space = spaces.Box(-1, 1, (2,))

    def __init__(
        self,
        fault: str = "",
        every: int = 4,
        once: str = "",
        sleep: float = 0.0,
        cgroup: str = "",
        render_mode: str | None = None,
    ) -> None:
        self.render_mode = render_mode
        settings = {"fault": fault, "every": every, "once": once, "sleep": sleep, "cgroup": cgroup}
        settings |= json.loads(os.environ.get("FAULTY", "{}"))
        fault = settings["fault"]
        self._faults = [""] if fault.endswith(("_at_start", "_at_reset")) else fault.split(",")  # what episodes do
        self._at_reset = fault if fault.endswith("_at_reset") else ""
        self._every, self._once, self._sleep = settings["every"], settings["once"], settings["sleep"]
        self._cgroup = settings["cgroup"]  # of limited memory, for the fault "oom"
        if fault == "make":
            raise RuntimeError("cannot be made")
        if fault == "make_panic":
            raise Panic("cannot be made")
        if fault == "slow_at_start":
            time.sleep(1.5)
        if fault == "make_exit":
            os._exit(5)
        if fault.endswith("_at_start") and multiprocessing.current_process().name.startswith("worker-"):
            self._fail_at_start(fault)

    def _fail_at_start(self, fault: str) -> None:
        if fault == "kill_at_start":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "kill_parent_at_start":
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(3600)  # until the kernel ends this process, too
        if fault == "child_at_start":
            _start_child()
        if fault == "hang_at_start" and not (Path(self._once) / "hung").exists():
            (Path(self._once) / "hung").touch()
            time.sleep(3600)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if self._at_reset == "child_at_reset":
            _start_child()
        if self._at_reset == "fork_at_reset" and os.fork() == 0:
            time.sleep(3600)
            os._exit(0)
        self._seed = seed or 0
        self._fault = self._faults[self._seed // self._every % len(self._faults)]
        self._target = self.np_random.uniform(-1, 1, 2)
        self._time = 0
        return self._observe(), {}

    def _observe(self) -> np.ndarray:
        return np.array([*self._target, self._time / 10], np.float32)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._time += 1
        if self._sleep:
            time.sleep(self._sleep)
        if self._fault == "talk":
            print("standard output" * 100)
            print("standard error" * 100, file=sys.stderr)
        elif self._fault and self._time == 5 and self._seed % self._every == 0 and self._first():
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
        if self._fault.startswith("close_"):  # with an environment that could close, a new one would not be made
            raise RuntimeError("the simulator is unhappy")
        if self._fault in RAISED:
            raise RAISED[self._fault]()
        if self._fault == "memory":
            raise MemoryError("there is none left")
        if self._fault == "oom":
            self._take_memory()
        if self._fault == "segfault":
            faulthandler.disable()  # pytest turns it on; its report would fill the screen
            ctypes.string_at(0)
        if self._fault == "exit":
            os._exit(3)
        if self._fault == "exit_as_without_files":
            os._exit(errno.EMFILE)
        if self._fault == "sys_exit":
            sys.exit("leaving")
        if self._fault == "kill":  # as if from outside
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if self._fault == "hang":
            time.sleep(3600)
        if self._fault == "hold_gil":
            ctypes.PyDLL(None).sleep(3600)
        if self._fault == "reward":
            return self._observe(), np.ones(2), False, False, {}
        if self._fault == "nothing":
            return self._observe(), None, False, False, {}
        if self._fault == "ends":
            return self._observe(), 0.0, np.zeros(2, bool), False, {}  # type: ignore[return-value]
        if self._fault in ("nan_seen", "nan_at_end"):
            return np.full(3, np.nan, np.float32), 0.0, self._fault == "nan_at_end", False, {}
        reward = {"nan": float("nan"), "inf": float("inf")}.get(self._fault, 0.0)
        observation = np.zeros(7, np.float32) if self._fault == "shape" else self._observe()
        return observation, reward, False, False, {}

    def close(self) -> None:
        if "close_raise" in self._faults:
            raise Unreadable
        if "close_sys_exit" in self._faults:
            sys.exit("closing")
        if "close_panic" in self._faults:
            raise Panic("it cannot be closed")
        if "close_hang" in self._faults:
            time.sleep(3600)
        if "close_exit" in self._faults:
            os._exit(7)

    def _take_memory(self) -> None:
        """Allocate up to a gigabyte in a memory control group with a much lower limit."""
        (Path(self._cgroup) / "cgroup.procs").write_text(str(os.getpid()))
        taken = [b"x" * 2**20 for _ in range(1024)]
        raise RuntimeError(f"{len(taken)} MiB were there to take")


def _start_child() -> None:
    """Start a process that nobody ends, in a session of its own, with a child."""
    subprocess.Popen(["sh", "-c", "sleep 3600; true"], start_new_session=True)


gymnasium.register("Faulty-v0", entry_point=Faulty)
