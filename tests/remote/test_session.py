"""A node's side of a connection, against a scripted head."""

import asyncio
import contextlib
import errno
import os
import socket
import struct
from functools import partial

import numpy as np
import pytest

from pyes import config as configuration
from pyes.errors import RefusedError
from pyes.remote import job, wire
from pyes.remote import session as session_module
from pyes.remote.session import Session
from pyes.remote.wire.protocol import HeadSide
from pyes.system import lookup
from pyes.system.addresses import Address

WHY = "its theta differs from the head's"
JOB = wire.Job("job", {"seed": "none", "cluster": {}}, "replay")  # nobody can take part in that


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    """Beats every hundredth of a second, and attempts as often."""
    monkeypatch.setattr(session_module, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(session_module, "_RETRY_SECONDS", (0.01, 0.01))


def meet(play, session=None):
    """Let a node connect to a head that calls ``play(side, reader, writer)`` for each connection."""

    async def answer(reader, writer):
        side = HeadSide(2**16)
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            assert isinstance(side.receive(await reader.read(2**12))[0], wire.Hello)
            await play(side, reader, writer)

    async def run():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server, asyncio.timeout(60.0):
            address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
            await (session or Session)(address, None, 1).run()

    asyncio.run(run())


async def send_away(side, reader, writer):
    """Refuse a node, which closes the connection: if the head did, while the node sends, the reason could be lost."""
    writer.write(side.send(wire.Refused(WHY)))
    while await reader.read(2**12):
        pass


def test_a_node_is_not_silent_while_it_receives_one_long_message():
    """The head's beats come behind it, so their echoes cannot be what shows that the node is there."""
    heard = []

    async def play(side, reader, writer):
        writer.write(side.send(wire.Welcome()))
        long = side.send(wire.Snapshot(1, 0, "ab12", bytes(2**16)))
        writer.write(long[: len(long) // 2])
        while len(heard) < 3:
            heard.extend(side.receive(await reader.read(2**12)))
        writer.write(long[len(long) // 2 :] + side.send(wire.End()))

    meet(play)
    assert {type(each) for each in heard} == {wire.Beat}


def test_a_head_that_names_code_which_is_not_allowed_is_told_and_nothing_runs(tmp_path):
    mark = tmp_path / "mark"
    config = configuration.from_mapping(
        {"task": {"name": "python", "factory": "subprocess:Popen", "env_kwargs": {"args": ["touch", str(mark)]}}}
    )
    said = []

    async def play(side, reader, writer):
        told = wire.Job("job", job.settings_of(config), "replay")
        writer.write(side.send(wire.Welcome()) + side.send(told))
        while not any(isinstance(each, wire.Unable) for each in said):
            said.extend(side.receive(await reader.read(2**12)))
        await send_away(side, reader, writer)

    lookup.allow_only(())
    try:
        with pytest.raises(RefusedError, match=WHY):
            meet(play)
    finally:
        lookup.allow_only(None)
    (reason,) = (each.reason for each in said if isinstance(each, wire.Unable))
    expected = "task.factory: this worker may not run 'subprocess:Popen'; allow it with: pyes worker --allow subprocess"
    assert reason == expected
    assert not mark.exists()


class Poor(Session):
    """Has no file descriptors left for a crew."""

    async def _make(self, message):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_node_without_room_for_a_crew_says_so_once():
    heard, connections = [], []

    async def play(side, reader, writer):
        connections.append(side)
        writer.write(side.send(wire.Welcome()) + side.send(JOB))
        while not heard:
            heard.extend(each for each in side.receive(await reader.read(2**12)) if isinstance(each, wire.Unable))
        await send_away(side, reader, writer)

    with pytest.raises(RefusedError, match=WHY):
        meet(play, Poor)
    assert len(connections) == 1
    assert heard[0].reason.startswith("Too many open files; raise the limit of open files")


class Busy(Session):
    """Acts on no message."""

    async def _take(self, message):
        await asyncio.sleep(3600)


@pytest.mark.slow
def test_a_busy_node_reads_no_more_than_it_can_hold_and_does_not_take_that_for_silence(monkeypatch):
    monkeypatch.setattr(session_module, "SILENT_SECONDS", 0.2)
    lesson = wire.Learn(0, "ab12", np.zeros(10**5), np.zeros(10**5, np.uint8), None, 0, np.zeros(0), None, 0.0)
    sent, heard = [], []

    async def play(side, reader, writer):
        writer.write(side.send(wire.Welcome()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                while len(sent) < 100:
                    writer.write(side.send(lesson))
                    await writer.drain()
                    sent.append(lesson)
        heard.extend(side.receive(await reader.read(2**12)))
        raise ConnectionError

    async def end(session):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(4.0):
                await session.run()

    class Ended(Busy):
        async def run(self):
            await end(super())

    meet(play, Ended)
    assert 4 < len(sent) < 40  # megabytes; some are in the kernel
    assert {type(each) for each in heard} == {wire.Beat}


class Slow(Session):
    """Takes time to find out that it cannot take part."""

    async def _join(self, message):
        await asyncio.sleep(0.1)
        return await super()._join(message)


@pytest.mark.parametrize("before", [[], [wire.Beat(0.0)], [JOB]], ids=["alone", "a beat", "a job"])
@pytest.mark.parametrize("session", [Session, Slow])
def test_why_a_node_was_sent_away_is_said_whatever_it_still_answers(before, session):
    async def play(side, reader, writer):
        messages = [wire.Welcome(), *before, wire.Refused(WHY)]
        writer.write(b"".join(map(side.send, messages)))
        while await reader.read(2**12):
            pass

    with pytest.raises(RefusedError, match=WHY):
        meet(play, session)


@pytest.mark.parametrize("reset", [False, True])
def test_a_node_that_nobody_answers_gives_up(reset):
    async def play(side, reader, writer):
        if reset:
            writer.transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )

    with pytest.raises(RefusedError, match="does not answer; does it want a key"):
        meet(play)


def test_a_node_waits_for_a_head_that_says_nothing(monkeypatch):
    """It may be stopped, and go on; nothing else would start the head's own node again."""
    monkeypatch.setattr(session_module, "SILENT_SECONDS", 0.05)
    connections = []

    async def play(side, reader, writer):
        connections.append(writer)
        if len(connections) < 2 * session_module._MOST_UNANSWERED:
            await reader.read()  # until the node closes the connection
        else:
            writer.write(side.send(wire.Refused(WHY)))
            await writer.drain()

    with pytest.raises(RefusedError, match=WHY):
        meet(play)


def test_a_node_that_was_in_waits_for_its_head_however_often_nobody_answers():
    """A tunnel to a head that is being resumed takes connections, and closes them."""
    connections = []

    async def play(side, reader, writer):
        connections.append(side)
        if len(connections) == 1:
            writer.write(side.send(wire.Welcome()) + side.send(JOB))
            while not any(isinstance(each, wire.Unable) for each in side.receive(await reader.read(2**12))):
                pass
        elif len(connections) == 20:
            await send_away(side, reader, writer)

    with pytest.raises(RefusedError, match=WHY):
        meet(play)
    assert len(connections) == 20


def test_a_node_that_was_in_an_earlier_job_waits_too():
    connections = []

    async def play(side, reader, writer):
        connections.append(side)
        if len(connections) == 20:
            await send_away(side, reader, writer)

    with pytest.raises(RefusedError, match=WHY):
        meet(play, partial(Session, met=True))
    assert len(connections) == 20


def test_why_there_is_no_connection_is_named():
    several = OSError(
        "Multiple exceptions: [Errno 111] Connect call failed ('::1', 1), [Errno 111] Connect call failed"
    )
    assert session_module.why_unconnected(several) == "Connection refused"
    assert session_module.why_unconnected(ConnectionResetError()) == "it closed the connection"
    assert session_module.why_unconnected(TimeoutError()) == "no answer"
