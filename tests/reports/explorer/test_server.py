"""The explorer's server, as its own process: what it answers, whom it refuses, and that it leaves runs as they are."""

import asyncio
import contextlib
import hashlib
import io
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from explorers import SETTINGS, Explorer, two_runs
from heads import until

import pyes
from pyes.reports import replay
from pyes.reports.explorer import player, server, views

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ends processes by /proc")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return two_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def explorer(runs):
    """Lend an explorer of both runs, which must still answer at the end and have changed no file."""
    before = _digests(runs)
    with Explorer(runs) as explorer:
        yield explorer
        assert [each["name"] for each in explorer.json("api/runs")] == ["seed-1", "seed-2"]
    assert _digests(runs) == before


def _digests(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# --- what it says


def test_the_page_and_its_files_are_there_and_name_no_other_host(explorer):
    status, headers, page = explorer.get("")
    assert status == 200
    assert headers["Content-Security-Policy"].startswith("default-src 'self';")
    names = {part.split('"')[0] for part in page.decode().split('"static/')[1:]}
    assert len(names) == 4
    for name in [*names, "map.js", "charts.js"]:
        status, _, body = explorer.get(f"static/{name}", token="none")
        assert status == 200
        assert b"http://" not in body
        assert b"import(" not in body


def test_states_curves_and_details_are_those_of_the_runs(explorer, runs):
    first, second = explorer.json("api/runs")
    assert (first["generations"], first["running"], first["error"]) == (6, False, None)
    assert second["path"] == str(runs / "seed-2")
    (group,) = explorer.json("api/curves", x="generation")["groups"]
    assert [each["x"] for each in group["runs"]] == [[0, 3, 6]] * 2
    assert group["band"]["x"] == [0, 3, 6]
    low, line, high = (group["band"][name] for name in ("low", "line", "high"))
    assert all(least <= mean <= most for least, mean, most in zip(low, line, high, strict=True))
    details = explorer.json("api/runs/0")
    assert details["metrics"]["generation"] == list(range(6))
    assert details["differences"] == ["seed"]
    assert details["settings"]["task.env_id"] == "CartPole-v1"
    assert details["log"] == (runs / "seed-1" / "train.log").read_text()
    assert details["nodes"] == []


def test_points_are_all_individuals_and_later_ones_alone_when_asked(explorer, runs):
    said, columns = explorer.points()
    with replay.open(runs / "seed-1") as individuals:
        returns = np.concatenate([individuals.returns(g) for g in range(6)])
    assert columns["return"].tolist() == returns.tolist()
    assert columns["generation"].tolist() == np.repeat(np.arange(6.0), 8).tolist()
    assert (len(columns["x"]), len(columns["path_x"])) == (48, 7)
    later, rest = explorer.points(first=4, fit=said["fit"])
    assert later["first"] == 4
    assert all(rest[name].tolist() == columns[name][-len(rest[name]) :].tolist() for name in rest)
    assert (len(rest["x"]), len(rest["path_x"])) == (16, 3)
    again, _ = explorer.points(first=4, fit=said["fit"] - 1)  # what the page has is of another plane
    assert again["first"] == 0


def test_another_run_is_placed_in_the_same_plane(explorer):
    _, own = explorer.points(1)
    _, same = explorer.points(1, of=0)
    assert own["return"].tolist() == same["return"].tolist()
    assert own["x"].tolist() != same["x"].tolist()


@pytest.mark.slow
def test_a_run_with_other_parameters_has_a_plane_of_its_own(runs, tmp_path):
    run = tmp_path / "mlp"
    network = {"name": "mlp", "hidden": [4]}
    pyes.train({**SETTINGS, "generations": 2, "network": network, "run_dir": str(run)}, display=False)
    with Explorer(runs / "seed-1", run) as explorer:
        _, own = explorer.points(1)
        _, same = explorer.points(1, of=0)
    assert own["x"].tolist() == same["x"].tolist()


def test_an_individual_is_played_again_with_the_return_of_the_run(explorer, runs):
    said = explorer.json("api/runs/0/5/3")
    with replay.open(runs / "seed-1") as individuals:
        assert said["return"] == said["recorded_return"] == individuals.returns(5)[3]
        theta = individuals.member(5, 3)
    assert said["exact"]
    assert said["command"] == f"pyes replay {runs / 'seed-1'} --generation 5 --member 3"
    status, headers, body = explorer.get("api/runs/0/5/3/video")
    assert (status, headers["Content-Type"], body[4:8]) == (200, "video/mp4", b"ftyp")
    status, _, body = explorer.get("api/runs/0/5/3/policy")
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        archive.extractall(folder := runs.parent / "policy")
        name = next(each for each in archive.namelist() if each.endswith(".safetensors"))
    assert pyes.load(folder / name).theta.tolist() == theta.tolist()
    shutil.rmtree(folder)


@pytest.mark.slow
def test_a_run_in_progress_grows_on_the_page(runs, tmp_path):
    run = tmp_path / "run"
    pyes.train({**SETTINGS, "generations": 2, "run_dir": str(run)}, display=False)
    with Explorer(run) as explorer:
        begun = explorer.points()[0]
        assert begun["generations"] == 2
        pyes.train({"resume": str(run), "generations": 3}, display=False)
        said, columns = explorer.points(first=2, fit=begun["fit"])
        assert (said["first"], said["generations"], said["fit"], len(columns["x"])) == (2, 3, begun["fit"], 8)
        pyes.train({"resume": str(run), "generations": 4}, display=False)
        again, _ = explorer.points(first=3, fit=begun["fit"])
        assert again["first"] == 0  # twice as many as the plane is of: it is found anew
        assert explorer.json("api/runs")[0]["generations"] == 4


@pytest.mark.slow
def test_runs_that_begin_in_a_folder_appear_on_the_page(tmp_path):
    """The first one has no generation yet, as in a sweep that has just begun."""
    jobs = tmp_path / "jobs"
    pyes.train({**SETTINGS, "time_limit": 1e-9, "run_dir": str(jobs / "1")}, display=False)
    with Explorer(jobs) as explorer:
        assert [(each["name"], each["generations"]) for each in explorer.json("api/runs")] == [("1", 0)]
        pyes.train({**SETTINGS, "generations": 1, "run_dir": str(jobs / "0")}, display=False)
        assert [(each["name"], each["generations"]) for each in explorer.json("api/runs")] == [("1", 0), ("0", 1)]


def test_two_pages_that_see_a_new_run_at_once_add_it_once(runs, tmp_path, monkeypatch):
    explorer = server.Explorer([runs], "token", tmp_path)
    both = threading.Barrier(2)

    def found(paths):
        yield tmp_path / "new"
        both.wait(30)

    async def ask():
        return await asyncio.gather(explorer._states(None), explorer._states(None))

    monkeypatch.setattr(views, "found", found)
    asyncio.run(ask())
    answer, _ = asyncio.run(ask())
    assert [each["name"] for each in json.loads(answer.body)] == ["seed-1", "seed-2", "new"]


def _table(path, lines):
    path.write_text("generation,timesteps,episodes,seconds,return_mean,eval_return_mean\n" + "".join(lines))


def test_the_state_of_a_long_run_is_read_from_the_end_of_its_table(tmp_path):
    lines = [f"{row},{8 * row},{row},{row},1,\n" for row in range(10_000)]
    _table(tmp_path / "metrics.csv", ["\0" * 100_000 + "\n", *lines])
    state = views.state(0, tmp_path, "run")
    assert (state["generations"], state["last"]["timesteps"], state["error"]) == (10_000, 79_992, None)


@pytest.mark.parametrize("every", [1, 50])
def test_curves_of_a_long_run_have_about_2000_points(tmp_path, every):
    evaluated = list(range(0, 10_000, every))
    rows = (f"{row},{8 * row},{row},{row},1,{row if row % every == 0 else ''}\n" for row in range(10_000))
    _table(tmp_path / "metrics.csv", rows)
    (group,) = views.curves([tmp_path], "generation")["groups"]
    expected = [*evaluated[:-1:5], evaluated[-1]] if every == 1 else evaluated
    assert group["runs"][0]["x"] == [row + 1 for row in expected]
    metrics = views.details(tmp_path, [])["metrics"]
    assert {0, 5, 9_995, 9_999} <= set(metrics["generation"])
    assert len(metrics["generation"]) < 2_300
    assert [value for value in metrics["eval_return_mean"] if value is not None][-1] == evaluated[-1]


@pytest.mark.slow
def test_a_poll_between_two_generations_has_the_columns_of_the_behaviours(tmp_path):
    run = tmp_path / "run"
    task = SETTINGS["task"] | {"behaviour": "final_observation"}
    pyes.train({**SETTINGS, "task": task, "run_dir": str(run)}, display=False)
    with Explorer(run) as explorer:
        said, whole = explorer.points()
        _, nothing = explorer.points(first=6, fit=said["fit"])
    assert len(whole["behaviour 0"]) == len(whole["x"]) == 48
    assert nothing.keys() == whole.keys()
    assert len(nothing["behaviour 0"]) == 0


def test_only_the_runs_that_were_looked_at_last_are_open(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(player, "_runs", {})
    monkeypatch.setattr(player, "_MOST_OPEN", 2)
    copies = [shutil.copytree(runs / "seed-1", tmp_path / str(number)) for number in range(3)]
    first, second = player._opened(copies[0]), player._opened(copies[1])
    assert player._opened(copies[0]) is first
    third = player._opened(copies[2])
    assert list(player._runs.values()) == [first, third]
    assert player.points(copies[1], copies[1], 0, 0)[0]["generations"] == 6  # opened again
    second.individuals.close()  # once more does no harm
    for each in player._runs.values():
        each.individuals.close()


@pytest.mark.slow
def test_a_run_that_was_begun_anew_in_its_folder_is_looked_at_anew(runs, tmp_path):
    """Its journal may be as long as the other one was."""
    folder = tmp_path / "run"
    shutil.copytree(runs / "seed-1", folder)
    with Explorer(folder) as explorer:
        before = explorer.json("api/runs/0/5/3")
        plane = explorer.points(0)[0]["fit"]
        shutil.rmtree(folder)
        shutil.copytree(runs / "seed-2", folder)
        assert (folder / "journal.bin").stat().st_size == (runs / "seed-1" / "journal.bin").stat().st_size
        after = explorer.json("api/runs/0/5/3")
        assert after["exact"]
        with replay.open(runs / "seed-2") as individuals:
            assert after["return"] == individuals.returns(5)[3]
        assert (after["return"], after["seed"]) != (before["return"], before["seed"])
        again, columns = explorer.points(0, first=6, fit=plane)  # what the page has is of the other run
        assert (again["generations"], again["first"], len(columns["x"])) == (6, 0, 48)


def test_a_return_that_is_not_a_number_is_null(monkeypatch, tmp_path):
    played = replay.Playback(math.nan, 3, (1,), math.nan, 3)
    individuals = SimpleNamespace(check_member=lambda generation, member: None)
    monkeypatch.setattr(player, "_opened", lambda run: SimpleNamespace(individuals=individuals))
    monkeypatch.setattr(player.video, "record_opened", lambda *_, **__: played)
    said = player.film(tmp_path, 0, 0, tmp_path / "film.mp4")
    assert said["return"] is said["recorded_return"] is None
    assert json.dumps(said, allow_nan=False)


# --- odd runs


@pytest.fixture
def odd(runs, tmp_path):
    """Lend a folder of a sound run, of one whose name is not UTF-8, and of two whose files cannot be used."""
    for name in (b"sound", b"b\xff", b"list", b"infinite"):
        shutil.copytree(runs / "seed-1", tmp_path / os.fsdecode(name))
    (tmp_path / "list" / "config.json").write_text("[]")
    (tmp_path / "infinite" / "config.json").write_text('{"seed": Infinity}')
    (tmp_path / "infinite" / "metrics.csv").unlink()
    (tmp_path / "infinite" / "metrics.csv").mkdir()
    return tmp_path


@pytest.mark.slow
def test_odd_runs_cost_the_others_nothing(odd):
    with Explorer(odd) as explorer:
        states = explorer.json("api/runs")
        numbers = {Path(each["path"]).name: each["number"] for each in states}
        assert len(numbers) == 4
        groups = explorer.json("api/curves", x="generation")["groups"]
        assert sum(len(group["runs"]) for group in groups) == 3
        assert explorer.json(f"api/runs/{numbers['sound']}")["metrics"]["generation"] == list(range(6))
        assert explorer.json(f"api/runs/{numbers['list']}")["settings"] == {}
        status, said = explorer.refusal(f"api/runs/{numbers['infinite']}")
        assert (status, "it is a directory" in said) == (404, True)
        assert explorer.json(f"api/runs/{numbers[os.fsdecode(b'b' + bytes([255]))]}/5/3")["exact"]


def test_runs_of_one_name_are_told_apart(tmp_path):
    paths = [tmp_path / "a" / "0", tmp_path / "a" / "1", tmp_path / "b" / "0"]
    assert views.names(paths) == ["a/0", "a/1", "b/0"]
    assert views.names(paths[:2]) == ["0", "1"]
    assert views.names(paths[:1]) == ["0"]


def test_what_has_not_changed_is_not_read_again(runs, tmp_path, monkeypatch):
    run = Path(shutil.copytree(runs / "seed-1", tmp_path / "run"))
    before = views.curves([run], "generation")
    with monkeypatch.context() as patch:
        patch.setattr(views.runs, "read", lambda path: pytest.fail("it is read again"))
        assert views.curves([run], "generation") == before
    rows = (run / "metrics.csv").read_text().splitlines(keepends=True)
    (run / "metrics.csv").write_text("".join(rows[:-1]))
    assert views.curves([run], "generation") != before


# --- bad input


def test_other_protocols_than_http_have_no_answer():
    app = server._Guarded(lambda *_: pytest.fail("it has passed"), "token")
    asyncio.run(app({"type": "websocket", "path": "/static/", "query_string": b"", "headers": []}, None, None))


@pytest.mark.parametrize("path", ["", "api/runs", "api/runs/0/5/3", "nothing"])
@pytest.mark.parametrize("token", ["wrong", "%00", "é".encode().hex()])
def test_nothing_is_told_without_the_token(explorer, path, token):
    status, _, body = explorer.get(path, token=token)
    assert (status, body.count(b"\n")) == (403, 1)
    assert b"token" in body


@pytest.mark.parametrize(("path", "host"), [("/api/runs", "x/static/?"), ("/st\tatic/", "x")])
def test_the_guard_goes_by_the_path_that_routes_see(path, host):
    """A URL made of the Host header and the path, and parsed again, may begin with /static/ where the path does not."""
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": path, "query_string": b"", "headers": [(b"host", host.encode())]}
    asyncio.run(server._Guarded(lambda *_: pytest.fail("it has passed"), "token")(scope, None, send))
    assert sent[0]["status"] == 403


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("api/runs/2", "run: got 2, expected 0 to 1"),
        ("api/runs/0/6/0", "generation: got 6, expected 0 to 5"),
        ("api/runs/0/5/8", "member: got 8, expected 0 to 7 in generation 5"),
        ("api/runs/0/99999999/0", "generation: got 99999999, expected 0 to 5"),
        ("api/runs/0/99999999999/0", "generation: got '99999999999', expected a whole number"),
        (f"api/runs/{'9' * 5000}", f"run: got '{'9' * 40}', expected a whole number"),
        ("api/runs/0/5/7/video", "this individual has not been filmed yet"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(explorer, path, line):
    assert explorer.refusal(path) == (404, line)


def test_wrong_words_are_named(explorer):
    assert explorer.refusal("api/curves", x="moon")[1].startswith("x: got 'moon', expected one of")
    assert explorer.refusal("api/runs/0/points", first="-1") == (404, "first: got '-1', expected a whole number")


@pytest.mark.parametrize(
    "path", ["static/../server.py", "static/%2e%2e/server.py", "../../etc/passwd", "api/runs/../.."]
)
def test_no_path_leads_out(explorer, path):
    with socket.create_connection(("127.0.0.1", explorer.port)) as connection:
        connection.sendall(f"GET /{path}?token={explorer.token} HTTP/1.0\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(2**16), b""))
    assert b" 404 " in answer.splitlines()[0]


@pytest.mark.slow
def test_a_browser_that_goes_away_and_a_thousand_requests_do_no_harm(explorer):
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", explorer.port)) as connection:
            connection.sendall(f"GET /api/runs/0/points?token={explorer.token} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    with ThreadPoolExecutor(50) as pool:
        paths = ["api/runs", "api/runs/0", "api/runs/1/5/2"]
        codes = list(pool.map(lambda index: explorer.get(paths[index % 3])[0], range(1000)))
    assert set(codes) <= {200, 503}
    assert codes[0::3].count(200) == len(codes[0::3])


@pytest.mark.slow
def test_a_port_in_use_is_one_line(runs, capfd):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run([sys.executable, "-m", "pyes", "explore", runs, "--port", str(port)], check=False)
    said = capfd.readouterr().err
    assert done.returncode == 2
    assert said == (
        f"pyes: error: cannot listen at 127.0.0.1:{port}: Address already in use; take another one with --port, or "
        "--port 0 for any that is free\n"
    )


@pytest.mark.slow
def test_damaged_and_vanished_runs_are_said_on_the_page(runs, tmp_path):
    for name in ("damaged", "vanished", "torn"):
        shutil.copytree(runs / "seed-1", tmp_path / name)
    with Explorer(tmp_path / "damaged", tmp_path / "torn", tmp_path / "vanished") as explorer:
        journal = bytearray((tmp_path / "damaged/journal.bin").read_bytes())
        journal[len(journal) // 2] ^= 1
        (tmp_path / "damaged/journal.bin").write_bytes(journal)
        (tmp_path / "damaged/metrics.csv").write_bytes(b"\xff\xfe\0broken")
        with open(tmp_path / "torn/journal.bin", "r+b") as file:
            file.truncate(file.seek(0, 2) - 5)
        shutil.rmtree(tmp_path / "vanished")
        damaged, torn, vanished = explorer.json("api/runs")
        assert damaged["error"]
        assert torn["error"] is None
        assert vanished["error"].endswith("is gone")
        status, line = explorer.refusal("api/runs/0/points")
        assert (status, "\n" in line) == (404, False)
        assert explorer.points(1)[0]["generations"] in (5, 6)
        assert explorer.refusal("api/runs/2/points")[0] == 404
        assert len(explorer.json("api/curves")["left_out"]) == 2
        assert explorer.json("api/runs/2")["metrics"] == {}
        status, line = explorer.refusal("api/runs/0")
        assert (status, "metrics.csv: 'utf-8' codec" in line) == (404, True)


@pytest.mark.slow
def test_an_environment_that_crashes_or_hangs_costs_one_answer(tmp_path):
    run = tmp_path / "run"
    task = {"env_id": "faulty:Faulty-v0"}
    pyes.train({**SETTINGS, "generations": 2, "task": task, "run_dir": str(run)}, display=False)
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    crash = json.dumps({"fault": "segfault", "every": 1, "once": str(tmp_path)})
    with Explorer(run, FAULTY=crash, PYTHONPATH=path) as explorer:
        lines = [explorer.refusal("api/runs/0/1/0")[1]]
        with contextlib.suppress(AssertionError):
            until(lambda: explorer.get("api/runs/0/1/0")[0] == 200, "an answer", 30)
        said = explorer.json("api/runs/0/1/0")
    assert lines == ["the process that plays individuals has died; did the environment crash?"]
    assert said["exact"]
    assert not said["video"]
    assert said["why"]


@pytest.mark.slow
def test_ctrl_c_while_an_environment_is_made_says_nothing(tmp_path, capfd):
    run = tmp_path / "run"
    task = {"env_id": "faulty:Faulty-v0"}
    pyes.train({**SETTINGS, "generations": 2, "task": task, "run_dir": str(run)}, display=False)
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    capfd.readouterr()
    with Explorer(run, FAULTY=json.dumps({"fault": "slow_at_start"}), PYTHONPATH=path):
        time.sleep(1)  # a second and a half of which it is being made
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_the_end_leaves_nothing(runs, tmp_path):
    with Explorer(runs, TMPDIR=str(tmp_path)) as explorer:
        assert explorer.get("api/runs/0/0/0")[0] == 200
        assert len(list(tmp_path.iterdir())) == 1
    until(lambda: not list(tmp_path.iterdir()), "an empty folder", 5)


@contextlib.contextmanager
def _inherited(handler):
    """Have children begin with what is done at SIGHUP; the tests themselves may have been started with nohup."""
    before = signal.signal(signal.SIGHUP, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
def test_a_lost_terminal_does_not_end_one_that_was_started_with_nohup(runs):
    with _inherited(signal.SIG_IGN), Explorer(runs) as explorer:
        explorer.send(signal.SIGHUP)
        assert len(explorer.json("api/runs")) == 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_however_it_is_ended_nothing_is_left(runs, number, tmp_path):
    with _inherited(signal.SIG_DFL), Explorer(runs, TMPDIR=str(tmp_path)) as explorer:
        assert list(tmp_path.glob("pyes-explore-*"))
        explorer.end(number)
    assert list(tmp_path.iterdir()) == []
