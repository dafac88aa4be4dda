"""Whatever a struct pyes_environment holds, it is refused in one line or its episodes run, by Python and in C alike."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import native_sources
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyes import networks, tasks
from pyes.config import from_mapping
from pyes.episodes.native import NativeRollout
from pyes.episodes.rollout import Rollout
from pyes.errors import ConfigError
from pyes.networks import ActionDecoder

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or shutil.which("cc") is None, reason="compiles with a C compiler of POSIX"
)

#: Fills exactly what the struct promises, with any numbers, and ends its steps with any flags.
ANYTHING = """
#include "pyes_environment.h"
struct promise { uint64_t state_bytes; uint32_t type, size, actions, strange; };
static uint64_t draw(struct pyes_random *random)
{
    const uint64_t high = pyes_random_bits(random);
    return high << 32 | pyes_random_bits(random);
}
static double number(struct pyes_random *random, uint32_t strange)
{
    return strange ? pyes_of_bits(draw(random)) : pyes_random_uniform(random, -1.0, 1.0);
}
static void fill(unsigned char *state, void *seen, struct pyes_random *random, const struct promise *given)
{
    for (uint64_t i = 0; i < given->state_bytes; i++)
        state[i] = (unsigned char)(state[i] + pyes_random_bits(random));
    for (uint32_t i = 0; i < given->size; i++)
        if (given->type == PYES_OBSERVE_FLOAT64)
            ((double *)seen)[i] = number(random, given->strange);
        else
            ((float *)seen)[i] = (float)number(random, given->strange);
}
static void reset(void *state, uint64_t seed, void *seen, const void *user)
{
    struct pyes_random random;
    pyes_random_begin(&random, seed);
    fill(state, seen, &random, user);
}
static int step(void *state, const float *action, void *seen, double *reward, const void *user)
{
    const struct promise *given = user;
    struct pyes_random random;
    uint64_t seed = 1;
    for (uint64_t i = 0; i < given->state_bytes; i++)
        seed = seed * 31 + ((unsigned char *)state)[i];
    for (uint32_t i = 0; i < given->actions; i++)
        seed = seed * 31 + (action[i] > 0.0f);
    pyes_random_begin(&random, seed);
    fill(state, seen, &random, given);
    *reward = number(&random, given->strange);
    return given->strange ? (int)(pyes_random_bits(&random) % 9) - 1 : pyes_random_bits(&random) % 20 == 0;
}
PYES_EXPORT const struct pyes_environment anything = {
    .abi = PYES_ENVIRONMENT_ABI, .size = sizeof(struct pyes_environment), .name = "Anything", .reset = reset,
    .step = step,
};
"""


class Promise(ctypes.Structure):
    """What the functions of ANYTHING are told of the struct."""

    _fields_ = [
        ("state_bytes", ctypes.c_uint64), ("type", ctypes.c_uint32), ("size", ctypes.c_uint32),
        ("actions", ctypes.c_uint32), ("strange", ctypes.c_uint32),
    ]  # fmt: skip


_LARGE = st.integers(2**24 + 1, 2**32 - 1)
_numbers = st.lists(st.floats(width=32), min_size=12, max_size=12)
_unit = st.none() | st.just([-1.0] * 12)
_sound = {
    "state_bytes": st.integers(0, 300),
    "observation_type": st.integers(0, 1),
    "observation_size": st.integers(1, 12),
    "observation_low": st.none() | st.just([-2.0] * 12),
    "observation_high": st.none() | st.just([2.0] * 12),
    "action_low": _unit,
    "action_high": st.none() | st.just([1.0] * 12),
    "reward_low": st.sampled_from([0.0, -1.0]),
    "reward_high": st.sampled_from([0.0, 1.0]),
    "time_limit": st.sampled_from([0, 1, 7, 2**63 - 1]),
}
_sound_structs = st.one_of(
    st.fixed_dictionaries({**_sound, "choices": st.integers(1, 5)}),
    st.fixed_dictionaries({**_sound, "action_size": st.integers(1, 12)}),
)
#: What may be wrong with one.
_changes = st.fixed_dictionaries(
    {},
    optional={
        "abi": st.sampled_from([0, 2, 2**32 - 1]),
        "size": st.sampled_from([0, 8, 2**32 - 1]),
        "name": st.sampled_from([None, b"", b"\xff\n" * 9]),
        "reset": st.none(),
        "step": st.none(),
        "state_bytes": st.sampled_from([2**33, 2**64 - 1]),
        "observation_type": st.sampled_from([2, 2**32 - 1]),
        "observation_size": st.just(0) | _LARGE,
        "choices": st.just(0) | _LARGE,
        "action_size": st.integers(0, 12) | _LARGE,
        "observation_low": _numbers,
        "observation_high": _numbers,
        "action_low": _numbers,
        "action_high": _numbers,
        "reward_low": st.floats(),
        "reward_high": st.floats(),
        "time_limit": st.sampled_from([2**63, 2**64 - 1]),
    },
)
_structs = st.builds(lambda sound, changes: sound | changes, _sound_structs, st.just({}) | _changes)


def struct(fields: dict[str, Any], strange: bool) -> Any:
    """Return a struct with these members, and functions that keep what it promises."""
    library = ctypes.CDLL(native_sources.compiled(ANYTHING, "anything"))
    made = native_sources.Environment.from_buffer_copy(native_sources.Environment.in_dll(library, "anything"))
    made.kept = [library]
    for key, value in fields.items():
        if isinstance(value, list):
            numbers = np.array(value, np.float64 if key.startswith("observation") else np.float32)
            made.kept.append(numbers)
            setattr(made, key, numbers.ctypes.data)
        else:
            setattr(made, key, value)
    actions = 1 if made.choices else made.action_size
    promise = Promise(made.state_bytes, made.observation_type, made.observation_size, actions, strange)
    made.kept.append(promise)
    made.user = ctypes.addressof(promise)
    return made


def played(task: tasks.Task, kind: Any, seed: int) -> tuple[Any, ...] | str:
    """Return the episode of a linear policy, or the line that says why there is none."""
    decoder = ActionDecoder.for_space(task.action_space, "auto")
    network = from_mapping({"task": {"env_id": "CartPole-v1"}}).network
    spec, theta = networks.build(network, task.observation_size, decoder, seed=3, observation_clip=5.0)
    runner = spec.runner()
    runner.load(theta + np.float32(0.1))
    runner.begin_episode(1, 2, 3, 4)
    try:
        return kind(task, runner).run(seed, 20)
    except ValueError as error:
        return str(error)


@pytest.mark.slow
@settings(max_examples=200)
@given(_structs, st.booleans(), st.integers(0, 2**64 - 1))
def test_any_struct_is_refused_in_one_line_or_plays(fields: dict[str, Any], strange: bool, seed: int):
    made = struct(fields, strange)
    native_sources.given = made
    config = from_mapping({"task": {"name": "native", "factory": "native_sources:given"}}).task
    try:
        episodes = [repr(played(tasks.make(config), kind, seed)) for kind in (Rollout, NativeRollout)]
    except ConfigError as error:
        episodes = [str(error)] * 2
    assert len(episodes[0].splitlines()) == 1
    assert episodes[0] == episodes[1]


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="loads the sanitizers before Python")
def test_no_struct_makes_the_extension_touch_memory_that_is_not_its_own(tmp_path: Path):
    """The test above, with an extension and a library that were compiled under sanitizers."""
    for name in ("csrc", "pyes", "conf", "tests", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
        source = ROOT / name
        ignore = shutil.ignore_patterns("*.so", "__pycache__", "build")
        (shutil.copytree(source, tmp_path / name, ignore=ignore) if source.is_dir() else shutil.copy(source, tmp_path))
    sanitize = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(build, cwd=tmp_path, env={**os.environ, "CFLAGS": sanitize}, check=True)
    found = [
        subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    environment = {
        **os.environ, "LD_PRELOAD": ":".join(found), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONPATH": str(tmp_path),
        "CFLAGS": sanitize,
    }  # fmt: skip
    test = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/core/test_environment.py", "-k", "any_struct"]
    done = subprocess.run(
        [sys.executable, *test], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
