"""A search for settings: killed and resumed, it ends as one that was not; bad input is one line."""

import dataclasses
import itertools
import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
from commands import pyes

from pyes.cli import commands as program
from pyes.cli import tune
from pyes.errors import ConfigError, RunDirectoryError, TaskError
from pyes.system import locks
from pyes.system.lifetime import Interrupt
from pyes.training import tuning
from pyes.training.tuning import Arguments

SPACE = """
policy: {linear: network=linear, small: "network=mlp network.hidden=[4]"}
algorithm.sigma: {low: 0.02, high: 1.0, log: true}
algorithm.population_size: [4, 8]
"""
TASK = ("task=native", "task.env_id=CartPole-v1", "timesteps=900", "evaluation.episodes=2")
ARGUMENTS = Arguments(TASK[:2], 900, 4, 1, 1, {"network.init": {"zero": "network.init=zero", "no": ""}}, ".")


@pytest.fixture(scope="module", autouse=True)
def server() -> None:
    if sys.platform != "win32":
        import hosts

        hosts.start_server()


def search(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "pyes", "tune", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def trials(folder: Path) -> list[tuple[object, ...]]:
    study = optuna.load_study(study_name="pyes", storage=f"sqlite:///{folder}/study.db")
    return [(each.number, each.params, each.intermediate_values, each.state.name) for each in study.trials]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_search_that_is_killed_goes_on_to_the_same_end(tmp_path: Path):
    """Of a task that is an option of the user's own."""
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "my" / "task").mkdir(parents=True)
    (tmp_path / "my" / "task" / "cart.yaml").write_text("defaults: [native, _self_]\nenv_id: CartPole-v1\n")
    options = ("--trials", "3", "--seeds", "1", "--confirm", "1", "--space", "space.yaml", "--config-dir", "my")
    task = ("task=cart", *TASK[2:])
    whole = search(tmp_path, *task, *options, "-o", "whole")
    table, whole_progress = whole.communicate(timeout=150)
    assert whole.returncode == 0, whole_progress

    arguments: tuple[str, ...] = (*task, *options, "-o", "killed")
    for lines in (2, 3):  # the first line is the plan
        killed = search(tmp_path, *arguments)
        assert killed.stderr is not None
        list(itertools.islice(killed.stderr, lines))
        killed.kill()
        killed.communicate()
        arguments = ("--resume", "killed")
    resumed = search(tmp_path, *arguments)
    again, progress = resumed.communicate(timeout=150)
    assert resumed.returncode == 0, progress
    assert again == table
    assert trials(tmp_path / "killed") == trials(tmp_path / "whole")
    recipe = Path("experiment/recipe.yaml")
    assert (tmp_path / "killed" / recipe).read_bytes() == (tmp_path / "whole" / recipe).read_bytes()

    assert not list(tmp_path.glob("whole/runs/**/learning_curve.png"))

    states = [state for *_, state in trials(tmp_path / "whole")]
    assert states[1:].count("COMPLETE") == 1
    assert states[1:].count("PRUNED") == 2
    (advice,) = re.findall(r"^train with it: pyes (.*) \(.*recipe.yaml\)$", whole_progress, re.MULTILINE)
    assert shlex.split(advice)[:3] == ["train", "--config-dir", "whole"]
    trained = pyes(*shlex.split(advice), "seed=9", "run_dir=run", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_runs_that_fail_cost_their_trial_and_those_of_the_defaults_the_search(tmp_path: Path):
    (tmp_path / "space.yaml").write_text("learning: {much: algorithm.learning_rate=1e300, little: ''}\n")
    options = ("--trials", "3", "--seeds", "1", "--confirm", "1", "--space", "space.yaml", "-o", "found")
    done = pyes("tune", *TASK, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "failed: " in done.stderr
    assert "theta" in done.stderr
    assert {state for *_, state in trials(tmp_path / "found")} >= {"FAIL"}

    (tmp_path / "space.yaml").write_text("algorithm.sigma: [0.1, 0.2]\n")
    more = ("algorithm.learning_rate=1e300", *options[:-1], "broken")
    broken = pyes("tune", *TASK, *more, cwd=tmp_path)
    assert broken.returncode == 1
    assert broken.stderr.splitlines()[-1].startswith("pyes: error: the defaults cannot be trained: ")
    assert broken.stderr.endswith("; mend that and go on with --resume, or begin again in another folder\n")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_of_the_defaults_that_fails_in_the_confirmation_costs_no_search(tmp_path: Path):
    (tmp_path / "space.yaml").write_text("algorithm.sigma: [0.1, 0.2]\n")
    module = (
        "import sys\nimport gymnasium\n\n\ndef make(**_):\n"
        "    assert not any(word.endswith('runs/0/100') for word in sys.argv)\n"
        "    return gymnasium.make('CartPole-v1')\n"
    )
    (tmp_path / "mine.py").write_text(module)
    words = ("task=python", "task.factory=mine:make", "timesteps=900", "evaluation.episodes=2", "-o", "found")
    options = ("--trials", "2", "--seeds", "1", "--confirm", "1", "--space", "space.yaml")
    done = pyes("tune", *words, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "trial 0, seed 100 failed: " in done.stderr
    assert "median failed" in (tmp_path / "found" / "experiment" / "recipe.yaml").read_text()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_search_goes_on_from_any_folder_and_ends_if_no_run_begins(tmp_path: Path):
    (tmp_path / "space.yaml").write_text("algorithm.sigma: [0.1, 0.2]\n")
    module = tmp_path / "mine.py"
    module.write_text("import gymnasium\n\n\ndef make(**_):\n    return gymnasium.make('CartPole-v1')\n")
    words = ("task=python", "task.factory=mine:make", "timesteps=900", "evaluation.episodes=2", "-o", "found")
    options = ("--trials", "2", "--seeds", "1", "--confirm", "1", "--space", "space.yaml")
    begun = search(tmp_path, *words, *options)
    assert begun.stderr is not None
    assert any(
        "trials that go on" in line for line in begun.stderr
    )  # trials that have begun, too, cannot go on without the module
    begun.kill()
    begun.communicate()
    module.rename(tmp_path / "away")
    study = trials(tmp_path / "found")
    failed = pyes("tune", "--resume", "found", cwd=tmp_path)
    assert "no run of these trials began: task.factory=mine:make" in failed.stderr
    assert failed.returncode == 1
    assert trials(tmp_path / "found") == study
    (tmp_path / "away").rename(module)
    (tmp_path / "elsewhere").mkdir()
    done = pyes("tune", "--resume", str(tmp_path / "found"), cwd=tmp_path / "elsewhere")
    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals for one process")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_runs_and_says_how_to_go_on(tmp_path: Path, number: signal.Signals):
    process = search(tmp_path, *TASK[:2], "timesteps=1e9", "--trials", "2", "-o", "found")
    try:
        assert process.stderr is not None
        assert "million timesteps at most" in process.stderr.readline()
        while not list(tmp_path.glob("found/runs/*/*/journal.bin")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        _, rest = process.communicate(timeout=60)
    finally:
        process.kill()  # its runs end with it
    assert process.returncode == 130
    assert rest.splitlines()[-1] == "stopped; go on with: pyes tune --resume found"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["task=native", "--trials", "3", "task.env_id=CartPole-v1"], "timesteps: missing; say how long the best runs"),
        ([*TASK[:2]], "timesteps: missing; say how long the best runs train, as timesteps=1e6"),
        ([*TASK, "seed=3"], "seed: a search sets it for each of its runs; leave it out"),
        ([*TASK, "learning_curve=true"], "learning_curve: a search sets it for each of its runs; leave it out"),
        ([*TASK, "cluster.workers=3"], "cluster.workers: a search sets it for each of its runs; leave it out"),
        (
            [*TASK, "hydra/job_logging=disabled"],
            "hydra/job_logging: a search sets it for each of its runs; leave it out",
        ),
        ([*TASK, "hydra.job.name=x"], "hydra.job.name: a search sets it for each of its runs; leave it out"),
        ([*TASK, "--space", "own.yaml"], "generations: a search sets it for each of its runs; leave it out"),
        (
            [*TASK, "--space", "end.yaml"],
            "timesteps: a search sets it for each of its runs; give the most as timesteps=N",
        ),
        (
            [*TASK, "algorithm=ga"],
            "algorithm: there are no parameters for ga; name a file with --space, or use ars, cma",
        ),
        ([*TASK, "evaluation.every=0"], "evaluation.every: got 0, expected an integer >= 1"),
        ([*TASK, "--config-dir", "mine"], "--config-dir: mine is no folder; name one that has folders task, network"),
        (
            [*TASK, "experiment=recipe"],
            "experiment: got recipe, the name of what a search writes; rename recipe.yaml, and give that name",
        ),
        ([*TASK, "network=lstmm"], "unknown network 'lstmm'"),
        ([*TASK, "--space", "none.yaml"], "none.yaml: cannot be read"),
        ([*TASK, "--space", "key.yaml"], "key.yaml: unknown key 'algorithm.sigmaa': did you mean 'algorithm.sigma'?"),
        ([*TASK, "algorithm.sigma=1", "--space", "one.yaml"], "all of its parameters are given on the command line"),
        (
            [*TASK, "--space", "odd.yaml"],
            "odd.yaml: algorithm.population_size: got 5, expected",
        ),
        ([*TASK, "--space", "idle.yaml"], "idle.yaml: evaluation.every: got 0, expected an integer >= 1"),
        ([*TASK, "--space", "two.yaml"], "two.yaml: algorithm.sigma is set by which and by algorithm.sigma; leave one"),
        ([*TASK, "--seeds", "101"], "--seeds: got 101, expected at most 100: seeds from there on confirm"),
        ([*TASK, "--trials", "0"], "argument --trials: got '0', expected an integer >= 1"),
        ([*TASK, "--resume", "x"], "argument -o/--output: not allowed with argument --resume"),
    ],
)
def test_wrong_arguments_are_one_line_and_no_folder(tmp_path: Path, words: list[str], says: str):
    (tmp_path / "key.yaml").write_text("algorithm.sigmaa: [1, 2]\n")
    (tmp_path / "one.yaml").write_text("algorithm.sigma: [1, 2]\n")
    (tmp_path / "own.yaml").write_text("length: {a: network=linear, b: network=mlp generations=3, c: network=gru}\n")
    (tmp_path / "odd.yaml").write_text("algorithm.population_size: {low: 4, high: 10}\n")
    (tmp_path / "idle.yaml").write_text("evaluation.every: [5, 0, 10]\n")
    (tmp_path / "end.yaml").write_text("timesteps: {low: 100, high: 900}\n")
    which = "which: {a: algorithm.sigma=0.1, b: algorithm.sigma=0.2}"
    (tmp_path / "two.yaml").write_text(which + "\nalgorithm.sigma: {low: 0.01, high: 1, log: true}\n")
    done = pyes("tune", *words, "-o", "found", cwd=tmp_path)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert says in line
    assert not (tmp_path / "found").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "left_out"),
    [
        (["experiment=pendulum"], {"policy"}),
        (["algorithm=pgpe", "optimizer=adam", *TASK[:2]], {"speed"}),
        (TASK[:2], set()),
    ],
    ids=["network", "optimizer", "fits"],
)
def test_standard_parameters_that_do_not_fit_are_left_out_and_named(words, left_out, capsys):
    parser = program.make_parser()
    made = tune._arguments(parser.parse_args(["tune", *words, "timesteps=900", "-o", "found"]))
    said = capsys.readouterr().err
    assert set(re.findall("not searched: (.*), which does not fit", said)) == left_out
    assert "algorithm.sigma" in made.space
    assert not left_out & made.space.keys()


