"""A node's side of a connection: find the head, say hello, take part in its job until it ends.

Owns the connection, and the order in which messages are answered. Knows nothing of how members are evaluated. When a
connection is lost, only unsent results are lost; the node keeps its workers, its table and its state, and connects
again. A session is for one job: another job needs a new session in a new process.
"""

import asyncio
import contextlib
import logging
import os
import random
import re
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from pyes.errors import ClusterError, ProtocolError, PyesError, RefusedError
from pyes.node import selftest
from pyes.remote import wire
from pyes.remote.inbox import Inbox
from pyes.remote.replica import Replica
from pyes.remote.wire import keys
from pyes.remote.wire.protocol import NodeSide, State
from pyes.run.logs import Log
from pyes.system import limits
from pyes.system.addresses import NEXT_ADDRESS_SECONDS, Address
from pyes.system.files import what_to_try
from pyes.system.lookup import version
from pyes.system.text import counted

logger = logging.getLogger(__name__)

BEAT_SECONDS = 1.0  # interval of the head's beats
SILENT_SECONDS = 10.0  # of silence after which the other end counts as lost
_LOOK_SECONDS = 0.2  # longest interval of checks for results and for dead workers
#: How a worker's line begins that says why it finds no head; the reason is the last of it.
WAITING = "waiting for a head at"
_RETRY_SECONDS = (0.1, 2.0)  # first and longest pause between attempts to connect
_MOST_UNANSWERED = 5  # successive connections closed by the head without a message, after which a node gives up
_FRAME_LIMIT = 2**32 - 1  # bytes; the head is trusted


#: Sends a message.
Wire = Callable[[wire.Message], None]


class _OtherJob(Exception):
    """The head works on another job."""


