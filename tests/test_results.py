"""results/: the page is drawn from them, their policies play, and a number comes out again."""

import csv
import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import commands
import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
RECIPES = sorted(path.parent.name for path in RESULTS.glob("*/result.json"))


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run([sys.executable, *command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_page_is_drawn_from_the_results(tmp_path: Path):
    run(str(ROOT / "tools" / "make_results.py"), str(RESULTS), str(tmp_path), cwd=tmp_path)
    assert (tmp_path / "results.md").read_text() == (ROOT / "docs" / "results.md").read_text()
    assert (tmp_path / "results.png").stat().st_size > 10_000


def test_gallery_says_what_the_results_say(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    assert importlib.import_module("make_gallery").page() == (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", RECIPES)
def test_result_is_whole_and_its_recipe_says_it(name: str):
    with (RESULTS / name / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    about = json.loads((RESULTS / name / "result.json").read_text())
    assert about["recipe"] == name
    assert not about["commit"].endswith("-dirty")
    rows.sort(key=lambda row: float(row["return_mean"]) if row["theta_hash"] else float("-inf"))
    median = rows[(len(rows) - 1) // 2]
    assert (about["median_seed"], about["theta_hash"]) == (int(median["seed"]), median["theta_hash"])
    text = (ROOT / "conf" / "experiment" / f"{name}.yaml").read_text()
    assert f"# Measured: median {float(median['return_mean']):.6g} " in text
    assert about["commit"] in text


def test_a_median_seed_that_failed_leaves_the_result_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    recipes = importlib.import_module("recipes")
    folder = Path(shutil.copytree(RESULTS / "cart_pole", tmp_path / "cart_pole"))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    nan = float("nan")
    rows = [recipes.Row(1, nan, nan, 0, 0, 0, nan, ""), recipes.Row(2, 500.0, 0.0, 1, 1, 1, 1.0, "ab")]
    with pytest.raises(SystemExit, match="seed 1: the median of the seeds has failed; nothing is written"):
        recipes.write(folder, "cart_pole", recipes.Result(rows, [], ["abc"], {}))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_what_is_no_result_is_not_replaced_and_a_run_of_others_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    digest = importlib.import_module("recipes").settings("cart_pole")
    recipe = [str(ROOT / "benchmarks" / "recipes.py"), "cart_pole", "--seeds", "1", "--results", "results"]
    (tmp_path / "results" / "cart_pole").mkdir(parents=True)
    (tmp_path / "results" / "cart_pole" / "notes.txt").write_text("mine")
    with pytest.raises(AssertionError, match=r"results/cart_pole is no result and would be replaced"):
        run(*recipe, cwd=tmp_path)
    (tmp_path / "results" / "cart_pole" / "notes.txt").unlink()
    other = tmp_path / "runs" / "recipes" / "cart_pole" / digest / "100"
    other.mkdir(parents=True)
    (other / "journal.bin").touch()
    with pytest.raises(AssertionError, match=r"100: a run that this program did not begin .*; move it away"):
        run(*recipe, cwd=tmp_path)


@pytest.mark.slow
def test_policy_of_a_result_has_its_return(tmp_path: Path):
    about = json.loads((RESULTS / "cart_pole" / "result.json").read_text())
    words = about["evaluate"].replace("runs/cart_pole", str(RESULTS / "cart_pole")).split()[1:]
    done = commands.started(*words, "--json", cwd=tmp_path)
    with (RESULTS / "cart_pole" / "rows.csv").open(newline="") as file:
        expected = {int(row["seed"]): float(row["return_mean"]) for row in csv.DictReader(file)}
    assert round(json.loads(done.stdout)["return_mean"], 3) == expected[about["median_seed"]]


@pytest.mark.slow
def test_a_number_comes_out_again(tmp_path: Path):
    """As benchmarks/recipes.py makes it, from nothing."""
    words = ("cart_pole", "--seeds", "1", "--results", str(tmp_path / "results"))
    run(str(ROOT / "benchmarks" / "recipes.py"), *words, cwd=tmp_path)
    with (tmp_path / "results" / "cart_pole" / "rows.csv").open(newline="") as file:
        (again,) = csv.DictReader(file)
    with (RESULTS / "cart_pole" / "rows.csv").open(newline="") as file:
        first = next(csv.DictReader(file))
    assert again | {"seconds": ""} == first | {"seconds": ""}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_result_measured_in_parts_is_the_one_measured_at_once(tmp_path: Path):
    def measure(where: str, *words: str) -> str:
        (tmp_path / where).mkdir(exist_ok=True)
        program = (str(ROOT / "benchmarks" / "recipes.py"), "cart_pole", "--results", "results")
        return run(*program, *words, cwd=tmp_path / where)

    once, parts = (tmp_path / where / "results" / "cart_pole" for where in ("once", "parts"))
    measure("once", "--seeds", "2")
    measure("parts", "--seeds", "1")
    (tmp_path / "parts" / "runs").rename(tmp_path / "parts" / "elsewhere")
    measure("parts", "--seeds", "1", "--first-seed", "101", "--add", "--untimed")
    assert _timed(parts) == [True, False]
    for name in ("rows.csv", "curves.csv"):
        assert _without_seconds(parts / name) == _without_seconds(once / name)
    assert json.loads((parts / "result.json").read_text()) == json.loads((once / "result.json").read_text())
    assert (parts / "policy.safetensors").read_bytes() == (once / "policy.safetensors").read_bytes()
    of_now = json.loads((parts / "result.json").read_text())
    another = {"processor": "another", "cores": 64}
    _change(parts / "result.json", machine=another)
    shutil.rmtree(tmp_path / "parts" / "runs")
    assert "on 64 cores" in measure("parts", "--seeds", "1", "--first-seed", "101", "--add", "--untimed")
    assert json.loads((parts / "result.json").read_text())["machine"] == another
    assert _timed(parts) == [True, False]
    measure("parts", "--seeds", "1", "--first-seed", "101", "--add")
    assert json.loads((parts / "result.json").read_text()) == of_now
    assert _timed(parts) == [False, True]
    assert not (tmp_path / "parts" / "runs" / "recipes" / "cart_pole" / "100").exists()  # its policy was there
    _change(parts / "result.json", settings="others")
    with pytest.raises(AssertionError, match="settings of the result are others"):
        measure("parts", "--add")


def _change(file: Path, **values: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def _timed(result: Path) -> list[bool]:
    with (result / "rows.csv").open(newline="") as lines:
        return [row["seconds"] != "nan" for row in csv.DictReader(lines)]


def _without_seconds(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return [row | {"seconds": ""} for row in csv.DictReader(lines)]
