"""Trackers of a user: one that writes down what it is told, and some that fail in all ways there are."""

import json
import os
import time
from pathlib import Path


class Notes:
    """Appends what it is told to notes.jsonl in the run directory."""

    fault = ""

    def __init__(self, run):
        self._path, self.id = run.path / "notes.jsonl", f"{run.id}+"
        self._note("begin", run.id, run.name, run.project, run.config["seed"])
        if self.fault == "start":
            raise RuntimeError("no room for another run")

    def _note(self, *what):
        with open(self._path, "a") as file:
            file.write(json.dumps(what) + "\n")

    def log(self, timesteps, values):
        self._note("log", timesteps, values["generation"], values["return_mean"])
        if self.fault == "raise" and values["generation"] == 1:
            raise ConnectionError("the server is gone")
        if self.fault == "exit" and values["generation"] == 1:
            os._exit(7)
        if self.fault == "hang" and values["generation"] == 1:
            time.sleep(1000)

    def finish(self, policy):
        self._note("finish", policy is not None and sorted(path.name for path in Path(policy).glob("policy.*")))


class Full(Notes):
    fault = "start"


class Gone(Notes):
    fault = "raise"


class Killed(Notes):
    fault = "exit"


class Stuck(Notes):
    fault = "hang"
