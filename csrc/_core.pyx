# cython: language_level=3, cdivision=True
"""The compiled kernels of pyes, as functions of NumPy arrays.

Owns the checks: dtype, shape, layout, alignment, bounds, aliasing, read-only outputs. A kernel runs only on arguments
that meet its contract in ``csrc/pyes_kernels.h``, which also says what it computes. Large arrays are never copied
silently, and kernels over them release the GIL. Must not compute anything itself. Comments mark each array IN, OUT or
both.

Each group of kernels has a file in ``csrc/core/``, which is included here instead of compiled separately. So the result
is a single module with one abi3 tag, every group calls the checks as plain C functions, and the kernels are linked
once. Separate modules would call the checks through pointers and need copies of the kernels or a shared library.
"""

from cpython.buffer cimport (
    PyBUF_FORMAT,
    PyBUF_ND,
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.pycapsule cimport PyCapsule_GetPointer
from cython cimport final
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, intptr_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset
from pyes_kernels cimport *

import functools
import math

import numpy as np

include "core/checks.pxi"
include "core/memory.pxi"
include "core/levels.pxi"
include "core/streams.pxi"
include "core/noise.pxi"
include "core/slices.pxi"
include "core/optimizers.pxi"
include "core/board.pxi"
include "core/instructions.pxi"
include "core/networks.pxi"
include "core/observations.pxi"
include "core/actions.pxi"
include "core/environment.pxi"
include "core/mujoco.pxi"
include "core/rays.pxi"
include "core/box2d.pxi"
include "core/policy.pxi"
include "core/batch.pxi"
