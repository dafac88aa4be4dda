"""Numbers of things, in words."""


def counted(number: int, noun: str) -> str:
    """Return "1 worker", "2 workers", "1,440 workers"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
