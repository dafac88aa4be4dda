"""All commands, in the order of ``pyes --help``.

Knows only the command ``train``, whose arguments are Hydra's. The modules of the families add the other commands, and
import what a command needs when it runs.
"""

import argparse

from pyes.cli import cluster, launch, playing, results, this_machine, tune
from pyes.cli.arguments import Command, Parser
from pyes.system.lookup import version

_TRAIN_HELP = "train a policy: pyes train [KEY=VALUE ...] [-m]; for the keys: pyes train --help"


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; parsed arguments have ``command``, the function that runs it."""
    parser = Parser(
        prog="pyes",
        description="Evolution strategies for policies in real simulators.",
        epilog="--debug anywhere on the line: show the traceback of an error.",
    )
    parser.add_argument("--version", action="version", version=f"pyes {version('pyes-rl')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)

    def add(name: str, command: Command, text: str) -> argparse.ArgumentParser:
        subparser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:])
        subparser.set_defaults(command=command)
        return subparser

    commands.add_parser("train", help=_TRAIN_HELP, add_help=False)
    for family in (tune, playing, results, cluster, launch, this_machine):
        family.add_commands(add)
    return parser
