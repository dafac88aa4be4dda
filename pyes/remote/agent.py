"""``pyes worker``: lets this machine take part in one job after another, as a node or as a relay.

Each job runs in its own process, forked from this one, which imports neither torch nor a task. So memory, modules and
side effects of environments end with the job. If this process is killed, the kernel ends the job's process and its
workers.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import connection, get_context
from typing import TYPE_CHECKING, Any

from pyes.errors import ClusterError, ConfigError, PyesError, RefusedError
from pyes.node.process import holding_signals, prepare
from pyes.remote.wire import keys
from pyes.run.logs import Log
from pyes.system import lookup
from pyes.system.addresses import Address
from pyes.system.files import what_to_try
from pyes.system.lifetime import INTERRUPTED, Closing
from pyes.system.repeats import Repeats
from pyes.system.text import one_line, tell

if TYPE_CHECKING:
    from pyes.remote.session import Session

_MOST_SECONDS = 60  # until a failed process is replaced: 1 at first, twice as long after each error in a row
_ANY = "*"
_STANDARD_INPUT = 0
_SHOWN = 20  # number of records from one line of code that are all shown and sent to the head


@dataclass(frozen=True)
class Membership:
    """The head to which a node belongs, and what the node accepts from it.

    Attributes
    ----------
    address : Address
        Address of the head.
    key : str or None
        The nodes' key file; None: no TLS, only for a head on this machine.
    workers : int
        Worker processes.
    allow : tuple of str
        Packages whose code the head may name, "*" for any. Default: any for a head with a key, which has proved its
        identity; only `pyes.tasks` for one without, since any user of this machine may listen at a port.
    listen : Address or None
        Where a relay listens for its nodes; None: this is a node.
    nodes : str or None
        The relay's own key file for them.

    Raises
    ------
    ConfigError
        A head or nodes on other machines are used without a key, or ``allow`` contains something other than packages.
    """

    address: Address
    key: str | None
    workers: int
    allow: tuple[str, ...] = ()
    listen: Address | None = None
    nodes: str | None = None

    def __post_init__(self) -> None:
        keys.check_needed(self.address, self.key)
        if self.address.port == 0:
            raise ConfigError(f"address: got {self.address}, expected the port of the head")
        if self.listen is not None and self.listen.port == 0:
            raise ConfigError(f"--relay: got {self.listen}, expected the port at which its nodes find it")
        if self.listen is not None and self.listen.local == self.address.local:
            raise ConfigError(f"--relay: {self.listen} is the address of the head; a relay listens at one of its own")
        if self.listen is not None and self.nodes is None and not self.listen.is_loopback:
            raise ConfigError(f"--relay: {self.listen} needs --relay-key FILE, a key of its own (pyes keygen -o FILE)")
        for each in self.allow:
            if each != _ANY and not all(part.isidentifier() for part in each.split(".")):
                raise ConfigError(f"--allow: got {each!r}, expected a package, for example my_tasks, or '*' for any")

    @property
    def allowed(self) -> tuple[str, ...] | None:
        """Packages whose code the head may name; None: any."""
        return None if _ANY in self.allow or (self.key is not None and not self.allow) else self.allow


class Agent(Closing):
    """Runs a process for one job after another.

    Parameters
    ----------
    membership : Membership
    listening : socket or None
        Where the nodes of a relay connect, job after job.

    Attributes
    ----------
    leaving : bool
        `leave` was called.
    """

    def __init__(self, membership: Membership, listening: socket.socket | None = None) -> None:
        self._membership, self._listening = membership, listening
        self._context: Any = get_context("fork" if sys.platform == "linux" else "spawn")
        self._process: Any = None
        self._asking: Any = None  # connection that tells the job's process to leave
        self._met = False  # whether a head has accepted this node
        self.leaving = False

    def start(self) -> None:
        """Start a process for the next job.

        Raises
        ------
        ClusterError
            The system does not allow another process.
        """
        asked, asking = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=_take_part, args=(self._membership, self._listening, os.getpid(), asked, self._met), name="node"
        )
        with holding_signals(self._context.get_start_method()), asked:
            if self._asking is not None:
                self._asking.close()
            self._asking = asking
            try:
                process.start()
            except OSError as error:
                text = f"cannot start the process of a job: {error.strerror}; {what_to_try(error)}"
                raise ClusterError(text) from error
            self._process = process  # before signals are unblocked: one may end this process, which must end that one
        if self.leaving:  # since before there was this process
            self.leave()

    def serve(self, *, tied: bool = False) -> None:
        """Take part in one job after another until `leave`, or if ``tied`` until standard input is closed.

        Raises
        ------
        SystemExit
            A head refuses this node; the process of the job has shown the reason.
        """
        pause = 1
        while not self.leaving:
            self.start()
            if tied and not self._outlived_by_standard_input():
                return
            self._process.join()
            code = self._process.exitcode
            if code == RefusedError.exit_status:
                raise SystemExit(code)
            self._met = self._met or code == 0  # a job was over: only a head says so
            if code <= 0:  # negative: killed, not by a fault of its own
                pause = 1
            if code:
                self._pause(pause, tied)
            if code > 0:
                pause = min(2 * pause, _MOST_SECONDS)

    def leave(self) -> None:
        """Let `serve` return when the running members are finished; for signal handlers."""
        self.leaving = True
        if self._asking is not None:
            with contextlib.suppress(OSError):  # the job's process has ended
                self._asking.send_bytes(b"leave")

    def _pause(self, seconds: int, tied: bool) -> None:
        """Wait, at most until `leave` is called or, if ``tied``, standard input is closed."""
        for _ in range(seconds):
            if self.leaving:
                return
            if not tied:
                time.sleep(1)
            elif connection.wait([_STANDARD_INPUT], 1) and not os.read(_STANDARD_INPUT, 2**12):
                return

    def _outlived_by_standard_input(self) -> bool:
        """Wait until the job's process has ended (True) or standard input is closed (False)."""
        while self._process.sentinel not in connection.wait([self._process.sentinel, _STANDARD_INPUT]):
            if not os.read(_STANDARD_INPUT, 2**12):
                return False
        return True

    def close(self) -> None:
        """End the job's process, and with it the workers."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
            self._process = None
        if self._asking is not None:
            self._asking.close()
            self._asking = None


def work(membership: Membership, *, tied: bool = False) -> None:
    """Run an agent until Ctrl-C or SIGTERM, or if ``tied`` until standard input is closed.

    The first signal lets workers finish the members that they have begun; a second one ends them.

    Raises
    ------
    ConfigError
        This system cannot be a node, the key cannot be used, or ``tied`` without a standard input.
    SystemExit
        A signal has ended it, or a head refuses this node.
    """
    if os.name != "posix":
        raise ConfigError("pyes worker: this system cannot wait for pipes and connections at once; use Linux or macOS")
    if tied and sys.stdin is None:
        raise ConfigError("--tied: standard input is closed already, so that this worker would end at once")
    if membership.key is not None:
        keys.of_node(membership.key)  # rejects an unusable file now instead of in each job's process
    with contextlib.ExitStack() as stack:
        listening = None
        if membership.listen is not None:
            from pyes.remote.door import Door, listen

            Door(membership.nodes)  # rejects an unusable file, too
            listening = stack.enter_context(listen(membership.listen, "--relay"))
        agent = Agent(membership, listening)
        stack.enter_context(_leaving_on_signals(agent))
        stack.enter_context(agent)
        agent.serve(tied=tied)
    if agent.leaving:  # not 0, which tells schedulers that this node's work is done
        raise SystemExit(INTERRUPTED)


@contextlib.contextmanager
def _leaving_on_signals(agent: Agent) -> Iterator[None]:
    """Let an agent leave at the first Ctrl-C or SIGTERM; raise SystemExit at a second one."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def end(number: int, frame: object) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)  # a third one would interrupt the cleanup
        raise SystemExit(INTERRUPTED)

    def leave(number: int, frame: object) -> None:
        for each in numbers:
            signal.signal(each, end)
        agent.leave()

    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _take_part(membership: Membership, listening: socket.socket | None, parent: int, asked: Any, met: bool) -> None:
    """Take part in one job, until ``asked``, a connection, is readable; runs in its own process."""
    prepare(parent)
    lookup.allow_only(membership.allowed)
    root = logging.getLogger()
    root.handlers[:] = []  # those inherited from the parent
    to_head = _ToHead()
    with contextlib.closing(Log(to_head)) as log:
        sys.exit(asyncio.run(_session(membership, listening, asked, log, to_head, met)))


