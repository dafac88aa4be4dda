"""Fit the coefficients of the inverse normal in ``csrc/kernels/normal.h`` and print the error of the float32 result.

Owns the derivation of the polynomials; the kernels own their evaluation. With q the probability beyond ``|x|`` and
``t = 1/2 - q``:

- ``L = -log2(4 q (1 - q))`` grows from 0 at the centre to 31 at the last quantile, ``q = 2**-33``; its mantissa part is
  a polynomial LOG in ``m - 1`` for ``m`` in [sqrt(1/2), sqrt(2)];
- ``x / t`` is a smooth function of L alone, so ``x = t * P(L) / Q(L)`` with P and Q of degree 5 serves centre and tail
  without a branch. (A single variable for both: M. Giles, "Approximating the erfinv function", 2010.)

int8 entries end at 127 steps of 1/32 and hide any error far below a step: a logarithm of degree 5, P of degree 5 on a
shorter range of L, and no Q, do.

All fits are minimax in the absolute error of x, by Lawson's weighted least squares.

Run: ``python tools/fit_normal.py`` (needs SciPy; takes about a minute).
"""

from typing import Any

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial, chebyshev
from numpy.typing import NDArray
from scipy.special import ndtri

from pyes import reference

Float64 = NDArray[np.float64]

LAST = 31.0  # L at q = 2**-33, the smallest probability of a 32-bit word
COARSE_LAST = 12.775605  # L at |x| = 127.1 / 32, where int8 entries are clipped


def quantiles(last: float) -> tuple[Float64, Float64, Float64]:
    """Abscissae of the fit: t, L and x / t for L <= last, dense in the centre and in the tail."""
    q = np.unique(np.concatenate([0.5 - np.linspace(0, 0.4999, 6001)[1:], np.exp2(-np.linspace(1.0001, 33, 6000))]))
    q = q[4 * q * (1 - q) >= 2.0**-last]
    t = 0.5 - q
    return t, -np.log2(4 * q * (1 - q)), -ndtri(q) / t


def fit_ratio(degree: int, bottom_degree: int, last: float, rounds: int = 800) -> tuple[Float64, Float64, float]:
    """P and Q (ascending, Q[0] = 1) and the maximal absolute error of x = t P / Q in exact arithmetic."""
    t, log, ratio = quantiles(last)
    basis = chebyshev.chebvander(2 * log / last - 1, degree)
    columns = np.concatenate([basis, -ratio[:, None] * basis[:, 1 : bottom_degree + 1]], axis=1)
    weight, bottom = np.full_like(log, 1 / len(log)), np.ones_like(log)
    best: tuple[float, Any] = (np.inf, None)
    for _ in range(rounds):
        row = np.sqrt(weight) * t / np.abs(bottom)
        solution = np.linalg.lstsq(columns * row[:, None], ratio * row, rcond=None)[0]
        bottom = 1 + basis[:, 1 : bottom_degree + 1] @ solution[degree + 1 :]
        error = t * np.abs(basis @ solution[: degree + 1] / bottom - ratio)
        best = min(best, (float(error.max()), solution), key=lambda pair: pair[0])
        weight = weight * error / error.max() + 1e-300
        weight /= weight.sum()
    top = _monomials(best[1][: degree + 1], 0, last)
    bottom = _monomials(np.concatenate([[1.0], best[1][degree + 1 :]]), 0, last)
    return top / bottom[0], bottom / bottom[0], best[0]


def fit_log(degree: int, rounds: int = 400) -> tuple[Float64, float]:
    """Coefficients (ascending) of -log2(1 + f) for 1 + f in [sqrt(1/2), sqrt(2)], and the maximal absolute error."""
    f = np.linspace(np.sqrt(0.5), np.sqrt(2), 8001) - 1
    target = -np.log2(1 + f)
    basis = chebyshev.chebvander(2 * (f - f[0]) / (f[-1] - f[0]) - 1, degree)
    weight = np.ones_like(f)
    best: tuple[float, Any] = (np.inf, None)
    for _ in range(rounds):
        row = np.sqrt(weight)
        solution = np.linalg.lstsq(basis * row[:, None], target * row, rcond=None)[0]
        error = np.abs(basis @ solution - target)
        best = min(best, (float(error.max()), solution), key=lambda pair: pair[0])
        weight = weight * error + 1e-300
        weight /= weight.sum()
    return _monomials(best[1], f[0], f[-1]), best[0]


def _monomials(coefficients: Float64, low: float, high: float) -> Float64:
    series = Chebyshev(coefficients, domain=[low, high])
    return np.asarray(series.convert(kind=Polynomial).coef)


def error_in_use() -> tuple[float, float]:
    """Largest absolute error of the float32 normals as they are evaluated, and the share of int8 that they round to."""
    random = np.random.default_rng(0)
    tail = np.exp2(random.uniform(0, 31, 2_000_000)).astype(np.uint32)
    magnitude = np.concatenate([random.integers(0, 2**31, 4_000_000, np.uint32), np.uint32(2**31 - 1) - tail])
    probability = (2.0 * (2**31 - 1 - magnitude.astype(np.float64)) + 1) * 2.0**-33
    normals = reference.normal_of_bits(magnitude)
    steps = np.clip(np.rint(normals * np.float32(32)), -127, 127)
    equal = np.mean(reference.steps_of_bits(magnitude[:4_000_000]) == steps[:4_000_000])
    return float(np.max(np.abs(normals + ndtri(probability)))), float(equal)


def main() -> None:
    """Print the coefficients as C and Python read them, and the errors."""
    for title, log_degree, degree, bottom_degree, last in (("fine", 6, 5, 5, LAST), ("coarse", 5, 5, 0, COARSE_LAST)):
        log, log_error = fit_log(log_degree)
        top, bottom, ratio_error = fit_ratio(degree, bottom_degree, last)
        for name, coefficients in (("LOG", log), ("TOP", top), ("BOTTOM", bottom)):
            print(title, name, ", ".join(f"{np.float32(c)!s}" for c in coefficients))
        print(f"{title}, exact arithmetic: |x| error {ratio_error:.2e}, log2 error {log_error:.2e}")
    error, equal = error_in_use()
    print(f"float32 as evaluated, with the coefficients in use: |x| error {error:.2e}")
    print(f"share of int8 entries that the float32 rounds to: {equal:.6f}")


if __name__ == "__main__":
    main()
