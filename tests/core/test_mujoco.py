"""Timesteps of MuJoCo tasks in C: NumPy's order of sums, and arrays that are refused. tests/tasks has the tasks."""

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyes._core import CompiledEnvironment, MujocoTimestep, PolicyRunner

#: An engine that does nothing.
IDLE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda model, data: None)


def described(**changes: Any) -> dict[str, Any]:
    """Return the description of a robot at rest, without the engine."""
    address = ctypes.cast(IDLE, ctypes.c_void_p).value
    place = np.zeros(1)
    return {
        "engine": (address, 0, 1, 1),
        "clock": (0, 0),
        "frames": 1,
        "control": np.zeros(2),
        "observation": [(place, None, None, -1.0, 1.0)],
        "limits": [(place, -1.0, 1.0, False)],
        "falls": True,
        "reward": "run",
        "place": place,
        **changes,
    }


def earned(action: Any, **changes: Any) -> float:
    """Return the reward of a timestep."""
    timestep = MujocoTimestep(**described(**changes))
    return CompiledEnvironment(timestep.address).step(action)[1]


@given(st.integers(1, 700), st.integers(0, 2**32 - 1))
def test_sums_of_squares_have_the_bits_of_numpy(size: int, seed: int):
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 10 ** rng.uniform(-3, 3), size)
    single = values.astype(np.float32)
    weight = float(np.float32(0.1))
    cost = earned(single, control=np.zeros(size), effort_weight=weight)
    assert -cost == 0.1 * np.sum(np.square(single))
    cost = earned(single, control=np.zeros(size), effort_weight=0.3, effort_of_control=True)
    assert -cost == 0.3 * np.sum(np.square(single.astype(float)))
    ends, costs = (-0.5, 1.0), (0.1, 50.0)
    cost = earned(np.zeros(2, np.float32), contact=(values, 0.2, ends, costs))
    assert -cost == np.clip(0.2 * np.sum(np.square(np.clip(values, *ends))), *costs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": (0, 0, 1, 1)}, "engine: got the address 0"),
        ({"control": np.zeros(2, np.float32)}, "control: got dtype float32, expected float64"),
        ({"control": np.zeros((2, 1))}, "control: got 2 dimensions"),
        ({"frames": -1}, "frames: got -1"),
        ({"observation": [(np.zeros(4)[::2], None, None, 0.0, 1.0)]}, "observation: got strides"),
        ({"observation": [(np.zeros(4), np.zeros(3), None, 0.0, 1.0)]}, "observation: got 3 numbers, expected 4"),
        ({"reward": "win"}, "reward: got 'win', expected one of run, health, balance, reach, stand"),
        ({"place": None}, "place: got NoneType, expected a NumPy array"),
        ({"place": np.zeros(2)}, "place: got 2 numbers, expected 1"),
        ({"reward": "reach"}, "distances: got 0 with the reward 'reach'"),
        ({"reward": "reach", "distances": [(np.zeros(3), np.zeros(2), 1.0)]}, "distances: got 2 numbers, expected 3"),
        ({"distances": [(np.zeros(3), np.zeros(3), 1.0)]}, "distances: got 1 with the reward 'run'"),
        ({"reward": "balance", "place": np.zeros(3), "speeds": np.zeros(2)}, "power: got the address 0"),
        ({"mass": np.zeros(3), "centers": np.zeros((2, 3))}, "centers: got 6 numbers, expected 9"),
    ],
)
def test_timestep_of_arrays_that_do_not_fit_is_refused(changes: dict[str, Any], message: str):
    with pytest.raises((TypeError, ValueError), match=message):
        MujocoTimestep(**described(**changes))


@pytest.mark.parametrize(("given", "seen"), [(7, None), (8, 8)])
def test_clock_of_the_engine_stands_while_it_steps_unless_it_is_another_one(given: int, seen: int | None):
    clock, values = ctypes.c_void_p(given), []
    engine = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda model, data: values.append(clock.value))
    address = ctypes.cast(engine, ctypes.c_void_p).value
    earned(np.zeros(2, np.float32), engine=(address, address, 1, 1), clock=(ctypes.addressof(clock), 7), frames=2)
    assert values == [seen] * 3  # two steps and the forces
    assert clock.value == given


class Failing:
    """A simulator whose reset fails."""

    def begin(self, seed: int) -> None:
        raise RuntimeError(f"seed {seed}")


def test_error_of_a_reset_in_python_is_raised():
    timestep = MujocoTimestep(**described())
    environment = CompiledEnvironment(timestep.address, 1, Failing())
    with pytest.raises(RuntimeError, match="seed 7"):
        environment.reset(7)
    network = np.array([[0, 1, 2, 0, -1, 0, 0, 0]])
    low, high = np.array([[-1, -1], [1, 1]], np.float32)
    runner = PolicyRunner(network, 1, action="clip", low=low, high=high, action_shape=(2,))
    runner.load(np.zeros(2, np.float32))
    with pytest.raises(RuntimeError, match="seed 8"):
        runner.run(environment, 8, 5)
