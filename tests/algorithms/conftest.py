"""The noise table that the tests of algorithms share."""

from collections.abc import Iterator

import pytest

from pyes.numerics.noise import NoiseTable


@pytest.fixture(scope="session")
def table() -> Iterator[NoiseTable]:
    with NoiseTable(100_000, 0) as table:
        yield table
