"""Nodes that leave and join while a run goes on, and what that costs.

    python benchmarks/churn.py [MINUTES]        default: 10

Real: a head, ten nodes of one worker each, their processes and connections, and the signals. Members sleep for a second
instead of running an episode, so that two cores are enough. Five nodes get SIGTERM, one after the other, and are
replaced; then every minute one node in ten is killed with SIGKILL, and replaced at once.

leaving       seconds from SIGTERM to the end of the node, members lost; a member that runs takes up to a second more
churn         members returned in the seconds that nodes were there, as a share of what these nodes can return
journal       whether it is that of a run in one process that nobody disturbs
"""

import csv
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from pyes.reports import status
from pyes.system import addresses

NODES, MEMBERS, SECONDS = 10, 100, 1.0
LEAVING = 5
SETTINGS = ("task=function", "task.factory=churn:member", "task.dim=8", f"algorithm.population_size={MEMBERS}")
SETTINGS = (*SETTINGS, "noise.entries=100000", "evaluation.every=0", "timesteps=null")


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


def main(minutes: float) -> None:
    """Print the figures."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        run = folder / "run"
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


def report(address: str) -> int:
    """Return the members that have been returned in all generations, the present one included."""
    said = status.ask(addresses.parse(address), None)
    return int(said["generation"]) * MEMBERS + int(said["members"]) - int(said["members_left"])


def lost(address: str) -> int:
    """Return the members lost with nodes, as far as batches have ended."""
    return int(status.ask(addresses.parse(address), None)["lost"])


def alone(run: Path, other: Path) -> bytes:
    """Return the journal of the same generations in one process."""
    with open(run / "metrics.csv", newline="", encoding="utf-8") as file:
        generations = sum(1 for _ in csv.DictReader(file))
    command = ["train", *SETTINGS, "cluster=inline", f"generations={generations}", f"run_dir={other}"]
    environment = {**os.environ, "CHURN_SECONDS": "0", "PYTHONPATH": str(Path(__file__).parent)}
    subprocess.run([sys.executable, "-m", "pyes", *command], env=environment, check=True, capture_output=True)
    return journal(other)


def journal(run: Path) -> bytes:
    """Return the bytes of a journal."""
    return (run / "journal.bin").read_bytes()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0)
