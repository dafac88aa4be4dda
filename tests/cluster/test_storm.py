"""Two hours of three nodes to which everything happens at random: the journal is that of a calm run, and nothing grows.

Each node is a network namespace on a cable of its own. Only ``make soak`` runs it; STORM_MINUTES makes it shorter.
"""

import collections
import contextlib
import os
import random
import shutil
import signal
import socket
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from heads import count_of, held_by, hurt, until
from hosts import Host, Link, Trainer, new_cable, start_server

import pyes
from pyes.remote.wire import keys
from pyes.system import addresses

MINUTES = float(os.environ.get("STORM_MINUTES", "120"))

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(60 * MINUTES + 1800),
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("ip"), reason="makes networks, as root"
    ),
]

SETTINGS = {
    "task": {"env_id": "faulty:Faulty-v0", "normalize_observations": True},
    "algorithm": {"population_size": 8},
    "evaluation": {"every": 50, "episodes": 4},
    "noise": {"entries": 100_000},
}
SLOW = {"FAULTY": '{"sleep": 0.02}'}  # a member takes 0.2 s
PAUSE = (1.0, 6.0)  # seconds between two blows
OUTAGE = (0.5, 25.0)  # seconds that a cable is out; both ends give up before the longest is over
WARM = 0.1  # of the time, after which nothing may grow
SLACK = 8 * 2**20  # bytes by which the memory of a process may differ between two moments


@pytest.fixture(scope="module", autouse=True)
def server():
    start_server()


class Node:
    """A machine on a cable, and another one in its place when it has been taken away."""

    def __init__(self, port: int, key: Path, stack: contextlib.ExitStack) -> None:
        self._port, self._key, self._stack = port, str(key), stack
        self.mended = 0.0  # when the cable is put back
        self.plug()

    def plug(self) -> None:
        """Put a new machine there."""
        here = new_cable()
        self.own = self._stack.enter_context(contextlib.ExitStack())
        self.host = Host(f"tcp://{here}:{self._port}", key=self._key, environment=SLOW, apart=True)
        self.link = Link(self.own.enter_context(self.host), here)

    def blow(self, number: int, victims: Callable[[Host], list[int]]) -> None:
        """Signal one of its processes, if there is any."""
        for pid in victims(self.host)[:1]:
            hurt(pid, number)

    def replace(self, number: int) -> None:
        """End the machine by a signal to its program, and put another one there."""
        self.host.send(number)
        if number == signal.SIGTERM:
            self.host.wait()
        self.own.close()
        self.plug()

    def cut(self, seconds: float) -> None:
        """Pull the cable out."""
        self.link.down()
        self.mended = time.monotonic() + seconds

    def mend(self) -> None:
        """Put the cable back if it is time."""
        if self.mended and time.monotonic() > self.mended:
            self.link.up()
            self.mended = 0.0


def test_two_hours_of_kills_cuts_and_joins_change_nothing_and_nothing_grows(tmp_path):
    keys.generate(key := tmp_path / "key")
    # Of every network of this machine, beside whatever tests run meanwhile.
    run, address, drawn = tmp_path / "run", f"tcp://0.0.0.0:{_free_port()}", random.Random(1)
    cluster = {"name": "socket", "listen": address, "workers": 0, "key": str(key)}
    blows: collections.Counter[str] = collections.Counter()
    with contextlib.ExitStack() as stack:
        head = stack.enter_context(
            Trainer({**SETTINGS, "run_dir": str(run), "generations": 10**6, "cluster": cluster}, environment=SLOW)
        )
        nodes = [Node(addresses.parse(address).port, key, stack) for _ in range(3)]
        head.until(lambda: count_of(run) > 3, "rows")
        begun, early = time.monotonic(), None
        while (now := time.monotonic()) < begun + 60.0 * MINUTES:
            if early is None and now > begun + WARM * 60.0 * MINUTES:
                early = _held(head)
            time.sleep(drawn.uniform(*PAUSE))
            assert head.running, head.said
            for node in nodes:
                node.mend()
            blows[_strike(drawn.choice(nodes), drawn)] += 1
        for node in nodes:
            node.mended = min(node.mended, 1e-9)
            node.mend()
        before = count_of(run)
        head.until(lambda: count_of(run) > before + 2, "rows after the storm")
        late = _held(head)
        head.send(signal.SIGTERM)
        assert head.wait() == 130, head.said
    print(f"{count_of(run):,} generations; {dict(blows)}; head: {early} then {late} (bytes, descriptors)")
    assert min(blows.values()) > 0
    assert late[0] < early[0] + SLACK
    assert late[1] <= early[1] + 3  # a node may just have come
    calm = tmp_path / "calm"
    settings = {**SETTINGS, "run_dir": str(calm), "generations": count_of(run), "cluster": {"name": "inline"}}
    pyes.train(settings, display=False)
    for name in ("journal.bin", "policy.safetensors"):
        assert (run / name).read_bytes() == (calm / name).read_bytes()


def _free_port() -> int:
    with socket.create_server(("0.0.0.0", 0)) as server:
        return int(server.getsockname()[1])


def _strike(node: Node, drawn: random.Random) -> str:
    """Do something to a node; return what."""
    what = drawn.choice(["worker", "nursery", "job", "kill", "leave", "cut", "stop"])
    if what == "worker":
        node.blow(signal.SIGKILL, lambda host: host.workers)
    elif what == "nursery":
        node.blow(signal.SIGKILL, lambda host: host.nurseries)
    elif what == "job":
        node.blow(signal.SIGKILL, lambda host: [host.job] if host.job else [])
    elif what == "cut":
        node.cut(drawn.uniform(*OUTAGE))
    elif what == "stop":
        node.host.send_all(signal.SIGSTOP)
        time.sleep(drawn.uniform(*PAUSE))
        node.host.send_all(signal.SIGCONT)
    else:
        node.mended = 0.0
        node.replace(signal.SIGKILL if what == "kill" else signal.SIGTERM)
    return what


def _held(head: Trainer) -> tuple[float, float]:
    """Return the memory and the descriptors of the head, by the median of looks within some seconds."""
    looks = []
    until(lambda: looks.append(held_by(head.pid)) or time.sleep(0.05) or len(looks) == 60, "looks")
    return tuple(map(statistics.median_low, zip(*looks, strict=True)))
