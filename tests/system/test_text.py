"""Numbers as text, and lines for whoever reads them."""

import io
import math
import os
import sys

import pytest

from pyes.system.text import quoted, rounded, spread, tell


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((123.4,), "123.40"),
        ((1234.5678,), "1234.57"),
        ((-0.001, 120.0), "0.00"),  # no negative zero
        ((1.5,), "1.500"),
        ((0.0123456,), "0.01235"),
        ((-1.2345e-9,), "-1.235e-09"),
        ((0.0,), "0.00"),
        ((math.nan, 3.0), "nan"),
        ((math.inf,), "inf"),
    ],
)
def test_numbers_have_as_many_digits_as_they_need(values: tuple[float, ...], text: str):
    assert rounded(*values) == text


def test_a_mean_and_its_deviation_have_equal_decimals():
    assert spread(0.0123, 0.5) == "0.0123 ± 0.5000"
    assert spread(-3e-9, 0.0) == "-3.000e-09 ± 0.000e+00"


def test_a_line_that_nobody_reads_costs_nothing(capsys, monkeypatch):
    tell("read")
    assert capsys.readouterr() == ("", "read\n")
    monkeypatch.setattr(sys, "stderr", None)
    tell("closed at start")
    assert capsys.readouterr().out == ""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb", buffering=0) as unread:
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(unread, write_through=True))
        with pytest.raises(BrokenPipeError):
            print("a line", file=sys.stderr)
        tell("a line")


@pytest.mark.parametrize(
    ("platform", "word", "text"),
    [
        ("linux", "runs/one", "runs/one"),
        ("linux", "resume=my runs", "'resume=my runs'"),
        ("win32", r"resume=runs\one", r"resume=runs\one"),
        ("win32", r"resume=my runs\one", r'"resume=my runs\one"'),
        ("win32", "network.hidden=[64,64]", '"network.hidden=[64,64]"'),
    ],
)
def test_words_of_commands_are_quoted_for_the_shell_that_is_there(platform: str, word: str, text: str, monkeypatch):
    monkeypatch.setattr(sys, "platform", platform)
    assert quoted(word) == text