def test_a_folder_with_something_else_is_refused(tmp_path: Path):
    tuning.begin(tmp_path / "found", ARGUMENTS)
    assert tuning.read(tmp_path / "found") == ARGUMENTS
    with pytest.raises(ConfigError, match=r"holds a search; go on with: pyes tune --resume "):
        tuning.begin(tmp_path / "found", ARGUMENTS)
    with pytest.raises(ConfigError, match=r"holds something else; choose another folder"):
        tuning.begin(tmp_path, ARGUMENTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("tune.json", None, r"holds no search \(No such file or directory: tune.json\)"),
        ("tune.json", b"{", r"tune.json is damaged \(.*\); begin again in another folder"),
        ("tune.json", b"{}", r"tune.json is damaged \('overrides'\); begin again in another folder"),
        (
            "tune.json",
            json.dumps(dataclasses.asdict(ARGUMENTS) | {"timesteps": "many"}).encode(),
            r"tune.json is damaged \(timesteps: got 'many', expected an integer\); begin again in another folder",
        ),
        ("study.db", b"no database" * 99, r"study.db cannot be used \(.*\); mend that, and go on with --resume, or"),
    ],
)
def test_a_damaged_folder_is_one_line(tmp_path: Path, file: str, content: bytes | None, says: str):
    tuning.begin(tmp_path / "found", ARGUMENTS)
    if content is None:
        (tmp_path / "found" / file).unlink()
    else:
        (tmp_path / "found" / file).write_bytes(content)
    with pytest.raises(RunDirectoryError, match=says) as caught:
        tuning.search(tmp_path / "found", print)
    assert "\n" not in str(caught.value)


