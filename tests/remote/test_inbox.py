"""The head's messages that wait in a node, and those that are dropped as superseded."""

import asyncio

import numpy as np

from pyes.remote import inbox as inbox_module
from pyes.remote import wire
from pyes.remote.inbox import Inbox

RANGES = np.array([[0, 2]])


def learn(generation: int) -> wire.Learn:
    returns = np.zeros(2)
    return wire.Learn(generation, "ab12", returns, np.zeros(2, np.uint8), None, 0, np.zeros(0), None, 0.0)


def batch(number: int) -> list[wire.Message]:
    return [wire.Open(number, number, 0, "ab12"), wire.Grant(number, RANGES, 0, 0.005), wire.Withdraw(number, RANGES)]


def rest(messages: list[wire.Message], *, ended: bool = False) -> list[wire.Message]:
    """Return what is left of messages that nothing was taken of."""

    async def taken() -> list[wire.Message]:
        inbox = Inbox()
        for each in messages:
            inbox.put(each, 10)
        if ended:
            inbox.end()
        else:
            inbox.put(wire.End(), 1)
        found = []
        while (message := await inbox.get()) is not None and not isinstance(message, wire.End):
            found.append(message)
        return found

    return asyncio.run(taken())


def test_a_batch_that_was_closed_before_it_was_opened_here_vanishes():
    first, second, lesson = batch(1), batch(2), learn(1)
    assert rest([*first, wire.Close(1), lesson, *second]) == [lesson, *second]


def test_the_end_of_a_batch_that_is_open_here_stays():
    grant, close, following = wire.Grant(1, RANGES, 0, 0.005), wire.Close(1), batch(2)
    assert rest([grant, close, *following]) == [close, *following]


def test_a_snapshot_replaces_all_that_led_to_it():
    snapshot, close, after = wire.Snapshot(2, 5, "ab12", b""), wire.Close(1), batch(6)
    assert rest([close, learn(3), wire.Snapshot(1, 4, "ab12", b""), *batch(4), snapshot, *after]) == [
        close,
        snapshot,
        *after,
    ]


def test_lessons_are_kept_in_order():
    lessons = [learn(number) for number in range(5)]
    assert rest([*batch(1), wire.Close(1), *lessons]) == lessons


def test_batches_end_with_their_connection_and_what_the_head_said_last_is_heard():
    job, refused = wire.Job("job", {}, "replay"), wire.Refused("why")
    assert rest([job, *batch(1), refused], ended=True) == [job, refused]


def test_no_more_is_read_while_too_much_waits(monkeypatch):
    monkeypatch.setattr(inbox_module, "_MOST_BYTES", 100)

    async def play() -> list[str]:
        inbox, log = Inbox(), []

        async def read() -> None:
            for number in range(5):
                inbox.put(learn(number), 60)
                log.append("read")
                await inbox.room()

        reading = asyncio.create_task(read())
        for _ in range(5):
            await asyncio.sleep(0.01)
            log.append("take")
            await inbox.get()
        await reading
        return log

    assert asyncio.run(play()) == ["read", "read", "take", "read", "take", "read", "take", "read", "take", "take"]
