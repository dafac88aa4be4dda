"""The command line of a benchmark: names of its parts, or none for all of them."""

import argparse
from collections.abc import Callable, Mapping


def run_parts(description: str | None, parts: Mapping[str, Callable[[], None]]) -> None:
    """Run the parts that the command line names, or all; a name of no part ends the program with one line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=list(parts), metavar="PART", help="one of %(choices)s")
    for name in parser.parse_args().parts or parts:
        parts[name]()
