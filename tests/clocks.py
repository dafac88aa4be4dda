"""Other clocks for real processes, by a library that the dynamic linker puts before the C library."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_BACKWARDS = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* The wall clock turned around: ten seconds back for each one that passes. */
static void wall(struct timespec *ts)
{
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    long long ns = 4000000000000000000LL - 10 * (now.tv_sec * 1000000000LL + now.tv_nsec);
    ts->tv_sec = ns / 1000000000LL;
    ts->tv_nsec = ns % 1000000000LL;
}

int clock_gettime(clockid_t clock, struct timespec *ts)
{
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) return (int)syscall(SYS_clock_gettime, clock, ts);
    wall(ts);
    return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
    struct timespec ts;
    (void)zone;
    wall(&ts);
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *t)
{
    struct timespec ts;
    wall(&ts);
    if (t) *t = ts.tv_sec;
    return ts.tv_sec;
}
"""


def backwards(folder: Path) -> dict[str, str]:
    """Return what to put into the environment of a process for a wall clock that runs backwards; skips without cc."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library = folder / "backwards.c", folder / "backwards.so"
    source.write_text(_BACKWARDS)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    variables = {"LD_PRELOAD": str(library)}
    look = "import time; first = time.time(); time.sleep(0.01); print(time.time() < first)"
    command = [sys.executable, "-c", look]
    seen = subprocess.run(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, check=True)
    assert seen.stdout == b"True\n"
    return variables
