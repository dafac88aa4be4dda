"""Loggers send what a run writes, each row once; whatever they do, the run is the same and ends in time."""

import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import leftovers
import pytest
from commands import running
from heads import merge, until

import pyes
from pyes.errors import ConfigError, PyesError, RunDirectoryError
from pyes.reports.loggers import companion
from pyes.reports.loggers.memory import Memory
from pyes.run.metrics import read_rows
from pyes.system import locks
from pyes.training import loggers

TINY = {
    "task": {"env_id": "CartPole-v1", "max_timesteps": 30},
    "algorithm": {"population_size": 4},
    "generations": 6,
    "evaluation": {"every": 2, "episodes": 2},
    "noise": {"entries": 100_000},
    "cluster": {"name": "inline"},
}
#: Seconds to wait in vain; the others wait until a new process has begun and done its work.
WAITS = {"Hangs": 4.0, "HangsAtStart": 4.0, "HoldsTheLock": 4.0, "HangsAtTheEnd": 20.0, "ToServer": 4.0}


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have companions find user_loggers, as a user's module in the current folder."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))


def train(path: Path, factory: str = "", **changes: Any) -> Any:
    own = {}
    if factory:
        own = {"logger": {"factory": f"user_loggers:{factory}", "video": False, "wait": WAITS.get(factory, 60.0)}}
    return pyes.train(merge(TINY, {"run_dir": str(path), **merge(own, changes)}), display=False)


def notes(path: Path) -> list[Any]:
    return [json.loads(line) for line in (path / "notebook" / "notes").read_text().splitlines()]


def generations(path: Path) -> list[float]:
    return [value["generation"] for what, value in notes(path) if what == "row"]


