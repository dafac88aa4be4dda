"""Hosts of a cluster for tests: real heads, nodes, misbehaving programs, and the network between them.

Heads and nodes are processes forked from one that has imported everything: no test waits for imports. Each leads a
session of its own, in which all of its descendants are found whoever their parent is now. Waiting is for a condition.
"""

import asyncio
import contextlib
import ctypes
import itertools
import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import unittest.mock
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from heads import DEADLINE, children, count_of, hurt, members, until

import pyes
from pyes.errors import PyesError
from pyes.node import selftest
from pyes.remote import agent, wire
from pyes.remote.wire import keys
from pyes.remote.wire.protocol import NodeSide, State
from pyes.system import addresses
from pyes.system.lifetime import Closing
from pyes.system.lookup import version

CONTEXT = multiprocessing.get_context("forkserver")
_PORT = 5555
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_NEW_TIME = 0x80  # CLONE_NEWTIME
_numbers = itertools.count(1)


def start_server() -> None:
    """Start the process that the others are forked from; it stays until Python ends."""
    CONTEXT.set_forkserver_preload(["preloaded"])
    with unittest.mock.patch.dict(os.environ, PYTHONPATH=str(Path(__file__).parent)):  # else it does not find it
        process = CONTEXT.Process(target=_check_preloaded)
        process.start()
    process.join()
    assert process.exitcode == 0, "tests/preloaded.py cannot be imported"
    process.close()


def _check_preloaded() -> None:
    sys.exit("preloaded" not in sys.modules)


def new_address(host: str = "") -> str:
    """Return an unused address: in 127.0.0.0/8, chosen by the process id and a counter; or a port of all of them."""
    number = next(_numbers)
    pid = os.getpid()
    if host:
        return f"tcp://{host}:{10_000 + pid % 20_000 + number}"
    return f"tcp://127.{pid >> 16 & 63 | 64}.{pid >> 8 & 255}.{pid & 255}:{_PORT + number}"


def new_cable() -> str:
    """Return an address for this machine on an unused virtual network cable."""
    return f"10.{200 + os.getpid() % 50}.{next(_numbers) % 256}.1"


class Program(Closing):
    """A function in its own process; leaving the block kills it and its children.

    Parameters
    ----------
    environment    variables to add
    path           folders to find modules in, beside those of the tests
    descriptors    that it may have open, at most
    apart          whether it is in a network of its own, with no link yet; needs root
    clock          seconds that its monotonic clock is ahead of this machine's; needs root
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        environment: dict[str, str] | None = None,
        path: tuple[str, ...] = (),
        descriptors: int = 0,
        apart: bool = False,
        clock: int = 0,
    ) -> None:
        self._said = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed on leaving
        target = (self._said.name, environment or {}, path, descriptors, apart, clock, function, arguments)
        self._process = CONTEXT.Process(target=_run, args=target)
        self._process.start()
        self.pid: int = self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.is_alive()

    @property
    def said(self) -> str:
        """What it has written to standard error so far."""
        return Path(self._said.name).read_text()

    @property
    def all(self) -> list[int]:
        """It, and all that it started."""
        return members(self.pid)

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for a condition that must come true before the end; return what it gave."""
        ended = object()
        found = until(lambda: condition() or (not self.running and (condition() or ended)), what)
        assert found is not ended, f"{self._process.exitcode} before {what}: {self.said}"
        return found

    def hear(self, text: str) -> None:
        """Wait until it says something."""
        self.until(lambda: text in self.said, f"{text!r} in {self.said}")

    def wait(self) -> int:
        """Wait for the end of it and of all that it started; return its exit status."""
        until(lambda: not self.running, f"the end of {self.said}")
        until(lambda: not self.all, "the end of all that it started")
        return int(self._process.exitcode or 0)

    def succeed(self) -> None:
        """Wait for an end without an error."""
        assert self.wait() == 0, self.said

    def send(self, number: int) -> None:
        """Signal this process alone."""
        os.kill(self.pid, number)

    def send_all(self, number: int) -> None:
        """Signal all of its processes."""
        for pid in self.all:
            hurt(pid, number)

    def kill(self) -> None:
        """Kill this process alone; what it started must follow by itself."""
        self.send(signal.SIGKILL)
        self.wait()

    def close(self) -> None:
        """Kill what is left."""
        until(self._end, f"the end of {self.all}")
        self._process.close()
        self._said.close()

    def _end(self) -> bool:
        self.send_all(signal.SIGKILL)
        if self.running:
            self._process.kill()
        return not self.running and not self.all


