"""The functions of ``pyes_environment.h`` for code that Numba compiles: random numbers, and mathematics of equal bits.

Owns their arithmetic, operation by operation that of the header, which says what each does. Importing this module
imports Numba. Invariant: the bits are those of C, on every machine.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from numba import carray, errors, extending, types, uint64
from numba.core import config
from numba.np.numpy_support import from_dtype

__all__ = ["carray"]

F = TypeVar("F", bound=Callable[..., Any])

#: Options of everything that is compiled here: a division by zero is infinite or NaN, as in C and NumPy.
OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": False}
_compiled: Callable[[F], F] = numba.njit(**OPTIONS)
_inlined: Callable[[F], F] = numba.njit(**OPTIONS, forceinline=True)  # so that sin and cos share what is equal

# Numba makes a float of an unsigned integer and a Python one: constants beside them are unsigned, too.
_ONE, _FOUR, _SHIFT, _LOW = np.uint64(1), np.uint32(4), np.uint64(32), np.uint64(0xFFFFFFFF)
_FACTORS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_ELEVEN, _FIFTY_TWO, _BIAS = np.uint64(11), np.uint64(52), 1023
_ROUND, _PER_WORD = 1.5 * 2.0**52, 2.0**-53
_SHIFTED, _MANTISSA, _ROOT_HALF = (
    np.uint64(0x00095F6200000000),
    np.uint64(0x000FFFFFFFFFFFFF),
    np.uint64(0x3FE6A09E00000000),
)
_SMALLEST, _SCALE = 2.0**-1022, 2.0**54


@extending.intrinsic  # type: ignore[untyped-decorator]
def read_only(context: Any, array: Any) -> Any:
    """Return an array of the same memory that cannot be written to: code that does is not compiled."""
    frozen = array.copy(readonly=True)
    return frozen(array), lambda context, builder, signature, arguments: arguments[0]


@_compiled
def _refill(random: Any) -> None:
    """Write the four words of the block, and go on to the next one."""
    x0, x1, x2, x3 = random.block & _LOW, random.block >> _SHIFT, uint64(0), uint64(0)
    key0, key1 = random.key & _LOW, random.key >> _SHIFT
    for _ in range(10):
        p0, p1 = _FACTORS[0] * x0, _FACTORS[1] * x2
        x0 = (p1 >> _SHIFT) ^ x1 ^ key0
        x1 = p1 & _LOW
        x2 = (p0 >> _SHIFT) ^ x3 ^ key1
        x3 = p0 & _LOW
        key0, key1 = (key0 + _STEPS[0]) & _LOW, (key1 + _STEPS[1]) & _LOW
    words = random.words
    words[0], words[1], words[2], words[3] = x0, x1, x2, x3
    random.block += _ONE
    random.left = _FOUR


@_compiled
def bits(random: Any) -> Any:
    """Return 32 random bits, as an unsigned integer."""
    if random.left == 0:
        _refill(random)
    word = random.words[4 - random.left]
    random.left -= np.uint32(1)
    return word


@_compiled
def uniform(random: Any, low: float, high: float) -> float:
    """Return a number that is uniform in [low, high); rounding may give ``high`` itself."""
    upper = uint64(bits(random))
    both = upper << _SHIFT | uint64(bits(random))
    return low + (high - low) * (float(both >> _ELEVEN) * _PER_WORD)


@_inlined
def sqrt(x: float) -> float:
    """Return the square root, which is rounded correctly everywhere."""
    return math.sqrt(x)


@_inlined
def _nearest(x: float) -> float:
    return (x + _ROUND) - _ROUND


@_inlined
def floor(x: float) -> float:
    """Return the largest integer that is not above x, as a float, where ``|x| < 2**51``."""
    near = _nearest(x)
    return near - 1.0 if near > x else near


# Coefficients of sin, cos, exp and log: fdlibm, Copyright (C) 1993 by Sun Microsystems, Inc. All rights reserved.
# Developed at SunPro, a Sun Microsystems, Inc. business. Permission to use, copy, modify, and distribute this software
# is freely granted, provided that this notice is preserved.
@_inlined
def _sin_kernel(x: float, tail: float) -> float:
    z = x * x
    cube = z * x
    r = 8.33333333332248946124e-03 + z * (
        -1.98412698298579493134e-04
        + z
        * (
            2.75573137070700676789e-06
            + z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)
        )
    )  # fmt: skip
    return x - ((z * (0.5 * tail - cube * r) - tail) + cube * 1.66666666666666324348e-01)


@_inlined
def _cos_kernel(x: float, tail: float) -> float:
    z = x * x
    half = 0.5 * z
    w = 1.0 - half
    r = z * (
        4.16666666666666019037e-02
        + z * (-1.38888888888741095749e-03
               + z * (2.48015872894767294178e-05
                      + z * (-2.75573143513906633035e-07
                             + z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11))))
    )  # fmt: skip
    return w + (((1.0 - w) - half) + (z * r - x * tail))


@_inlined
def _quadrant(x: float) -> tuple[int, float, float]:
    """Return the nearest multiple of pi / 2 mod 4, and x less that multiple in two parts."""
    count = _nearest(x * 6.36619772367581382433e-01)
    first = x - count * 1.57079632673412561417e00
    part = count * 6.07710050630396597660e-11
    second = first - part
    lost = (first - second) - part
    part = count * 2.02226624871116645580e-21
    third = second - part
    lost += (second - third) - part
    lost -= count * 8.47842766036889956997e-32
    rest = third + lost
    return int(count) & 3, rest, (third - rest) + lost


@_inlined
def sin(x: float) -> float:
    """Return the sine; from 10^15 on it is NaN."""
    if not (x > -1e15 and x < 1e15):
        return math.nan if x - x == 0.0 else x - x
    if x > -(2.0**-26) and x < 2.0**-26:
        return x
    quadrant, rest, tail = _quadrant(x)
    value = _cos_kernel(rest, tail) if quadrant & 1 else _sin_kernel(rest, tail)
    return -value if quadrant & 2 else value


@_inlined
def cos(x: float) -> float:
    """Return the cosine; from 10^15 on it is NaN."""
    if not (x > -1e15 and x < 1e15):
        return math.nan if x - x == 0.0 else x - x
    quadrant, rest, tail = _quadrant(x)
    value = _sin_kernel(rest, tail) if quadrant & 1 else _cos_kernel(rest, tail)
    return -value if (quadrant + 1) & 2 else value


@_compiled
def _power(exponent: int) -> float:
    """Return two to the power of an integer."""
    return np.uint64((exponent + _BIAS) << 52).view(np.float64)


@_compiled
def exp(x: float) -> float:
    """Return e to the power of x; 0 below -708.39."""
    if x != x:
        return x
    if x > 7.09782712893383973096e02:
        return math.inf
    if x < -7.08396418532264106224e02:
        return 0.0
    k = _nearest(x * 1.44269504088896338700e00)
    high, low = x - k * 6.93147180369123816490e-01, k * 1.90821492927058770002e-10
    r = high - low
    z = r * r
    c = r - z * (
        1.66666666666666019037e-01
        + z * (-2.77777777770155933842e-03
               + z * (6.61375632143793436117e-05
                      + z * (-1.65339022054652515390e-06 + z * 4.13813679705723846039e-08)))
    )  # fmt: skip
    y = 1.0 - ((low - (r * c) / (2.0 - c)) - high)
    power = int(k)
    half = int(k * 0.5)  # towards zero, as C divides
    return y * _power(half) * _power(power - half)


@_compiled
def log(x: float) -> float:
    """Return the natural logarithm; NaN below 0."""
    if not x > 0.0:
        return -math.inf if x == 0.0 else math.nan
    if x - x != 0.0:
        return x
    small = x < _SMALLEST
    scaled = x * _SCALE if small else x
    word = np.float64(scaled).view(np.uint64) + _SHIFTED
    k = float(int(word >> _FIFTY_TWO) - _BIAS - (54 if small else 0))
    f = np.uint64((word & _MANTISSA) + _ROOT_HALF).view(np.float64) - 1.0
    half, s = 0.5 * f * f, f / (2.0 + f)
    z = s * s
    w = z * z
    even = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01))
    odd = z * (
        6.666666666666735130e-01
        + w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01))
    )  # fmt: skip
    return s * (half + (even + odd)) + k * 1.90821492927058770002e-10 - half + f + k * 6.93147180369123816490e-01


@_compiled
def normal(random: Any) -> float:
    """Return a standard normal number (Box & Muller 1958)."""
    share = 1.0 - uniform(random, 0.0, 1.0)
    angle = uniform(random, 0.0, 6.283185307179586)
    return sqrt(-2.0 * log(share)) * cos(angle)


@_compiled
def tanh(x: float) -> float:
    """Return the hyperbolic tangent."""
    size = -x if x < 0.0 else x
    if size < 0.625:
        z = x * x
        p = (-9.64399179425052238628e-01 * z - 9.92877231001918586564e01) * z - 1.61468768441708447952e03
        q = ((z + 1.12811678491632931402e02) * z + 2.23548839060100448583e03) * z + 4.84406305325125486048e03
        return x + x * z * (p / q)
    value = 1.0 if size > 22.0 else 1.0 - 2.0 / (exp(2.0 * size) + 1.0)
    return x if x != x else (-value if x < 0.0 else value)


# What C calls: pyes.tasks.numba_environment writes the functions around these


@_inlined
def begin(random: Any, seed: int) -> None:
    """Begin the numbers of a seed; the rest of the struct is zero."""
    random.key = seed


def outcome(result: Any) -> Any:
    """Return the reward as a float and the flags as an integer, of what a user's step returned."""
    return float(result[0]), int(result[1])