def lines(path: Path) -> list[str]:
    """Return what train.log says of loggers, without times."""
    text = (path / "train.log").read_text()
    return [line.partition("loggers: ")[2] for line in text.splitlines() if "pyes.training.loggers" in line]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run without a logger."""
    path = tmp_path_factory.mktemp("plain") / "run"
    train(path)
    return path


def is_same(run: Path, plain: Path) -> bool:
    files = ("journal.bin", "policy.safetensors", "best.safetensors")
    return all((run / name).read_bytes() == (plain / name).read_bytes() for name in files)


def processes() -> list[int]:
    """Return the processes that the present test has started, in whatever group."""
    return leftovers.with_variable(f"PYTEST_CURRENT_TEST={os.environ['PYTEST_CURRENT_TEST']}")


def test_a_run_without_loggers_starts_no_process_and_leaves_no_trace(plain: Path):
    assert not (plain / "loggers").exists()


@pytest.mark.slow
def test_rows_settings_policy_and_end_reach_the_logger(plain: Path, tmp_path: Path):
    train(tmp_path / "run", "Notebook", logger={"kwargs": {"pages": 3}})
    assert is_same(tmp_path / "run", plain)
    (first, pages), *rows, (last, failed) = notes(tmp_path / "run")
    assert (first, pages, last, failed) == ("pages", 3, "failed", False)
    written = read_rows(tmp_path / "run" / "metrics.csv")
    assert [what for what, _ in rows] == ["row"] * len(written)
    for (_, sent), row in zip(rows, written, strict=True):
        assert sent == {key: float(value) for key, value in row.items() if value and key != "theta_hash"}
    folder = tmp_path / "run" / "notebook"
    assert json.loads((folder / "config.json").read_text())["algorithm"]["population_size"] == 4
    assert (folder / "policy.safetensors").read_bytes() == (plain / "policy.safetensors").read_bytes()
    assert not lines(tmp_path / "run")


@pytest.mark.slow
def test_a_resumed_run_goes_on_in_the_same_place_and_sends_no_row_twice(tmp_path: Path):
    for count in (3, 6):
        changes = {"resume": str(tmp_path / "run")} if count == 6 else {}
        train(tmp_path / "run", "Notebook", generations=count, **changes)
    assert generations(tmp_path / "run") == [0, 1, 2, 3, 4, 5]
    assert Memory(tmp_path / "run", "Notebook").own == {"parts": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factory", "said", "at_the_end"),
    [
        ("RaisesAtStart", "ConnectionRefusedError: nobody is at home", "6 of 6 rows were not sent because it failed"),
        ("Raises", "ValueError: not these rows", "6 of 6 rows were not sent because it failed"),
        ("RaisesOnce", "ValueError: not now", ""),
        ("Hangs", "", "6 of 6 rows were not sent in the 4 s (logger.wait) after its end"),
        ("HangsAtStart", "", "6 of 6 rows were not sent in the 4 s (logger.wait) after its end"),
        ("HoldsTheLock", "", "6 of 6 rows were not sent in the 4 s (logger.wait) after its end"),
        ("HangsAtTheEnd", "", "policy and video were not sent in the 20 s (logger.wait) after its end"),
        ("Exits", "", "6 of 6 rows were not sent because it failed"),
        ("ExitsAsIfDone", "", "6 of 6 rows were not sent because it failed"),
        ("Prints", "", ""),
        ("Missing", "is not there: user_loggers has no Missing", "6 of 6 rows were not sent because it failed"),
        ("no_logger", "is not a class that derives from pyes.Logger", "6 of 6 rows were not sent because it failed"),
    ],
)
def test_a_logger_that_misbehaves_costs_a_line_and_the_time_that_it_is_given(
    factory: str, said: str, at_the_end: str, plain: Path, tmp_path: Path
):
    begun = time.monotonic()
    train(tmp_path / "run", factory)
    assert time.monotonic() - begun < WAITS.get(factory, 0.0) + 30
    assert is_same(tmp_path / "run", plain)
    expected = [text for text in (said, at_the_end) if text]
    found = lines(tmp_path / "run")
    assert len(found) == len(expected), found
    for line, text in zip(found, expected, strict=True):
        assert line.startswith(f"logger {factory}: ")
        assert text in line
    assert not processes()


@pytest.mark.slow
def test_what_a_slow_logger_did_not_send_is_sent_by_the_next_part(plain: Path, tmp_path: Path):
    run = tmp_path / "run"
    train(run, "Slow", generations=100, logger={"wait": 1.0})
    (line,) = lines(run)
    tried = Memory(run, "Slow").tried  # the process was killed within a call: of its rows nobody knows
    assert tried < 100
    assert "of 100 rows were not sent in the 1 s (logger.wait)" in line
    assert f"pyes log {run} --to own sends the rest" in line
    train(run, resume=str(run), logger={"wait": 30.0})
    sent = generations(run)
    assert len(sent) == len(set(sent))
    assert set(range(tried, 100)) <= set(sent)
    assert lines(run) == [line]


@pytest.mark.slow
def test_loggers_do_not_wait_for_each_other(plain: Path, tmp_path: Path):
    train(tmp_path / "run", "Hangs", logger={"tensorboard": True, "wait": 15.0})
    assert is_same(tmp_path / "run", plain)
    assert Memory(tmp_path / "run", "tensorboard").sent == 6
    assert len(lines(tmp_path / "run")) == 2  # where the events are, and what was not sent


def test_how_a_run_ended_is_heard_while_another_process_has_the_pipe_open(monkeypatch):
    """A process forked in mid-run, such as the parent of new workers, has inherited the run's end of it."""

    class Heard(Exception):
        pass

    class Listener:
        ending = ""

        def end(self):
            raise Heard

    listener = Listener()
    reader, writer = os.pipe()
    with os.fdopen(reader) as standard_input, os.fdopen(writer, "w") as run:
        monkeypatch.setattr(sys, "stdin", standard_input)
        run.write("finished\n")
        run.flush()
        with pytest.raises(Heard):
            companion._listen(listener, 0.0)
    assert listener.ending == "finished"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="kills as POSIX does")
def test_a_run_that_is_killed_leaves_no_companion_and_goes_on_without_a_row_twice(tmp_path: Path):
    run = tmp_path / "run"
    config = merge(TINY, {"run_dir": str(run), "generations": 100_000, "evaluation": {"every": 0}})
    config = merge(config, {"logger": {"factory": "user_loggers:Notebook", "video": False}})
    program = f"import json, pyes; pyes.train(json.loads({json.dumps(config)!r}), display=False)"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with running([sys.executable, "-c", program], env=environment) as head:
        notebook = run / "notebook" / "notes"
        until(lambda: notebook.exists() and notebook.read_text().count("row") > 3, "four rows")
        head.send_signal(signal.SIGKILL)
        head.wait()
    until(lambda: not processes(), "the end of its processes")
    rows = len(read_rows(run / "metrics.csv"))
    assert generations(run) == list(range(rows))
    train(run, resume=str(run), generations=rows + 5)
    assert generations(run) == list(range(rows + 5))


