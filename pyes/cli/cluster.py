"""``pyes worker | status | keygen``: run a node, show the state of a head, and make the keys of both."""

import argparse
import contextlib
from collections.abc import Iterator

from pyes.cli.arguments import Add, add_json, add_output, count, seconds
from pyes.cli.output import print_json
from pyes.errors import ConfigError

_WATCH_SECONDS = 2.0


def add_commands(add: Add) -> None:
    """Add these commands to the program."""
    _add_worker(add("worker", _worker, "let this machine evaluate members for a head, one run after another"))
    _add_status(add("status", _status, "show the state of a head and its nodes"))
    add_output(
        add("keygen", _keygen, "make the two keys of a cluster"),
        "the head's key; the nodes' is written beside it, with .node at the end of its name",
    )


def _add_worker(parser: argparse.ArgumentParser) -> None:
    _add_head(parser)
    role = parser.add_mutually_exclusive_group()
    role.add_argument("--workers", metavar="N", type=count, help="worker processes (default: one per core)")
    what = "be a relay instead: the head of nodes that connect here, and one node to its own head"
    role.add_argument("--relay", metavar="tcp://HOST:PORT", help=what)
    parser.add_argument("--relay-key", metavar="FILE", help="the relay's own key, FILE of pyes keygen")
    what = "let the head name code of this package (task.factory, network.module, ...); may be given more than once"
    default = (
        "default: any package with a key, none without, but pyes.tasks.functions and pyes.tasks.maze always; '*': any"
    )
    parser.add_argument("--allow", metavar="PACKAGE", action="append", default=[], help=f"{what} ({default})")
    parser.add_argument("--tied", action="store_true", help="end when standard input is closed")


def _worker(options: argparse.Namespace) -> None:
    from pyes.remote import agent
    from pyes.system import addresses, limits

    address = addresses.parse(options.head)
    listen = None if options.relay is None else addresses.parse(options.relay)
    if listen is None and options.relay_key is not None:
        raise ConfigError("--relay-key: is for a relay; add --relay tcp://HOST:PORT, where its nodes connect")
    with _key_file(options.key) as key:
        workers = options.workers or limits.usable_cores()
        membership = agent.Membership(address, key, workers, tuple(options.allow), listen, options.relay_key)
        agent.work(membership, tied=options.tied)


def _add_status(parser: argparse.ArgumentParser) -> None:
    _add_head(parser)
    form = parser.add_mutually_exclusive_group()
    add_json(form)
    what = f"show it anew every SECONDS (default: {_WATCH_SECONDS:g}) until Ctrl-C, with what is wrong with each node"
    form.add_argument("--watch", metavar="SECONDS", type=seconds, nargs="?", const=_WATCH_SECONDS, help=what)


def _status(options: argparse.Namespace) -> None:
    from pyes.reports import status, watching
    from pyes.system import addresses

    address = addresses.parse(options.head)
    with _key_file(options.key) as key:
        if options.watch is not None:
            watching.watch(address, key, options.watch)
        report = status.ask(address, key)
    if options.json:
        print_json(report)
    else:
        status.show(report)


def _keygen(options: argparse.Namespace) -> None:
    from pyes.remote.wire import keys

    of_nodes = keys.generate(options.output)
    print(f"{options.output} (for the head: pyes train cluster.key=FILE)")
    print(f"{of_nodes} (for nodes: pyes worker --key FILE.node)")


def _add_head(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("head", metavar="tcp://HEAD:PORT", help="address of the head (cluster.listen)")
    parser.add_argument(
        "--key", metavar="FILE", help="the nodes' key, FILE.node of pyes keygen; -: from standard input"
    )


@contextlib.contextmanager
def _key_file(given: str | None) -> Iterator[str | None]:
    """Yield the key file: the given one, or with "-" one in memory with the content of standard input."""
    from pyes.remote.wire import keys

    if given != "-":
        yield given
        return
    with keys.in_memory(keys.from_standard_input()) as path:
        yield str(path)