class Session:
    """A node's part in one job of a head, over several connections if needed.

    Parameters
    ----------
    address : Address
        Address of the head.
    key : str or None
        The nodes' key file.
    workers : int
        Worker processes.
    log : Log or None
        Log of this process and its workers.
    say : callable
        Shows the user a line.
    met : bool
        A head at this address has accepted this node in an earlier job.
    """

    def __init__(
        self,
        address: Address,
        key: str | None,
        workers: int,
        log: Log | None = None,
        say: Callable[[str], None] = logger.info,
        met: bool = False,
    ) -> None:
        self._address, self._log, self._say = address, log, say
        self._own_workers, self._met = workers, met
        self._credentials = None if key is None else keys.of_node(key)
        self._replica: Replica | None = None
        self._unable = False  # whether this node cannot take part in the job
        self._send: Wire | None = None
        self._activity = asyncio.Event()
        self._leaving = asyncio.Event()
        self._parting = False  # whether the head has been told that this connection ends
        self._turn = asyncio.Lock()  # held by the task that uses the replica
        self._heard = self._beat = 0.0  # time of the head's last bytes, and of its last beat
        self._unanswered = 0  # successive connections that the head has closed without a message
        self._met_silence = False  # on a connection that was not accepted

    @property
    def workers(self) -> int:
        """Members that this node evaluates at the same time."""
        return self._own_workers

    async def run(self) -> None:
        """Take part in one job until it ends, or the head has another one, or this node leaves.

        Raises
        ------
        RefusedError
            The head refuses this node.
        PyesError
            The workers cannot be kept alive.
        """
        part = asyncio.create_task(self._take_part())
        leaving = asyncio.create_task(self._leaving.wait())
        try:
            await asyncio.wait([part, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not part.done() and await self._say_goodbye():
                await asyncio.wait([part])
        finally:
            part.cancel()
            leaving.cancel()
            await asyncio.gather(part, leaving, return_exceptions=True)
        if not part.cancelled():
            part.result()

    def leave(self) -> None:
        """Let `run` hand back the members that no worker has begun, and end when the head has the others' results."""
        self._leaving.set()

    async def _say_goodbye(self) -> bool:
        """Tell the head that this node leaves; return whether to wait until the head closes the connection."""
        replica, send = self._replica, self._send
        if replica is None or send is None:
            return False
        async with self._turn:
            self._part(replica, send, "leaving")
        return True

    def _part(self, replica: Replica, send: Wire, why: str) -> None:
        """Hand back what no worker has begun; the head closes the connection when it has the other results."""
        done, farewell = replica.retire()
        if done is not None:
            send(done)
        send(farewell)
        self._parting = True
        running = wire.count(farewell.ranges)
        self._say(f"{why}, after {counted(running, 'running member')}" if running else why)

    async def _take_part(self) -> None:
        try:
            while not self._leaving.is_set():
                reader, writer = await self._connect()
                try:
                    await self._converse(reader, writer)
                    return
                except OSError as error:
                    if self._send is None and isinstance(error, TimeoutError):  # perhaps a head that is stopped
                        if not self._met_silence:
                            self._say(f"{self._address}: {error} from what listens there; trying again")
                        self._met_silence = True
                    elif self._send is None:  # closed or reset before this node was accepted
                        self._count_unanswered()
                        await asyncio.sleep(_RETRY_SECONDS[1] * random.random())
                    elif not self._parting:
                        self._say(f"lost the head ({str(error) or type(error).__name__}); looking for it")
                finally:
                    self._send = None
                    writer.transport.abort()
                if self._replica is not None:
                    async with self._turn:
                        self._replica.disconnect()
        except _OtherJob:
            return
        finally:
            if self._replica is not None:
                self._replica.unwatch()
                self._replica.close()

    def tell(self, level: int, text: str) -> None:
        """Send a record of the log to the head, if there is a connection."""
        if self._send is not None:
            self._send(wire.Log(level, text))

    # --- the connection

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection to the head; tries until it succeeds."""
        pause, longest = _RETRY_SECONDS
        context = None if self._credentials is None else self._credentials.context
        said = ""
        while True:
            try:
                # Not asyncio.wait_for, which in Python 3.11 may lose a cancellation.
                async with asyncio.timeout(SILENT_SECONDS):
                    reader, writer = await asyncio.open_connection(
                        self._address.host, self._address.port, ssl=context, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS
                    )
            except ssl.SSLError as error:
                raise RefusedError(not_of_this_key(self._address, error)) from error
            except OSError as error:
                if context is not None and isinstance(error, ConnectionResetError | ConnectionAbortedError):
                    self._count_unanswered()  # closed in the handshake
                reason = why_unconnected(error)
                if reason != said:
                    self._say(f"{WAITING} {self._address} ({reason})")
                said = reason
                await asyncio.sleep(pause)
                pause = min(2 * pause, longest)
                continue
            keep_alive(writer)
            return reader, writer

    def _count_unanswered(self) -> None:
        """Count a connection that was closed without a message; give up after several in succession.

        A node that was accepted before does not give up, in this job or an earlier one: the head may be restarting, or
        the next one be on its way, behind a tunnel that is already up.
        """
        self._unanswered += 1
        met = self._met or self._replica is not None or self._unable
        if self._unanswered >= _MOST_UNANSWERED and not met:
            hint = "is it a head of pyes, with a key?"
            if self._credentials is None:
                hint = "does it want a key (--key FILE.node)?"
            raise RefusedError(f"{self._address}: the program that listens there does not answer; {hint}")

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Talk with the head until the job ends."""
        side = NodeSide(_FRAME_LIMIT)

        def send(message: wire.Message) -> None:
            if side.state is not State.OVER and not writer.is_closing():
                writer.write(side.send(message))

        self._send = None  # until this node is accepted
        if self._credentials is not None and not self._credentials.recognize(writer.get_extra_info("ssl_object")):
            raise RefusedError(f"{self._address}: it is not the head of this key")
        send(self._hello())
        self._parting = False
        self._heard = self._beat = time.monotonic()
        inbox = Inbox()
        tasks = [asyncio.create_task(each) for each in (self._read(reader, side, inbox, send), self._watch(inbox))]
        tasks.append(asyncio.create_task(self._answer(inbox, send)))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _hello(self) -> wire.Hello:
        return wire.Hello(
            protocol=wire.PROTOCOL,
            package=version("pyes-rl"),
            node=f"{socket.gethostname()[:80]}:{os.getpid()}",
            workers=self.workers,
            cores=limits.usable_cores(),
            memory=limits.available_memory(),
            kernels=selftest.digest(),
            relay=False,
        )

    async def _read(self, reader: asyncio.StreamReader, side: NodeSide, inbox: Inbox, send: Wire) -> None:
        """Read messages into the inbox, and answer beats immediately; pauses while the inbox is full."""
        size = 0
        try:
            while data := await reader.read(2**18):
                self._heard = time.monotonic()
                size += len(data)
                for message in side.receive(data):
                    if isinstance(message, wire.Beat):
                        self._beat = self._heard
                        send(wire.Echo(message.time))
                    else:
                        inbox.put(message, size)
                        size = 0
                await inbox.room()
        except ssl.SSLError as error:  # in TLS 1.3 the head checks the certificate after the handshake has ended here
            if self._send is not None:
                raise  # this node was accepted, so it is only a broken connection
            raise RefusedError(f"{self._address}: the head does not take this key ({error.reason})") from error
        except ProtocolError as error:
            raise RefusedError(f"{self._address}: it does not speak as a head of pyes does: {error}") from error
        inbox.end()
        await asyncio.Event().wait()  # forever: `_answer` ends the conversation after the last message

    async def _watch(self, inbox: Inbox) -> None:
        """Raise TimeoutError if the head has been silent for too long; send beats if it sends none."""
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            now = time.monotonic()
            if self._send is not None and now - self._beat > 2.0 * BEAT_SECONDS:
                self._send(wire.Beat(now))  # the head's beats are delayed by a long message, or not read
            if inbox.full:
                self._heard = now  # reading pauses, so this is not silence
            if now - self._heard > SILENT_SECONDS:
                await asyncio.sleep(BEAT_SECONDS)  # after this process was stopped, there may be bytes to read
                if time.monotonic() - self._heard > SILENT_SECONDS:
                    raise TimeoutError(f"nothing heard for {SILENT_SECONDS:g} s")

    # --- the conversation

    async def _answer(self, inbox: Inbox, send: Wire) -> None:
        """Handle and answer messages, one after another."""
        welcome = await inbox.get()
        if isinstance(welcome, wire.Refused):
            raise RefusedError(f"{self._address}: {welcome.reason}")
        if welcome is None:
            raise ConnectionError("the head closed the connection")
        self._unanswered = 0
        self._send = send
        collector = asyncio.create_task(self._collect(send))
        collector.add_done_callback(lambda _: inbox.end())  # if it fails, the loop below must end
        try:
            while (message := await inbox.get()) is not None:
                if isinstance(message, wire.End):
                    self._say("the job has ended")
                    return
                if isinstance(message, wire.Refused):
                    raise RefusedError(f"{self._address}: {message.reason}")
                answer = await self._take(message)
                if answer is not None:
                    send(answer)
            if collector.done():
                collector.result()
            raise ConnectionError("the head closed the connection")
        finally:
            collector.cancel()
            await asyncio.gather(collector, return_exceptions=True)

    async def _take(self, message: wire.Message) -> wire.Message | None:
        """Handle one message; return the answer, or None."""
        if self._leaving.is_set() and not isinstance(message, wire.Withdraw | wire.Close):
            return None
        if isinstance(message, wire.Job):
            return await self._join(message)
        replica = self._replica
        if replica is None:
            return None
        async with self._turn:
            match message:
                case wire.Learn():
                    return await replica.learn(message)
                case wire.Snapshot():
                    return await replica.load(message)
                case wire.Open():
                    await self._come_to_rest(replica)
                    return await replica.open(message)
                case wire.Vectors():
                    await self._come_to_rest(replica)
                    replica.open_vectors(message)
                case wire.Bases():
                    replica.add_bases(message)
                case wire.Grant():
                    resting = not replica.busy
                    replica.grant(message)
                    if resting:  # results are looked for rarely while there can be none
                        self._activity.set()
                case wire.Granted():
                    replica.take_time(message)
                case wire.Withdraw():
                    replica.withdraw(message)
                case wire.Close():
                    replica.close_batch()
        return None

    async def _join(self, message: wire.Job) -> wire.Message | None:
        """Join the session's job or, at first, the job of the message."""
        if self._unable or (self._replica is not None and self._replica.job != message.job):
            raise _OtherJob
        if self._replica is not None:
            return self._replica.ready()
        try:
            replica = await self._make(message)
        except PyesError as error:
            return self._cannot(error)
        except OSError as error:  # of this machine: the connection is another task's
            why = "; ".join(filter(None, (error.strerror or str(error), what_to_try(error))))
            return self._cannot(ClusterError(why))
        self._replica = replica
        crew = f" with {counted(self.workers, 'worker')}" if self.workers else ""
        self._say(f"at work for {self._address}: {replica.config.task.title}{crew}")
        replica.watch(self._activity.set)
        return replica.ready()

    async def _make(self, message: wire.Job) -> Replica:
        return await Replica.make(message, self.workers, self._log)

    def _cannot(self, error: PyesError) -> wire.Unable:
        self._unable = True
        self._say(f"cannot take part in the job: {error}")
        return wire.Unable(str(error))

    async def _stirred(self, seconds: float) -> bool:
        """Wait until a worker has no more work, at most for some seconds; return whether one has none."""
        self._activity.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._activity.wait()
        return self._activity.is_set()

    async def _come_to_rest(self, replica: Replica) -> None:
        """Wait until no worker holds a member of the previous batch."""
        replica.close_batch()
        while not replica.at_rest():
            await self._stirred(_LOOK_SECONDS)

    async def _collect(self, send: Wire) -> None:
        """Send results: gathered while nobody needs them, else at once, as when a worker has run out of members."""
        longer = 0.0  # seconds for which results may be gathered, if these are more than the usual ones
        while True:
            replica = self._replica
            pause = _LOOK_SECONDS
            if replica is not None and replica.busy:
                pause = min(pause, max(longer, replica.gather_seconds))
            idle = await self._stirred(pause)
            longer = 0.0
            if replica is None or self._turn.locked():
                continue
            self._look_after(replica, send)
            longer = replica.gathers_for(idle)
            if longer:
                continue
            done = replica.collect()
            if done is not None:
                send(done)

    def _look_after(self, replica: Replica, send: Wire) -> None:
        """Replace workers that have died; called whenever results are looked for."""
        replica.check()


def not_of_this_key(address: Address, error: ssl.SSLError) -> str:
    """Return what a failed handshake says of the program that listens at an address."""
    if error.reason == "WRONG_VERSION_NUMBER":
        return f"{address}: what listens there does not encrypt; leave out --key if it is a head without a key"
    return f"{address}: it is not the head of this key ({error.reason}); {keys.ADVICE}"


def why_unconnected(error: OSError) -> str:
    """Return why there is no connection, without the address that asyncio adds."""
    if isinstance(error, socket.gaierror):
        return str(error.strerror)  # its numbers are not the system's error numbers
    # For a name with several addresses asyncio raises one error with the texts of all.
    number = error.errno or next(map(int, re.findall(r"\[Errno (\d+)\]", str(error))), 0)
    if number:
        return os.strerror(number)
    return "no answer" if isinstance(error, TimeoutError) else "it closed the connection"


def keep_alive(writer: asyncio.StreamWriter) -> None:
    """Let the kernel send without delay, and end a connection whose other end does not answer."""
    connection: Any = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):  # reading will report a connection that has ended
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Longer than silence, which is looked for above: Linux counts time in which the other end does not read.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(6000 * SILENT_SECONDS))
