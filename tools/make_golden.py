"""Write the known answers in ``tests/golden/`` from sources that share no code with pyes.

- ``philox.csv``: words of Philox4x32-10 at random counters and keys, from PyTorch's C++ engine (its header is compiled
  here), after the published known answers of Random123 have been checked against it;
- ``normals.csv``: quantiles of the normal distribution for 32-bit words, from mpmath with 40 digits;
- ``ranks.csv``: centered ranks from ``scipy.stats.rankdata``;
- ``adam.npz``: ten steps of ``torch.optim.AdamW(maximize=True)``.

Run: ``python tools/make_golden.py`` (needs torch, SciPy, mpmath and a C++ compiler). The files are kept in the tree.
"""

import csv
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import mpmath
import numpy as np
import torch
from scipy.stats import rankdata

GOLDEN = Path(__file__).parent.parent / "tests" / "golden"

# counter, key, words: Random123 (Salmon et al. 2011), file kat_vectors, "philox4x32 10".
PUBLISHED = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]

ENGINE = r"""
#include <ATen/core/PhiloxRNGEngine.h>
#include <cstdio>
int main() {
    unsigned c[4], k[2];
    while (std::scanf("%x %x %x %x %x %x", c, c + 1, c + 2, c + 3, k, k + 1) == 6) {
        at::Philox4_32 engine(k[0] | (uint64_t)k[1] << 32, c[2] | (uint64_t)c[3] << 32, c[0] | (uint64_t)c[1] << 32);
        unsigned w[4];
        for (unsigned &word : w) word = engine();
        std::printf("%08x %08x %08x %08x\n", w[0], w[1], w[2], w[3]);
    }
}
"""


def torch_philox(inputs: Sequence[str]) -> list[str]:
    """Return the words for lines of counter and key, by PyTorch's engine."""
    include = Path(torch.__file__).parent / "include"
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "engine.cpp"), Path(folder, "engine")
        source.write_text(ENGINE)
        subprocess.run(["c++", "-std=c++20", "-O1", f"-I{include}", str(source), "-o", str(program)], check=True)
        result = subprocess.run([str(program)], input="\n".join(inputs), capture_output=True, text=True, check=True)
    return result.stdout.splitlines()


def write(name: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write one CSV file."""
    with open(GOLDEN / name, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def make_philox() -> None:
    """Write published vectors, random ones, and consecutive counters."""
    random = np.random.default_rng(1)
    inputs = [f"{counter} {key}" for counter, key, _ in PUBLISHED]
    for _ in range(200):
        inputs.append(" ".join(f"{word:08x}" for word in random.integers(0, 2**32, 6)))
    words = torch_philox(inputs)
    if words[: len(PUBLISHED)] != [answer for _, _, answer in PUBLISHED]:
        raise SystemExit("PyTorch's engine does not give the published words")
    write(
        "philox.csv",
        ("c0", "c1", "c2", "c3", "k0", "k1", "w0", "w1", "w2", "w3"),
        [f"{line} {answer}".split() for line, answer in zip(inputs, words, strict=True)],
    )


def make_normals() -> None:
    """Write words at both ends of both halves, powers of two from each end, and random ones."""
    random = np.random.default_rng(2)
    magnitudes = {0, 1, 2, 3, 2**31 - 1, 2**31 - 2}
    magnitudes |= {2**k for k in range(31)} | {2**31 - 1 - 2**k for k in range(31)}
    magnitudes |= set(random.integers(0, 2**31, 400).tolist())
    mpmath.mp.dps = 40
    rows = []
    for magnitude in sorted(magnitudes):
        tail = (2 * mpmath.mpf(2**31 - 1 - magnitude) + 1) / mpmath.mpf(2) ** 33
        normal = -mpmath.sqrt(2) * mpmath.erfinv(2 * tail - 1)
        rows.append((magnitude, mpmath.nstr(normal, 17)))
        rows.append((2**32 - 1 - magnitude, mpmath.nstr(-normal, 17)))
    write("normals.csv", ("word", "normal"), rows)


def make_ranks() -> None:
    """Write returns with ties, infinities and NaN (as -inf of their own to SciPy)."""
    random = np.random.default_rng(3)
    returns = np.concatenate([random.integers(-20, 20, 60), [np.inf, np.inf, -np.inf, np.nan, np.nan, np.nan, -0.0]])
    random.shuffle(returns)
    finite = np.clip(np.where(np.isnan(returns), -1e9, returns), -1e9 + 1, 1e9)
    finite[np.isnan(returns)] = -1e9
    ranks = (rankdata(finite) - 1) / (len(returns) - 1) - 0.5
    write("ranks.csv", ("return", "rank"), zip(returns.tolist(), ranks.tolist(), strict=True))


def make_adam() -> None:
    """Write ten steps with weight decay, in float64 so that the file has no rounding of its own."""
    random = np.random.default_rng(4)
    theta = torch.tensor(random.standard_normal(37), dtype=torch.float64, requires_grad=True)
    gradients = random.standard_normal((10, 37)).astype(np.float32)
    start = theta.detach().numpy().astype(np.float32)
    theta.data = torch.tensor(start, dtype=torch.float64)
    settings = {"lr": 0.03, "betas": (0.85, 0.99), "eps": 1e-6, "weight_decay": 0.05}
    optimizer = torch.optim.AdamW([theta], maximize=True, **settings)  # type: ignore[arg-type]
    path = []
    for gradient in gradients:
        theta.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        path.append(theta.detach().numpy().copy())
    np.savez(GOLDEN / "adam.npz", start=start, gradients=gradients, path=np.array(path))


def main() -> None:
    """Write every file."""
    GOLDEN.mkdir(exist_ok=True)
    make_philox()
    make_normals()
    make_ranks()
    make_adam()


if __name__ == "__main__":
    main()
