"""Launches over SSH, on hosts of a real sshd on the loopback interface; what all launches have in common."""

import configparser
import contextlib
import getpass
import importlib.util
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import leftovers
import pytest
import yaml
from heads import count_of, until

from pyes import cli
from pyes.errors import ConfigError
from pyes.launch import head_arguments, hosts
from pyes.system.addresses import Address

ROOT = Path(__file__).parents[2]
TINY = ("debug=default", "task=cart_pole")
DEADLINE = 120.0  # seconds; a launch starts several programs, one after another
HEAD = Address("10.0.0.1", 5555)
SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
posix = pytest.mark.skipif(os.name != "posix", reason="a launch over SSH starts from Linux or macOS")


# The file of hosts


def read(text: str, tmp_path: Path) -> list[hosts.Host]:
    path = tmp_path / "hosts.txt"
    path.write_text(text)
    return hosts.read(path)


def test_hosts_read_takes_lines_and_leaves_comments(tmp_path: Path):
    found = read("# ours\n\nnode1\nme@node2 workers=8 python='/opt/my env/bin/python' dir=~/code # big\n", tmp_path)
    assert found == [
        hosts.Host("node1"),
        hosts.Host("me@node2", "'/opt/my env/bin/python' -m pyes", "~/code", 8),
    ]


@pytest.mark.parametrize("comment", [" # it isn't large", " #it's slow", " #", ""])
def test_hosts_read_takes_a_number_sign_within_a_word(comment: str, tmp_path: Path):
    text = f"#don't use node2\nnode1 dir=/data/a#b workers=4 python='/opt/a #1/python'{comment}\n"
    (host,) = read(text, tmp_path)
    assert (host.directory, host.workers, host.program) == ("/data/a#b", 4, "'/opt/a #1/python' -m pyes")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "lists no host"),
        ("# none", "lists no host"),
        ("-oProxyCommand=x", "hosts.txt:1: got '-oProxyCommand=x', expected [user@]host first"),
        ("a\nb c", "hosts.txt:2: got 'c', expected KEY=VALUE, once each: workers, python, pyes, dir"),
        ("a workers=0", "got 'workers=0', expected an integer >= 1"),
        ("a workers=2 workers=3", "got 'workers=3', expected KEY=VALUE, once each"),
        ("a python=x pyes=y", "not both"),
        ("a dir='x", "No closing quotation"),
    ],
)
def test_hosts_read_refuses_in_one_line(text: str, expected: str, tmp_path: Path):
    with pytest.raises(ConfigError) as caught:
        read(text, tmp_path)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_hosts_read_without_a_file_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot read the hosts in"):
        hosts.read(tmp_path / "nope")


def test_host_command_survives_a_shell(tmp_path: Path):
    (tmp_path / "it's here").mkdir()
    host = hosts.Host("node1", "echo", str(tmp_path / "it's here"), 2)
    done = subprocess.run(["sh", "-c", host.command(HEAD)], capture_output=True, text=True, check=True)
    assert done.stdout == f"{hosts.REACHED}\nworker tcp://10.0.0.1:5555 --key - --tied --workers 2\n"
    host = hosts.Host("node1", "pwd; :", "~/it's here")
    done = subprocess.run(
        ["sh", "-c", host.command(HEAD)],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[1] == str(tmp_path / "it's here")


# The head


def test_head_split_finds_the_place_of_overrides():
    assert head_arguments.split(["train", "-m", "seed=1,2", "--debug"]) == (["-m"], ["seed=1,2", "--debug"])
    assert head_arguments.split(["train"]) == ([], [])


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ([], "launch: got nothing to run, expected at the end: -- train"),
        (["evaluate", "x"], "launch: got evaluate x to run"),
        (["train", "cluster=local"], "cluster: pyes launch sets it"),
        (["train", "seed=1", "++cluster.listen=tcp://x:1"], "cluster.listen: pyes launch sets it"),
    ],
)
def test_head_split_refuses_what_a_launch_says_itself(training: list[str], expected: str):
    with pytest.raises(ConfigError) as caught:
        head_arguments.split(training)
    assert str(caught.value).startswith(expected)


def test_head_listens_where_nodes_can_find_it():
    assert head_arguments.listening(HEAD) == Address("0.0.0.0", 5555)
    assert head_arguments.listening(Address("fd00::1", 1)) == Address("::", 1)
    assert head_arguments.listening(Address("127.0.0.1", 1)) == Address("127.0.0.1", 1)
    assert head_arguments.address_for_nodes()


# A worker that reads its key


