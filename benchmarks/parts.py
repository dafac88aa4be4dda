"""The command line of a benchmark: names of its parts, or none for all of them; and numbers of it."""

import argparse
from collections.abc import Callable, Mapping


def run_parts(description: str | None, parts: Mapping[str, Callable[[], None]]) -> None:
    """Run the parts that the command line names, or all; a name of no part ends the program with one line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=list(parts), metavar="PART", help="one of %(choices)s")
    for name in parser.parse_args().parts or parts:
        parts[name]()


def positive(text: str) -> int:
    """Return a number of the command line that is at least 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"got {text}, expected a number that is at least 1")
    return int(text)


def positive_float(text: str) -> float:
    """Return a number of the command line that is greater than 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"got {text}, expected a number that is greater than 0")
    return number
