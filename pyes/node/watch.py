"""Rules about time: how long a process has been doing one thing, and whether the kernel recently ran out of memory.

Owns no process and reads no clock: callers pass observations and their times. Invariant: only time during which the
watching process itself ran counts, so that no worker is late after Ctrl-Z or on a suspended or overloaded machine.
"""

from collections.abc import Sequence

_LONGEST_GAP = 1.0  # seconds between two looks that count; in a longer gap the watcher itself did not run
_RECENT = 10.0  # seconds that a process of much memory may take to die after the kernel decided so


class Watch:
    """Measures how long each of several processes has been doing the same thing."""

    def __init__(self) -> None:
        self._last = 0.0
        self._before: Sequence[float] = ()
        self._seconds: list[float] = []

    def look(self, now: float, doing: Sequence[float]) -> list[float]:
        """Take what each process does now; return for how many seconds each has been doing it.

        Parameters
        ----------
        now : float
            Monotonic seconds.
        doing : (n,)
            A number that names what each process does; 0: nothing that may not last.
        """
        gap = min(now - self._last, _LONGEST_GAP)
        if len(doing) != len(self._before):
            self._before, self._seconds = [0.0] * len(doing), [0.0] * len(doing)
        rows = zip(doing, self._before, self._seconds, strict=True)
        self._seconds = [seconds + gap if is_ and is_ == was else 0.0 for is_, was, seconds in rows]
        self._last, self._before = now, [float(number) for number in doing]
        return self._seconds


class OutOfMemory:
    """Whether a process that was killed just now may have been killed by the kernel because memory ran out.

    Parameters
    ----------
    kills : int or None
        Processes that the kernel has killed for memory so far; None: it does not say.
    """

    def __init__(self, kills: int | None) -> None:
        self._kills = kills
        self._risen = -_RECENT

    def look(self, now: float, kills: int | None) -> bool:
        """Take the kernel's count; return whether it rose lately, or is not known."""
        if kills is None or kills != self._kills:
            self._kills, self._risen = kills, now
        return now - self._risen < _RECENT