def test_a_search_whose_options_are_not_found_enters_nothing(tmp_path: Path):
    arguments = dataclasses.replace(ARGUMENTS, config_dir="away", started_in=str(tmp_path))
    tuning.begin(tmp_path / "found", arguments)
    done = pyes("tune", "--resume", "found", cwd=tmp_path)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert "--config-dir: away is no folder; name one that has folders task" in line
    assert line.endswith(f"(the search began in {tmp_path}; restore what it had there)")
    assert not (tmp_path / "found" / "study.db").exists()


def test_only_one_process_works_in_a_folder(tmp_path: Path):
    tuning.begin(tmp_path / "found", ARGUMENTS)
    another = re.escape(f"tune: another process ({os.getpid()}@")
    with locks.held(tmp_path / "found" / "lock", "tune"), pytest.raises(RunDirectoryError, match=another):
        tuning.search(tmp_path / "found", print)


@pytest.mark.parametrize(
    ("trials", "sizes"), [(1, [1]), (8, [8]), (9, [9]), (10, [5, 5]), (24, [8, 8, 8]), (25, [8, 8, 9])]
)
def test_brackets_have_all_trials_once(trials: int, sizes: list[int]):
    brackets = tuning._brackets(trials)
    assert [len(each) for each in brackets] == sizes
    assert [number for each in brackets for number in each] == list(range(1, trials + 1))


