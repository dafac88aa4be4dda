"""What recipes come to: trains each over several seeds and writes down where every seed ends.

    python benchmarks/recipes.py cart_pole pendulum --seeds 10

A recipe is a file of ``conf/experiment``; it ends with its budget of timesteps, so that a seed has the same policy on
every machine. Seeds begin at 100: settings are chosen on smaller ones. A recipe that was changed after it had been
measured is measured on seeds that none of its results had (``--first-seed``). Each center is evaluated in 100 episodes,
the same for all seeds and used by no run. ``results/RECIPE`` receives

rows.csv       seed, where it ended, what that took, and the hash of theta; a run that failed has no return
curves.csv     every evaluation of every run
result.json    the recipe, how to repeat it, machine, versions and commit
policy.*       the policy of the seed with the median return (the lower one of two); journal.bin too if it is small

and the recipe's line ``# Measured:`` is written anew. Runs are kept in ``runs/recipes``; one that is there, of
the recipe as it is now, goes on where it is, and counts as of the commit at which it was begun.

What takes a day can be measured in parts: with ``--add`` a result keeps its other seeds, if it was made with the same
settings and versions. Where the median then is a seed whose policy is neither in its run nor in the result, that is
trained again.

Minutes are wall clock of one kind of machine, on which nothing else should run. A result that gets seeds of another
kind takes this one for its machine, and the seconds of its other seeds are left out. ``--untimed`` leaves out those of
the new seeds instead, and the result keeps its machine: for seeds of another one, and for runs that were begun there
and copied here. Where a processor of another kind leads to another theta (determinism.md), take one kind alone.
"""

import argparse
import csv
import hashlib
import importlib
import json
import math
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from parts import positive
from threadpoolctl import threadpool_info

from pyes.run.metrics import read_rows
from pyes.system.lookup import version
from pyes.system.text import counted

ROOT = Path(__file__).parent.parent
RESULTS, RUNS = ROOT / "results", Path("runs/recipes")
FIRST_SEED, EPISODES, EVALUATION_SEED = 100, 100, 1_000_000
SMALL = 100_000  # bytes of a journal that is kept
POLICY = ("policy.safetensors", "policy.json")  # of a run, and of a result
COMMIT = "commit.txt"  # in a run directory: the commit at which its run was begun
PACKAGES = ("pyes-rl", "numpy", "gymnasium", "mujoco", "pybullet", "box2d", "cma")


class Row(NamedTuple):
    """Where one seed ended; NaN and an empty hash if its run failed, NaN seconds if it trained on another machine."""

    seed: int
    return_mean: float
    return_std: float
    timesteps: int
    episodes: int
    generations: int
    seconds: float
    theta_hash: str


class Point(NamedTuple):
    """An evaluation while a seed trained."""

    seed: int
    timesteps: int
    seconds: float
    eval_return_mean: float


class Result(NamedTuple):
    """What is known of a recipe: its rows in the order of their seeds, and where they are from."""

    rows: list[Row]
    curves: list[Point]
    commits: list[str]
    place: dict[str, Any]  # where the seconds were taken

    def beside(self, other: "Result") -> "Result":
        """Return this result with the seeds of another one that it does not have, untimed if of another machine."""
        same = other.place.get("machine") == self.place["machine"]
        kept = other if same else other.untimed(self.place)
        seeds = {row.seed for row in self.rows}
        rows = [row for row in kept.rows if row.seed not in seeds]
        curves = [point for point in kept.curves if point.seed not in seeds]
        commits = dict.fromkeys([*kept.commits, *self.commits] if rows else self.commits)
        return Result(sorted([*self.rows, *rows]), sorted([*self.curves, *curves]), list(commits), self.place)

    def untimed(self, place: dict[str, Any]) -> "Result":
        """Return this result without the seconds that it took, for a result of another machine."""
        rows = [row._replace(seconds=math.nan) for row in self.rows]
        return Result(rows, [point._replace(seconds=math.nan) for point in self.curves], self.commits, place)