def _run(
    said: str,
    environment: dict[str, str],
    path: tuple[str, ...],
    descriptors: int,
    apart: bool,
    clock: int,
    function: Callable[..., Any],
    arguments: Any,
) -> None:
    os.setsid()
    output = os.open(said, os.O_WRONLY | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    signal.signal(signal.SIGINT, signal.default_int_handler)  # processes of a background shell ignore it
    os.environ.update(environment)
    sys.path[:0] = path
    if apart:
        _call("unshare", _NEW_NETWORK)
    if clock:
        _set_clock(clock)
    if descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    try:
        function(*arguments)
    except PyesError as error:
        print(f"pyes: error: {error}", file=sys.stderr, flush=True)
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception:
        traceback.print_exc()
        sys.exit(70)


def _set_clock(ahead: int) -> None:
    """Put this process and its children into a time namespace whose monotonic clock is ``ahead`` seconds ahead."""
    _call("unshare", _NEW_TIME)
    Path("/proc/self/timens_offsets").write_text(f"monotonic {ahead} 0\nboottime {ahead} 0\n")
    with open("/proc/self/ns/time_for_children", "rb") as namespace:
        _call("setns", namespace.fileno(), _NEW_TIME)


def _call(name: str, *arguments: int) -> None:
    """Call a function of the C library."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


class Trainer(Program):
    """A head with settings of `pyes.train`."""

    def __init__(self, settings: dict[str, Any], **options: Any) -> None:
        super().__init__(_train, settings, **options)

    def more_rows(self, run: Path, rows: int) -> None:
        """Wait until a run has written so many rows more."""
        before = count_of(run)
        self.until(lambda: count_of(run) >= before + rows, f"{rows} more rows")

    def stop(self) -> None:
        """End the run after its generation."""
        self.send(signal.SIGTERM)
        assert self.wait() == 130, self.said


def _train(settings: dict[str, Any]) -> None:
    if pyes.train(settings).stopped_by == "interrupt":
        sys.exit(130)


class Host(Program):
    """A machine: what ``pyes worker`` runs; by default, the head may name any code.

    ``key`` is the head's key file, beside which that of the nodes lies.
    """

    def __init__(
        self,
        address: str,
        workers: int = 1,
        key: str | None = None,
        allow: tuple[str, ...] = ("*",),
        **options: Any,
    ) -> None:
        own = None if key is None else str(keys.node_path(key))
        super().__init__(agent.work, agent.Membership(addresses.parse(address), own, workers, allow), **options)

    @property
    def job(self) -> int | None:
        """The process of the job."""
        return next(iter(children(self.pid)), None)

    @property
    def workers(self) -> list[int]:
        """Its worker processes."""
        return [worker for nursery in self.nurseries for worker in children(nursery)]

    @property
    def nurseries(self) -> list[int]:
        """The parents of its workers."""
        return [] if self.job is None else children(self.job)


class Relay(Host):
    """A relay between the head at an address and the nodes that connect at another.

    ``key`` and ``nodes`` are the key files of the head and of the relay itself.
    """

    def __init__(self, address: str, low: str, key: str | None = None, nodes: str | None = None) -> None:
        own = None if key is None else str(keys.node_path(key))
        membership = agent.Membership(addresses.parse(address), own, 1, ("*",), addresses.parse(low), nodes)
        Program.__init__(self, agent.work, membership)


# --- programs that break the protocol


def hello(**changes: Any) -> wire.Hello:
    """Return what an honest node says first."""
    honest = {
        "protocol": wire.PROTOCOL,
        "package": version("pyes-rl"),
        "node": "fake",
        "workers": 1,
        "cores": 1,
        "memory": 2**30,
        "kernels": selftest.digest(),
        "relay": False,
    }
    return wire.Hello(**(honest | changes))


class FakeNode(Closing):
    """A connection to a head, on which a test says what it likes."""

    def __init__(self, address: str, **changes: Any) -> None:
        self.socket = connect(address)
        self._side = NodeSide(2**26)
        self._inbox: list[wire.Message] = []
        self.send(hello(**changes))

    def send(self, message: wire.Message) -> None:
        """Say something."""
        self.socket.sendall(self._side.send(message))

    def get(self) -> wire.Message | None:
        """Return what the head says next, or None when it has closed the connection; beats are answered."""
        while True:
            while self._inbox:
                message = self._inbox.pop(0)
                if not isinstance(message, wire.Beat):
                    return message
                if self._side.state is not State.OVER:  # a refusal may have come in the same piece
                    self.send(wire.Echo(message.time))
            try:
                data = self.socket.recv(2**18)
            except ConnectionError:
                return None
            if not data:
                return None
            self._inbox += self._side.receive(data)

    def expect(self, kind: type[wire.Message]) -> Any:
        """Return the next message of a kind, and drop what comes before it."""
        while not isinstance(message := self.get(), kind):
            assert message is not None, f"the head closed the connection, expected {kind.__name__}"
        return message

    def refusal(self) -> str:
        """Return why the head sends this node away."""
        return str(self.expect(wire.Refused).reason)

    def close(self) -> None:
        """Leave."""
        self.socket.close()


@contextlib.contextmanager
def crowd(address: str, size: int) -> Iterator[None]:
    """Have many nodes join a head at once; lend them once each has been told of the job, in which none takes part.

    They are connections of one event loop, which rests while they are lent, and leave together in the end.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    writers: list[asyncio.StreamWriter] = []
    with asyncio.Runner() as runner:
        try:
            runner.run(_join_all(address, size, writers))
            yield
        finally:
            runner.run(_leave_all(writers))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def _join_all(address: str, size: int, writers: list[asyncio.StreamWriter]) -> None:
    greeting = hello()
    async with asyncio.timeout(DEADLINE):
        joining = (
            _join(address, replace(greeting, node=f"one of a crowd, {number}"), writers) for number in range(size)
        )
        await asyncio.gather(*joining)


async def _join(address: str, greeting: wire.Hello, writers: list[asyncio.StreamWriter]) -> None:
    """Join; as a real node does, look for the head again when it has no time for a greeting."""
    parsed = addresses.parse(address)
    while True:
        reader, writer = await asyncio.open_connection(parsed.host, parsed.port)
        writers.append(writer)
        side = NodeSide(2**26)
        writer.write(side.send(greeting))
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(2**16):
                if any(isinstance(message, wire.Job) for message in side.receive(data)):
                    return
        await asyncio.sleep(0.1)


async def _leave_all(writers: list[asyncio.StreamWriter]) -> None:
    for each in writers:
        each.transport.abort()
    await asyncio.gather(*(each.wait_closed() for each in writers), return_exceptions=True)


def connect(address: str, source: str = "") -> socket.socket:
    """Return a plain TCP connection, from an address of this machine."""
    parsed = addresses.parse(address)
    connection = socket.create_connection((parsed.host, parsed.port), 60.0, (source, 0))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


# --- the network between them


class Link:
    """A cable between this machine and a program that is `apart`; it vanishes with that.

    Attributes
    ----------
    here : str    the address of this machine on it, one of `new_cable`
    """

    def __init__(self, program: Program, here: str) -> None:
        own = os.readlink("/proc/self/ns/net")
        program.until(lambda: os.readlink(f"/proc/{program.pid}/ns/net") != own, "a network of its own")
        self.here, self._name = here, f"pyes{program.pid}"
        there = here.removesuffix("1") + "2"
        _ip("link", "add", self._name, "type", "veth", "peer", "name", "pyes", "netns", str(program.pid))
        _ip("addr", "add", f"{here}/30", "dev", self._name)
        self.up()
        inside = ("nsenter", f"--target={program.pid}", "--net")
        _ip("addr", "add", f"{there}/30", "dev", "pyes", prefix=inside)
        _ip("link", "set", "pyes", "up", prefix=inside)

    def up(self) -> None:
        """Plug it in."""
        _ip("link", "set", self._name, "up")

    def down(self) -> None:
        """Pull it out."""
        _ip("link", "set", self._name, "down")


def _ip(*arguments: str, prefix: tuple[str, ...] = ()) -> None:
    subprocess.run([*prefix, "ip", *arguments], check=True, capture_output=True)


class Proxy(Closing):
    """A way to a head that may be slow, or cut.

    Attributes
    ----------
    address : str      where it listens
    delay : float      seconds that everything takes, each way
    piece : int        bytes that are passed on at a time
    cut : iterator     of the bytes after which each connection to come is reset, both ways counted; None: never
    cuts : int         connections that were reset
    """

    def __init__(self, target: str) -> None:
        self._target = addresses.parse(target)
        self.address = new_address()
        self.delay = 0.0
        self.piece = 2**16
        self.cut: Iterator[int] | None = None
        self.cuts = 0
        self._loop = asyncio.new_event_loop()
        self._flows = asyncio.Event()
        self._flows.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        listening = addresses.parse(self.address)
        serving = asyncio.start_server(self._accept, listening.host, listening.port)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result()

    def stop(self) -> None:
        """Pass nothing on any more, and say nothing: the link is down."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def heal(self) -> None:
        """Pass on again, also what came meanwhile."""
        self._loop.call_soon_threadsafe(self._flows.set)

    def reset(self) -> None:
        """Reset all connections."""
        self._loop.call_soon_threadsafe(self._reset)

    def _reset(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = [next(self.cut) if self.cut is not None else None]
        try:
            await self._flows.wait()
            there, back = await asyncio.open_connection(self._target.host, self._target.port)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
            return
        both = {writer, back}
        self._writers |= both
        ways = [asyncio.ensure_future(self._pump(*way, left)) for way in ((reader, back), (there, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # the end, of which asyncio would complain
            pass
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self._writers -= both
            for each in both:
                if left[0] == 0:
                    each.transport.abort()
                each.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: list[int | None]) -> None:
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        reading = asyncio.ensure_future(self._read(reader, late))
        try:
            with contextlib.suppress(OSError):
                await self._write(late, writer, left)
        finally:
            reading.cancel()

    async def _read(self, reader: asyncio.StreamReader, late: "asyncio.Queue[tuple[float, bytes]]") -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(self.piece):
                late.put_nowait((self._loop.time() + self.delay, data))
        late.put_nowait((self._loop.time() + self.delay, b""))

    async def _write(
        self, late: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter, left: list[int | None]
    ) -> None:
        while True:
            due, data = await late.get()
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            await self._flows.wait()
            if not data:
                return
            if left[0] is not None:
                data = data[: left[0]]
                left[0] -= len(data)
            writer.write(data)
            await writer.drain()
            if left[0] == 0:
                self.cuts += 1
                return

    def close(self) -> None:
        """Reset what there is, and end."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        self._reset()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)

    def __enter__(self) -> Self:
        return self
