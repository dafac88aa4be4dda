"""Adam, SGD and ClipUp: against their formulas, core against reference, all levels equal."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import each_impl, each_level, normals, sizes

from pyes import _core, reference

GOLDEN = Path(__file__).parents[1] / "golden" / "adam.npz"
ADAM = (0.03, 0.85, 0.99, 1e-6, 0.05)


def adam_path(impl: Any, start: Any, gradients: Any, settings: Any = ADAM, **options: Any) -> NDArray[np.float32]:
    theta = start.copy()
    m, v = np.zeros_like(theta), np.zeros_like(theta)
    path = []
    for step, gradient in enumerate(gradients, 1):
        impl.adam_step(theta, gradient, m, v, step, *settings, **options)
        path.append(theta.copy())
    return np.array(path)


@each_impl
def test_adam_step_known_answers(impl: Any) -> None:
    with np.load(GOLDEN) as golden:
        np.testing.assert_allclose(adam_path(impl, golden["start"], golden["gradients"]), golden["path"], atol=2e-6)


@each_impl
def test_sgd_step_decay_is_decoupled(impl: Any) -> None:
    theta, velocity = np.ones(5, np.float32), np.zeros(5, np.float32)
    impl.sgd_step(theta, np.zeros(5, np.float32), velocity, 0.1, 0.9, 0.5)
    np.testing.assert_allclose(theta, 0.95, rtol=1e-6)
    np.testing.assert_array_equal(velocity, 0)


@each_impl
def test_clipup_step_normalises_the_gradient_and_clips_the_speed(impl: Any) -> None:
    theta, velocity, gradient = np.zeros(100, np.float32), np.zeros(100, np.float32), 1e3 * normals(100)
    direction = gradient / np.linalg.norm(gradient)
    impl.clipup_step(theta, gradient, velocity, 0.1, 0.9, 0.15, 0.0)
    np.testing.assert_allclose(velocity, 0.1 * direction, rtol=1e-4)
    impl.clipup_step(theta, gradient, velocity, 0.1, 0.9, 0.15, 0.0)  # 0.19 without the clip
    np.testing.assert_allclose(velocity, 0.15 * direction, rtol=1e-4)
    np.testing.assert_allclose(theta, 0.25 * direction, rtol=1e-4)


@each_impl
def test_clipup_step_zero_gradient_leaves_momentum_at_work(impl: Any) -> None:
    theta, velocity = np.zeros(4, np.float32), np.full(4, 0.1, np.float32)
    impl.clipup_step(theta, np.zeros(4, np.float32), velocity, 0.1, 0.5, 1.0, 0.0)
    np.testing.assert_allclose(theta, 0.05)


@each_impl
def test_clipup_step_gradient_that_is_too_short_for_a_direction_counts_as_zero(impl: Any) -> None:
    theta, velocity = np.zeros(4, np.float32), np.full(4, 0.1, np.float32)
    impl.clipup_step(theta, np.full(4, 1e-42, np.float32), velocity, 0.1, 0.5, 1.0, 0.0)
    np.testing.assert_allclose(theta, 0.05)


def steps(impl: Any, dim: int, decay: float, **options: Any) -> list[NDArray[np.float32]]:
    """Two steps of each optimiser, and all of their state."""
    arrays = []
    for name, count, settings in (
        ("adam_step", 2, (0.02, 0.9, 0.999, 1e-8, decay)),
        ("sgd_step", 1, (0.02, 0.9, decay)),
        ("clipup_step", 1, (0.02, 0.9, 0.03, decay)),
    ):
        theta, state = normals(dim), [np.zeros(dim, np.float32) for _ in range(count)]
        for step in (1, 2):
            number = (step,) if name == "adam_step" else ()
            getattr(impl, name)(theta, normals(dim, step), *state, *number, *settings, **options)
        arrays += [theta, *state]
    return arrays


@given(sizes, st.floats(0, 1))
def test_optimizers_core_equals_reference(dim: int, decay: float) -> None:
    for ours, twin in zip(steps(_core, dim, decay), steps(reference, dim, decay), strict=True):
        np.testing.assert_array_equal(ours, twin)


@each_level
def test_optimizers_all_levels_give_equal_bits(level: str) -> None:
    for ours, twin in zip(steps(_core, 10_001, 0.01, level=level), steps(reference, 10_001, 0.01), strict=True):
        np.testing.assert_array_equal(ours, twin)


@pytest.mark.parametrize("step", [1, 2, 1000, 123_456_789])
def test_adam_step_late_steps_equal_reference(step: int) -> None:
    ours, twin = [normals((4, 40)) ** 2 for _ in range(2)]
    _core.adam_step(*ours, step, *ADAM)  # type: ignore[call-arg]
    reference.adam_step(*twin, step, *ADAM)  # type: ignore[call-arg]
    np.testing.assert_array_equal(ours, twin)


def test_optimizers_refuse_impossible_settings() -> None:
    theta, gradient, m, v = (np.zeros(3, np.float32) for _ in range(4))
    with pytest.raises(ValueError, match="step: got 0, expected step >= 1"):
        _core.adam_step(theta, gradient, m, v, 0, *ADAM)
    with pytest.raises(TypeError, match="step: got float, expected an integer"):
        _core.adam_step(theta, gradient, m, v, 1.5, *ADAM)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"beta1: got 1\.0, expected 0 <= beta1 < 1"):
        _core.adam_step(theta, gradient, m, v, 1, 0.1, 1.0, 0.9, 1e-8, 0.0)
    with pytest.raises(ValueError, match="epsilon: got 1e-50, expected one that is > 0 as a float32"):
        _core.adam_step(theta, gradient, m, v, 1, 0.1, 0.9, 0.9, 1e-50, 0.0)
    with pytest.raises(ValueError, match=r"max_speed: got -1\.0, expected max_speed >= 0"):
        _core.clipup_step(theta, gradient, m, 0.1, 0.9, -1.0, 0.0)


def test_optimizers_refuse_shared_or_unequal_arrays() -> None:
    theta, gradient, m = (np.zeros(3, np.float32) for _ in range(3))
    with pytest.raises(ValueError, match="v: got an array that overlaps m"):
        _core.adam_step(theta, gradient, m, m, 1, *ADAM)
    with pytest.raises(ValueError, match=r"velocity: got length 2, expected 3 \(the length of theta\)"):
        _core.sgd_step(theta, gradient, np.zeros(2, np.float32), 0.1, 0.9, 0.0)
    theta.flags.writeable = False
    with pytest.raises(ValueError, match="theta: got a read-only array"):
        _core.sgd_step(theta, gradient, m, 0.1, 0.9, 0.0)
