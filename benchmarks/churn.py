"""Nodes that leave and join while a run goes on, and what that costs.

    python benchmarks/churn.py [MINUTES]                 default: 10
    python benchmarks/churn.py join [MILLIONS ...]       default: 50, which needs 8 GB of memory

Real: a head, ten nodes of one worker each, their processes and connections, and the signals. Members sleep for a second
instead of running an episode, so that two cores are enough. Five nodes get SIGTERM, one after the other, and are
replaced; then every minute one node in ten is killed with SIGKILL, and replaced at once.

leaving       seconds from SIGTERM to the end of the node, members lost; a member that runs takes up to a second more
churn         members returned in the seconds that nodes were there, as a share of what these nodes can return
journal       whether it is that of a run in one process that nobody disturbs

With `join`, a node evaluates members with so many million parameters, for two timesteps of CartPole, and a second node
joins, which is sent the whole state.

generation    the node's seconds from one generation to the next before the join, the longest during it, and after it
answer        the longest time that the head took to answer `pyes status`, before and during
first         seconds from the start of the second node's process until its first result counts
peak          the most memory that the head has had, before and after, in GB, with the noise table of 1 GB
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from parts import free_address, positive_float, rows_of

from pyes.errors import ClusterError
from pyes.reports import status
from pyes.system import addresses

NODES, MEMBERS, SECONDS = 10, 100, 1.0
LEAVING = 5
SETTINGS = ("task=function", "task.factory=churn:member", "task.dim=8", f"algorithm.population_size={MEMBERS}")
SETTINGS = (*SETTINGS, "noise.entries=100000", "evaluation.every=0", "timesteps=null")
LARGE = ("task=cart_pole", "network=mlp", "task.max_timesteps=2", "noise=int8", "algorithm.population_size=8")
LARGE = (*LARGE, "evaluation.every=0", "timesteps=null", "generations=null", "time_limit=86400", "snapshot.every=0")
UNDISTURBED = 5  # generations before a node joins a run of a large policy, and after that


def member(theta: np.ndarray) -> float:
    """Sleep, and return a number of theta."""
    time.sleep(float(os.environ.get("CHURN_SECONDS", "0")))
    return -float(theta @ theta)


class Node:
    """A worker of its own session, from its first sign of work to its end."""

    def __init__(self, address: str, stack: ExitStack) -> None:
        command = ["worker", address, "--workers", "1", "--allow", "*"]
        self.process = start(*command, stderr=subprocess.PIPE)
        stack.callback(self.end, signal.SIGKILL)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if "at work" in line:
                break
        self.begun, self.seconds = time.monotonic(), 0.0

    def end(self, number: int) -> float:
        """Signal it; return the seconds until it has ended."""
        if self.process.poll() is not None:
            return 0.0
        asked = time.monotonic()
        self.process.send_signal(number)
        self.process.wait()
        self.seconds = asked - self.begun
        assert self.process.stderr is not None
        self.process.stderr.close()
        return time.monotonic() - asked


def start(*arguments: str, **options: Any) -> "subprocess.Popen[str]":
    """Start pyes with members that sleep."""
    folder = str(Path(__file__).parent)
    environment = {**os.environ, "CHURN_SECONDS": str(SECONDS), "PYTHONPATH": folder}
    return subprocess.Popen([sys.executable, "-m", "pyes", *arguments], env=environment, text=True, **options)


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    joins = sys.argv[1:2] == ["join"]
    if joins:
        parser.add_argument("join", choices=["join"])
        parser.add_argument("millions", nargs="*", type=positive_float, default=[50.0], metavar="MILLIONS")
    else:
        parser.add_argument("minutes", nargs="?", type=positive_float, default=10.0, metavar="MINUTES")
    options = parser.parse_args()
    if not joins:
        disturb(options.minutes)
    else:
        for millions in options.millions:
            join(millions)


def disturb(minutes: float) -> None:
    """Print the figures of nodes that leave and are killed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address, run = free_address(), folder / "run"
        cluster = ("cluster=socket", "cluster.workers=0", f"cluster.listen={address}", "generations=null")
        head = start("train", *SETTINGS, *cluster, "time_limit=86400", f"run_dir={run}", stderr=subprocess.DEVNULL)
        stack.callback(head.kill)
        nodes = [Node(address, stack) for _ in range(NODES)]
        time.sleep(3.0 * SECONDS)
        leave(nodes, address, stack)
        churn(nodes, address, minutes, stack)
        head.send_signal(signal.SIGTERM)
        head.wait()
        print(f"journal: {'equal' if journal(run) == alone(run, folder / 'alone') else 'DIFFERENT'}")


def leave(nodes: list[Node], address: str, stack: ExitStack) -> None:
    """Let some nodes leave, one after the other."""
    before, waited = lost(address), []
    for _ in range(LEAVING):
        waited.append(nodes.pop(0).end(signal.SIGTERM))
        nodes.append(Node(address, stack))
        time.sleep(0.3 * SECONDS)
    times = ", ".join(f"{each:.2f}" for each in sorted(waited))
    print(f"leaving: {times} s, members lost: {lost(address) - before}", flush=True)


