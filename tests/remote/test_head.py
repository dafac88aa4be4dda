"""The head's part with nodes, where a real one cannot be made to fail."""

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from pyes.errors import ClusterError
from pyes.remote.door import Door
from pyes.remote.head import Head


def test_results_that_cannot_be_delivered_end_the_wait_for_them():
    def results():
        raise MemoryError

    head = Head(Door(None), "here", print, "")
    batch = SimpleNamespace(future=Future(), results=results)
    asyncio.run(head._deliver(batch))
    with pytest.raises(ClusterError, match=r"the head failed \(MemoryError"):
        batch.future.result(0)
    assert head.failure is not None
