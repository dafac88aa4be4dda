"""``pyes launch ssh``: runs the head here and a ``pyes worker`` on each host, which end with the head.

Owns one ``ssh`` process per host and the process of the head. A worker ends when its standard input, carried by the
connection, is closed: when this process ends in any way, or when the connection is lost. Hosts get the nodes' key,
never the head's. Invariant: keys made for the run are never stored on disk.
"""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from pathlib import Path

from pyes.errors import ClusterError, ConfigError
from pyes.launch import head_arguments
from pyes.launch.hosts import REACHED, Host
from pyes.node.process import die_with
from pyes.remote.session import WAITING
from pyes.remote.wire import keys
from pyes.system.addresses import Address
from pyes.system.lifetime import COMMAND
from pyes.system.text import tell

_SAVING_SECONDS = 60.0  # that a head without nodes may take to save its state

_OPTIONS = {
    "BatchMode": "yes",  # never ask for a password
    "ConnectTimeout": "15",
    "ServerAliveInterval": "15",  # seconds; after three without an answer, the connection ends
    "ServerAliveCountMax": "3",
    "LogLevel": "ERROR",
}
_KILLED = 128 + 9  # a worker that others have ended by SIGKILL, as the kernel does for want of memory
_LOST = 255  # ssh's exit status if there is no connection, or it was lost
_AGAIN_SECONDS = 30.0  # between attempts to reach a lost host
_END_SECONDS = 10.0  # maximum time for a worker to end
_PATIENCE_SECONDS = 20.0  # in which a head begins to listen
_TAIL = 4096  # bytes kept of a host's output


def run(
    hosts: Sequence[Host], address: Address, key: Path | None, training: list[str], again: str, *, works_itself: bool
) -> int:
    """Run ``pyes train`` as the head of nodes on hosts; return its exit status.

    Parameters
    ----------
    address : Address
        Address of the head for nodes.
    key : Path or None
        The head's key file (default: new keys for this run).
    training : list of str
        ``train`` and its arguments.
    again : str
        The user's command up to ``train``, for the hint how to resume.
    works_itself : bool
        The head has workers of its own, so that it goes on without hosts.

    Raises
    ------
    ConfigError
        ``training`` or the key cannot be used, or this system has no ssh or no POSIX signals.
    ClusterError
        No host can be a node, or the head was killed.
    """
    if os.name != "posix":
        raise ConfigError("launch ssh: expected Linux or macOS here; start pyes train and pyes worker by hand")
    before, after = head_arguments.split(training)
    with _key_file(key) as path:
        ours = head_arguments.overrides(head_arguments.listening(address), str(path))
        arguments = [*before, *ours, *after]
        return asyncio.run(_run(hosts, address, keys.for_nodes(path), arguments, again, works_itself))


def _key_file(given: Path | None) -> contextlib.AbstractContextManager[Path]:
    """Yield the head's key file: the given one, or a new one in memory."""
    if given is None:
        return keys.in_memory(keys.new())
    return contextlib.nullcontext(given.resolve())


async def _run(
    hosts: Sequence[Host], address: Address, key: bytes, arguments: list[str], again: str, works_itself: bool
) -> int:
    process = await _start_head(arguments, again)
    ended = asyncio.create_task(process.wait())
    nodes = [asyncio.create_task(_Connection(host, address, key).run()) for host in hosts]
    gone = asyncio.create_task(asyncio.wait(nodes))
    try:
        await asyncio.wait((ended, gone), return_when=asyncio.FIRST_COMPLETED)
        if gone.done() and not ended.done():
            for node in nodes:
                node.result()  # an error that all connections have, such as no ssh
            if not works_itself:
                why = "no host is left to evaluate members; the lines above say why"
                raise ClusterError(
                    f"{why}; run it again, or go on with the run that the head named: {again} resume=RUN"
                )
        status = await ended
    finally:
        for task in (gone, *nodes):
            task.cancel()
        await asyncio.gather(gone, *nodes, return_exceptions=True)
        await _end_head(process)
    if -status in (signal.SIGINT, signal.SIGTERM):  # before it had begun
        return 128 + signal.SIGINT
    if status < 0:
        name = signal.Signals(-status).name
        raise ClusterError(f"the head was killed by {name}; go on with: {again} resume=RUN")
    return status


