"""The head with as many workers as a large cluster has, which sleep instead of running episodes.

    python benchmarks/many_workers.py [--relays N] [WORKERS ...]       default: 18 90 360 1440 2880 5760 10080

Real: the head (`pyes.cluster.socket`), its scheduling, the wire, TCP over loopback, one connection a node; and relays
(`pyes worker --relay`) between the two.
Simulated: nodes, all of them in one other process. Each has 18 workers, takes its members first come, first served,
"runs" each for a drawn time (lognormal, mean 1 s, deviation 0.3 s), gathers results as a node does, and learns
nothing. All processes share the machine: from some number of workers on it is the simulation that is late, so its
share of a core is printed, too.

efficiency    seconds of the ideal schedule (the same members by the same workers, without any message) over those taken
head          the head's processor time over the wall clock, in cores
relays        that of all relays together
messages      with results that a node sends in a second
us each       the head's processor time for one of them and what it answers; the constants of simulation.py
"""

import argparse
import asyncio
import contextlib
import functools
import heapq
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from parts import free_address, positive

from pyes.cluster import open_cluster
from pyes.cluster.socket import SocketCluster
from pyes.config import from_mapping
from pyes.node.selftest import digest
from pyes.remote import job, wire
from pyes.remote.pace import gathers_at_end, gathers_for
from pyes.remote.wire.protocol import NodeSide
from pyes.run.state import RunState, Setup
from pyes.system.addresses import Address, parse
from pyes.system.lookup import version

WORKERS_OF_A_NODE = 18
MEMBERS_OF_A_WORKER = 7  # a generation: about 10,000 members for 1,440 workers
GENERATIONS = 3


def main() -> None:
    """Print one line for each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workers", nargs="*", type=positive, default=[18, 90, 360, 1440, 2880, 5760, 10080])
    parser.add_argument("--relays", type=int, default=0)
    options = parser.parse_args()
    print("workers   nodes  members  efficiency  head  relays  simulation  bytes a member  messages  us each")
    for count in options.workers:
        print(measure(count, options.relays), flush=True)


def measure(workers: int, relays: int) -> str:
    """Run some generations; return a line of figures."""
    nodes = max(1, workers // WORKERS_OF_A_NODE)
    members = WORKERS_OF_A_NODE * nodes * MEMBERS_OF_A_WORKER // 2 * 2
    config = from_mapping(
        {
            "task": {"name": "function", "factory": "many_workers:nothing", "dim": 18},
            "network": {"name": "linear", "bias": False, "output_activation": "identity"},
            "algorithm": {"population_size": members},
            "noise": {"entries": 2**20},
            "evaluation": {"every": 0},
            "cluster": {"name": "socket", "workers": 0, "listen": "tcp://127.0.0.1:0"},
        }
    )
    with ExitStack() as stack:
        cluster = stack.enter_context(open_cluster(config.cluster, config.task, tell=lambda text: None))
        assert isinstance(cluster, SocketCluster)
        setup = Setup.of(config)
        table = stack.enter_context(setup.make_table())
        state = RunState(setup, table)
        ready = wire.Ready("", job.digest_of(setup), table.fingerprint, "", 0, 0, setup.versions())
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        between = [stack.enter_context(relay(cluster.address)) for _ in range(relays)]
        addresses = [each.address for each in between] or [cluster.address]
        process = context.Process(target=simulate, args=(addresses, nodes, members, ready, theirs))
        process.start()

        def ended(number: int, frame: object) -> None:
            if not process.is_alive():
                raise SystemExit(f"the process of the nodes has ended with status {process.exitcode}")

        signal.signal(signal.SIGCHLD, ended)  # else the head would wait for other nodes
        cluster.start(setup.plan(1), table, state)
        try:
            while cluster.workers < WORKERS_OF_A_NODE * nodes:
                time.sleep(0.05)
            return figures(state, cluster, members, nodes, between, ours)
        finally:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            process.terminate()
            process.join()


class Relay:
    """A relay under a head."""

    def __init__(self, process: "subprocess.Popen[bytes]", address: Address) -> None:
        self._process, self.address = process, address

    def seconds(self) -> float:
        """Return the processor time that the process of its job has taken."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        fields = Path(f"/proc/{children[0]}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def relay(head: Address) -> Iterator[Relay]:
    """Lend a relay, which ends with the block."""
    address = parse(free_address())
    command = [sys.executable, "-m", "pyes", "worker", str(head), "--relay", str(address), "--allow", "*", "--tied"]
    where = Path(__file__).parent
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=where) as process:
        while not _listens(address):
            time.sleep(0.1)
        yield Relay(process, address)