def churn(nodes: list[Node], address: str, minutes: float, stack: ExitStack) -> None:
    """Kill and replace a node every minute."""
    begun, before, left, gone = time.monotonic(), report(address), lost(address), 0.0
    for node in nodes:
        node.begun = begun
    for minute in range(int(minutes)):
        time.sleep(max(0.0, begun + 60.0 * (minute + 0.5) - time.monotonic()))
        nodes[0].end(signal.SIGKILL)
        gone += nodes.pop(0).seconds
        nodes.append(Node(address, stack))
    time.sleep(max(0.0, begun + 60.0 * minutes - time.monotonic()))
    now, done = time.monotonic(), report(address) - before
    there = gone + sum(now - node.begun for node in nodes)
    took = now - begun
    figures = f"{done:,} members in {took:,.0f} s of {there / took:.2f} nodes: {done * SECONDS / there:.3f}"
    print(f"churn: {figures}, members lost: {lost(address) - left}", flush=True)


def join(millions: float) -> None:
    """Print the figures of a node that joins a run of a large policy."""
    with ExitStack() as stack:
        run, address = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "run", free_address()
        side = round((1e6 * millions) ** 0.5)
        where = (f"network.hidden=[{side},{side}]", f"cluster.listen={address}", f"run_dir={run}")
        quiet = {"stderr": subprocess.DEVNULL}
        head = start("train", *LARGE, "cluster=socket", "cluster.workers=0", *where, **quiet)
        stack.callback(head.kill)
        worker = ("worker", address, "--workers", "1", "--allow", "*")
        stack.callback(start(*worker, **quiet).terminate)
        until(run, lambda rows: len(rows) > UNDISTURBED)
        answers = [answer(address) for _ in range(50)]
        peak = peak_of(head.pid)
        begun = float(rows_of(run)[-1]["seconds"])
        started = time.monotonic()
        stack.callback(start(*worker, **quiet).terminate)
        during = [answer(address)]
        while sum(bool(members) for _, members in during[-1][1]) < 2:
            during.append(answer(address))
        first = time.monotonic() - started
        joined = float(rows_of(run)[-1]["seconds"]) + 1.0
        until(run, lambda rows: sum(float(row["seconds"]) > joined for row in rows) > UNDISTURBED)
        rows = [float(row["seconds"]) for row in rows_of(run)]
        took = [(at, at - before) for before, at in pairwise(rows)][2:]
        before = statistics.median(seconds for at, seconds in took if at <= begun)
        longest = max(seconds for at, seconds in took if begun < at <= joined)
        after = statistics.median(seconds for at, seconds in took if at > joined)
        silent = [max(seconds for seconds, _ in each) for each in (answers, during)]
        print(f"{millions:g} million parameters")
        print(f"  generation: {before:.2f} s before, {longest:.2f} s during, {after:.2f} s after")
        print(f"  answer:     {silent[0]:.2f} s before, {silent[1]:.2f} s during")
        print(f"  first:      {first:.1f} s")
        print(f"  peak:       {peak:.2f} GB before, {peak_of(head.pid):.2f} GB after", flush=True)


def answer(address: str) -> tuple[float, list[tuple[str, int]]]:
    """Ask a head for its report; return the seconds that it took, and each node with the members it has returned."""
    time.sleep(0.05)
    begun = time.monotonic()
    while True:
        with suppress(ClusterError):  # no answer within 10 seconds
            said = status.ask(addresses.parse(address), None)
            return time.monotonic() - begun, [(node["node"], node["members"]) for node in said["nodes"]]


def peak_of(pid: int) -> float:
    """Return the most memory that a process has had, in GB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1e9


def until(run: Path, enough: Callable[[list[dict[str, str]]], bool]) -> None:
    """Wait for the rows of a run."""
    while not enough(rows_of(run)):
        time.sleep(0.1)


def report(address: str) -> int:
    """Return the members that have been returned in all generations, the present one included."""
    said = status.ask(addresses.parse(address), None)
    return int(said["generation"]) * MEMBERS + int(said["members"]) - int(said["members_left"])


def lost(address: str) -> int:
    """Return the members lost with nodes, as far as batches have ended."""
    return int(status.ask(addresses.parse(address), None)["lost"])


def alone(run: Path, other: Path) -> bytes:
    """Return the journal of the same generations in one process."""
    command = ["train", *SETTINGS, "cluster=inline", f"generations={len(rows_of(run))}", f"run_dir={other}"]
    environment = {**os.environ, "CHURN_SECONDS": "0", "PYTHONPATH": str(Path(__file__).parent)}
    subprocess.run([sys.executable, "-m", "pyes", *command], env=environment, check=True, capture_output=True)
    return journal(other)


def journal(run: Path) -> bytes:
    """Return the bytes of a journal."""
    return (run / "journal.bin").read_bytes()


if __name__ == "__main__":
    main()
