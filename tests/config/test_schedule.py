import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyes.config.schedule import Schedule, ScheduleError, cosine, power

NUMBERS = st.floats(1e-300, 1e300)
ENDS = st.integers(1, 10**12)
UNITS = st.sampled_from(["timesteps", "generations"])


def values(text: str | float, *progress: int) -> list[float]:
    return [Schedule.parse(text).at(each, each) for each in progress]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (0.3, [0.3, 0.3, 0.3, 0.3]),
        ("linear 4 to 2 in 100 timesteps", [4, 3, 2, 2]),
        ("cosine 4 to 2 in 100 generations", [4, 3, 2, 2]),
        ("exponential 4 to 1 in 1e2 generations", [4, 2, 1, 1]),
        ("exponential -1 to -4 in 1e2 generations", [-1, -2, -4, -4]),
        ("steps 4 then 2 at 50 then .5 at 100 timesteps", [4, 2, 0.5, 0.5]),
        ("  linear   -1 to  +1  in 100. timesteps ", [-1, 0, 1, 1]),
    ],
)
def test_values_at_progress(text: str | float, expected: list[float]) -> None:
    assert values(text, 0, 50, 100, 1000) == pytest.approx(expected, abs=1e-15)


def test_progress_counts_in_the_unit_of_the_schedule() -> None:
    assert Schedule.parse("linear 4 to 2 in 100 timesteps").at(100, 50) == 3
    assert Schedule.parse("linear 4 to 2 in 100 generations").at(50, 100) == 3


def test_norm_follows_theta_from_its_lowest_value() -> None:
    schedule = Schedule.parse("norm 0.1 at least 0.02")
    assert [schedule.at(0, 0, rms) for rms in (0.0, 0.1, 5.0)] == [0.02, 0.02, 0.5]
    assert (schedule.smallest, schedule.largest) == (0.02, math.inf)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "a schedule"),
        ("linear 1 to 2", "a schedule"),
        ("linear 1 to 2 in 5 episodes", "a schedule"),
        ("linear nan to 2 in 5 timesteps", "a schedule"),
        ("linear 1e999 to 2 in 5 timesteps", "finite numbers"),
        (math.nan, "finite numbers"),
        (10**400, "finite numbers"),
        (True, "a schedule"),
        ("linear 1 to 2 in 0 timesteps", "more than 0 timesteps"),
        ("exponential 1 to 0 in 5 timesteps", "an exponential between numbers that are both > 0 or both < 0"),
        ("exponential -1 to 2 in 5 timesteps", "an exponential between numbers that are both > 0 or both < 0"),
        ("steps 3 then 2 at 9 then 1 at 9 generations", "steps that rise from above 0"),
        ("steps 3 then 2 at 0 generations", "steps that rise from above 0"),
        ("norm 0.1 at least 0", "numbers > 0"),
    ],
)
def test_refuses_with_an_example(text: str | float, expected: str) -> None:
    with pytest.raises(ScheduleError, match=f"^{expected}") as caught:
        Schedule.parse(text)
    assert "\n" not in str(caught.value)
    assert "as '" in str(caught.value)


NOTATION = "linear cosine exponential steps norm then at least to in timesteps generations 0.1 2 -1 1e6 1e999 nan"
SENTENCES = st.lists(st.sampled_from(NOTATION.split()), max_size=9).map(" ".join)


@given(st.text() | SENTENCES)
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        schedule = Schedule.parse(text)
    except ScheduleError as error:
        message = str(error)
    else:
        message = ""
        assert schedule.smallest <= schedule.at(3, 5, 1.0) <= schedule.largest
    assert "\n" not in message


@given(st.sampled_from(["linear", "cosine", "exponential"]), NUMBERS, NUMBERS, ENDS, UNITS, st.integers(0, 10**13))
def test_values_stay_between_exact_ends(
    kind: str, start: float, stop: float, end: int, unit: str, progress: int
) -> None:
    text = f"{kind} {start!r} to {stop!r} in {end} {unit}"
    first, value, last, later = values(text, 0, progress, end, end + progress)
    assert (first, last, later) == (start, stop, stop)
    assert min(start, stop) <= value <= max(start, stop)


@given(st.floats(0, 1), st.floats(1e-300, 1e300))
def test_power_is_the_mathematical_one(exponent: float, base: float) -> None:
    assert power(base, exponent) == pytest.approx(base**exponent, rel=1e-12)


@given(st.floats(0, 1, exclude_max=True))
def test_cosine_is_the_mathematical_one(turn: float) -> None:
    assert cosine(turn) == pytest.approx(math.cos(math.pi * turn), abs=1e-14)


def test_bits_are_those_of_every_machine() -> None:
    """The literals were computed once; another machine that differs in one bit would break replays."""
    got = [values(f"{kind} 0.3 to 0.05 in 7 generations", 1, 3, 6) for kind in ("linear", "cosine", "exponential")]
    assert [[each.hex() for each in row] for row in got] == [
        ["0x1.0ea0ea0ea0ea1p-2", "0x1.8af8af8af8af8p-3", "0x1.5f15f15f15f17p-4"],
        ["0x1.268625da60a4fp-2", "0x1.9f5d882c6af16p-3", "0x1.ff0204602e0c2p-5"],
        ["0x1.dba62ff6f3b30p-3", "0x1.1d12fa7584b7ep-3", "0x1.088ab7e4333a0p-4"],
    ]
