"""Reports: one file that needs nothing else, says what the runs did, and redoes them."""

import base64
import dataclasses
import html
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from explorers import SETTINGS, two_runs

import pyes
from pyes.errors import ConfigError, RunDirectoryError
from pyes.reports import report
from pyes.reports.runs import read


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return two_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def page(runs) -> str:
    """Return the report of both runs."""
    return report.write([runs], runs.parent / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_settings_that_cannot_be_used_are_a_line_of_it(runs: Path, tmp_path: Path):
    run = shutil.copytree(runs / "seed-1", tmp_path / "run")
    settings = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(settings | {"patience": 3}))
    text = html.unescape(report.write([run], tmp_path / "report.html").read_text(encoding="utf-8"))
    assert re.search(r"No settings: .*config.json cannot be used: .*'patience'.*; correct it<", text)


def _embedded(page: str, kind: str) -> list[bytes]:
    return [base64.b64decode(data) for data in re.findall(rf"data:{kind};base64,([\w+/=]+)", page)]


@pytest.mark.slow
def test_it_loads_nothing(page: str):
    sources = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert sources
    assert all(source.startswith(("data:", "#")) for source in sources)
    assert "<script" not in page
    assert "@import" not in page
    assert len(page) < 5_000_000


def test_it_has_curves_map_videos_seeds_and_settings(page: str, runs: Path):
    assert page.count("<svg") == 1
    (picture,) = _embedded(page, "image/png")
    assert picture.startswith(b"\x89PNG")
    videos = _embedded(page, "video/mp4")
    assert len(videos) in (2, 3)
    assert all(video[4:8] == b"ftyp" for video in videos)
    text = html.unescape(page)
    for seed in (1, 2):
        last = (runs / f"seed-{seed}" / "metrics.csv").read_text().splitlines()[-1]
        (digest,) = set(re.findall(r"\b[0-9a-f]{16}\b", last))
        assert digest in text
    assert "<tr class=marked><td>seed" in page
    assert '<td>task.env_id</td><td>"CartPole-v1"</td>' in text
    assert "mean (95 % interval)" in text


def test_its_settings_train_the_same_run(page: str, tmp_path: Path, runs: Path):
    (settings,) = _embedded(page, "application/json")
    run = tmp_path / "again"
    config = json.loads(settings)
    pyes.train({**config, "run_dir": str(run), "cluster": {"name": "inline"}}, display=False)
    origin = runs / f"seed-{config['seed']}"
    assert (run / "journal.bin").read_bytes() == (origin / "journal.bin").read_bytes()


def test_a_command_is_shown_only_where_it_makes_the_run(tmp_path: Path, runs: Path):
    run = shutil.copytree(runs / "seed-1", tmp_path / "run")
    folder = run / ".hydra"
    folder.mkdir()
    (folder / "overrides.yaml").write_text("[experiment=mine, seed=1, run_dir='run']")
    settings = json.loads((run / "config.json").read_text())
    settings["noise"]["entries"] = "auto"

    def commands() -> str:
        return html.unescape("".join(report._commands(read(run)[0])))

    for provider, seed, shown in (("main", 1, True), ("command-line", 1, False), ("main", 7, False)):
        sources = {"config_sources": [{"path": "cfg", "schema": "file", "provider": provider}]}
        (folder / "config.yaml").write_text(yaml.safe_dump({**settings, "seed": seed}))
        (folder / "hydra.yaml").write_text(json.dumps({"hydra": {"runtime": sources}}))
        assert ("pyes train experiment=mine seed=1" in commands()) == shown
        assert "The same from" in commands()
    (folder / "hydra.yaml").write_text(json.dumps({"hydra": {"runtime": {"config_sources": []}}}))
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    assert "pyes train experiment" in commands()
    pyes.train({"resume": str(run), "force": True, "generations": 9, "algorithm": {"sigma": 0.5}}, display=False)
    assert "pyes train experiment" not in commands()
    assert "The same from" not in commands()
    assert "Settings were changed on the way" in commands()


@pytest.mark.slow
def test_equal_runs_have_equal_reports(page: str, runs: Path, tmp_path: Path):
    assert report.write([runs], tmp_path / "again.html").read_text(encoding="utf-8") == page


@pytest.mark.slow
def test_a_report_without_pictures_or_journal_says_why(runs: Path, tmp_path: Path):
    run = shutil.copytree(runs / "seed-1", tmp_path / "run")
    (run / "journal.bin").unlink()
    text = report.write([run], tmp_path / "report.html").read_text(encoding="utf-8")
    assert re.search(r"No video: no journal at .*; give the run directory", text)
    assert re.search(r"No map: no journal at ", text)
    assert "theta_hash" in text
    (run / "journal.bin").write_bytes(b"of another format")
    assert re.search(r"No map: ", report.write([run], tmp_path / "report.html").read_text(encoding="utf-8"))


def test_a_run_that_only_got_worse_has_no_half_way(runs: Path):
    (run,) = read(runs / "seed-1")
    last = int(run.rows[-1]["generation"]) + 1
    worse = dataclasses.replace(run, initial=1e6)
    assert report._turning_points(worse) == {"the beginning": 0, "the end": last}


@pytest.mark.slow
def test_a_function_has_no_video(tmp_path: Path):
    settings = {**SETTINGS, "task": {"name": "function", "factory": "pyes.tasks.functions:quadratic", "dim": 3}}
    run = pyes.train({**settings, "run_dir": str(tmp_path / "run")}, display=False).run_dir
    text = report.write([run], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "No video: " in text
    assert len(_embedded(text, "image/png")) == 1


@pytest.mark.slow
def test_text_of_settings_is_no_markup(runs: Path, tmp_path: Path):
    run = shutil.copytree(runs / "seed-1", tmp_path / "<b>run & more")
    text = report.write([run], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<b>" not in text


def test_bad_input_writes_nothing(runs: Path, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"suffix '\.pdf', expected \.html"):
        report.write([runs], tmp_path / "report.pdf")
    with pytest.raises(RunDirectoryError):
        report.write([tmp_path / "none"], tmp_path / "report.html")
    with pytest.raises(ConfigError, match="there is no directory"):
        report.write([runs / "seed-1"], tmp_path / "no" / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_what_it_shows_is_of_the_run_with_the_median_last_return(runs: Path, tmp_path: Path):
    found = read([runs])
    third = dataclasses.replace(found[0], path=tmp_path)
    ends = {number: float(each.curve("timesteps")[1][-1]) for number, each in enumerate([*found, third])}
    assert len(set(ends.values())) == 2
    middle = report._middle([*found, third])
    assert float(middle.curve("timesteps")[1][-1]) == sorted(ends.values())[1]
    assert report._middle(found) is min(found, key=lambda run: float(run.curve("timesteps")[1][-1]))