def _listens(address: Address) -> bool:
    """Return whether a program listens at an address."""
    with contextlib.suppress(OSError), socket.create_connection((address.host, address.port)):
        return True
    return False


def figures(
    state: RunState, cluster: SocketCluster, members: int, nodes: int, relays: list[Relay], simulation: Any
) -> str:
    """Evaluate generations; return a line about all but the first."""
    workers = WORKERS_OF_A_NODE * nodes
    wall = ideal = head = simulated = relayed = 0.0
    traffic = messages = 0
    for generation in range(GENERATIONS + 1):
        simulation.send(generation)
        before = (time.perf_counter(), time.process_time(), *simulation.recv(), sum(cluster.traffic))
        relays_before = sum(each.seconds() for each in relays)
        results = cluster.evaluate(state.batch())
        seconds = time.perf_counter() - before[0]
        record = state.record(results)
        cluster.advance(record)
        state.apply(record)
        simulation.send(generation)
        if generation:  # in the first one, no speed is known
            wall += seconds
            head += time.process_time() - before[1]
            relayed += sum(each.seconds() for each in relays) - relays_before
            until = simulation.recv()
            simulated += until[0] - before[2]
            messages += until[1] - before[3]
            traffic += sum(cluster.traffic) - before[4]
            ideal += makespan(durations(generation, members), workers)
        else:
            simulation.recv()
    return (
        f"{workers:>7,} {nodes:>7,} {members:>8,} {ideal / wall:>11.3f} {head / wall:>5.2f}"
        f" {relayed / wall:>7.2f} {simulated / wall:>11.2f}"
        f" {traffic / GENERATIONS / members:>15.1f} {messages / nodes / wall:>9.2f}"
        f" {'' if relays else f'{1e6 * head / messages:.0f}':>8}"
    )


def nothing(theta: np.ndarray) -> float:
    """Return 0: nobody calls it."""
    return 0.0


@functools.cache
def durations(generation: int, members: int) -> np.ndarray:
    """Return the seconds that each member takes."""
    variance = np.log1p(0.3**2)
    return np.random.default_rng(generation).lognormal(-variance / 2, np.sqrt(variance), members)


def makespan(seconds: np.ndarray, workers: int) -> float:
    """Return the end of the last member when each worker takes the next one at once."""
    free = [0.0] * workers
    for each in seconds.tolist():
        heapq.heapreplace(free, free[0] + each)
    return max(free)


