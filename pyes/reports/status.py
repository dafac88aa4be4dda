"""Asks a head over the network for the state of its nodes, and prints it."""

import asyncio
import json
import ssl
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from pyes.errors import ClusterError, ProtocolError, RefusedError
from pyes.remote import wire
from pyes.remote.session import not_of_this_key, why_unconnected
from pyes.remote.wire import keys
from pyes.remote.wire.protocol import NodeSide
from pyes.system.addresses import NEXT_ADDRESS_SECONDS, Address
from pyes.system.lookup import version
from pyes.system.text import counted

_SECONDS = 10.0
_LIMIT = 2**24


def ask(address: Address, key: str | None) -> dict[str, Any]:
    """Return a head's report.

    Raises
    ------
    ConfigError
        A key is needed, or it cannot be used.
    ClusterError
        Nothing answers at this address, or it is not a head.
    RefusedError
        The head refuses this program.
    """
    keys.check_needed(address, key)
    try:
        return asyncio.run(_ask(address, key))
    except TimeoutError as error:
        hint = "does the head want a key (--key FILE.node)?" if key is None else "is the head stopped?"
        raise ClusterError(f"{address}: no answer within {_SECONDS:g} s; {hint}") from error
    except ssl.SSLError as error:
        raise RefusedError(not_of_this_key(address, error)) from error
    except OSError as error:
        raise ClusterError(f"{address}: no head answers there ({why_unconnected(error)})") from error
    except ProtocolError as error:
        raise ClusterError(f"{address}: no head answers there ({error})") from error


async def _ask(address: Address, key: str | None) -> dict[str, Any]:
    credentials = None if key is None else keys.of_node(key)
    context = None if credentials is None else credentials.context
    async with asyncio.timeout(_SECONDS):
        reader, writer = await asyncio.open_connection(
            address.host, address.port, ssl=context, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS
        )
        try:
            if credentials is not None and not credentials.recognize(writer.get_extra_info("ssl_object")):
                raise RefusedError(f"{address}: it is not the head of this key; {keys.ADVICE}")
            side = NodeSide(_LIMIT)
            writer.write(side.send(wire.Watch(wire.PROTOCOL, version("pyes-rl"))))
            while data := await reader.read(2**16):
                for message in side.receive(data):
                    if isinstance(message, wire.Refused):
                        raise RefusedError(f"{address}: {message.reason}")
                    if isinstance(message, wire.Report):
                        report: dict[str, Any] = json.loads(message.text)
                        return report
            hint = "does the head want" if key is None else "has the head"
            raise ProtocolError(f"the connection was closed; {hint} a key (--key FILE.node)?")
        finally:
            writer.transport.abort()


def show(report: dict[str, Any]) -> None:
    """Print a report."""
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 120)
    where = f"generation {report['generation']}" if report["generation"] is not None else "between generations"
    console.print(f"{report['head']} at {report['listen']}: {report['task'] or 'no task yet'}, {where}")
    table = Table(box=None, pad_edge=False)
    for column in ("node", "state"):
        table.add_column(column)
    for column in (
        "workers",
        "cores",
        "members",
        "steps/s",
        "busy",
        "heard",
        "round trip",
        "sent",
        "received",
    ):
        table.add_column(column, justify="right")
    for node in report["nodes"]:
        at_work = max(node["seconds"], 1e-9)
        table.add_row(
            node["node"],
            node["state"],
            str(node["workers"]),
            str(node["cores"]),
            f"{node['members']:,}",
            f"{node['timesteps'] / at_work:,.0f}",
            f"{100 * node['busy_seconds'] / (node['workers'] * at_work):.0f} %",
            f"{node['heard']:.1f} s",
            f"{1e3 * node['round_trip']:.1f} ms",
            size(node["bytes_sent"]),
            size(node["bytes_received"]),
        )
    console.print(table)
    nodes = counted(len(report["nodes"]), "node")
    counts = ", ".join(f"{report[key]:,} {key}" for key in ("lost", "rerun", "duplicates"))
    console.print(f"{nodes} with {counted(report['workers'], 'worker')}; members: {counts}")


def size(count: int) -> str:
    """Return a number of bytes as text."""
    return f"{count / 2**20:,.1f} MiB" if count >= 2**20 else f"{count / 2**10:,.1f} KiB"