@pytest.mark.slow
def test_the_values_of_the_first_bracket_alone_are_random(tmp_path: Path):
    arguments = dataclasses.replace(ARGUMENTS, space={"algorithm.sigma": {"low": 0.02, "high": 1.0, "log": True}})
    tuning.begin(tmp_path / "found", arguments)
    search = tuning._Search(tmp_path / "found", arguments, print, Interrupt())

    def at_random(number: int) -> dict[str, Any]:
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(number))
        return dict(study.ask(search._distributions()).params)

    for number in range(6):
        values = search._chosen(number, 1) if number else {}
        assert not number or values == at_random(number)
        search._add(values)
        search._report(number, ARGUMENTS.timesteps, -float(number))
        search._end(number)
    assert search._chosen(6, 6) != at_random(6)


@pytest.mark.slow
def test_values_of_trials_that_failed_are_avoided(tmp_path: Path):
    """By chance 41 % would be among them."""
    arguments = dataclasses.replace(ARGUMENTS, space={"algorithm.sigma": {"low": 0.02, "high": 1.0, "log": True}})
    tuning.begin(tmp_path / "found", arguments)
    search = tuning._Search(tmp_path / "found", arguments, print, Interrupt())
    search._add({})
    for number in range(1, 17):
        values = search._chosen(number, 1)
        search._add(values)
        search._report(number, ARGUMENTS.timesteps, -math.inf if values["algorithm.sigma"] > 0.2 else float(number % 3))
        search._end(number)
    chosen = [search._chosen(number, 17)["algorithm.sigma"] for number in range(17, 57)]
    assert sum(sigma > 0.2 for sigma in chosen) <= 10


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        {"space": {"algorithm.sigma": [0.1, 0.2]}},
        {"space": {"network.init": {"zero": "network.init=zero", "other": "network.init=uniform"}}},
        {"timesteps": 1000},
        {"overrides": ("task=pendulum",)},
        {"seeds": 7},
    ],
)
def test_arguments_that_are_not_those_of_the_study_are_one_line(tmp_path: Path, changed: dict[str, Any]):
    tuning.begin(tmp_path / "found", ARGUMENTS)
    search = tuning._Search(tmp_path / "found", ARGUMENTS, print, Interrupt())
    search._add({})
    search._report(0, ARGUMENTS.timesteps, 1.0)
    search._add({"network.init": "zero"})
    moved = dataclasses.replace(ARGUMENTS, started_in="elsewhere")
    tuning._Search(tmp_path / "found", moved, print, Interrupt())
    with pytest.raises(RunDirectoryError, match=r"tune\.json was changed after the search had begun"):
        tuning._Search(tmp_path / "found", dataclasses.replace(ARGUMENTS, **changed), print, Interrupt())


def test_the_plan_counts_all_timesteps():
    # The defaults; in a bracket 8 ninths, of which 3 go on to a third and one of these to all; 5 runs confirm, twice.
    nine_hundred = Arguments((), 900, 24, 2, 5, {}, ".")
    bracket = 8 * 100 + 3 * 200 + 600
    assert f"{(2 * (900 + 3 * bracket) + 10 * 900) / 1e6:,.3g} million timesteps" in tuning.plan(nine_hundred)


