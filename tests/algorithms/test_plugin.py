"""An algorithm from outside of pyes: installed under the entry-point group, or named by algorithm.factory."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pyes
import pyes.reports.replay
from pyes import cli
from pyes.config.registry import ALGORITHMS
from pyes.run.journal import read
from pyes.run.metrics import read_rows

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_algorithm.py"
TINY = {
    "task": {"env_id": "CartPole-v1", "max_timesteps": 60},
    "generations": 6,
    "evaluation": {"every": 3, "episodes": 2},
    "snapshot": {"every": 2},
    "noise": {"entries": 10_000},
}
SETTINGS = ["task=cart_pole", "generations=3", "evaluation.every=0", "noise.entries=10000", "cluster=inline"]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Return the settings of the example's algorithm."""
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    return {"factory": "own_algorithm:OnePlusOne", "population_size": 4}


@pytest.mark.slow
def test_the_example_has_a_journal_exact_resume_replay_and_clusters_for_nothing(tmp_path, example):
    runs = {"inline": ({"name": "inline"}, 6), "two": ({"workers": 2}, 6), "parts": ({"workers": 1}, 3)}
    for run, (cluster, generations) in runs.items():
        config = TINY | {"algorithm": example, "run_dir": str(tmp_path / run)}
        pyes.train(config | {"cluster": cluster, "generations": generations}, display=False)
    for snapshot in (tmp_path / "parts" / "snapshots").iterdir():
        snapshot.unlink()  # so the journal alone leads there
    pyes.train({"resume": str(tmp_path / "parts"), "generations": 6}, display=False)
    digests = {read(tmp_path / run / "journal.bin").digest for run in runs}
    assert len(digests) == 1
    sigmas = [row["sigma"] for row in read_rows(tmp_path / "two" / "metrics.csv")]
    assert len(set(sigmas)) > 1
    with pyes.reports.replay.open(tmp_path / "two") as replay:
        assert all(replay.play(5, member).exact for member in range(4))


def test_the_example_learns(example):
    settings = {"generations": 200, "sigma": 0.5, "population_size": 2}
    best = pyes.maximize(lambda x: -float(x @ x), np.ones(5), "own_algorithm:OnePlusOne", **settings)
    assert best.value > -1e-3


@pytest.mark.slow
def test_its_keys_are_set_and_checked_on_the_command_line(tmp_path, example, capfd):
    chosen = f"algorithm.factory={example['factory']}"
    assert cli.main(["train", *SETTINGS, chosen, "algorithm.sigma=0.7", f"run_dir={tmp_path / 'run'}"]) == 0
    assert read_rows(tmp_path / "run" / "metrics.csv")[0]["sigma"] == "0.7"
    for override, said in (
        ("algorithm.sgima=1", "unknown key 'algorithm.sgima': did you mean 'algorithm.sigma'?"),
        ("algorithm.sigma=-1", "algorithm.sigma: got -1, expected a finite number > 0"),
    ):
        assert cli.main(["train", *SETTINGS, chosen, override, f"run_dir={tmp_path / 'other'}"]) == 2
        assert said in capfd.readouterr().err
    go_on = ["train", f"resume={tmp_path / 'run'}", "generations=4"]
    assert cli.main([*go_on, "algorithm.sigma=0.2"]) == 2
    assert "algorithm.sigma (was 0.7, got 0.2)" in capfd.readouterr().err
    assert cli.main([*go_on, "algorithm.sigma=0.2", "force=true"]) == 0
    assert read_rows(tmp_path / "run" / "metrics.csv")[3]["sigma"] == "0.2"
    assert cli.main(["replay", str(tmp_path / "run"), "--generation", "3", "--member", "1", "--json"]) == 0
    assert json.loads(capfd.readouterr().out.splitlines()[-1]).keys() == {"return", "length", "seed"}
    assert cli.main(["video", str(tmp_path / "run"), "-o", str(tmp_path / "run.mp4")]) == 0
    assert (tmp_path / "run.mp4").stat().st_size > 0


#: The two files that bring an algorithm; and what its package's metadata says of them.
ONE_PY = """
from dataclasses import dataclass
import numpy as np
import pyes

@dataclass(frozen=True, kw_only=True)
class WalkConfig(pyes.AlgorithmConfig):
    name: str = "walk"
    step: float = 0.1

class Walk(pyes.Algorithm):
    Config = WalkConfig
    title = "Random walk"

    def _draw(self):
        return self.perturbed(self.config.step)

    def _learn(self, population, returns):
        self.theta[:] = self.member(int(np.nanargmax(returns)))
"""
ONE_YAML = """# A walk to the best member.
name: walk
population_size: 40
step: 0.1
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a package with an algorithm; return the folder of its configuration."""
    site, conf = tmp_path / "site", tmp_path / "conf"
    info = site / "walks-1.0.dist-info"
    info.mkdir(parents=True)
    (conf / "algorithm").mkdir(parents=True)
    (site / "walks.py").write_text(ONE_PY)
    (conf / "algorithm" / "walk.yaml").write_text(ONE_YAML)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: walks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pyes.algorithms]\nwalk = walks:Walk\n")
    monkeypatch.setenv("PYTHONPATH", str(site))
    return conf


@pytest.mark.slow
def test_an_installed_algorithm_is_two_files_and_one_entry_point(installed: Path, tmp_path: Path):
    """In processes of their own, so that the registry of this one stays as it is."""
    files = [installed.parent / "site" / "walks.py", installed / "algorithm" / "walk.yaml"]
    assert [len(path.read_text().split("\n")) - 1 for path in files] == [19, 4]

    def run(*arguments: str) -> str:
        done = subprocess.run([sys.executable, "-m", "pyes", *arguments], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    chosen = ["--config-dir", str(installed), "algorithm=walk", "algorithm.step=0.3", "algorithm.population_size=4"]
    run("train", *chosen, *SETTINGS, "run_dir=run")
    run("train", "resume=run", "generations=4")
    shown = run("evaluate", "run", "--episodes", "2", "--json")
    assert len(json.loads(shown)["returns"]) == 2
    assert "Random walk" in run("table", "run")

    (installed / "experiment").mkdir()
    recipe = ["# @package _global_", "defaults:", "  - override /algorithm: of_mine", "algorithm:", "  step: 0.2", ""]
    (installed / "experiment" / "walked.yaml").write_text("\n".join(recipe))
    (installed / "algorithm" / "of_mine.yaml").write_text("defaults: [walk, _self_]\nstep: 0.1\n")
    run("train", "--config-dir", str(installed), "experiment=walked", *SETTINGS, "run_dir=walked")
    code = "import pyes; from pyes.config.registry import ALGORITHMS; print(ALGORITHMS.names()); print(dir(pyes))"
    names = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'walk'" in names
    assert "walk" not in ALGORITHMS.names()
