"""The notice of a spot machine, from a metadata server as EC2's: a token first, and no page before the notice."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from commands import running
from heads import until
from hosts import Host, Trainer, new_address, start_server

from pyes.reports import status
from pyes.system import addresses

NOTICE = Path(__file__).parents[2] / "examples/ec2_spot/notice.sh"
PAGE = "/latest/meta-data/spot/instance-action"


class Metadata(ThreadingHTTPServer):
    """A metadata server; ``asked`` counts questions for the notice, which is there when ``given`` is set."""

    asked = 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.given = threading.Event()


class _Answers(BaseHTTPRequestHandler):
    server: Metadata

    def do_PUT(self) -> None:
        valid = self.path == "/latest/api/token" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        self._answer(200 if valid else 400, b"secret")

    def do_GET(self) -> None:
        if self.headers["X-aws-ec2-metadata-token"] != "secret":
            self._answer(401, b"")
        elif self.path == PAGE and self.server.given.is_set():
            self._answer(200, b'{"action": "terminate", "time": "2030-01-01T00:02:00Z"}')
        else:
            self.server.asked += self.path == PAGE
            self._answer(404, b"")

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_the_key_of_a_list_is_in_the_folder_that_it_is_called_in(tmp_path: Path) -> None:
    for name, does in (("aws", ""), ("pyes", 'echo "$@"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    settings = dict.fromkeys(("PYES_IMAGE", "PYES_SUBNETS", "PYES_SECURITY", "PYES_PROFILE"), "-")
    settings |= {"PYES_HEAD": "tcp://10.0.0.1:5555", "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    for given, expected in (({}, "cluster.key.node"), ({"PYES_KEY": "keys/own"}, "keys/own")):
        (tmp_path / "keys").mkdir(exist_ok=True)
        command = ["bash", str(NOTICE.with_name("list.sh"))]
        done = subprocess.run(
            command, cwd=tmp_path, env={**settings, **given}, capture_output=True, text=True, check=True
        )
        assert done.stdout == f"status tcp://10.0.0.1:5555 --key {tmp_path / expected}\n"


@contextmanager
def metadata() -> Iterator[Metadata]:
    """Lend a server, and end it."""
    with Metadata() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module", autouse=True)
def server():
    start_server()


@pytest.mark.slow
def test_a_spot_machine_with_a_notice_hands_its_members_back(tmp_path):
    run, address = tmp_path / "run", new_address()
    settings = {
        "task": {"env_id": "faulty:Faulty-v0"},
        "algorithm": {"population_size": 8},
        "generations": 10**6,
        "noise": {"entries": 100_000},
        "run_dir": str(run),
        "cluster": {"name": "socket", "listen": address, "workers": 0},
    }
    slow = {"FAULTY": '{"sleep": 0.02}'}
    with metadata() as cloud, Trainer(settings, environment=slow), Host(address, environment=slow):
        with Host(address, 2, environment=slow) as host:
            host.hear("at work")
            where = {"EC2_METADATA": f"http://127.0.0.1:{cloud.server_port}", "EC2_INTERVAL": "0.1"}
            command = ["bash", str(NOTICE), "kill", "-TERM", str(host.pid)]
            with running(command, env=os.environ | where, stdout=subprocess.PIPE) as watch:
                until(lambda: cloud.asked > 2, "questions for the notice")
                assert host.running
                cloud.given.set()
                assert host.wait() == 130
                said, _ = watch.communicate()
        report = status.ask(addresses.parse(address), None)
    assert "terminate" in said
    assert watch.returncode == 0
    assert (report["left"], report["lost"], report["workers"]) == (1, 0, 1)