class SimulatedNode:
    """A node whose workers sleep."""

    sent = 0  # messages with results, of all nodes

    def __init__(self, number: int, address: Address, members: int, ready: wire.Ready) -> None:
        self._number, self._address, self._members, self._ready = number, address, members, ready
        self._waiting: deque[int] = deque()
        self._running = 0
        self._done: list[int] = []
        self._gathering = False
        self._gather, self._refill_at = 0.0, 0
        self._sent = 0.0
        self._batch, self._hash = -1, ""
        self._all_granted = False

    async def run(self) -> None:
        """Take part until the process ends."""
        reader, writer = await asyncio.open_connection(self._address.host, self._address.port)
        side = NodeSide(2**31)
        self._write = lambda message: writer.write(side.send(message))
        hello = wire.Hello(
            wire.PROTOCOL,
            version("pyes-rl"),
            f"node-{self._number}",
            WORKERS_OF_A_NODE,
            18,
            0,
            digest(),
            False,
        )
        self._write(hello)
        while data := await reader.read(2**18):
            for message in side.receive(data):
                self._take(message)

    def _take(self, message: wire.Message) -> None:
        match message:
            case wire.Job():
                self._ready = replace(self._ready, job=message.job)
                self._write(self._ready)
            case wire.Beat():
                self._write(wire.Echo(message.time))
            case wire.Snapshot():
                standing = {"theta_hash": message.theta_hash, "generation": message.generation}
                self._write(replace(self._ready, **standing, snapshot=message.number))
            case wire.Open():
                self._batch, self._hash = message.batch, message.theta_hash
                self._sent = asyncio.get_running_loop().time()
                self._seconds = durations(message.generation, self._members)
                self._waiting.clear()
                self._done.clear()
                self._all_granted = False
            case wire.Granted() if message.batch == self._batch:
                self._all_granted = True
            case wire.Grant() if message.batch == self._batch:
                self._refill_at, self._gather = message.refill_at, message.gather
                self._waiting.extend(wire.members_of(message.ranges).tolist())
                self._start()
            case wire.Withdraw() if message.batch == self._batch:
                gone = set(wire.members_of(message.ranges).tolist())
                self._waiting = deque(each for each in self._waiting if each not in gone)

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and self._running < WORKERS_OF_A_NODE:
            member = self._waiting.popleft()
            self._running += 1
            loop.call_later(float(self._seconds[member]), self._end, self._batch, member)

    def _end(self, batch: int, member: int) -> None:
        self._running -= 1
        if batch == self._batch:
            self._done.append(member)
            if not (self._waiting or (self._all_granted and self._running)):
                self._flush(batch)
            elif not self._gathering:
                self._gathering = True
                asyncio.get_running_loop().call_later(self._gather, self._gathered, batch)
        self._start()

    def _gathered(self, batch: int) -> None:
        loop = asyncio.get_running_loop()
        longer = self._gathers_for(loop.time() - self._sent) if batch == self._batch else 0.0
        if longer:
            loop.call_later(max(longer, self._gather), self._gathered, batch)
        else:
            self._gathering = False
            self._flush(batch)

    def _gathers_for(self, since: float) -> float:
        if self._all_granted:
            return gathers_at_end(len(self._waiting) + self._running, WORKERS_OF_A_NODE, 1.0, since)
        return gathers_for(len(self._waiting), self._refill_at, WORKERS_OF_A_NODE, 1.0, since)

    def _flush(self, batch: int) -> None:
        if batch != self._batch or not self._done:
            return
        self._sent = asyncio.get_running_loop().time()
        SimulatedNode.sent += 1
        members = np.array(sorted(self._done))
        self._done.clear()
        self._write(
            wire.Done(
                batch=batch,
                theta_hash=self._hash,
                ranges=wire.ranges_of(members),
                returns=members.astype(np.float64),
                lengths=np.ones(len(members), np.uint8),
                status=None,
                sums=None,
                behaviours=None,
                halves=None,
                busy=float(self._seconds[members].sum()),
                errors=[],
            )
        )


def simulate(addresses: list[Address], nodes: int, members: int, ready: wire.Ready, pipe: Any) -> None:
    """Run the nodes in their own process; answer a word on the pipe with processor time and messages so far."""
    asyncio.run(_simulate(addresses, nodes, members, ready, pipe))


async def _simulate(addresses: list[Address], nodes: int, members: int, ready: wire.Ready, pipe: Any) -> None:
    def answer() -> None:
        pipe.recv()
        pipe.send((time.process_time(), SimulatedNode.sent))

    asyncio.get_running_loop().add_reader(pipe.fileno(), answer)
    each = (SimulatedNode(k, addresses[k % len(addresses)], members, ready).run() for k in range(nodes))
    await asyncio.gather(*each)


if __name__ == "__main__":
    main()
