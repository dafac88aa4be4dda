"""Limits repeated messages: the first few are shown, all are counted.

Owns which of them are shown and how often. Must not know their texts or where they are shown. Invariant: the number
of messages shown is bounded by the number of kinds and, slowly, by time; the counts are exact.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

_FIRST_WAIT, _LONGEST_WAIT = 60.0, 3600.0  # seconds between two shown messages of a frequent kind
_OTHERS = "other messages"
#: Attribute of a log record that may come very often.
KIND = "kind_of_repeated_message"


def repeated(kind: str) -> dict[str, str]:
    """Return the ``extra`` of a log record that may come very often: the log limits and counts them by kind.

    Parameters
    ----------
    kind : str
        equal for messages that differ in nothing but where and when
    """
    return {KIND: kind}


@dataclass
class Count:
    """Number of messages of a kind.

    Attributes
    ----------
    total : int
        Total number.
    left_out : int
        Number of messages left out since one was last shown.
    """

    total: int = 0
    left_out: int = 0
    _due: float = field(default=0.0, repr=False)
    _wait: float = field(default=_FIRST_WAIT, repr=False)

    @property
    def omitted(self) -> str:
        """How many were left out: "12 more like this, 40 in all"."""
        return f"{self.left_out:,} more like this, {self.total:,} in all"

    @property
    def remark(self) -> str:
        """Text to append to a shown message: " (and 12 more like this, 40 in all)", or an empty string."""
        return f" (and {self.omitted})" if self.left_out else ""


class Repeats:
    """Counts messages by kind, and decides which of them to show.

    The first ones of each kind are shown; after that one at most every minute, then every two, four, ... minutes, up
    to an hour.

    Parameters
    ----------
    first : int
        Number of messages of a kind that are always shown.
    kinds : int
        Maximum number of kinds; all others are counted as one kind.
    clock : callable
        Returns monotonic seconds.
    """

    def __init__(self, first: int = 3, kinds: int = 100, clock: Callable[[], float] = time.monotonic) -> None:
        self.first = first
        self._kinds, self._clock = kinds, clock
        self._counts: dict[str, Count] = {}

    def count(self, kind: str) -> Count | None:
        """Count a message; return its kind's counts if it should be shown, or None to leave it out."""
        if kind not in self._counts and len(self._counts) >= self._kinds:
            kind = _OTHERS
        entry = self._counts.setdefault(kind, Count())
        entry.total += 1
        now = self._clock()
        if entry.total > self.first:
            if now < entry._due:
                entry.left_out += 1
                return None
            entry._wait = min(2 * entry._wait, _LONGEST_WAIT)
        shown = Count(entry.total, entry.left_out)
        entry.left_out, entry._due = 0, now + entry._wait
        return shown

    def left_out(self) -> dict[str, Count]:
        """Return the kinds with messages left out since one was last shown."""
        return {kind: entry for kind, entry in self._counts.items() if entry.left_out}
