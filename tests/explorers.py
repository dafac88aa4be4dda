"""A running ``pyes explore``, and short runs to look at."""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import urllib.error
import urllib.request

import numpy as np
from heads import members, until

import pyes

SETTINGS = {
    "task": {"name": "native", "env_id": "CartPole-v1"},
    "algorithm": {"population_size": 8},
    "generations": 6,
    "evaluation": {"every": 3, "episodes": 3},
    "noise": {"entries": 100_000},
    "cluster": {"name": "inline"},
}


def two_runs(folder):
    """Make two runs that differ in the seed."""
    for seed in (1, 2):
        pyes.train({**SETTINGS, "seed": seed, "run_dir": str(folder / f"seed-{seed}")}, display=False)
    return folder


def chromium(playwright):
    """Start Debian's Chromium, which draws by the processor: test machines have no graphics."""
    options = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    return playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)


class Explorer:
    """A running ``pyes explore``; ends with the block, and nothing of it may be left."""

    def __init__(self, *arguments, **environment):
        self._command = [sys.executable, "-m", "pyes", "explore", *map(str, arguments), "--port", "0"]
        self._environment = {**os.environ, **environment}

    def __enter__(self):
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, text=True, env=self._environment, start_new_session=True
        )
        line = self._process.stdout.readline().split()
        assert line, "it has ended"
        self.url, self.token = line[1].split("?token=")
        self.port = int(self.url.rsplit(":", 1)[1].strip("/"))
        return self

    def __exit__(self, *_):
        self.end()
        self._process.stdout.close()
        assert self._process.returncode in (0, 130)

    def send(self, number):
        """Send it a signal."""
        self._process.send_signal(number)

    def end(self, number=signal.SIGINT):
        """End it by Ctrl-C or another signal, and wait for all that it started."""
        self.send(number)
        try:
            until(lambda: self._process.poll() is not None and not members(self._process.pid), "its end")
        finally:
            for pid in members(self._process.pid):
                os.kill(pid, signal.SIGKILL)
            self._process.wait()

    def get(self, path, token=None, **query):
        """Return status, headers and body."""
        query = "&".join(f"{key}={value}" for key, value in {**query, "token": token or self.token}.items())
        try:
            with urllib.request.urlopen(f"{self.url}{path}?{query}", timeout=60) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read()

    def json(self, path, **query):
        status, _, body = self.get(path, **query)
        assert status == 200, body
        return json.loads(body)

    def refusal(self, path, **query):
        """Return the status and the line of a refusal."""
        status, _, body = self.get(path, **query)
        return status, json.loads(body)["error"]

    def points(self, run=0, **query):
        status, _, body = self.get(f"api/runs/{run}/points", **query)
        assert status == 200, body
        (length,) = struct.unpack_from("<I", body)
        said, place, columns = json.loads(body[4 : 4 + length]), 4 + length, {}
        for name, count in said["columns"].items():
            dtype = np.dtype("<f8" if name == "return" else "<f4")
            columns[name] = np.frombuffer(body, dtype, count, place)
            place += dtype.itemsize * count
        assert place == len(body)
        return said, columns
