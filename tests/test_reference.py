"""The NumPy twins: they are independent of the kernels, and cover every kernel whose results are arrays.

That twins and kernels agree bit for bit is tested beside each kernel, in ``tests/core``.
"""

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest

from pyes import _core, reference

TWINS = [
    "adam_step",
    "centered_ranks",
    "clipup_step",
    "deviation_step",
    "draw_offsets",
    "draw_seeds",
    "fill_noise",
    "perturb",
    "sgd_step",
    "snes_step",
    "stream_bits",
    "weighted_moments",
    "weighted_sum",
]


@pytest.mark.parametrize("name", TWINS)
def test_twin_takes_the_arguments_of_the_kernel(name: str) -> None:
    kernel = [p for p in inspect.signature(getattr(_core, name)).parameters if p != "level"]
    assert list(inspect.signature(getattr(reference, name)).parameters) == kernel


def test_reference_does_not_import_the_kernels() -> None:
    tree = ast.parse(Path(reference.__file__).read_text(encoding="utf-8"))
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not [node for node in imported if "pyes" in ast.unparse(node)]


def test_normal_of_bits_stays_float32() -> None:
    words = np.arange(10, dtype=np.uint32)
    assert reference.normal_of_bits(words).dtype == np.float32
    assert reference.steps_of_bits(words).dtype == np.int8