def complaint(result: Any) -> str:
    """Return what is wrong with the type that a user's step returns; empty for nothing."""
    if not isinstance(result, types.BaseTuple) or len(result) != 2 or not _is(result[0], types.Number):
        return f"it returns {result}, expected: return reward, terminated"
    if not _is(result[1], types.Integer):
        return f"its second result is {result[1]}, expected a bool: return reward, terminated"
    return ""


def _is(value: Any, kind: Any) -> bool:
    return isinstance(value, kind | types.Boolean)


def _outcome(result: Any) -> Any:
    if text := complaint(result):
        raise errors.TypingError(text)
    return outcome


extending.overload(outcome)(_outcome)


def user(function: Any) -> Any:
    """Return a function of the user's, to be compiled."""
    return _inlined(function)


def _values(wide: bool) -> Any:
    return types.float64 if wide else types.float32


def signatures(state: np.dtype[Any], wide: bool) -> Any:
    """Return the types of reset and step in C, for a state, and observations in float64 or float32."""
    record, values = types.CPointer(from_dtype(state)), types.CPointer(_values(wide))
    action, reward = types.CPointer(types.float32), types.CPointer(types.float64)
    reset = types.void(record, types.uint64, values, types.voidptr)
    return reset, types.int32(record, action, values, reward, types.voidptr)


def plain(state: np.dtype[Any], wide: bool, discrete: bool) -> Any:
    """Return the types of the arguments of the user's reset and step."""
    record, values = from_dtype(state), types.Array(_values(wide), 1, "C")
    action = types.int64 if discrete else types.Array(types.float32, 1, "C", readonly=True)
    return (record, values), (record, action, values)


def callback(function: Any, signature: Any, cache: bool) -> Any:
    """Compile a function for C, or load it from Numba's cache, where that is allowed and there is a folder for one.

    In all functions that are compiled meanwhile, the user's helpers too, an index out of bounds raises IndexError.
    """
    before, config.BOUNDSCHECK = config.BOUNDSCHECK, 1
    try:
        return numba.cfunc(signature, **OPTIONS, cache=cache)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        return numba.cfunc(signature, **OPTIONS)(function)
    finally:
        config.BOUNDSCHECK = before
