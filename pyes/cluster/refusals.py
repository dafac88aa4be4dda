"""What the log says of those who are not let in; however often they come, and whatever they send, it stays short."""

import logging
import time

logger = logging.getLogger(__name__)

_SECONDS = 60.0  # in which the same reason of the same host is logged once
_MOST_REASONS = 20  # of a host in that time
_MOST_HOSTS = 1000  # that are kept in mind


class Refusals:
    """Logs why somebody is refused: each reason of a host once a minute, and then that there are more."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[float, set[str]]] = {}  # since when, and what

    def log(self, host: str, reason: str) -> None:
        """Log a refusal, unless it was logged just now."""
        now = time.monotonic()
        begun, said = self._said.get(host, (now, set()))
        if now - begun >= _SECONDS:
            begun, said = now, set()
        if reason in said or len(said) > _MOST_REASONS:
            return
        if len(self._said) >= _MOST_HOSTS:
            self._said.clear()
        said.add(reason)
        self._said[host] = begun, said
        more = len(said) > _MOST_REASONS
        logger.warning("refused %s: %s", host, "and more often this minute, for other reasons" if more else reason)
