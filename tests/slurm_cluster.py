"""A Slurm cluster of this machine's own: munged, one slurmctld and some slurmd, without systemd.

Knows Slurm's programs and configuration, nothing of pyes. Invariants: all state is in one folder, all ports are free
ones of the loopback interface, and whatever was started, jobs included, has ended on leaving.
"""

import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Self

import leftovers
from heads import hurt, until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol", "squeue", "sinfo")
_WHERE = f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin{os.pathsep}/usr/local/sbin"

# config_overrides: nodes have the cores that are written here. Jobs have numbers that no other cluster of this machine
# gives, since a head's port follows from it. Nothing needs cgroups or accounting.
_CONFIGURATION = """\
ClusterName=pyes
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser={user}
SlurmdUser={user}
FirstJobId={job}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0
ReturnToService=2
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> list[str]:
    """Return what of Slurm is not installed."""
    return [name for name in PROGRAMS if not shutil.which(name, path=_WHERE)]


class Cluster:
    """Slurm with the nodes n1 and n2 of two cores each, in ``folder``; leaving the block ends all of it."""

    nodes = ("n1", "n2")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mark = f"SLURM_CONF={folder}/slurm.conf"  # in the environment of the daemons and of all jobs
        # The tests may themselves be a job of another Slurm.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))}
        self.environment = kept | {"PATH": _WHERE, "SLURM_CONF": f"{folder}/slurm.conf"}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "state").mkdir()
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        ports = _free_ports(1 + len(self.nodes))
        host = socket.gethostname().partition(".")[0]
        job = random.randint(1, 60000)
        text = _CONFIGURATION.format(
            host=host, folder=folder, ports=ports, user=pwd.getpwuid(os.getuid()).pw_name, job=job
        )
        for name, port in zip(self.nodes, ports[1:], strict=True):
            text += f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 State=UNKNOWN\n"
        (folder / "slurm.conf").write_text(text)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        files = (f"--{name}={self.folder}/munge.{name}" for name in ("socket", "pid-file", "log-file", "seed-file"))
        self._daemon("munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key", *files)
        until((self.folder / "munge.socket").exists, "munged")
        self._daemon("slurmctld", "-D")
        for name in self.nodes:
            self._slurmd(name)
        self.until_idle()

    def until_idle(self) -> None:
        """Wait until all nodes are there, and no job has any."""
        until(lambda: self.say("sinfo", "-h", "-o", "%T %D") == f"idle {len(self.nodes)}", "idle nodes")

    def __exit__(self, *_: object) -> None:
        for daemon in self._daemons.values():
            daemon.kill()
            daemon.wait()
        until(self._end, f"the end of {leftovers.with_variable(self._mark)}")

    def _end(self) -> bool:
        """Kill what is left, jobs and their keepers; return whether all is gone."""
        left = leftovers.with_variable(self._mark)
        for pid in left:
            hurt(pid, signal.SIGKILL)
        return not left

    def _slurmd(self, node: str) -> None:
        # Slurm gives this variable to its jobs; here also their keeper has it, slurmstepd.
        self._daemon("slurmd", "-D", "-N", node, SLURMD_NODENAME=node)

    def _daemon(self, name: str, *arguments: str, **variables: str) -> None:
        program = shutil.which(name, path=_WHERE)
        assert program
        with open(self.folder / "daemons.log", "ab") as log:
            self._daemons[arguments[-1]] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", program, *arguments],  # also if the tests are killed
                env=self.environment | variables,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def processes(self, node: str, command: str = "") -> list[int]:
        """Return the processes on a node whose command has this in it."""
        ours = set(leftovers.with_variable(self._mark)).intersection(leftovers.with_variable(f"SLURMD_NODENAME={node}"))
        return sorted(pid for pid in ours if command in leftovers.command(pid))

    def fail(self, node: str) -> None:
        """Let a node break down: all that runs there is killed, and Slurm is told, which would wait for minutes."""
        for number in (signal.SIGSTOP, signal.SIGKILL):  # none is to notice the end of another
            for pid in self.processes(node):
                hurt(pid, number)
        self._daemons[node].wait()
        assert self.say("scontrol", "update", f"nodename={node}", "state=down", "reason=test") == ""

    def repair(self, node: str) -> None:
        """Start a node again that broke down."""
        self._slurmd(node)
        self.say("scontrol", "update", f"nodename={node}", "state=resume")
        self.until_idle()

    # Jobs

    def state(self, job: str) -> str:
        """Return the state of a job in Slurm's words."""
        return self.job(job, "JobState")

    def job(self, job: str, key: str) -> str:
        """Return one of the facts that Slurm shows of a job."""
        words = self.say("scontrol", "--oneliner", "show", "job", job).split()
        return next((word.partition("=")[2] for word in words if word.startswith(f"{key}=")), "")

    def start_again(self, job: str) -> None:
        """Let a requeued job begin now; Slurm waits for two minutes, to be sure that the first one has ended."""
        until(lambda: self.state(job) == "PENDING", f"job {job} in the queue")
        until(lambda: not self.run("scontrol", "update", f"jobid={job}", "starttime=now").returncode, "its new time")

    def wait(self, job: str) -> str:
        """Wait for the end of a job; return its state."""
        ends = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL")
        return str(until(lambda: (state := self.state(job)) in ends and state, f"the end of job {job}"))

    def run(self, *command: str, folder: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Run a command as a user of the cluster does; return how it ended."""
        return subprocess.run(
            command,
            cwd=folder or self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def say(self, *command: str) -> str:
        """Return what a command says on standard output."""
        return self.run(*command).stdout.strip()


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
