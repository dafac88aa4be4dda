"""``pyes worker | status | keygen``: a node, a look at its head, and the key that both share."""

import argparse
import contextlib

from pyes.cli.arguments import Add, add_json, add_output, count
from pyes.cli.output import print_json


def add_commands(add: Add) -> None:
    """Add these commands to the program."""
    _add_worker(add("worker", _worker, "have this machine evaluate members for a head, one run after another"))
    _add_status(add("status", _status, "show how a head and its nodes are doing"))
    add_output(
        add("keygen", _keygen, "make the key that a head and its nodes share"), "file to write, for its owner alone"
    )


def _add_worker(parser: argparse.ArgumentParser) -> None:
    _add_head(parser)
    parser.add_argument("--workers", metavar="N", type=count, help="processes (default: one a core)")
    parser.add_argument("--tied", action="store_true", help="end when standard input is closed")


def _worker(options: argparse.Namespace) -> None:
    from pyes.remote import agent
    from pyes.remote.wire import keys
    from pyes.system import addresses, limits

    address = addresses.parse(options.head)
    with contextlib.ExitStack() as stack:
        read = options.key == "-"
        key = str(stack.enter_context(keys.in_memory(keys.from_standard_input()))) if read else options.key
        agent.work(address, key, options.workers or limits.usable_cores(), tied=options.tied)


def _add_status(parser: argparse.ArgumentParser) -> None:
    _add_head(parser)
    add_json(parser)


def _status(options: argparse.Namespace) -> None:
    from pyes.reports import status
    from pyes.system import addresses

    report = status.ask(addresses.parse(options.head), options.key)
    if options.json:
        print_json(report)
    else:
        status.show(report)


def _keygen(options: argparse.Namespace) -> None:
    from pyes.remote.wire import keys

    keys.generate(options.output)
    print(options.output)


def _add_head(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("head", metavar="tcp://HEAD:PORT", help="where the head listens (cluster.listen)")
    parser.add_argument("--key", metavar="FILE", help="the key of the cluster (pyes keygen); of a worker, -: read it")
