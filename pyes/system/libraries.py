"""Addresses of functions in shared libraries, for C that calls them without Python.

Owns how a library that is already loaded is found. Must not know what a function does. Errors are those of `ctypes`: on
Windows, functions of the modules of other packages are not found this way.
"""

import ctypes
from types import ModuleType
from typing import Any


def library_of(module: ModuleType) -> ctypes.CDLL:
    """Return the functions of a compiled module, and of the libraries that it was linked with.

    These are found whatever names a package has given to its libraries.
    """
    return ctypes.CDLL(module.__file__)


def of_libm(name: str) -> int:
    """Return the address of a function of libm, which Python and NumPy were linked with."""
    return address_of(getattr(ctypes.CDLL(None), name))


def address_of(function: Any) -> int:
    """Return the address of a function of a library."""
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)