def main() -> None:
    """Measure the recipes that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+", metavar="RECIPE", choices=names())
    parser.add_argument("--seeds", type=positive, default=5, metavar="N", help="how many")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED, metavar="SEED", help="the others follow it")
    parser.add_argument("--add", action="store_true", help="keep the other seeds that the result has")
    parser.add_argument("--untimed", action="store_true", help="leave these seeds' seconds out; with --add")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder to write to")
    options = parser.parse_args()
    if options.untimed and not options.add:
        parser.error("--untimed: got no --add, whose other seeds say how long the recipe takes here")
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # which ends the run that is under way, too
    found: dict[str, Result] = {}
    for recipe in options.recipes:  # before anything trains for hours
        check(options.results / recipe, [run_of(recipe, seed) for seed in seeds])
        try:
            earlier = read(options.results / recipe, recipe) if options.add else Result([], [], [], {})
        except (OSError, ValueError) as error:
            parser.exit(1, f"{recipe}: {error}\n")
        if options.untimed and all(row.seed in seeds or math.isnan(row.seconds) for row in earlier.rows):
            parser.exit(1, f"{recipe}: --untimed: no other seed of its result says how long the recipe takes\n")
        found[recipe] = earlier
    for recipe, earlier in found.items():
        result = measured(recipe, seeds)
        result = (result.untimed(earlier.place) if options.untimed else result).beside(earlier)
        if all(math.isnan(row.seconds) for row in result.rows):
            parser.exit(1, f"{recipe}: all seeds that were timed failed, see above; nothing is written\n")
        print(f"{recipe}: {summary(result)}", flush=True)
        write(options.results / recipe, recipe, result)
        if options.results == RESULTS:
            write_header(ROOT / "conf" / "experiment" / f"{recipe}.yaml", result)


def check(folder: Path, runs: Iterable[Path]) -> None:
    """Exit if a folder holds something else than a result, or one of the runs was not begun by this program."""
    free = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if not free and not (folder / "result.json").exists():
        raise SystemExit(f"{folder} is no result and would be replaced; choose another --results")
    for run in runs:
        if (run / "journal.bin").exists():
            commit_of(run)


def names() -> list[str]:
    """Return the names of all recipes: the experiments that have a line for what was measured."""
    files = (ROOT / "conf" / "experiment").glob("*.yaml")
    return sorted(file.stem for file in files if MEASURED.search(file.read_text(encoding="utf-8")))


def read(folder: Path, recipe: str) -> Result:
    """Return the result in a folder.

    Raises
    ------
    ValueError
        Its settings or versions are not those of now.
    OSError
        There is none.
    """
    about = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    for name, now in conditions(recipe).items():
        if about.get(name) != now:
            raise ValueError(f"{name} of the result are {about.get(name)}, now {now}; measure all of its seeds again")
    rows = [Row(**read_as(Row, texts)) for texts in read_rows(folder / "rows.csv")]
    curves = [Point(**read_as(Point, texts)) for texts in read_rows(folder / "curves.csv")]
    return Result(rows, curves, about["commit"].split(", "), {name: about[name] for name in place() if name in about})


def read_as(kind: type[Row | Point], texts: dict[str, str]) -> dict[str, Any]:
    """Return the fields of a line of a table."""
    return {name: convert(texts[name]) for name, convert in kind.__annotations__.items()}


def write_table(file: Path, kind: type[Row | Point], lines: Sequence[Row | Point]) -> None:
    """Write a table."""
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerows([kind._fields, *lines])


def settings(recipe: str) -> str:
    """Return a digest of what a recipe's file sets."""
    lines = (ROOT / "conf" / "experiment" / f"{recipe}.yaml").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def run_of(recipe: str, seed: int) -> Path:
    """Return the run directory of a seed, which is another one after a change of the recipe."""
    return RUNS / recipe / settings(recipe) / str(seed)