class Server:
    """Holds generations, and can die or fall silent."""

    def __init__(self, port: int = 0) -> None:
        self.rows: list[float] = []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                server.rows += json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._answer()

            def _answer(self) -> None:
                body = str(len(server.rows)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def die(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.mark.slow
def test_a_server_that_dies_in_mid_run_costs_one_line_and_gets_every_row_once_later(tmp_path: Path):
    run, server = tmp_path / "run", Server()
    logger = {"kwargs": {"address": f"http://127.0.0.1:{server.port}"}}
    stop = threading.Thread(target=lambda: (until(lambda: server.rows, "rows"), server.die()))
    stop.start()
    train(run, "ToServer", generations=None, time_limit=10.0, evaluation={"every": 0}, logger=logger)
    stop.join()
    rows = len(read_rows(run / "metrics.csv"))
    failed, left = lines(run)
    assert failed.endswith("; tried again now and then, the rows are in metrics.csv")
    assert f" of {rows:,} rows were not sent " in left
    assert 0 < len(server.rows) < rows
    again = Server(server.port)
    again.rows = server.rows
    train(run, resume=str(run), generations=rows, time_limit=None, logger={"wait": 30.0})
    again.die()
    assert again.rows == list(range(rows))
    assert len(lines(run)) == 2


@pytest.mark.slow
def test_a_run_that_has_ended_is_sent_later(plain: Path, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(plain, run)
    with pytest.raises(ConfigError, match=r"has no logger\.factory; name one of tensorboard, wandb"):
        loggers.send(run, "own")
    with (
        locks.held(run / "lock", "run_dir"),
        pytest.raises(ConfigError, match="is still training; wait for its end, or resume it with logger=tensorboard"),
    ):
        loggers.send(run, "tensorboard")
    shutil.copy(plain / "lock", run / "lock")
    assert [loggers.send(run, "tensorboard"), loggers.send(run, "tensorboard")] == [6, 0]
    assert list((run / "tensorboard").iterdir())
    assert is_same(run, plain)
    shutil.rmtree(run / "loggers")
    (run / "loggers").touch()
    with pytest.raises(ConfigError, match=r"cannot make .*/loggers \(File exists\), in which loggers keep"):
        loggers.send(run, "tensorboard")
    (run / "metrics.csv").unlink()
    with pytest.raises(RunDirectoryError, match=r"no metrics\.csv in .*run; pyes train resume="):
        loggers.send(run, "tensorboard")


@pytest.mark.slow
@pytest.mark.parametrize("factory", ["RaisesAtStart", "Raises"])
def test_rows_that_a_logger_refused_are_not_taken_as_sent(factory: str, tmp_path: Path):
    run = tmp_path / "run"
    train(run, factory)
    for _ in range(2):
        with pytest.raises(PyesError, match=rf"^logger {factory}: "):
            loggers.send(run, "own")
    assert (Memory(run, factory).sent, Memory(run, factory).tried) == (0, 0)


def test_a_logger_without_its_library_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"logger=wandb needs the package wandb: pip install \"pyes-rl\[wandb\]\""):
        train(tmp_path / "run", logger={"wandb": True})
    with pytest.raises(ConfigError, match=r"logger\.factory=nothing_there:It cannot be imported"):
        train(tmp_path / "run", logger={"factory": "nothing_there:It"})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("logger", "message"),
    [
        ({"factory": "user_loggers"}, r"logger\.factory: got 'user_loggers', expected MODULE:CLASS"),
        (
            {"factory": "__main__:Mine"},
            r"logger\.factory: got __main__:Mine, expected MODULE:CLASS of a file of its own",
        ),
        ({"kwargs": {"pages": 1}}, r"logger\.kwargs: .* expected \{\} without logger\.factory"),
        ({"factory": "a:B", "kwargs": {"pages": {1}}}, r"logger\.kwargs: .*JSON"),
        ({"wandbs": True}, r"unknown key 'logger\.wandbs': did you mean 'logger\.wandb'"),
    ],
)
def test_settings_that_cannot_be_used_are_one_line(logger: dict[str, Any], message: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=message):
        train(tmp_path / "run", logger=logger)


@pytest.mark.slow
def test_no_library_of_a_logger_is_imported_by_a_run(tmp_path: Path):
    config = merge(TINY, {"run_dir": str(tmp_path / "run"), "logger": {"tensorboard": True, "video": False}})
    names = "{'tensorboard', 'wandb', 'mlflow', 'trackio', 'pyes.reports.loggers.base'}"
    program = (
        f"import json, sys, pyes; pyes.train(json.loads({json.dumps(config)!r}), display=False); "
        f"print(sorted({names} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
