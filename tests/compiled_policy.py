"""An exported policy in C, compiled and called by ctypes."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np

COMPILERS = [name for name in ("gcc", "clang", "cc") if shutil.which(name)]
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")


class Compiled:
    """A policy that acts as `Policy` does, for float32 observations."""

    def __init__(self, source: Path, compiler: str, *flags: str) -> None:
        library = source.with_name(f"{compiler}{''.join(flags)}.so")
        subprocess.run([compiler, *STRICT, *flags, "-shared", "-fPIC", "-o", library, source], check=True, timeout=120)
        made = ctypes.CDLL(str(library))
        self._reset, self._act = getattr(made, f"{source.stem}_reset"), getattr(made, f"{source.stem}_act")
        self._state = ctypes.create_string_buffer(1 << 20)
        header = source.with_suffix(".h").read_text()
        (size,) = [line for line in header.splitlines() if "ACTION_SIZE" in line] or [None]
        self._size = size and int(size.split("=")[1].strip(" ,"))
        self.reset()

    def reset(self):
        self._reset(self._state)

    def __call__(self, observation):
        floats = np.ascontiguousarray(observation, np.float32).ravel()
        observed = floats.ctypes.data_as(ctypes.c_void_p)
        if self._size is None:
            return self._act(self._state, observed)
        action = np.full(self._size, np.nan, np.float32)
        self._act(self._state, observed, action.ctypes.data_as(ctypes.c_void_p))
        return action