def measured(recipe: str, seeds: Iterable[int]) -> Result:
    """Train seeds to the end of their budget, and evaluate their centers."""
    rows = [trained(recipe, seed) for seed in seeds]
    curves = [point for row in rows if row.theta_hash for point in curve(recipe, row.seed)]
    commits = dict.fromkeys(commit_of(run_of(recipe, row.seed)) for row in rows)
    return Result(rows, curves, list(commits), place())


def trained(recipe: str, seed: int) -> Row:
    """Train one seed to the end of its budget, and evaluate its center."""
    run = run_of(recipe, seed)
    begun = (run / "journal.bin").exists()
    if not begun:
        run.mkdir(parents=True, exist_ok=True)
        (run / COMMIT).write_text(commit(), encoding="utf-8")
    train = [f"resume={run}"] if begun else [f"experiment={recipe}", f"seed={seed}", f"run_dir={run}"]
    done = pyes("train", *train, "learning_curve=false")
    if not done.returncode:
        done = pyes("evaluate", str(run), *evaluation(), "--json")
    if done.returncode < 0:  # as for lack of memory: nothing that the recipe did
        raise SystemExit(f"{recipe}, seed {seed}: ended by signal {-done.returncode}; the same command goes on with it")
    if done.returncode:
        print(f"{recipe}, seed {seed}: {done.stderr.splitlines()[-1]}", file=sys.stderr)
        return Row(seed, math.nan, math.nan, 0, 0, 0, math.nan, "")
    last = read_rows(run / "metrics.csv")[-1]
    found = json.loads(done.stdout)
    row = Row(
        seed,
        round(found["return_mean"], 3),
        round(found["return_std"], 3),
        int(last["timesteps"]),
        int(last["episodes"]),
        int(last["generation"]) + 1,
        round(float(last["seconds"]), 1),
        str(last["theta_hash"]),
    )
    print(f"{recipe}, seed {seed}: {row.return_mean} ± {row.return_std} after {row.seconds} s", flush=True)
    return row


