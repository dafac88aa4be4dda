"""The command line, run as a user runs it: in a process of its own, in an empty directory."""

import datetime
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import pyes, running, started
from heads import until

from pyes import cli
from pyes.cli import this_machine
from pyes.cli.entry import _stopping
from pyes.cli.train import settings
from pyes.reports.replay import EvaluationResult
from pyes.run.directory import RunDirectory

TINY = ("debug=default", "task=cart_pole", "task.max_timesteps=50")  # in 25 of debug=default no pole falls


def error_line(done: subprocess.CompletedProcess[str], status: int) -> str:
    """Return the one line of a refusal, without its prefix."""
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    *before, line = done.stderr.splitlines()
    assert not any("error" in each.lower() for each in before)
    assert line.startswith("pyes: error: ")
    return line.removeprefix("pyes: error: ")


@pytest.fixture(scope="module", autouse=True)
def server():
    if sys.platform != "win32":
        import hosts

        hosts.start_server()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a tiny policy once for all tests that only look at it."""
    folder = tmp_path_factory.mktemp("cli")
    done = pyes("train", *TINY, "run_dir=run", cwd=folder, learning_curve=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{folder / 'run'}\n"
    return folder / "run"


@pytest.mark.slow
def test_runs_that_begin_at_once_have_directories_of_their_own(tmp_path: Path):
    command = [sys.executable, "-m", "pyes", "train", *TINY, "generations=1"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    started = [subprocess.Popen([*command, f"seed={seed}"], cwd=tmp_path, **pipes) for seed in range(4)]
    folders = {seed: Path(each.communicate(timeout=60)[0].strip()) for seed, each in enumerate(started)}
    for seed, folder in folders.items():
        assert json.loads((folder / "config.json").read_text())["seed"] == seed
        assert f"seed={seed}" in (folder / ".hydra" / "overrides.yaml").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "taken", "made"),
    [
        ([], "runs/%Y-%m-%d/%H-%M-%S-CartPole-v1", "runs/*/*-2"),
        (["--config-dir", "."], "runs/%Y-%m-%d/%H-%M-%S-CartPole-v1", "runs/*/*-2"),
        (["-m"], "multirun/%Y-%m-%d/%H-%M-%S", "multirun/*/*-2/0"),
    ],
)
def test_directory_by_date_that_is_taken_gets_a_number(way: list[str], taken: str, made: str, tmp_path: Path):
    """As by another run or sweep that begins in the same second."""
    now = datetime.datetime.now()
    for second in range(60):
        (tmp_path / (now + datetime.timedelta(seconds=second)).strftime(taken)).mkdir(parents=True)
    done = pyes("train", *way, *TINY, "generations=1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{next(tmp_path.glob(made))}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["debug=default"], "LunarLanderContinuous-v3"),
        (
            ["debug=default", "task=python", "task.factory=gymnasium:make", "task.env_kwargs.id=Pendulum-v1"],
            "gymnasium-make",
        ),
    ],
)
def test_train_names_the_directory_by_the_environment(overrides: list[str], name: str, tmp_path: Path):
    done = pyes("train", *overrides, "generations=1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip("\n").partition("-")[2].endswith(f"-{name}")


def test_train_leaves_the_files_of_a_run(run: Path):
    expected = {".hydra", "train.log", "metrics.csv", "policy.safetensors", "policy.json", "learning_curve.png"}
    assert expected <= {path.name for path in run.iterdir()}
    assert {path.name for path in (run / ".hydra").iterdir()} == {"config.yaml", "hydra.yaml", "overrides.yaml"}


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            ["task=nope"],
            "unknown task 'nope': allowed: acrobot, ant_bullet, ant_mujoco, atari, beam_rider, bipedal_walker,",
        ),
        (["network=ml"], "unknown network 'ml': did you mean 'mlp'? allowed: dqn, gru, linear, lstm, mlp, rnn, torch"),
        (["experiment=nope"], "unknown experiment 'nope': allowed: acrobot, ant_bullet, "),
        (["sede=1"], "unknown key 'sede': did you mean 'seed'? allowed: algorithm, averaging, cluster, debug, "),
        (
            ["+sede=1"],
            "unknown key 'sede': did you mean 'seed'? allowed: algorithm, averaging, cluster, episode_limit, ",
        ),
        (["experimen=x"], "unknown key 'experimen': did you mean 'experiment'?"),
        (["algorithm.sigm=1"], "unknown key 'algorithm.sigm': did you mean 'algorithm.sigma'? allowed: "),
        (["optimizer.momentum=0.5"], "unknown key 'optimizer.momentum': allowed: beta1, beta2, epsilon, name"),
        (["task=gymnasium"], "task.env_id: missing; give it a value with task.env_id=VALUE"),
        (["algorithm.population_size=0"], "algorithm.population_size: got 0, expected an integer >= 2"),
        (["algorithm.population_size=7"], "algorithm.population_size: got 7, expected an even number"),
        (["algorithm.sigma=-1"], "algorithm.sigma: got -1, expected a finite number > 0"),
        (["algorithm.sigma=much"], "algorithm.sigma: got 'much', expected a finite number > 0"),
        (
            ["algorithm=ga", "algorithm.restart.after=9"],
            "unknown key 'algorithm.restart': it is a key of algorithm=ars, cma_es, openai_es, pgpe, snes; allowed: ",
        ),
        (["experiment=null", "sweep=null", "debug=null", "seed=-1"], "seed: got -1, expected an integer"),
        (["cart_pole"], "got 'cart_pole', expected KEY=VALUE; did you mean experiment=cart_pole or task=cart_pole?"),
        (["cartpole"], "got 'cartpole', expected KEY=VALUE; did you mean experiment=cart_pole?"),
        (["."], "got '.', expected KEY=VALUE; did you mean resume=.?"),
        (["zzz"], "got 'zzz', expected KEY=VALUE; for example seed=1"),
        (["=3"], "got '=3', expected KEY=VALUE; for example seed=1"),
        (["resume="], "resume: got nothing, expected a path; is a variable of the shell not set?"),
        (["run_dir=null"], "run_dir: got null, expected a path; leave it out for one by date and time"),
        (["run_dir="], "run_dir: got nothing, expected a path; is a variable of the shell not set?"),
        (["network=null"], "network: got null, expected one of dqn, gru, linear, lstm, mlp, rnn, torch"),
        (
            ["network.hidden=[32,", "32]", "seed=1"],
            "got 'network.hidden=[32,', a value that does not end; quote it for the shell: 'network.hidden=[32, 32]'",
        ),
        (["network.hidden=[64"], "got 'network.hidden=[64', a value that does not end; close its brackets"),
        (["seed=1,2"], "seed: got 1,2, several values; pyes train -m makes a run of each, a list is seed=[1,2]"),
        (["run_dir=a", "seed=b=c"], "seed=b=c: not a value; quote text that has spaces or any of ,=:{}[]()~: "),
        (["population_size=10"], "unknown key 'population_size': it is algorithm.population_size; allowed: "),
        (["episodes=10"], "unknown key 'episodes': it is evaluation.episodes or task.episodes; allowed: "),
        (
            ["cluster=inline", "cluster.workers=3"],
            "unknown key 'cluster.workers': it is a key of cluster=local, ray, socket; allowed: ",
        ),
        (["hidden=[10]"], "unknown key 'hidden': it is network.hidden; allowed: "),
        (
            ["task.env_id=Nav2D-v0"],
            "task.env_id: 'Nav2D-v0' cannot be made: Environment `Nav2D` doesn't exist; of a module that registers it: "
            "MODULE:Nav2D-v0",
        ),
        (["seed=${nope}"], "seed: Interpolation key 'nope' not found; ${...} takes a key of the configuration"),
        (["run_dir=${nope}"], "run_dir: Interpolation key 'nope' not found; ${...} takes a key of the configuration"),
        (["seed.x=1"], "unknown key 'seed.x': seed is a value, with no keys; set it as seed=VALUE"),
        (["seed=${foo:1}"], "seed: Unsupported interpolation type foo"),
        (["run_dir=''"], "run_dir: got nothing, expected a path; is a variable of the shell not set?"),
        (["cluster=4"], "cluster: got 4, expected one of inline, local, ray, socket"),
        (["cluster=[local,inline]"], "cluster: got [local,inline], expected one of inline, local, ray, socket"),
        (["cluster=local,inline"], "cluster: got local,inline, several values; pyes train -m makes a run of each"),
        (
            ["algorithm.sigma=linear", "0.3", "to", "0.05", "in", "10", "generations", "seed=1"],
            "got 'algorithm.sigma=linear', a schedule that the shell has split; quote it: 'algorithm.sigma=linear 0.3 ",
        ),
        (["generations", "20"], "got 'generations', expected KEY=VALUE; did you mean generations=20?"),
        (["--task", "pendulum"], "got '--task', expected KEY=VALUE; did you mean task=pendulum?"),
        (["--seed", "--cfg", "job"], "got '--seed', expected KEY=VALUE; did you mean seed=VALUE?"),
        (["--seed=3"], "got '--seed=3', expected KEY=VALUE; did you mean seed=3?"),
        (["task", "seed=1"], "got 'task', expected KEY=VALUE; did you mean task=VALUE?"),
        (["-m", "--cfg", "job"], "--multirun: one configuration is shown, not those of several runs"),
        (["--resolve"], "--resolve: expected --cfg job with it"),
        (["~logger"], "logger: got ~logger, expected one of mlflow, none, "),
        (["~algorithm"], "algorithm: got ~algorithm, expected one of ars, cma_es, "),
        (["~algorithm=ars"], "algorithm: got ~algorithm=ars, expected one of ars, cma_es, "),
        (
            ["task.env_kwargs.x=~/x"],
            "task.env_kwargs.x=~/x: not a value; quote text that has spaces or any of ,=:{}[]()~:",
        ),
        (
            ["logger=[tensorboard,nope]"],
            "unknown logger 'nope': did you mean 'none'? allowed: mlflow, none, tensorboard, trackio, wandb",
        ),
        (["--nope"], "unrecognized arguments: --nope"),
        (
            ["--config-dir", "nope"],
            "--config-dir: nope is no folder; name one that has folders task, network, algorithm",
        ),
        (["--config-dir", ""], "--config-dir: got nothing, expected a folder; is a variable of the shell not set?"),
        (["resume=nope"], "no run directory at nope"),
        (["resume=${now:%Y}"], "resume: got '${now:%Y}', expected the path of a run, with no ${...} in it"),
        (
            ["network=mlp", "network.hidden=[1000000,1000000]"],
            "network: 1,000,012,000,002 parameters, held at least 4 ",
        ),
        (["run_dir=/dev/null/x"], "run_dir: cannot write to /dev/null/x (Not a directory)"),
        (["cluster=ray", "cluster.resources={CPU: 2}"], "cluster.resources.CPU: got 2, expected cluster.workers=N"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_train_bad_input_is_refused_in_one_line(overrides: list[str], expected: str, tmp_path: Path):
    done = pyes("train", *overrides, cwd=tmp_path)
    assert error_line(done, 2).startswith(expected)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("algorithm.name=ga", "(algorithm=ga chooses its keys, too; algorithm.name=ga does not)"),
        ("task.name=python", "(task=python chooses its keys, too; task.name=python does not)"),
    ],
)
def test_train_name_without_the_keys_that_belong_to_it_is_pointed_to_its_group(
    override: str, hint: str, tmp_path: Path
):
    assert error_line(pyes("train", override, cwd=tmp_path), 2).endswith(hint)


@pytest.mark.slow
def test_train_options_of_a_library_take_any_key(tmp_path: Path):
    done = pyes("train", "algorithm=cma_es", "algorithm.options.CMA_activ=false", *TINY, cwd=tmp_path)
    assert "unknown key 'algorithm.options.CMA_activ': did you mean" in error_line(done, 2)


@pytest.mark.slow
def test_train_an_experiment_with_another_algorithm_than_its_own_is_refused(tmp_path: Path):
    line = error_line(pyes("train", "experiment=quadratic", "algorithm=snes", "debug=default", cwd=tmp_path), 2)
    assert line.startswith("algorithm: got snes, but experiment=quadratic sets the keys of openai_es; leave out")


@pytest.mark.slow
def test_train_an_experiment_whose_environment_takes_the_place_of_the_tasks_is_refused(tmp_path: Path):
    words = ("experiment=cart_pole", "debug=default", "run_dir=run")
    line = error_line(pyes("train", *words, "task=acrobot", cwd=tmp_path), 2)
    assert line.startswith("task: got acrobot, but experiment=cart_pole sets task.env_id=CartPole-v1; for")
    assert pyes("train", *words, "task=acrobot", "task.env_id=Acrobot-v1", cwd=tmp_path).returncode == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["task"]["name"], config["task"]["env_id"]) == ("gymnasium", "Acrobot-v1")


@pytest.mark.parametrize(
    ("overrides", "status", "expected"),
    [
        (["task=gymnasium", "task.env_id=Nope-v1"], 2, "Nope"),
        (["noise.entries=5"], 2, "noise.entries: the table has 5 entries, theta has 114 parameters"),
        (["task.action=tanh"], 2, "task.action=tanh does not fit the action space Discrete(2)"),
        (["task.env_kwargs={nope: 1}"], 1, "nope"),
        (["cluster=local", "task.action=tanh"], 2, "task.action=tanh does not fit the action space Discrete(2)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_train_what_does_not_fit_together_is_refused_in_one_line(
    overrides: list[str], status: int, expected: str, tmp_path: Path
):
    done = pyes("train", *TINY, *overrides, "run_dir=run", cwd=tmp_path)
    line = error_line(done, status)
    assert expected in line
    assert line.partition(";")[0][:40] in (tmp_path / "run" / "train.log").read_text(encoding="utf-8")


@pytest.mark.slow
def test_train_environment_that_always_raises_is_one_line_and_status_1(tmp_path: Path):
    (tmp_path / "broken_env.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Broken(CartPoleEnv):\n"
        "    def step(self, action):\n"
        "        raise RuntimeError('the cart has\\nno wheels')\n"
        "gymnasium.register('Broken-v0', Broken)\n"
    )
    overrides = ("debug=default", "task=gymnasium", "task.env_id=broken_env:Broken-v0")
    line = error_line(pyes("train", *overrides, cwd=tmp_path, PYTHONPATH=str(tmp_path)), 1)
    assert "no wheels" in line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            b"task: {max_timesteps: 9}\n",
            "experiment=mine: its file sets keys of experiment, not of the run; make '# @pa",
        ),
        (
            b"defaults: [override /task: cart_pole]\n",
            "experiment=mine: its file sets keys of experiment, not of the run",
        ),
        (b"seed: 2\n  a: b: c\n", "{file}:2: mapping values are not allowed here; correct this line or the one before"),
        (b"seed: 2\nseed: 3\n", "{file}:2: found duplicate key seed; correct this line or the one before"),
        (b"seed: \xff2\n", "{file}: not UTF-8 (invalid start byte: 0xff); save it as UTF-8"),
        (b"seed: \x002\n", 'unacceptable character #x0000: special characters are not allowed; in "'),
    ],
    ids=["no package", "no package in defaults", "indented", "twice", "no UTF-8", "control character"],
)
def test_train_a_mistake_in_an_option_of_ones_own_is_one_line(text: bytes, expected: str, tmp_path: Path):
    file = Path("my", "experiment", "mine.yaml")
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_bytes(text)
    done = pyes("train", "--config-dir", "my", "experiment=mine", "run_dir=run", cwd=tmp_path)
    assert error_line(done, 2).startswith(expected.format(file=file))


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("key", ["run_dir", "hydra.run.dir"])
def test_train_into_a_directory_that_holds_a_run_leaves_it_as_it_was(key: str, run: Path):
    files = files_of(run)
    done = pyes("train", *TINY, f"{key}={run}", cwd=run.parent)
    assert error_line(done, 2).startswith(f"run_dir: {run} already holds a run; go on with it (resume={run})")
    assert pyes("train", *TINY, f"{key}={run}", "--cfg", "job", cwd=run.parent).returncode == 0  # which runs nothing
    assert files == files_of(run)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["run_dir", "hydra.sweep.dir"])
def test_train_into_the_folder_of_a_sweep_leaves_its_runs_as_they_were(key: str, tmp_path: Path):
    sweep = ("-m", *TINY, "generations=1", f"{key}=sweep", "seed=0,1")
    assert pyes("train", *sweep, cwd=tmp_path).returncode == 0
    files = files_of(tmp_path / "sweep")
    done = pyes("train", *sweep[:-1], "algorithm.sigma=0.2", "seed=5,6,7", cwd=tmp_path)
    begun = "run_dir: sweep has runs of another sweep (debug=default "
    assert error_line(done, 2).startswith(begun)
    assert (
        "seed=0,1); give the same words in the same order to run its missing jobs, or choose another folder"
        in done.stderr
    )
    assert files == files_of(tmp_path / "sweep")
    done = pyes("train", *sweep, cwd=tmp_path)
    assert done.stderr.count("already holds a run; go on with it (resume=") == 3  # each, and at the end
    assert "train.log" not in done.stderr  # where nothing of it is
    changed = {path.name for path, data in files_of(tmp_path / "sweep").items() if files.get(path) != data}
    assert changed <= {"multirun.yaml", "lock"}
    done = pyes("train", *sweep, "cluster=inline", cwd=tmp_path)
    assert "already holds a run" in error_line(done, 2)
    done = pyes("train", *sweep[:-1], "+hydra.sweeper.params.seed='5,6'", cwd=tmp_path)
    assert error_line(done, 2).startswith(begun)
    named = pyes("train", *sweep[:-1], "seed=5", "hydra.sweep.subdir=seed-${seed}", cwd=tmp_path)
    assert (tmp_path / "sweep" / "seed-5" / "journal.bin").exists(), (
        named.stderr
    )  # jobs that no other one is called like


@pytest.mark.slow
@pytest.mark.parametrize("override", ["seed=range(0,0)", "experiment=glob(nope*)"])
def test_train_a_sweep_of_no_jobs_is_refused(override: str, tmp_path: Path):
    done = pyes("train", "-m", override, "run_dir=sweep", cwd=tmp_path)
    assert error_line(done, 2).startswith("-m: the values make no run; glob() has no option of its group")


@pytest.mark.slow
def test_train_a_path_may_begin_with_the_users_own_folder(tmp_path: Path):
    """Where the shell has left it as it is."""
    home = {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
    done = pyes("train", "run_dir=~/run", "--cfg", "job", cwd=tmp_path, **home)
    assert f"\nrun_dir: {tmp_path / 'run'}\n" in done.stdout
    line = error_line(pyes("train", "resume=~/run", cwd=tmp_path, **home), 2)
    assert line == f"no run directory at {tmp_path / 'run'}"


def test_train_makes_nothing_where_it_only_shows_the_configuration(tmp_path: Path):
    done = pyes("train", "--cfg", "job", "--resolve", cwd=tmp_path)
    assert "\nrun_dir: runs/" in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flag", "overrides", "expected"),
    [
        ("--cfg=job", ["seed=1"], None),
        ("--cfg=job", ["seed=-1"], "seed: got -1, expected an integer >= 0"),
        ("-c", ["job", "algorithm.typo=3"], "unknown key 'algorithm.typo'"),
        ("--cfg=job", ["experiment=hopper_mujoco", "algorithm=snes"], "algorithm: got snes, but experiment="),
        ("--cfg=job", ["task=gymnasium"], "task.env_id: missing"),
    ],
)
def test_train_says_what_is_wrong_with_a_configuration_that_it_shows(
    flag: str, overrides: list[str], expected: str | None, tmp_path: Path
):
    done = pyes("train", flag, *overrides, cwd=tmp_path)
    assert "\nevaluation:\n" in done.stdout
    if expected is None:
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert error_line(done, 2).startswith(expected)


@pytest.mark.slow
def test_train_resume_goes_on_with_the_configuration_of_the_run(tmp_path: Path):
    chosen = (*TINY, "seed=5", "algorithm=pgpe", "algorithm.sigma=0.25", "task.env_kwargs.sutton_barto_reward=true")
    first = pyes("train", *chosen, "run_dir=whole", "generations=4", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    pyes("train", *chosen, "run_dir=parts", "logger.project=mine", cwd=tmp_path)
    overrides = (tmp_path / "parts" / ".hydra" / "overrides.yaml").read_text()
    done = pyes("train", "resume=parts", "generations=4", "logger=tensorboard", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path / 'parts'}\n"
    assert (tmp_path / "parts" / ".hydra" / "overrides.yaml").read_text() == overrides
    weights = [(tmp_path / name / "policy.safetensors").read_bytes() for name in ("whole", "parts")]
    assert weights[0] == weights[1]
    logger = RunDirectory(tmp_path / "parts").read_config().logger
    assert (logger.tensorboard, logger.project) == (True, "mine")
    line = error_line(pyes("train", "resume=parts", "debug=default", cwd=tmp_path), 2)
    assert line.startswith("debug: a resumed run keeps its configuration")


@pytest.mark.slow
def test_the_cluster_that_a_run_has_already_keeps_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    done = pyes("train", *TINY, "cluster=local", "cluster.workers=1", "cluster.attempts=7", "run_dir=run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    same = settings(["resume=run", "cluster=local", "cluster.workers=2"]).cluster
    assert (same.workers, same.attempts) == (2, 7)
    other = settings(["resume=run", "cluster=socket"]).cluster
    assert (other.workers, other.attempts) == (0, 3)


@pytest.mark.slow
def test_train_resume_takes_mappings_with_any_keys(tmp_path: Path):
    weights = {"1": 5, "1.5": 2, "true": 1, "null": None, "a:b": [1, {"é": "it's ${x}"}], "": 0}
    code = f"def f(theta, weights):\n    assert weights == {weights!r}\n    return -float(theta @ theta)\n"
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    task = {"name": "function", "factory": "mine:f", "dim": 2, "env_kwargs": {"weights": weights}}
    settings = {"task": task, "generations": 2, "cluster": {"name": "inline"}, "run_dir": "run"}
    trained = f"import pyes; pyes.train({settings!r}, display=False)"
    subprocess.run([sys.executable, "-c", trained], cwd=tmp_path, check=True, timeout=100)
    done = pyes("train", "resume=run", "generations=3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 generations" in done.stderr


def test_table_of_a_sweep_is_markdown_or_json_and_nothing_else(run: Path, tmp_path: Path):
    shutil.copytree(run, tmp_path / "sweep" / "0")
    done = pyes("table", "sweep", "--targets=-1", "--targets=1000", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    title, _, head, _, row = done.stdout.splitlines()
    assert title == "CartPole-v1"
    assert head.startswith("| runs | seeds |")
    assert row.startswith("| ARS  |     1 | ")
    assert " 1/1 |" in row
    assert " 0/1 |" in row
    done = pyes("table", "sweep", "--targets=-1,1000", "--json", cwd=tmp_path)
    assert [each["reached"] for each in json.loads(done.stdout)["rows"][0]["targets"]] == [1, 0]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_train_sweep_runs_every_job_and_logs_a_failing_one_in_its_folder(launcher: str, tmp_path: Path):
    command = started if launcher == "joblib" else pyes  # joblib starts Pythons like its own
    done = command("train", *TINY, "seed=0,-1,2", f"hydra/launcher={launcher}", "run_dir=sweep", "-m", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("pyes: error: seed: got -1, expected an integer >= 0")
    assert "pyes: job 1 failed: seed: got -1" in done.stderr
    assert "Error executing job" not in done.stderr
    assert "\nCartPole-v1\n\n| runs | seeds |" in done.stderr
    assert "got -1" in (tmp_path / "sweep" / "1" / "train.log").read_text(encoding="utf-8")
    assert sorted(done.stdout.splitlines()) == [str(tmp_path / "sweep" / job) for job in "02"]
    assert all((tmp_path / "sweep" / job / "policy.safetensors").exists() for job in "02")


@pytest.mark.slow
def test_the_log_of_a_job_that_fails_in_code_of_ones_own_says_where(tmp_path: Path):
    (tmp_path / "mine.py").write_text("def make():\n    return 1 / 0\n")
    done = pyes("train", "task=python", "task.factory=mine:make", "generations=1", "run_dir=sweep", "-m", cwd=tmp_path)
    assert done.stderr.splitlines()[-1].startswith("pyes: error: task.factory=mine:make failed: ZeroDivisionError")
    assert "Traceback" not in done.stderr
    log = (tmp_path / "sweep" / "0" / "train.log").read_text(encoding="utf-8")
    assert 'mine.py", line 2, in make' in log


@pytest.mark.slow
def test_train_sweep_into_the_runs_of_another_one_is_refused(run: Path, tmp_path: Path):
    words = ("-m", *TINY, "generations=1", "run_dir=sweep")
    done = pyes("train", *words, "seed=0,1", "algorithm.sigma=0.1,0.2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = pyes("train", *words, "algorithm.sigma=0.1,0.2", "seed=0,1", cwd=tmp_path)  # other numbers of the same jobs
    assert error_line(done, 2).startswith("run_dir: sweep has runs of another sweep (")
    done = pyes("train", "-m", *TINY, "seed=0,1", f"run_dir={run}", cwd=tmp_path)
    assert error_line(done, 2).startswith(f"run_dir: {run} already holds a run")


@pytest.mark.slow
def test_train_into_a_directory_that_a_key_names_leaves_all_of_its_files(tmp_path: Path):
    words = (*TINY, "generations=1", "run_dir=run${seed}")
    assert pyes("train", *words, cwd=tmp_path).returncode == 0
    files = files_of(tmp_path / "run0")
    assert error_line(pyes("train", *words, "algorithm.sigma=0.7", cwd=tmp_path), 2).startswith("run_dir: run0 already")
    assert files_of(tmp_path / "run0") == files


@pytest.mark.slow
def test_train_takes_options_of_a_folder_of_the_users_own(tmp_path: Path):
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    (tmp_path / "mine" / "sweep").mkdir()
    text = "# @package _global_\ndefaults: [override /task: cart_pole]\n"
    (tmp_path / "mine" / "experiment" / "several.yaml").write_text(
        f"{text}hydra: {{mode: MULTIRUN, sweeper: {{params: {{seed: '3,4'}}}}}}\n"
    )
    done = pyes("train", "--config-dir", "mine", "experiment=several", "debug=default", "run_dir=both", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(tmp_path / "both" / job) for job in "01"]
    (tmp_path / "mine" / "sweep" / "single.yaml").write_text(
        "# @package _global_\nhydra: {sweeper: {params: {seed: '3,4'}}}\n"
    )
    done = pyes("train", "--config-dir", "mine", *TINY, "sweep=single", cwd=tmp_path)
    assert error_line(done, 2).startswith("sweep=single: its file makes no sweep; give it hydra.mode: MULTIRUN")
    (tmp_path / "mine" / "experiment" / "1.2.3.yaml").write_text(text)
    done = pyes("train", "--config-dir", "mine", "experiment=1.2.3", "debug=default", "run_dir=dots", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "mine" / "experiment" / "cart_pole.yaml").write_text(text)
    done = pyes("train", "--config-dir", "mine", "experiment=several", cwd=tmp_path)
    assert error_line(done, 2).startswith(
        "mine/experiment/cart_pole.yaml: a prepared option is called experiment=cart_pole, too"
    )


@pytest.mark.slow
def test_train_group_sweep_is_a_sweep_without_a_flag(tmp_path: Path):
    done = pyes("train", *TINY, "sweep=seeds", "generations=1", "hydra.sweep.dir=five", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(tmp_path / "five" / str(job)) for job in range(5)]


@pytest.mark.slow
def test_train_sweep_that_compares_takes_the_command_line_first_and_leaves_jobs_that_are_there(tmp_path: Path):
    overrides = ("sweep=compare_lander", "algorithm=openai_es", "seed=0", "debug=default", "run_dir=lander")
    done = pyes("train", *overrides, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(tmp_path / "lander" / job) for job in "01"]
    assert pyes("table", "lander", cwd=tmp_path).stdout in done.stderr
    done = pyes("table", "lander", "--json", cwd=tmp_path)
    assert [row["label"] for row in json.loads(done.stdout)["rows"]] == ["1 episode", "5 episodes"]
    shutil.rmtree(tmp_path / "lander" / "1")
    metrics = (tmp_path / "lander" / "0" / "metrics.csv").read_bytes()
    done = pyes("train", *overrides, cwd=tmp_path)
    assert done.stdout.splitlines() == [str(tmp_path / "lander" / "1")]
    assert "pyes: job 0 failed: run_dir:" in done.stderr
    assert (tmp_path / "lander" / "0" / "metrics.csv").read_bytes() == metrics


def test_train_takes_an_address_of_ipv6_as_it_is_written(tmp_path: Path):
    done = pyes("train", "cluster=socket", "cluster.listen=tcp://[::1]:5999", "--cfg", "job", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "  listen: tcp://[::1]:5999\n" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("words", [("network=linear", "~debug"), ("network.name=linear", "~network.bias")])
def test_train_takes_what_only_looks_like_a_schedule(words: tuple[str, ...], tmp_path: Path):
    done = pyes("train", *words, "task=cart_pole", "--cfg", "job", cwd=tmp_path)
    assert "linear, a schedule" not in done.stderr, done.stderr


def test_train_help_lists_the_choices(tmp_path: Path):
    done = pyes("train", "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert (
        "task: acrobot, ant_bullet, ant_mujoco, atari, beam_rider, bipedal_walker, bipedal_walker_hardcore, cart_pole, "
        in done.stdout
    )


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT from another process")
@pytest.mark.parametrize("cluster", [pytest.param("inline", marks=pytest.mark.slow), "local"])
def test_train_interrupt_saves_and_says_how_to_go_on(cluster: str, tmp_path: Path):
    command = [sys.executable, "-m", "pyes", "train", "task=cart_pole", f"cluster={cluster}", "generations=null"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with running([*command, "noise.entries=1000000", "run_dir=run"], cwd=tmp_path, **pipes) as process:
        metrics = tmp_path / "run" / "metrics.csv"
        until(lambda: metrics.read_text().count("\n") > 2, "two rows")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: to the workers as well
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert f"go on with: pyes train resume={tmp_path / 'run'}" in stderr
    assert stdout == f"{tmp_path / 'run'}\n"
    assert (tmp_path / "run" / "policy.safetensors").exists()


ENDLESS = """
import time, gymnasium, numpy as np
class Endless(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32), gymnasium.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        time.sleep(0.001)
        return np.zeros(2, np.float32), 1.0, False, False, {}
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT from another process")
def test_an_ignored_signal_stays_ignored(tmp_path: Path):
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-m", "pyes", "train", *TINY]
    ends = ("generations=null", "time_limit=600", "run_dir=run")
    with running([*command, *ends], cwd=tmp_path, stderr=subprocess.PIPE) as process:
        while not (tmp_path / "run" / "journal.bin").exists():
            time.sleep(0.05)
        for _ in range(3):
            process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 130
        assert stderr.count("the run ends after this generation") == 1


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT from another process")
@pytest.mark.parametrize("cluster", ["inline", "local"])
def test_train_without_a_time_limit_has_one_and_answers_an_interrupt_at_once(cluster: str, tmp_path: Path):
    (tmp_path / "endless.py").write_text(ENDLESS)
    command = [sys.executable, "-m", "pyes", "train", "task=python", "task.factory=endless:Endless", "run_dir=run"]
    with running([*command, f"cluster={cluster}"], cwd=tmp_path, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        note = next(line for line in process.stderr if "no time limit" in line)
        limits = "its episodes end after 10,000 timesteps; task.max_timesteps=1000 sets another limit"
        assert note.endswith(f"has no time limit: {limits}\n")
        while not (tmp_path / "run" / "config.json").exists():
            time.sleep(0.05)
        time.sleep(0.5)
        for answer in ("the run ends after this generation; again (Ctrl-C)", "stopped in generation 0"):
            asked = time.monotonic()
            os.killpg(process.pid, signal.SIGINT)
            assert process.stderr.readline().startswith(answer)
            assert time.monotonic() - asked < 20.0
        assert "go on with: pyes train resume=" in process.stderr.read()
        assert process.wait(60) == 130


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no locks")
def test_a_second_start_in_a_directory_changes_nothing_of_the_first(tmp_path: Path):
    command = [sys.executable, "-m", "pyes", "train", *TINY, "generations=null", "time_limit=600", "run_dir=run"]
    record = tmp_path / "run" / ".hydra" / "overrides.yaml"
    with running([*command, "seed=1"], cwd=tmp_path, stderr=subprocess.PIPE) as process:
        while not record.exists() or not record.read_text():
            time.sleep(0.01)
        written = record.read_text()
        line = error_line(pyes("train", *TINY, "seed=2", "run_dir=run", cwd=tmp_path), 2)
        assert re.match(r"run_dir: (run already holds a run|another process \(\d+@.*\) is writing to run)", line), line
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert record.read_text() == written
    assert "seed=1" in written


@pytest.mark.skipif(sys.platform == "win32", reason="folders in use cannot be deleted")
def test_train_in_a_deleted_directory_is_one_line(tmp_path: Path):
    gone = tmp_path / "gone"
    gone.mkdir()
    command = ["sh", "-c", 'cd "$1"; rmdir "$1"; shift; exec "$@"', "sh", str(gone)]
    done = subprocess.run(
        [*command, sys.executable, "-m", "pyes", "train", *TINY],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert error_line(done, 2) == "the current directory was deleted; change to one that exists (cd)"


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes in folders")
def test_train_does_not_wait_for_the_reader_of_a_pipe(tmp_path: Path):
    (tmp_path / "run").mkdir()
    os.mkfifo(tmp_path / "run" / "train.log")
    line = error_line(pyes("train", *TINY, "run_dir=run", cwd=tmp_path), 2)
    assert line.startswith(f"run_dir: {Path('run', 'train.log')}: got a pipe or a socket, expected a file")


@pytest.mark.slow
def test_train_and_resume_take_any_path(tmp_path: Path):
    name = "x=y/lauf-ä/a b,c'd"
    for arguments in (["run_dir=" + name, *TINY, "generations=1"], ["resume=" + name, "generations=2"]):
        done = pyes("train", *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{tmp_path / name}\n"
    assert (tmp_path / name / "metrics.csv").read_text().count("\n") == 3


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["seed=1,2", "-m"], "resume: one run goes on at a time; leave out -m and sweep"),
        (["run_dir=elsewhere"], "run_dir: a resumed run stays where it is; leave out run_dir, or resume"),
        (["hydra.run.dir=elsewhere"], "hydra.run.dir: a resumed run stays where it is; leave out hydra.run.dir, or"),
        (["hydra.mode=MULTIRUN"], "hydra.mode: a resumed run stays where it is; leave out hydra.mode, or resume"),
        (["seed=7"], "resume: these settings decide the run and cannot change: seed (was 0, got 7); add force=true"),
    ],
)
def test_train_resume_refuses_in_one_line(overrides: list[str], expected: str, run: Path):
    line = error_line(pyes("train", f"resume={run}", *overrides, cwd=run.parent), 2)
    assert line.startswith(expected)
    assert not (run.parent / "elsewhere").exists()


