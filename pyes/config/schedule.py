"""Schedules: settings that change with the progress of a run, in one notation of words.

Owns the notation and the value at each progress. A schedule is a pure function, so nothing of it is saved. Invariant:
equal progress gives equal bits on every machine; so only ``+ - * /`` and square roots are used, which IEEE 754 rounds
in one way.

The notation has no comma, parenthesis or equals sign, so that the command line takes it without further quotes:
``linear 0.3 to 0.05 in 2e6 timesteps``.
"""

import math
import re
from dataclasses import dataclass
from typing import Literal, Self

Unit = Literal["timesteps", "generations"]

#: What an error message expects, after the range of the key.
NOTATION = "a schedule, as 'linear 0.3 to 0.05 in 2e6 timesteps'"

_NUMBER = r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
_UNIT = r"(timesteps|generations)"
_RAMP = re.compile(rf"(linear|cosine|exponential) {_NUMBER} to {_NUMBER} in {_NUMBER} {_UNIT}")
_STEPS = re.compile(rf"steps {_NUMBER}((?: then {_NUMBER} at {_NUMBER})+) {_UNIT}")
_STEP = re.compile(rf"then {_NUMBER} at {_NUMBER}")
_NORM = re.compile(rf"norm {_NUMBER} at least {_NUMBER}")


class ScheduleError(ValueError):
    """A text that is no schedule; the message says what is expected, in one line."""


@dataclass(frozen=True)
class Schedule:
    """A setting as a function of the progress.

    Attributes
    ----------
    kind : str
        How the value moves; "norm": it follows theta.
    values : tuple of float
        The values in the order of the text; of "norm" the factor and the lowest value.
    ends : tuple of float
        Progress at which each value after the first is reached; empty for "constant" and "norm".
    unit : str
        What ``ends`` counts.
    """

    kind: Literal["constant", "linear", "cosine", "exponential", "steps", "norm"]
    values: tuple[float, ...]
    ends: tuple[float, ...] = ()
    unit: Unit = "generations"

    @classmethod
    def parse(cls, value: float | str) -> Self:
        """Read a number or the notation.

        Raises
        ------
        ScheduleError
            It is neither, or its numbers do not fit together.
        """
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ScheduleError(NOTATION)
        if not isinstance(value, str):
            return cls("constant", (_finite(value),))
        text = " ".join(value.split())
        if match := _RAMP.fullmatch(text):
            return cls._ramp(match)
        if match := _STEPS.fullmatch(text):
            return cls._steps(match)
        if match := _NORM.fullmatch(text):
            factor, least = map(_finite, match.groups())
            if factor <= 0 or least <= 0:
                raise ScheduleError("numbers > 0 in 'norm F at least A', as 'norm 0.1 at least 0.02'")
            return cls("norm", (factor, least))
        raise ScheduleError(NOTATION)

    @classmethod
    def _ramp(cls, match: re.Match[str]) -> Self:
        kind, unit = match[1], match[5]
        start, stop, end = (_finite(match[group]) for group in (2, 3, 4))
        if kind == "exponential" and not (min(start, stop) > 0 or max(start, stop) < 0):
            raise ScheduleError(
                "an exponential between numbers that are both > 0 or both < 0,"
                " as 'exponential 0.3 to 0.05 in 500 generations'"
            )
        if end <= 0:
            raise ScheduleError(f"more than 0 {unit}, as 'linear 0.3 to 0.05 in 2e6 timesteps'")
        return cls(kind, (start, stop), (end,), unit)  # type: ignore[arg-type]  # the pattern admits no other words

    @classmethod
    def _steps(cls, match: re.Match[str]) -> Self:
        steps = [(_finite(each), _finite(at)) for each, at in _STEP.findall(match[2])]
        ends = tuple(at for _, at in steps)
        if any(after <= before for before, after in zip((0.0, *ends), ends, strict=False)):
            raise ScheduleError(
                "steps that rise from above 0, as 'steps 0.3 then 0.1 at 100 then 0.05 at 200 generations'"
            )
        unit: Unit = "timesteps" if match[0].endswith("timesteps") else "generations"
        return cls("steps", (_finite(match[1]), *(each for each, _ in steps)), ends, unit)

    @property
    def largest(self) -> float:
        """The largest value that is ever taken; infinite where it follows theta."""
        return math.inf if self.kind == "norm" else max(self.values)

    @property
    def smallest(self) -> float:
        """The smallest value that is ever taken."""
        return self.values[1] if self.kind == "norm" else min(self.values)

    def at(self, generation: int, timesteps: int, rms: float = 0.0) -> float:
        """Return the value at a progress.

        Parameters
        ----------
        generation, timesteps : int
            What is done before the generation that the value is for.
        rms : float
            Root mean square of theta's parameters.
        """
        if self.kind == "norm":
            factor, least = self.values
            return max(factor * rms, least)
        progress = timesteps if self.unit == "timesteps" else generation
        passed = sum(progress >= end for end in self.ends)
        if self.kind in ("constant", "steps") or passed or progress <= 0:
            return self.values[passed]
        return min(max(self._between(progress / self.ends[0]), self.smallest), self.largest)

    def _between(self, share: float) -> float:
        start, stop = self.values
        if self.kind == "exponential":
            return math.copysign(power(abs(start), 1.0 - share) * power(abs(stop), share), start)
        if self.kind == "cosine":
            share = (1.0 - cosine(share)) / 2.0
        return start * (1.0 - share) + stop * share


def _finite(value: float | str) -> float:
    try:
        number = float(value)
    except OverflowError:  # an integer of more than 308 digits
        number = math.inf
    if not math.isfinite(number):
        raise ScheduleError(f"finite numbers: {NOTATION}")
    return number


def nearest(value: float, step: int = 1) -> int:
    """Return the multiple of ``step`` nearest to a value, of two the larger."""
    return step * math.floor(value / step + 0.5)


def most(value: int | str) -> int:
    """Return the largest value of a setting that is an integer or a schedule of integers."""
    return value if isinstance(value, int) else nearest(Schedule.parse(value).largest)


def power(base: float, exponent: float) -> float:
    """Return ``base ** exponent`` for a base > 0 and an exponent from 0 to 1, with equal bits on every machine.

    Each binary digit of the exponent stands for one more square root of the base.
    """
    result, root = (base, 1.0) if exponent >= 1.0 else (1.0, base)
    while 0.0 < exponent < 1.0 and root != 1.0:
        exponent, root = exponent * 2.0, math.sqrt(root)
        if exponent >= 1.0:
            exponent, result = exponent - 1.0, result * root
    return result


def cosine(turn: float) -> float:
    """Return the cosine of ``turn`` times pi, for a turn from 0 to below 1, with equal bits on every machine.

    Each binary digit of the turn stands for a rotation by half the angle of the one before.
    """
    cos, sin = 1.0, 0.0
    half_cos, half_sin = 0.0, 1.0  # of pi / 2
    while turn > 0.0 and half_sin > 0.0:
        turn *= 2.0
        if turn >= 1.0:
            turn -= 1.0
            cos, sin = cos * half_cos - sin * half_sin, sin * half_cos + cos * half_sin
        half_cos = math.sqrt((1.0 + half_cos) / 2.0)
        half_sin /= 2.0 * half_cos
    return cos
