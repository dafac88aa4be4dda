"""``pyes launch slurm`` on a real Slurm: two nodes of this machine, one worker each."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from heads import children, count_of, hurt, until
from slurm_cluster import Cluster, missing

from pyes.errors import ClusterError, ConfigError
from pyes.launch import head_arguments, slurm
from pyes.system.addresses import Address

#: Many generations that cost little: long enough to be disturbed.
GENERATIONS = 200
RUN = ("experiment=quadratic", f"generations={GENERATIONS}", "algorithm.population_size=10", "evaluation.every=0")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="Slurm runs on Linux")


# The script


def test_script_is_one_that_bash_takes_and_asks_for_what_it_should(tmp_path: Path):
    resources = slurm.Resources(4, "12:00:00", "long", 8, ["--mem=8G"])
    text = slurm.script(resources, ["train", "seed=1", "run_dir=it's $HOME"])
    path = tmp_path / "job.sh"
    path.write_text(text)
    subprocess.run(["bash", "-n", str(path)], check=True)
    expected = {"--nodes=4", "--time=12:00:00", "--partition=long", "--cpus-per-task=8", "--mem=8G", "--requeue"}
    assert expected <= {line.removeprefix("#SBATCH ") for line in text.splitlines()}
    assert "--exclusive" in slurm.script(slurm.Resources(), ["train"])
    with pytest.raises(ConfigError, match="--sbatch: got"):
        slurm.script(slurm.Resources(more=["--x\nrm"]), ["train"])


def test_key_in_a_folder_of_any_name_is_quoted_for_the_head(tmp_path: Path):
    text = slurm.script(slurm.Resources(), ["train"])
    quoting = [line for line in text.splitlines() if line.startswith("quoted=")]
    for key in ("/home/me/key", "/home/bob's runs/key", "/home/${x}/'key"):
        text = "\n".join(["key=$1", *quoting, "printf %s \"cluster.key='$quoted'\""])
        done = subprocess.run(["bash", "-uc", text, "bash", key], capture_output=True, text=True, check=True)
        assert done.stdout == head_arguments.overrides(Address("::1", 1), key)[-1]


@pytest.mark.parametrize("training", [("-m", "seed=1,2"), ("seed=1", "--multirun"), ("sweep=seeds",)])
def test_sweep_is_not_started_again_by_slurm(training: tuple[str, ...]):
    assert "#SBATCH --no-requeue\n" in slurm.script(slurm.Resources(), ["train", *training])


@pytest.mark.parametrize("path", ["", "'quoted'", "runs/${now:%Y}"])
def test_run_directory_that_the_script_could_not_find_again_is_refused(path: str):
    with pytest.raises(ConfigError, match=r"run_dir: got .* expected a path"):
        slurm.script(slurm.Resources(), ["train", f"run_dir={path}"])


def test_run_directory_of_the_users_own_folder_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/of me")
    assert "run='/home/of me/x'" in slurm.script(slurm.Resources(), ["train", "run_dir=~/x"])


def test_submit_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="cannot start sbatch"):
        slurm.submit("")
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho no such partition >&2\nexit 1\n")
    (tmp_path / "sbatch").chmod(0o755)
    with pytest.raises(ClusterError, match="sbatch refuses the job: no such partition"):
        slurm.submit("")


# The cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if absent := missing():
        pytest.fail(f"Slurm is missing ({', '.join(absent)}): apt-get install slurm-wlm munge")
    with Cluster(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run on this machine to which those of all jobs must be equal."""
    folder = tmp_path_factory.mktemp("reference")
    command = (sys.executable, "-m", "pyes", "train", *RUN, "cluster=inline", "run_dir=run")
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    return folder / "run"