def test_train_resume_of_what_is_no_run_but_has_one_or_is_in_one_says_which(run: Path):
    line = error_line(pyes("train", "resume=.", cwd=run.parent), 2)
    assert line.startswith(". is a folder of runs; name one of them: run")
    line = error_line(pyes("train", "resume=run/policy.safetensors", cwd=run.parent), 2)
    assert line == f"{Path('run', 'policy.safetensors')} is a file, expected a run directory: run"


@pytest.mark.slow
def test_train_with_an_environment_that_prints_has_the_run_directory_alone_on_stdout(tmp_path: Path):
    (tmp_path / "talking_env.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Talking(CartPoleEnv):\n"
        "    def step(self, action):\n"
        "        print('a step')\n"
        "        return super().step(action)\n"
        "print('hello')\n"
        "gymnasium.register('Talking-v0', Talking, max_episode_steps=20)\n"
    )
    overrides = ("debug=default", "task=gymnasium", "task.env_id=talking_env:Talking-v0", "run_dir=run")
    for cluster in ("inline", "local"):
        done = pyes("train", *overrides[:-1], f"run_dir={cluster}", f"cluster={cluster}", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{tmp_path / cluster}\n"
    done = pyes("evaluate", "local", "--episodes", "1", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["lengths"]


@pytest.mark.slow
@pytest.mark.parametrize("does", ["sys.stdout = open(os.devnull, 'w')", "sys.stdout.close()"])
def test_an_environment_that_takes_standard_output_does_not_take_the_results(does: str, tmp_path: Path):
    (tmp_path / "taking_env.py").write_text(
        "import os, sys, gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Taking(CartPoleEnv):\n"
        "    def reset(self, **arguments):\n"
        f"        {does}\n"
        "        return super().reset(**arguments)\n"
        "gymnasium.register('Taking-v0', Taking, max_episode_steps=20)\n"
    )
    settings = ("debug=default", "task=gymnasium", "task.env_id=taking_env:Taking-v0", "run_dir=run", "cluster=inline")
    done = pyes("train", *settings, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'run'}\n"), done.stderr
    done = pyes("evaluate", "run", "--episodes", "1", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["lengths"], done.stderr


def test_what_an_environment_prints_before_an_error_is_not_on_stdout():
    code = """
from pyes.cli.output import running_environments
with running_environments():
    print("a step")
    raise SystemExit(1)
"""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "a step\n")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_output_is_no_hindrance(closed: str, run: Path, tmp_path: Path):
    command = f"{sys.executable} -m pyes train {' '.join(TINY)} run_dir=run {closed}"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert "Traceback" not in done.stderr
    assert (tmp_path / "run" / "policy.safetensors").exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no /dev/full")
@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["info"],
        ["table", "RUN"],
        ["diff", "RUN", "RUN"],
        ["keygen", "-o", "key"],
        ["train", "--cfg", "job"],
        ["train", *TINY, "run_dir=run"],
        ["evaluate", "RUN", "--episodes", "1"],
        ["evaluate", "RUN", "--episodes", "1", "--json"],
        ["replay", "RUN", "--generation", "0", "--member", "0"],
        ["plot", "RUN", "-o", "a.png"],
        ["map", "RUN", "-o", "a.png"],
        ["export", "RUN", "-o", "a.safetensors"],
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_full_standard_output_is_one_line(arguments: list[str], run: Path, tmp_path: Path):
    command = [sys.executable, "-m", "pyes", *(str(run) if each == "RUN" else each for each in arguments)]
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        pipes = {"stdout": full, "stderr": subprocess.PIPE, "text": True}
        done = subprocess.run(command, cwd=tmp_path, env=variables, check=False, timeout=100, **pipes)
    done.stdout = ""
    whole = " (the run is whole)" if "run_dir=run" in arguments else ""
    expected = f"standard output: No space left on device; make room, or choose another place{whole}"
    assert error_line(done, 1) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "way"),
    [
        *((name, "run_dir") for name in ("metrics.csv", "journal.bin", "config.json", "train.log", "policy.json")),
        *((name, "resume") for name in ("metrics.csv", "journal.bin", "train.log", "best.safetensors")),
    ],
)
def test_train_a_directory_where_a_file_should_be_is_named(name: str, way: str, run: Path, tmp_path: Path):
    if way == "resume":
        shutil.copytree(run, tmp_path / "run")
    place = tmp_path / "run" / name
    place.unlink(missing_ok=True)
    place.mkdir(parents=True)
    line = error_line(pyes("train", *(TINY if way == "run_dir" else ()), f"{way}=run", cwd=tmp_path), 2)
    assert name in line
    assert "a directory, expected a file; move it away or " in line


