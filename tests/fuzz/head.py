"""Send fuzzed frames to a head during its run, and compare the run with an undisturbed one.

    python tests/fuzz/head.py [--frames 100000] [--seed 0]

Frames are those of protocol.py, half of them from somebody who has not been let in, half from a node that has.
Each connection lasts until the head shuts it. The head must not end, its journal must equal that of a run in one
process, and its memory after the first tenth is printed beside that at the end.
"""

import argparse
import contextlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from protocol import VALID, mutated, random_bytes, structured

from pyes.node import selftest
from pyes.remote import wire
from pyes.system.lookup import version

RUN = [
    *("task=cart_pole", "algorithm.population_size=8", "noise.entries=100000", "evaluation.every=0"),
    *("snapshot.every=0", "task.max_timesteps=50"),
]
SENDERS = [random_bytes, mutated, structured]


def start(run: Path, port: int) -> subprocess.Popen[bytes]:
    cluster = ["cluster=socket", f"cluster.listen=tcp://127.0.0.1:{port}", "cluster.workers=1", "generations=1000000"]
    command = [sys.executable, "-m", "pyes", "train", *RUN, *cluster, f"run_dir={run}"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def generations(run: Path) -> int:
    path = run / "metrics.csv"
    return max(0, path.read_bytes().count(b"\n") - 1) if path.exists() else 0


def memory(pid: int) -> int:
    """Return the resident KiB of a process."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) if found else 0


def hello() -> bytes:
    said = wire.Hello(wire.PROTOCOL, version("pyes-rl"), "fuzz", 1, 1, 2**30, selftest.digest(), False)
    return wire.encode(said)


def attack(port: int, draw: random.Random, let_in: bool) -> int:
    """Send frames until the head shuts the connection; return how many."""
    sent = 0
    with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), 60.0) as connection:
        if let_in:
            connection.sendall(hello())
            connection.recv(2**16)
        connection.settimeout(0.002)
        while sent < 1000:
            frame = draw.choice(VALID) if draw.random() < 0.1 else draw.choice(SENDERS)(draw)
            connection.sendall(frame)
            sent += 1
            with contextlib.suppress(TimeoutError):
                if not connection.recv(2**16):
                    break
    return sent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw, sent, connections, early = random.Random(options.seed), 0, 0, 0
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        run, reference = Path(folder, "run"), Path(folder, "reference")
        head = start(run, port)
        try:
            while not generations(run):
                time.sleep(0.1)
            begun, first = time.perf_counter(), generations(run)
            with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C: enough
                while sent < options.frames:
                    sent += attack(port, draw, bool(connections % 2))
                    connections += 1
                    if head.poll() is not None:
                        sys.exit(f"the head ended with {head.returncode} after {sent} frames (seed {options.seed})")
                    early = early or (memory(head.pid) if sent > options.frames / 10 else 0)
            seconds, late = time.perf_counter() - begun, memory(head.pid)
            rows = generations(run) - first
            head.send_signal(signal.SIGTERM)
            head.wait()
        finally:
            head.kill()
            head.wait()
        done = generations(run)
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pyes",
                "train",
                *RUN,
                "cluster=inline",
                f"generations={done}",
                f"run_dir={reference}",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        equal = (run / "journal.bin").read_bytes() == (reference / "journal.bin").read_bytes()
        log = (run / "train.log").read_text()
    print(f"{sent:,} frames over {connections:,} connections in {seconds:.0f} s; {rows:,} generations meanwhile")
    print(f"refusals logged: {log.count('refused ')}; tracebacks: {log.count('Traceback')}")
    print(f"memory of the head: {early / 1024:.0f} MiB after a tenth, {late / 1024:.0f} MiB at the end")
    print(f"journal: {'equal' if equal else 'DIFFERENT'}")
    sys.exit(not equal)


if __name__ == "__main__":
    main()