@pytest.mark.slow
def test_worker_that_is_to_read_its_key_and_finds_none_is_refused(tmp_path: Path):
    command = (sys.executable, "-m", "pyes", "worker", "tcp://127.0.0.1:1", "--key", "-", "--tied")
    done = subprocess.run(command, input="no key\n", cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("pyes: error: standard input: expected a key as pyes keygen -o FILE writes it")


# SSH


def free_port(first: int = 1024, last: int = 65535) -> int:
    while True:
        port = random.randint(first, last)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


class Hosts:
    """A private sshd with the hosts ``one`` and ``two``; the host ``closed`` refuses connections."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._variable = f"PYES_TEST_HOST={uuid.uuid4().hex}"  # of all that sshd starts
        for key in ("host", "client"):
            subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
        self._port, closed = free_port(), free_port()
        (folder / "sshd_config").write_text(
            f"Port {self._port}\nListenAddress 127.0.0.1\n"
            f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/client.pub\n"
            f"StrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no\nPermitRootLogin yes\n"
            f"SetEnv {self._variable}\n"
        )
        public = (folder / "host.pub").read_text()
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self._port} {public}")
        (folder / "config").write_text(
            f"Host one two\n  Port {self._port}\nHost closed\n  Port {closed}\n"
            f"Host *\n  HostName 127.0.0.1\n  User {getpass.getuser()}\n  IdentityFile {folder}/client\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known_hosts\n  StrictHostKeyChecking yes\n"
        )
        write_program(folder / "bin" / "ssh", f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/config "$@"\n')

    def __enter__(self) -> "Hosts":
        if os.getuid() == 0:  # only then sshd wants its own empty folder
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        assert SSHD
        self._log = open(self._folder / "sshd.log", "wb")
        command = (SSHD, "-D", "-e", "-f", str(self._folder / "sshd_config"))
        self._process = subprocess.Popen(command, stderr=self._log, start_new_session=True)
        until(self._listens, "sshd")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _listens(self) -> bool:
        assert self._process.poll() is None, (self._folder / "sshd.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def processes(self) -> list[int]:
        """Return what runs on the hosts."""
        return leftovers.with_variable(self._variable)

    @contextlib.contextmanager
    def launch(
        self, names: str, folder: Path, *arguments: str, program: str = f"python={sys.executable}"
    ) -> Iterator["subprocess.Popen[str]"]:
        """Lend a launch on some of the hosts, with a worker each; it is killed in the end."""
        lines = [f"{name} workers=1 {program} dir={folder}\n" for name in names.split()]
        (folder / "hosts.txt").write_text("".join(lines))
        ways = ("hosts.txt", "--head", "127.0.0.1", "--port", str(free_port()))
        with subprocess.Popen(
            [sys.executable, "-m", "pyes", "launch", "ssh", *ways, "--", "train", *TINY, "run_dir=run", *arguments],
            cwd=folder,
            env={**os.environ, "PATH": f"{self._folder / 'bin'}{os.pathsep}{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    if not SSHD or not shutil.which("ssh"):
        pytest.fail("OpenSSH is missing: apt-get install openssh-server openssh-client")
    with Hosts(tmp_path_factory.mktemp("sshd")) as found:
        yield found


@pytest.mark.slow
@posix
def test_launch_ssh_goes_on_without_a_host_that_cannot_be_reached_and_leaves_nobody(sshd: Hosts, tmp_path: Path):
    with sshd.launch("closed one", tmp_path) as process:
        stdout, stderr = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0, stderr
        assert stdout == f"{tmp_path / 'run'}\n"
        (line,) = (line for line in stderr.splitlines() if line.startswith("pyes launch: "))
        assert line.startswith("pyes launch: closed: cannot be reached: ssh: connect to host 127.0.0.1 port ")
        assert line.endswith("Connection refused; going on without it")
        until(lambda: not sshd.processes(), "the end of the worker")
        config = json.loads((tmp_path / "run" / "config.json").read_text())
        assert not Path(config["cluster"]["key"]).exists()


@pytest.mark.slow
@posix
def test_launch_ssh_interrupted_ends_after_a_generation_with_all_workers(sshd: Hosts, tmp_path: Path):
    with sshd.launch("one two", tmp_path, "generations=null", "algorithm.population_size=1000") as process:
        nodes = tmp_path / "run" / "nodes.csv"

        def both_took_part() -> bool:
            assert process.poll() is None, process.communicate()
            return nodes.exists() and len({line.split(",")[1] for line in nodes.read_text().splitlines()[1:]}) == 2

        until(both_took_part, "rows of both nodes")
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=DEADLINE)
        assert process.returncode == 130, stderr
        assert stdout == f"{tmp_path / 'run'}\n"
        assert "Traceback" not in stderr
        launch = r"pyes launch ssh hosts\.txt --head 127\.0\.0\.1 --port \d+ -- train"
        assert re.search(f"go on with: {launch} resume={re.escape(str(tmp_path / 'run'))}\n", stderr), stderr
        until(lambda: not sshd.processes(), "the end of the workers")


@pytest.mark.slow
@posix
def test_launch_ssh_killed_takes_the_head_and_the_workers_with_it(sshd: Hosts, tmp_path: Path):
    with sshd.launch("one", tmp_path, "generations=null") as process:
        until(lambda: count_of(tmp_path / "run") > 1, "a generation")
        process.kill()
        process.communicate(timeout=DEADLINE)  # the head had the same pipes: it has ended as well
        until(lambda: not sshd.processes(), "the end of the worker")


@pytest.mark.slow
@posix
def test_launch_ssh_goes_on_when_nobody_reads_what_it_says(sshd: Hosts, tmp_path: Path):
    with sshd.launch("closed one", tmp_path) as process:
        assert process.stderr is not None
        process.stderr.close()
        stdout, _ = process.communicate(timeout=DEADLINE)
        assert (process.returncode, stdout) == (0, f"{tmp_path / 'run'}\n")


@pytest.mark.slow
@posix
def test_launch_ssh_says_which_node_finds_no_head(sshd: Hosts, tmp_path: Path):
    elsewhere = tmp_path / "elsewhere"
    write_program(elsewhere, f"#!/bin/sh\nexec {sys.executable} -m pyes worker tcp://127.0.0.1:9 --key - --tied\n")
    with sshd.launch("one", tmp_path, program=f"pyes={elsewhere}") as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if line.startswith("pyes launch: "))
        where = "waiting for a head at tcp://127.0.0.1:9 (Connection refused)"
        assert said == f"pyes launch: one: it was reached, but is {where}; see --head and --port\n"
        process.terminate()
        process.communicate(timeout=DEADLINE)
    until(lambda: not sshd.processes(), "the end of the worker")


@pytest.mark.slow
@posix
def test_launch_ssh_without_any_host_ends_at_once(sshd: Hosts, tmp_path: Path):
    with sshd.launch("closed", tmp_path) as process:
        _, stderr = process.communicate(timeout=DEADLINE)
        assert process.returncode == 1
        assert stderr.splitlines()[-1].startswith("pyes: error: no host is left to evaluate members")


# Any launch


def test_what_follows_a_launch_is_passed_on_as_it_is(capsys: pytest.CaptureFixture[str]):
    """Also --debug, which otherwise is of pyes itself, wherever it stands."""
    assert cli.main(["launch", "slurm", "--dry-run", "--", "train", "seed=1", "--debug"]) == 0
    script = capsys.readouterr().out
    assert "--dry-run" not in script  # it would be in the advice on how to go on
    (line,) = (line for line in script.splitlines() if line.startswith("training=(cluster"))
    assert line.endswith(" seed=1 --debug)")
    assert cli.main(["--debug", "launch", "slurm", "--dry-run", "--", "evaluate"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "launch: got evaluate to run" in said


@pytest.mark.parametrize(
    ("before", "training", "expected"),
    [
        (["slurm", "--dry-run"], ["train", "generation=3"], "unknown key 'generation'"),
        (["slurm", "--dry-run"], ["train", "resume=nope"], "no run directory at nope"),
        (["slurm", "--dry-run", "--time", "1\n2"], ["train"], "--time: got '1\\n2', expected minutes"),
        (["slurm", "--dry"], ["train"], "unrecognized arguments: --dry"),
        (["ssh", "hosts.txt"], ["train", "generation=3"], "unknown key 'generation'"),
        (["slurm", "train"], [], "unrecognized arguments: train; put -- before train"),
    ],
)
def test_mistake_in_a_launch_is_told_before_anything_is_started(
    before: list[str],
    training: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.txt").write_text("node1\n")
    assert cli.main(["launch", *before, "--", *training]) == 2
    assert capsys.readouterr().err.startswith(f"pyes: error: {expected}")


def test_slurm_takes_the_settings_of_the_cluster_that_it_starts(capsys: pytest.CaptureFixture[str]):
    command = ["launch", "slurm", "--dry-run", "--port", "7000", "--", "train", "cluster.sync=params"]
    assert cli.main([*command, "cluster.workers=0"]) == 0
    assert "\nport=7000 " in capsys.readouterr().out


# Examples

EXAMPLES = sorted(path for path in (ROOT / "examples").glob("[a-z]*/*") if path.is_file())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.relative_to(ROOT / "examples").as_posix())
def test_example_is_well_formed(path: Path):
    text = path.read_text(encoding="utf-8")
    if text.startswith("#!/bin/bash"):
        subprocess.run(["bash", "-n", str(path)], check=True)
    elif path.suffix == ".yaml":
        documents = list(yaml.safe_load_all(text))
        assert documents
        assert all({"apiVersion", "kind", "metadata"} <= each.keys() for each in documents)
    elif path.suffix == ".service":
        unit = configparser.ConfigParser(interpolation=None)
        unit.optionxform = str  # type: ignore[assignment, method-assign]
        unit.read_string(text)
        assert {"Unit", "Service", "Install"} == set(unit.sections())
    elif path.name == "Containerfile":
        assert text.splitlines()[-1].startswith(("ENTRYPOINT", "CMD"))
    else:
        assert path.suffix == ".md", f"not known to this test: {path.name}"


def test_system_without_posix_signals_is_refused_in_one_line(monkeypatch):
    monkeypatch.delattr(signal, "SIGKILL")
    spec = importlib.util.find_spec("pyes.launch.ssh")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with monkeypatch.context() as patch:
        patch.setattr(os, "name", "nt")
        with pytest.raises(ConfigError, match="expected Linux or macOS here"):
            module.run([], Address("head", 5555), None, ["train"], "", works_itself=False)