class Jobs:
    """Jobs of one test, submitted from its folder; its run is in ``run``."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self.run = folder / "run"

    def submit(self, *training: str) -> str:
        """Submit a job for two nodes with one worker each; return its number."""
        launch = (sys.executable, "-m", "pyes", "launch", "slurm", "--nodes", "2", "--cpus", "1")
        done = self._cluster.run(*launch, "--", "train", *training, folder=self._folder)
        found = re.fullmatch(r"Submitted batch job (\d+)\n", done.stdout)
        assert found, done.stderr
        return found[1]

    def reach(self, rows: int) -> None:
        """Wait until the run has so many rows."""
        until(lambda: count_of(self.run) >= rows, f"row {rows} of {self._folder}")

    def end(self, job: str) -> str:
        """Wait for the end of a job, which must leave no keys; return how it ended."""
        state = self._cluster.wait(job)
        self._cluster.until_idle()
        assert not (self._folder / f"pyes-{job}").exists()
        return state

    def log(self, job: str) -> str:
        return (self._folder / f"pyes-{job}.log").read_text()


@pytest.fixture
def jobs(cluster: Cluster, tmp_path: Path) -> Jobs:
    return Jobs(cluster, tmp_path)


def check(run: Path, reference: Path) -> None:
    """Check that a run, whatever happened to its job, is the one of this machine."""
    assert count_of(run) == GENERATIONS
    for name in ("journal.bin", "policy.safetensors"):
        assert (run / name).read_bytes() == (reference / name).read_bytes(), f"{name} differs"


def nodes_of(run: Path) -> set[str]:
    """Return the nodes that took part in a run."""
    return {line.split(",")[1] for line in (run / "nodes.csv").read_text().splitlines()[1:]}


@pytest.mark.slurm
@on_linux
def test_job_trains_on_all_its_nodes(jobs: Jobs, reference: Path):
    job = jobs.submit(*RUN, "run_dir=run")
    assert jobs.end(job) == "COMPLETED", jobs.log(job)
    check(jobs.run, reference)
    assert len(nodes_of(jobs.run)) == 2
    said = jobs.log(job)
    assert "error" not in said.lower()
    assert f"\n{jobs.run}\n" in said
    mask = os.umask(0)
    os.umask(mask)
    assert jobs.run.stat().st_mode & 0o777 == 0o777 & ~mask  # only the keys are the owner's alone


@pytest.mark.slurm
@on_linux
def test_job_that_is_cancelled_can_be_resumed(cluster: Cluster, jobs: Jobs, reference: Path):
    """By the signal that Slurm sends before the time limit, as a job, and all its nodes at once."""
    training: tuple[str, ...] = (*RUN, "run_dir=run")
    for options in (("--batch", "--signal=TERM", "{}"), ("{}",), ("{}.0",)):
        job = jobs.submit(*training)
        jobs.reach(count_of(jobs.run) + 10)
        assert cluster.run("scancel", *(word.format(job) for word in options)).stderr == ""
        assert jobs.end(job) in ("CANCELLED", "FAILED")
        said = jobs.log(job)
        assert "Traceback" not in said
        assert f"go on with: pyes launch slurm --nodes 2 --cpus 1 -- train resume={jobs.run}\n" in said
        assert count_of(jobs.run) < GENERATIONS
        training = ("resume=run",)
    job = jobs.submit(*training)
    assert jobs.end(job) == "COMPLETED", jobs.log(job)
    check(jobs.run, reference)


@pytest.mark.slurm
@on_linux
def test_job_that_is_requeued_goes_on_in_its_run(cluster: Cluster, jobs: Jobs, reference: Path):
    """By hand, by a failure of the head's node, and by one of another node."""
    job = jobs.submit(*RUN, "run_dir=run")
    for restarts, failing in enumerate((None, "n1", "n2"), start=1):
        jobs.reach(count_of(jobs.run) + 10)
        if failing is None:
            assert cluster.run("scontrol", "requeue", job).stderr == ""
        else:
            cluster.fail(failing)
            cluster.repair(failing)
        cluster.start_again(job)
        assert cluster.job(job, "Restarts") == str(restarts)
    assert jobs.end(job) == "COMPLETED", jobs.log(job)
    check(jobs.run, reference)
    assert jobs.log(job).count("\ngeneration     0 ") == 1  # what was said before is not overwritten


@pytest.mark.slurm
@on_linux
def test_workers_that_are_killed_come_back(cluster: Cluster, jobs: Jobs, reference: Path):
    job = jobs.submit(*RUN, "run_dir=run")
    jobs.reach(10)
    keepers = [pid for node in cluster.nodes for pid in cluster.processes(node, "/bash -c trap")]
    workers = [pid for keeper in keepers for pid in children(keeper)]
    assert len(workers) == 2
    assert all(hurt(pid, signal.SIGKILL) for pid in workers)
    assert jobs.end(job) == "COMPLETED", jobs.log(job)
    check(jobs.run, reference)
    assert len(nodes_of(jobs.run)) > 2


@pytest.mark.slurm
@on_linux
def test_sweep_of_submitit_runs_as_jobs_of_slurm(cluster: Cluster, tmp_path: Path, reference: Path):
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    launcher = ("hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=1", "cluster.workers=1")
    command = (sys.executable, "-m", "pyes", "train", "-m", *RUN, "seed=0,1", "run_dir=sweep", *launcher)
    done = cluster.run(*command, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"OpenAI-ES +\| +2 ", done.stderr), done.stderr
    check(tmp_path / "sweep" / "0", reference)
    assert count_of(tmp_path / "sweep" / "1") == GENERATIONS
    assert cluster.say("squeue", "-h") == ""