def pyes(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program."""
    command = [sys.executable, "-m", "pyes", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def evaluation() -> tuple[str, ...]:
    """Return the options of the evaluation."""
    return "--episodes", str(EPISODES), "--seed", str(EVALUATION_SEED)


def median_row(rows: Sequence[Row]) -> Row:
    """Return the row with the median return, the lower one of two; failures are the lowest."""
    ordered = sorted(rows, key=lambda row: row.return_mean if row.theta_hash else -math.inf)
    return ordered[(len(rows) - 1) // 2]


def summary(result: Result) -> str:
    """Return the result in one line."""
    rows = result.rows
    returns = [row.return_mean for row in rows if row.theta_hash]
    failed = len(rows) - len(returns)
    low, high = f"{min(returns):.6g}", f"{max(returns):.6g}"
    millions = float(f"{statistics.median(row.timesteps for row in rows if row.theta_hash) / 1e6:.3g}")
    seconds = statistics.median(row.seconds for row in rows if not math.isnan(row.seconds))
    return (
        f"median {median_row(rows).return_mean:.6g} ({low} to {high}) of {counted(len(rows), 'seed')}"
        f"{f', {failed} failed' if failed else ''}, {millions:,g} million timesteps, "
        f"{seconds:.0f} seconds on {result.place['machine']['cores']} cores, {', '.join(result.commits)}"
    )


def write(folder: Path, recipe: str, result: Result) -> None:
    """Write the folder of a result."""
    median = median_row(result.rows)
    if not median.theta_hash:
        raise SystemExit(f"{recipe}, seed {median.seed}: the median of the seeds has failed; nothing is written")
    source = policy_of(folder, recipe, median)
    made = folder.with_name(f".{folder.name}")  # the old result stays until this one is whole
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    write_table(made / "rows.csv", Row, result.rows)
    write_table(made / "curves.csv", Point, result.curves)
    for name in POLICY:
        shutil.copy(source / name, made / name)
    journal = source / "journal.bin"
    if journal.exists() and journal.stat().st_size <= SMALL:
        shutil.copy(journal, made / journal.name)
    about = {
        "recipe": recipe,
        "train": f"pyes train experiment={recipe} seed={median.seed} run_dir=runs/{recipe}",
        "evaluate": " ".join(["pyes", "evaluate", f"runs/{recipe}", *evaluation()]),
        "median_seed": median.seed,
        "theta_hash": median.theta_hash,
        "commit": ", ".join(result.commits),
        **conditions(recipe),
        **result.place,
    }
    (made / "result.json").write_text(f"{json.dumps(about, indent=2)}\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    made.rename(folder)


def policy_of(folder: Path, recipe: str, median: Row) -> Path:
    """Return the folder that has the policy of the median seed: its run, or the result that is replaced."""
    run = run_of(recipe, median.seed)
    if hash_of(run) == median.theta_hash:
        return run
    if all((folder / name).exists() for name in ("result.json", *POLICY)):
        about = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        if (about.get("settings"), about["theta_hash"]) == (settings(recipe), median.theta_hash):
            return folder
    if trained(recipe, median.seed).theta_hash == median.theta_hash:
        return run
    raise SystemExit(f"{recipe}, seed {median.seed}: trained again, it has another theta; nothing is written")


def hash_of(run: Path) -> str:
    """Return the hash of a run's last theta; empty if it has none here."""
    rows = read_rows(run / "metrics.csv") if (run / "policy.safetensors").exists() else []
    return str(rows[-1]["theta_hash"]) if rows else ""


def curve(recipe: str, seed: int) -> list[Point]:
    """Return the evaluations of a run."""
    return [
        Point(
            seed,
            int(row["timesteps"]),
            round(float(row["seconds"]), 1),
            round(float(row["eval_return_mean"]), 2),
        )
        for row in read_rows(run_of(recipe, seed) / "metrics.csv")
        if row["eval_return_mean"]
    ]


def conditions(recipe: str) -> dict[str, Any]:
    """Return what must be the same for all seeds of a result."""
    return {
        "settings": settings(recipe),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
    }


def place() -> dict[str, Any]:
    """Return what kind of machine this is."""
    return {
        "machine": {"processor": processor(), "cores": os.cpu_count(), "system": system()},
        "linear_algebra": linear_algebra(),
    }


def commit() -> str:
    """Return the commit that is measured; "-dirty" follows if there are changes beside what this program writes."""
    found = git("rev-parse", "--short", "HEAD")
    changed = git("diff", "HEAD", f"-I{MEASURED.pattern}", "--", ".", ":(exclude)results", ":(exclude)docs")
    return f"{found}-dirty" if changed else found


def commit_of(run: Path) -> str:
    """Return the commit at which this program began a run."""
    try:
        return (run / COMMIT).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SystemExit(f"{run}: a run that this program did not begin (it has no {COMMIT}); move it away") from None


def git(*arguments: str) -> str:
    """Return what git says about the project."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def system() -> str:
    """Return the operating system, without its version, and the library that computes in double precision."""
    return " ".join((platform.system(), platform.machine(), *platform.libc_ver()))


def linear_algebra() -> str:
    """Return the library that NumPy computes matrices with, and the kind of processor that it takes this one for.

    It has code of its own for each kind, which rounds in another way; models with one name are of different kinds.
    """
    importlib.import_module("numpy")  # which loads it
    kinds = [each for each in threadpool_info() if "numpy" in each["filepath"] and each["user_api"] == "blas"]
    return ", ".join(f"{each['internal_api']} {each['version']} {each.get('architecture', '')}" for each in kinds)


def processor() -> str:
    """Return the model of the processor."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.*)$", info.read_text(), re.MULTILINE) if info.exists() else None
    return found[1] if found else platform.processor()


#: The line of a recipe that this program writes.
MEASURED = re.compile(r"^# Measured: .*$", re.MULTILINE)


def write_header(recipe: Path, result: Result) -> None:
    """Write the result into the recipe."""
    text = recipe.read_text(encoding="utf-8")
    recipe.write_text(MEASURED.sub(f"# Measured: {summary(result)}", text), encoding="utf-8")


if __name__ == "__main__":
    main()