async def _session(
    membership: Membership, listening: socket.socket | None, asked: Any, log: Log, to_head: "_ToHead", met: bool
) -> int:
    loop = asyncio.get_running_loop()
    try:
        session = _session_of(membership, listening, log, met)

        def leave() -> None:
            loop.remove_reader(asked)
            session.leave()

        loop.add_reader(asked, leave)
        to_head.send = session.tell
        to_head.loop = loop
        await session.run()
    except PyesError as error:
        _say(str(error))
        return error.exit_status
    finally:
        to_head.loop = None
    return 0


def _session_of(membership: Membership, listening: socket.socket | None, log: Log, met: bool) -> "Session":
    if listening is None:
        from pyes.remote.session import Session

        return Session(membership.address, membership.key, membership.workers, log, _say, met)
    from pyes.remote.door import Door
    from pyes.remote.relay import RelaySession

    return RelaySession(membership.address, membership.key, listening, Door(membership.nodes), log, _say, met)


def _say(text: str) -> None:
    tell(f"{time.strftime('%H:%M:%S')} {text}")


class _ToHead(logging.Handler):
    """Shows warnings, and sends each to the head's log as one message; limits those from one line of code."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter("%(processName)s %(name)s: %(message)s"))
        self.send: Callable[[int, str], None] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._repeats = Repeats(first=_SHOWN)

    def emit(self, record: logging.LogRecord) -> None:
        """Show and send a record; may be called from any thread."""
        count = self._repeats.count(f"{record.name}:{record.lineno}")
        if count is None:
            return
        text = self.format(record) + count.remark
        _say(text)
        loop, send = self.loop, self.send
        if loop is not None and send is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                loop.call_soon_threadsafe(send, record.levelno, one_line(text))

    def close(self) -> None:
        """Show the number of omitted records."""
        for place, count in self._repeats.left_out().items():
            _say(f"{place}: {count.omitted}")
        super().close()
