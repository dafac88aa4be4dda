"""Environments in C for the tests, compiled with the system's compiler as the documentation says."""

import atexit
import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyes

FLAGS = ("-O3", "-std=c11", "-ffp-contract=off", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-shared", "-fPIC")
#: Bring a point to the origin. `%s` is C that each step ends with; a point has a time and a place.
POINT = """
#include "pyes_environment.h"

struct point { struct pyes_random random; double place; uint64_t time; };

static void reset(void *state, uint64_t seed, void *observation, const void *user)
{
    struct point *now = state;
    (void)user;
    pyes_random_begin(&now->random, seed);
    now->place = pyes_random_uniform(&now->random, -5.0, 5.0);
    ((double *)observation)[0] = now->place; /* the time is 0, as is the observation before */
}

static int step(void *state, const float *action, void *observation, double *reward, const void *user)
{
    struct point *now = state;
    const double push = (double)action[0] + (user ? *(const double *)user : 0.0);
    double *seen = observation;
    now->time++;
    now->place += push + pyes_random_uniform(&now->random, -0.1, 0.1);
    seen[0] = now->place;
    seen[1] = (double)now->time;
    *reward = -pyes_sqrt(now->place * now->place);
    %s
    return now->time >= 10 ? PYES_TRUNCATED : now->place > 6.0 ? PYES_TERMINATED : 0;
}

PYES_EXPORT struct pyes_environment point = {
    .abi = PYES_ENVIRONMENT_ABI, .size = sizeof(struct pyes_environment), .name = "Point", .reset = reset, .step = step,
    .state_bytes = sizeof(struct point), .observation_type = PYES_OBSERVE_FLOAT64, .observation_size = 2,
    .action_size = 1,
    %s
};
PYES_EXPORT const struct pyes_environment *where = &point;
"""
#: Functions of the header, over arrays.
FUNCTIONS = ("sin", "cos", "exp", "log", "tanh", "sqrt")
MATH = '#include "pyes_environment.h"\n' + "".join(
    f"PYES_EXPORT void {name}_all(int64_t n, const double *x, double *y);\n"
    f"void {name}_all(int64_t n, const double *x, double *y) {{ while (n--) y[n] = pyes_{name}(x[n]); }}\n"
    for name in (*FUNCTIONS, "floor")
)
RANDOM = """
#include "pyes_environment.h"
PYES_EXPORT void bits(int64_t n, uint64_t seed, uint32_t *out);
PYES_EXPORT void uniform(int64_t n, uint64_t seed, double *out);
PYES_EXPORT void normal(int64_t n, uint64_t seed, double *out);
void bits(int64_t n, uint64_t seed, uint32_t *out)
{
    struct pyes_random random;
    pyes_random_begin(&random, seed);
    for (int64_t i = 0; i < n; i++)
        out[i] = pyes_random_bits(&random);
}
void uniform(int64_t n, uint64_t seed, double *out)
{
    struct pyes_random random;
    pyes_random_begin(&random, seed);
    for (int64_t i = 0; i < n; i++)
        out[i] = pyes_random_uniform(&random, -2.0, 3.0);
}
void normal(int64_t n, uint64_t seed, double *out)
{
    struct pyes_random random;
    pyes_random_begin(&random, seed);
    for (int64_t i = 0; i < n; i++)
        out[i] = pyes_random_normal(&random);
}
"""
#: Members of the struct, as the header has them; for environments that Python fills in.
FIELDS = [
    ("abi", ctypes.c_uint32), ("size", ctypes.c_uint32), ("name", ctypes.c_char_p), ("reset", ctypes.c_void_p),
    ("step", ctypes.c_void_p), ("user", ctypes.c_void_p), ("state_bytes", ctypes.c_uint64),
    ("observation_type", ctypes.c_uint32), ("observation_size", ctypes.c_uint32), ("choices", ctypes.c_uint32),
    ("action_size", ctypes.c_uint32), ("observation_low", ctypes.c_void_p), ("observation_high", ctypes.c_void_p),
    ("action_low", ctypes.c_void_p), ("action_high", ctypes.c_void_p), ("reward_low", ctypes.c_double),
    ("reward_high", ctypes.c_double), ("time_limit", ctypes.c_uint64),
]  # fmt: skip


class Environment(ctypes.Structure):
    """A struct pyes_environment."""

    _fields_ = FIELDS


@functools.cache
def compiled(source: str, name: str = "point") -> str:
    """Compile a library; return its path."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    folder = Path(tempfile.mkdtemp(prefix="pyes-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path, library = folder / f"{name}.c", folder / f"{name}.so"
    path.write_text(source)
    flags = (*FLAGS, *os.environ.get("CFLAGS", "").split())
    subprocess.run(["cc", *flags, f"-I{pyes.include_dir()}", str(path), "-o", str(library), "-lm"], check=True)
    return str(library)


def computed(name: str, values: Any) -> Any:
    """Return a function of the header at values."""
    x = np.ascontiguousarray(values, np.float64)
    y = np.empty_like(x)
    library = ctypes.CDLL(compiled(MATH, "math"))
    getattr(library, f"{name}_all")(
        ctypes.c_int64(x.size), ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data)
    )
    return y


def point(step: str = "", more: str = "") -> str:
    """Compile the point, with C that each step ends with and further members; return the library's path."""
    return compiled(POINT % (step, more))


def struct(**values: object) -> Environment:
    """Return the point's struct with some members changed, in memory of its own; its library stays loaded."""
    library = ctypes.CDLL(point())
    copy = Environment.from_buffer_copy(Environment.in_dll(library, "point"))
    copy.library = library
    for key, value in values.items():
        setattr(copy, key, value)
    return copy


def pushed(push: float = 0.0) -> Environment:
    """Return the point with a wind, which is its `user`."""
    wind = ctypes.c_double(push)
    made = struct(user=ctypes.addressof(wind))
    made.wind = wind
    return made


def capsule(name: bytes = b"pyes.environment") -> object:
    """Return the point in a PyCapsule."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(address(), _NAMES[name], None)


def address() -> int:
    """Return where the point is."""
    return ctypes.addressof(_KEPT)


def pointer() -> object:
    """Return a pointer of ctypes to the point."""
    return ctypes.pointer(_KEPT)


def text() -> str:
    """Return no environment."""
    return "point"


def other_capsule() -> object:
    """Return a PyCapsule of something else."""
    return capsule(b"other")


_NAMES = {name: name for name in (b"pyes.environment", b"other")}  # a capsule does not copy its name
_KEPT = struct()
given: object = None  # what a test puts here is an environment that task.factory can name