LIMITED = """
import resource, sys
from pyes.cli import main
resource.setrlimit(getattr(resource, sys.argv.pop(1)), (int(sys.argv[1]),) * 2)
del sys.argv[1]
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit and setpriv")
@pytest.mark.parametrize("cluster", ["inline", "local"])
@pytest.mark.parametrize(
    ("limit", "numbers", "advice"),
    [
        ("NOFILE", range(6, 40, 8), "Too many open files; raise the limit of open files (ulimit -n)"),
        ("NPROC", range(2, 7), "raise the limit of processes and threads (ulimit -u)"),
    ],
)
def test_train_a_limit_of_the_system_is_named(limit: str, numbers: range, advice: str, cluster: str, tmp_path: Path):
    program = [sys.executable, "-c", LIMITED, f"RLIMIT_{limit}"]
    if limit == "NPROC" and os.geteuid() == 0:  # whom it does not bind
        if shutil.which("setpriv") is None:
            pytest.skip("no setpriv to become another user with")
        capabilities = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
        user = 61_000 + os.getpid() % 1_000  # one of whom no other test has processes
        program = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *capabilities, *program]
    lines = []
    for number in numbers:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        command = [*program, str(number), "train", *TINY, f"cluster={cluster}", "run_dir=run"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
        if done.returncode:
            lines.append(done.stderr.splitlines()[-1])
    assert len(lines) > 1
    assert [line for line in lines if not line.startswith("pyes: error: ") or advice not in line] == []


DEAF = """
import time, gymnasium, numpy as np
class Deaf(gymnasium.Env):
    steps = 0
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32), gymnasium.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        Deaf.steps += 1
        while Deaf.steps > 50:
            try:
                open("begun", "w").close()
                time.sleep(100)
            except BaseException:
                open("again", "w").close()
        return np.zeros(2, np.float32), 0.0, True, False, {}
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT from another process")
def test_train_a_third_interrupt_ends_a_run_that_does_not_stop(tmp_path: Path):
    (tmp_path / "deaf.py").write_text(DEAF)
    command = [sys.executable, "-m", "pyes", "train", "task=python", "task.factory=deaf:Deaf", "cluster=inline"]
    reader, terminal = os.openpty()
    pipes = {"stdout": subprocess.DEVNULL, "stderr": terminal}
    command += ["run_dir=run", "algorithm.population_size=8", "evaluation.every=0"]  # the panel is there at step 50
    options = {"cwd": tmp_path, "env": os.environ | {"TERM": "xterm"}, "start_new_session": True}
    # A shell's background jobs have it ignored.
    process = subprocess.Popen(
        command, **options, **pipes, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    )
    os.close(terminal)
    try:
        shown = b""
        for mark, answer in (("begun", b"again (Ctrl-C): it stops now"), ("begun", b""), ("again", b"ended at once")):
            deadline = time.monotonic() + 60
            while not (tmp_path / mark).exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(1)  # as long as a person takes: the answer to the one before is finished
            process.send_signal(signal.SIGINT)
            while answer not in shown and time.monotonic() < deadline:
                if select.select([reader], [], [], 1)[0]:
                    shown += os.read(reader, 65536)
            assert answer in shown, shown
        assert process.wait(60) == 130
        assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")  # the cursor is there again
    finally:
        process.kill()
        process.wait()
        os.close(reader)


