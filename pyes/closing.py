"""What is owned is closed: the ``with`` statement for classes that have ``close``."""

from types import TracebackType
from typing import Self


class Closing:
    """Mixin: leaving the ``with`` block closes the object, whatever happened in it."""

    def close(self) -> None:
        """Give everything back; a second call does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