@pytest.mark.parametrize(
    ("last", "value"),
    [("900,0.0", 0.0), ("900,-3.5", -3.5), ("901,nan", -math.inf), ("900,", None), ("899,7.0", None)],
)
def test_value_of_a_run_is_its_last_evaluation(tmp_path: Path, last: str, value: float | None):
    (tmp_path / "metrics.csv").write_text(f"timesteps,eval_return_mean\n300,5.0\n{last}\n")
    assert tuning._Job(tmp_path, 1, 0, 900, []).found() == value


def ended(job: tuning._Job) -> tuning._Job:
    job.start(1)
    while job.is_running():
        time.sleep(0.01)
    return job


@pytest.mark.slow
def test_a_run_that_reaches_its_target_goes_on_to_its_last_timestep(tmp_path: Path):
    job = ended(tuning._Job(tmp_path / "run", 1, 0, 900, [*TASK[:2], "evaluation.episodes=2", "target_return=1"]))
    assert job.failure == ""
    value = job.found()
    assert value is not None
    assert value > 1.0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals for one process")
@pytest.mark.parametrize(("name", "starting"), [("SIGKILL", False), ("SIGKILL", True), ("SIGTERM", True)])
def test_a_run_that_is_ended_from_outside_ends_the_search_and_not_its_trial(tmp_path: Path, name: str, starting: bool):
    job = tuning._Job(tmp_path / "run", 1, 0, 10**9, TASK[:2])
    job.start(1)
    try:
        while not starting and not (tmp_path / "run" / "journal.bin").exists():
            assert job.is_running()
            time.sleep(0.01)
        assert job._process is not None
        job._process.send_signal(signal.Signals[name])
        job._process.wait()
        with pytest.raises(TaskError, match=rf"run: {name} ended its process, .* --resume"):
            job.is_running()
    finally:
        job.stop()


def test_a_search_that_is_to_stop_does_not_ask_how_its_runs_ended():
    """The signal may have ended them, too."""
    interrupt = Interrupt()

    class Job:
        found = ask_to_stop = stop = staticmethod(lambda: None)

        def start(self, workers: int) -> None:
            interrupt.requested = True

        def is_running(self) -> bool:
            raise AssertionError

    with pytest.raises(KeyboardInterrupt):
        tuning._run_all([Job()], print, interrupt)  # type: ignore[list-item]


def test_the_study_is_in_the_folder_whatever_its_name(tmp_path: Path):
    folder = tmp_path / "what? #1 %20"
    tuning.begin(folder, ARGUMENTS)
    tuning._Search(folder, ARGUMENTS, print, Interrupt())
    assert {path.name for path in folder.iterdir()} == {"tune.json", "study.db"}
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.slow
def test_a_run_that_another_process_has_says_nothing_of_a_setting(tmp_path: Path):
    words = ["task=cart_pole", "evaluation.episodes=1"]
    ended(tuning._Job(tmp_path / "run", 1, 0, 100, words))
    another = re.escape(f"another process ({os.getpid()}@")
    with locks.held(tmp_path / "run" / "lock", "tune"), pytest.raises(TaskError, match=f"{another}.*--resume"):
        ended(tuning._Job(tmp_path / "run", 1, 0, 10_000, words))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounting needs Linux and root")
def test_a_full_disk_says_nothing_of_a_setting(tmp_path: Path):
    """Wherever it is full first: once there is room, the search goes on to the same end.

    No room for the study, then for more files: a run waits for minutes where what is full is its journal.
    """
    (tmp_path / "space.yaml").write_text(SPACE)
    options = ("--space", "space.yaml", "--trials", "3", "--seeds", "1", "--confirm", "1")
    whole = search(tmp_path, *TASK, *options, "-o", "whole")
    whole.communicate()
    assert whole.returncode == 0
    (tmp_path / "disk").mkdir()
    tune = f"{shlex.quote(sys.executable)} -m pyes tune"
    begun = f"{tune} {shlex.join([*TASK, *options])} -o disk/search"
    script = f"""
        mount -t tmpfs -o size=64k,nr_inodes=1k tmpfs disk
        {begun} || echo "status $?"
        for files in 10 20 40; do
            mount -o remount,size=50m,nr_inodes=$files disk
            {tune} --resume disk/search || echo "status $?"
        done
        mount -o remount,nr_inodes=1k disk
        {tune} --resume disk/search && cp -r disk/search full
    """
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:4] == ["status 2", "status 1", "status 1", "status 1"]
    errors = [line for line in done.stderr.splitlines() if line.startswith("pyes: error: ")]
    assert len(errors) == 4
    assert "disk is full" in errors[0]
    for line in errors[1:]:
        assert re.search(r"(No space left on device|disk I/O error|unable to open)", line), line
    assert trials(tmp_path / "full") == trials(tmp_path / "whole")