async def _end_head(process: Process) -> None:
    """Let the head save its state, for which it has a minute."""
    if process.returncode is None:
        process.terminate()
        await _ended_within(process, _SAVING_SECONDS)


async def _ended_within(process: Process, seconds: float) -> None:
    """Wait for the end of a process that was asked for it; kill it if that takes too long."""
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def _start_head(arguments: list[str], again: str) -> Process:
    """Start the head in its own session, so that it receives each Ctrl-C once, from this process."""
    parent = os.getpid()
    command = (sys.executable, "-m", "pyes", "train", *arguments)
    # Before any ssh, while this process has a single thread: `preexec_fn` needs that.
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: die_with(parent),
        env={**os.environ, COMMAND: again},
    )

    def forward(number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, forward, number)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup lets it outlive the terminal
        loop.add_signal_handler(signal.SIGHUP, forward, signal.SIGTERM)  # the terminal was closed
    return process


class _Connection:
    """The connection to one host, and the worker there."""

    def __init__(self, host: Host, head_address: Address, key: bytes) -> None:
        self._host, self._key = host, key
        self._command = host.command(head_address)
        self._was_reached = False

    async def run(self) -> None:
        """Keep a worker on the host until cancelled; if that is impossible, print the reason and return."""
        said = ""
        while True:
            status, reason = await self._serve()
            lost = status in (_LOST, _KILLED) and self._was_reached
            text = f"{reason}; {'trying to reach it again' if lost else 'going on without it'}"
            if text != said:
                self._tell(text)
            if not lost:
                return
            said = text
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _serve(self) -> tuple[int, str]:
        """Run a worker over one connection; return ssh's exit status and a description of the end."""
        options = [f"-o{key}={value}" for key, value in _OPTIONS.items()]
        command = ("ssh", "-T", *options, self._host.name, self._command)
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
            )
        except OSError as error:
            raise ConfigError(f"cannot start ssh: {error.strerror}; install OpenSSH's client") from error
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            process.stdin.write(self._key)
            output, errors = await asyncio.gather(_tail(process.stdout), self._errors(process.stderr))
            status = await process.wait()
        finally:
            await _end(process)
        reached = REACHED in output
        self._was_reached |= reached
        last = _last_line(errors) or "it said nothing"
        if status == _LOST:
            return status, f"{'lost' if reached else 'cannot be reached'}: {last}"
        return status, f"pyes worker ended with status {status}: {last}"

    async def _errors(self, stream: asyncio.StreamReader) -> str:
        """Read what the worker says, as `_tail` does; pass it on if for long its last word is that it finds no head."""
        kept = b""
        while True:
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    data = await stream.read(_TAIL)
            except TimeoutError:
                if WAITING in (last := _last_line(kept.decode(errors="replace"))):
                    self._tell(f"it was reached, but is {last[last.index(WAITING) :]}; see --head and --port")
                data = await stream.read(_TAIL)
            if not data:
                return kept.decode(errors="replace")
            kept = (kept + data)[-_TAIL:]

    def _tell(self, text: str) -> None:
        tell(f"pyes launch: {self._host.name}: {text}")


async def _tail(stream: asyncio.StreamReader) -> str:
    """Read to the end; return the last bytes as text."""
    kept = b""
    while data := await stream.read(_TAIL):
        kept = (kept + data)[-_TAIL:]
    return kept.decode(errors="replace")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


async def _end(process: Process) -> None:
    """End a worker by closing its standard input, and its connection if that is not enough."""
    assert process.stdin is not None
    process.stdin.close()
    await _ended_within(process, _END_SECONDS)