THREADED = """
import threading, time, gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
class Threaded(CartPoleEnv):
    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        threading.Thread(target=time.sleep, args=(3600,), name="simulator").start()
gymnasium.register("Threaded-v0", Threaded, max_episode_steps=20)
"""


@pytest.mark.slow
def test_a_thread_of_an_environment_does_not_keep_a_command(tmp_path: Path):
    (tmp_path / "threaded.py").write_text(THREADED)
    overrides = (*TINY[:1], "task=gymnasium", "task.env_id=threaded:Threaded-v0", "run_dir=run")
    for command in (
        ["train", *overrides, "cluster=inline"],
        ["evaluate", "run", "--episodes", "1"],
        ["replay", "run", "--generation", "0", "--member", "0"],
        ["evaluate", "run", "--generation", "77"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "pyes", *command], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == (2 if "77" in command else 0), done.stderr
        assert bool(done.stdout) == (done.returncode == 0)
        if done.returncode == 0:
            assert re.search(r"^pyes: ended \d thread.* \(simulator.* 5 s after the last line; ", done.stderr, re.M)


def test_replay_json_is_what_the_journal_has(run: Path):
    done = pyes("replay", run, "--generation", "1", "--member", "2", "--json", cwd=run.parent)
    assert done.returncode == 0, done.stderr
    playback = json.loads(done.stdout)
    assert set(playback) == {"return", "length", "seed"}
    from pyes.reports import replay

    with replay.open(run) as individuals:
        assert (playback["return"], playback["length"]) == (individuals.returns(1)[2], individuals.lengths(1)[2])


def test_evaluate_tells_of_episodes_without_a_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    episodes = [(3.0, 5), (float("nan"), 7), (5.0, 6)]
    monkeypatch.setattr("pyes.reports.replay.evaluate", lambda *_, **__: EvaluationResult.of(episodes))
    assert cli.main(["evaluate", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "return 4.000 ± 1.000 over 2 episodes (min 3.000, max 5.000), length 5.5",
        "1 episode failed: the return was not a finite number",
    ]


def test_evaluate_json_is_all_there_is_on_stdout(run: Path):
    done = pyes("evaluate", run, "--episodes", "3", "--json", cwd=run.parent)
    assert done.returncode == 0, done.stderr
    evaluation = json.loads(done.stdout)
    assert set(evaluation) == {"return_mean", "return_std", "returns", "lengths", "error"}
    assert len(evaluation["returns"]) == len(evaluation["lengths"]) == 3


def test_evaluate_seed_decides_the_episodes(run: Path):
    def out(*arguments: str) -> str:
        return pyes("evaluate", run, "--episodes", "5", *arguments, cwd=run.parent).stdout

    own = out()
    assert own.startswith("return ")
    assert own == out("--seed", "0")  # the run's own
    assert own != out("--seed", "1")


def test_plot_map_video_and_export_write_their_files(run: Path, tmp_path: Path):
    own = "--width 4 --height 3 --title Mine --labels mine --order label --logy --smooth 2 --x generation --band iqm"
    commands = (("plot", "curve.png"), ("map", "map.png"), ("video", "film.mp4"), ("export", "policy.onnx"))
    for command, name, *options in (*commands, ("plot", "own.svg", *own.split())):
        done = pyes(command, run, "-o", name, *options, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{name}\n"
        assert (tmp_path / name).stat().st_size > 100


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "the following arguments are required: COMMAND (see pyes --help)"),
        (["nope"], "argument COMMAND: invalid choice: 'nope' (choose from"),
        (["tarin", "task=cart_pole"], "argument COMMAND: did you mean 'train'? invalid choice: 'tarin' (choose from"),
        (["evaluate"], "the following arguments are required: RUN (see pyes evaluate --help)"),
        (["evaluate", "nope"], "no run directory at nope"),
        (["evaluate", "runs/cartpole"], "no run directory at runs/cartpole; did you mean runs/cart_pole?"),
        (["plot", "runs/x/0", "-o", "a.png"], "no run directory at runs/x/0; runs has cart_pole"),
        (["evaluate", "run/cart_pole"], "no run directory at run/cart_pole; did you mean runs?"),
        (["evaluate", "x", "--episodes", "0"], "argument --episodes: got '0', expected an integer >= 1"),
        (["evaluate", "x", "--seed", "-1"], "argument --seed: got '-1', expected an integer >= 0"),
        (["evaluate", ".", "--generation", "3"], "no journal at "),
        (["replay", ".", "--generation", "0", "--member", "0"], "no journal at "),
        (["replay", "nope", "--member", "0"], "the following arguments are required: --generation"),
        (["replay", "nope", "--generation", "-1", "--member", "0"], "--generation: got '-1', expected an integer >= 0"),
        (["map", "nope", "-o", "x.png", "--method", "y"], "argument --method: invalid choice: 'y'"),
        (["plot", "nope"], "the following arguments are required: -o/--output"),
        (
            ["table", "nope", "--targets", "200,much"],
            "argument --targets: got '200,much', expected numbers with commas",
        ),
        (["video", ".", "-o", "x.mp4"], "no policy at policy.safetensors"),
        (["launch"], "the following arguments are required: WAY (see pyes launch --help)"),
        (["launch", "ssh", "nope", "--", "train"], "cannot read the hosts in nope: No such file or directory"),
        (
            ["status", "tcp://127.0.0.1:1", "--watch", "0"],
            "argument --watch: got '0', expected seconds, a number >= 0.1",
        ),
        (["status", "tcp://127.0.0.1:1", "--json", "--watch"], "--watch: not allowed with argument --json"),
        (
            ["launch", "ssh", "nope", "--head", "tcp://10.0.0.1:6000", "--", "train"],
            "--head: got 'tcp://10.0.0.1:6000'",
        ),
        (["launch", "ssh", "nope", "--head", "10.0.0.1:6000", "--", "train"], "the port is that of --port"),
        (["launch", "ssh", "nope", "--head", "[::1]", "--", "train"], "cannot read the hosts in nope"),
        (["launch", "slurm", "--dry-run", "--", "train", "seed=0,1"], "seed: got 0,1, several values"),
        (["launch", "slurm", "--dry-run", "--", "train", "sede=0"], "did you mean 'seed'?"),
        (["launch", "ssh", "nope", "--port", "0"], "argument --port: got '0', expected an integer >= 1"),
        (
            ["launch", "slurm", "--dry-run", "--", "train", "cluster=local"],
            "cluster: pyes launch sets it; leave it out",
        ),
        (["export", ".", "-o", "x.exe"], "cannot export to x.exe: suffix '.exe', expected none or one of .safetensors"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_command_bad_input_is_refused_in_one_line(arguments: list[str], expected: str, tmp_path: Path):
    (tmp_path / "runs" / "cart_pole").mkdir(parents=True)
    done = pyes(*arguments, cwd=tmp_path)
    assert expected in error_line(done, 2)
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["evaluate", "sweep"], "sweep is a folder of runs; name one of them: sweep/0, sweep/1"),
        (["diff", "sweep/0", "sweep"], "sweep is a folder of runs; name one of them: sweep/0, sweep/1"),
        (["diff", "sweep/0", "sweeps"], "no run directory at sweeps; did you mean sweep?"),
        (["evaluate", "sweep/0/metrics.csv"], "sweep/0/metrics.csv is a file, expected a run directory: sweep/0"),
        (["table", "sweep/0/metrics.csv"], "sweep/0/metrics.csv is a file, expected a run directory: sweep/0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_command_says_what_is_no_run_directory(arguments: list[str], expected: str, tmp_path: Path):
    for name in "01":
        (tmp_path / "sweep" / name).mkdir(parents=True)
        for file in ("journal.bin", "metrics.csv"):
            (tmp_path / "sweep" / name / file).touch()
    assert expected in error_line(pyes(*arguments, cwd=tmp_path), 2).replace("\\", "/")


@pytest.mark.parametrize("arguments", [["--debug", "evaluate", "nope"], ["evaluate", "nope", "--debug"]])
def test_debug_shows_the_traceback_wherever_it_stands(arguments: list[str], tmp_path: Path):
    done = pyes(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("Traceback")
    assert done.stderr.splitlines()[-1].startswith("pyes: error: no run directory at nope")


def test_debug_of_train_shows_the_traceback(tmp_path: Path):
    done = pyes("train", "--debug", "algorithm.sigma=-1", cwd=tmp_path)
    assert "Traceback" in done.stderr
    assert "in check" in done.stderr or "in _parse" in done.stderr


def test_unexpected_error_is_one_line_that_points_to_debug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fail(_: object) -> None:
        raise ZeroDivisionError("first\n  second")

    monkeypatch.setattr(this_machine, "_info", fail)
    assert cli.main(["info"]) == 1
    expected = "pyes: error: ZeroDivisionError: first; second; run again with --debug for the traceback\n"
    assert capsys.readouterr().err == expected


def test_not_enough_memory_is_one_line_that_says_what_to_try(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fail(_: object) -> None:
        raise MemoryError("Unable to allocate 3 GiB")

    monkeypatch.setattr(this_machine, "_info", fail)
    assert cli.main(["info"]) == 1
    expected = (
        "pyes: error: not enough memory: Unable to allocate 3 GiB; try a smaller population, network or noise table"
    )
    assert capsys.readouterr().err.startswith(expected)


def test_interrupt_is_status_130(monkeypatch: pytest.MonkeyPatch):
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(this_machine, "_info", interrupt)
    assert cli.main(["info"]) == 130

    def stumble(arguments: object) -> None:
        """As argparse does, if Ctrl-C comes while it begins."""
        try:
            interrupt(arguments)
        finally:
            raise AttributeError

    monkeypatch.setattr(this_machine, "_info", stumble)
    assert cli.main(["info"]) == 130


@pytest.mark.parametrize(
    "command", ["train", "tune", "evaluate", "replay", "video", "map", "report", "check-environment"]
)
def test_a_command_that_runs_environments_tells_their_interrupts_from_the_users(command: str):
    assert signal.SIGINT in _stopping([command, "run"])
    assert signal.SIGINT in _stopping(["--debug", command])
    if command not in ("train", "tune") and hasattr(signal, "SIGHUP"):  # a video is not left half-made
        assert signal.SIGHUP in _stopping([command, "run"])


def test_info_names_versions_machine_and_table(tmp_path: Path):
    done = pyes("info", cwd=tmp_path)
    assert done.returncode == 0
    for word in ("pyes", "python", "numpy", "torch", "cpu level", "cores", "memory", "shared memory", "noise table"):
        assert any(line.startswith(word) for line in done.stdout.splitlines())


@pytest.mark.slow
def test_info_does_not_import_torch(tmp_path: Path):
    code = "import sys; from pyes import cli; cli.main(['info']); sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.DEVNULL, check=False).returncode
        == 0
    )


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
def test_closed_pipe_is_no_traceback(tmp_path: Path):
    command = f"{sys.executable} -u -m pyes info | true"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.slow
def test_libraries_get_one_thread_unless_the_user_says_otherwise(tmp_path: Path):
    code = "import os; from pyes import cli; cli.main(['info']); print(os.environ['OMP_NUM_THREADS'])"
    for given, expected in (({}, "1"), ({"OMP_NUM_THREADS": "3"}, "3")):
        environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"} | given
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == expected


def test_a_refused_second_run_leaves_the_log_of_the_first_alone(tmp_path, capsys):
    run = tmp_path / "run"
    with RunDirectory(run).locked():
        (run / "train.log").write_text("of the first\n")
        assert cli.main(["train", f"run_dir={run}", "generations=1"]) == 2
        assert "another process" in capsys.readouterr().err
        assert cli.main(["train", f"run_dir={run}", "generations=-1"]) == 2
    assert (run / "train.log").read_text() == "of the first\n"


@pytest.mark.slow
def test_check_environment_ends_with_1_where_a_check_fails(tmp_path: Path):
    done = pyes("check-environment", "task=pendulum", "task.max_timesteps=20", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("spaces          ok      observations Box(")
    done = pyes("check-environment", "task=pendulum", "--against", "CartPole-v1", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("pyes: error: 2 checks of Pendulum-v1 failed")
    done = pyes("check-environment", "task=pendulum", "--against", "Nope-v0", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("pyes: error: --against: 'Nope-v0' cannot be made")
    done = pyes("check-environment", "task=pendulun", cwd=tmp_path)
    assert done.returncode == 2
    assert "did you mean 'pendulum'?" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_train_resume_takes_a_mapping_as_a_whole(tmp_path):
    """As in Python: what the run had in it is gone."""
    chosen = (*TINY, "task=gymnasium", "task.env_id=CartPole-v1", "task.env_kwargs.sutton_barto_reward=true")
    assert pyes("train", *chosen, "run_dir=run", cwd=tmp_path).returncode == 0
    done = pyes("train", "resume=run", "generations=3", "task.env_kwargs={}", cwd=tmp_path)
    assert "task.env_kwargs.sutton_barto_reward (was true, got null)" in error_line(done, 2)
    done = pyes("train", "resume=run", "generations=3", "task.env_kwargs={}", "force=true", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "config.json").read_text())["task"]["env_kwargs"] == {}
