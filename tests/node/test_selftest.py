"""The digest of the kernels: one for every build, and every kernel has a part in it."""

import inspect

import pytest
from strategies import each_level

from pyes import _core
from pyes.cli import main
from pyes.node import selftest

DIGEST = "8497005129b4bc13"


@each_level
def test_digest_is_the_same_on_every_instruction_set(level: str) -> None:
    assert selftest.digest_of(level) == DIGEST


def test_digest_is_that_of_the_best_level() -> None:
    assert selftest.digest() == DIGEST


COMPUTING = sorted(
    name
    for name, each in vars(_core).items()
    if callable(each)
    and not name.startswith(("_", "board_"))
    and not name.endswith("Timestep")  # a task compares these with Python
    and name not in ("levels", "PolicyBatch")
)


@pytest.mark.parametrize("name", COMPUTING)
def test_every_kernel_that_computes_has_a_part(name: str) -> None:
    assert f"_core.{name}(" in inspect.getsource(selftest)


def test_info_shows_it(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    assert f"kernels       {DIGEST}" in capfd.readouterr().out
