"""``pyes launch slurm``: one job with the head on its first node and a ``pyes worker`` on each.

Owns the batch script. The keys are made when the job starts, in a folder of the job's own in the directory in which it
was submitted, and are removed at the job's end.
"""

import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from pyes.errors import ClusterError, ConfigError
from pyes.launch import head_arguments

_SCRIPT = """\
#!/bin/bash
{directives}

set -u
umask 077  # only the owner may read the keys
pyes=({python} -m pyes)
folder="$PWD/pyes-$SLURM_JOB_ID"
key="$folder/cluster.key"
host="${{SLURMD_NODENAME:-$(hostname)}}"
port=$((20000 + SLURM_JOB_ID % 10000))  # two jobs may share a node
mkdir -p "$folder"
trap 'rm -f "$key" "$key.node"; rmdir "$folder"' EXIT
"${{pyes[@]}}" keygen -o "$key" > /dev/null || exit

"${{pyes[@]}}" train {before}cluster=socket "cluster.listen=tcp://0.0.0.0:$port" "cluster.key='$key'"{after} &
head=$!
trap 'kill -TERM "$head"' TERM  # sent by Slurm shortly before the time limit: the run ends after its generation

srun {srun} \\
    "${{pyes[@]}}" worker "tcp://$host:$port" --key "$key.node" < /dev/null &
workers=$!

while kill -0 "$head" && kill -0 "$workers"; do
    wait -n "$head" "$workers"
done 2> /dev/null
if kill -0 "$head" 2> /dev/null; then
    echo "no node is left: the run ends here; go on with resume=RUN" >&2
    kill -TERM "$head"  # it saves its state; if Slurm has already sent a signal, it ends immediately
    for _ in {{1..60}}; do
        sleep 1
        kill -0 "$head" || break
    done 2> /dev/null
    kill -KILL "$head" 2> /dev/null
else
    kill -TERM "$workers" 2> /dev/null
fi
wait "$head"
status=$?
wait "$workers"
exit "$status"
"""


@dataclass(frozen=True)
class Resources:
    """The resources of a job.

    Attributes
    ----------
    nodes : int
        Machines, including the head's.
    time : str or None
        Time limit in the form of sbatch: minutes, HH:MM:SS, D-HH (default: the partition's).
    partition : str or None
        Partition (default: the cluster's).
    cpus : int or None
        Cores of each node (default: whole nodes).
    more : sequence of str
        Further options of sbatch.
    """

    nodes: int = 1
    time: str | None = None
    partition: str | None = None
    cpus: int | None = None
    more: Sequence[str] = ()

    def directives(self) -> list[str]:
        """Return the options of sbatch."""
        found = ["--job-name=pyes", "--output=pyes-%j.log", f"--nodes={self.nodes}", "--ntasks-per-node=1"]
        found.append("--exclusive" if self.cpus is None else f"--cpus-per-task={self.cpus}")
        if self.time is not None:
            found.append(f"--time={self.time}")
        if self.partition is not None:
            found.append(f"--partition={self.partition}")
        return [*found, "--signal=B:TERM@120", *self.more]

    def steps(self) -> list[str]:
        """Return the options of srun: one task per node with all cores of the job there."""
        found = [f"--nodes={self.nodes}", f"--ntasks={self.nodes}", "--ntasks-per-node=1", "--cpu-bind=none"]
        if self.cpus is not None:
            found.append(f"--cpus-per-task={self.cpus}")  # newer versions do not inherit it from the job
        return [*found, "--kill-on-bad-exit=0"]


def script(resources: Resources, training: list[str]) -> str:
    """Return the batch script of a run.

    Raises
    ------
    ConfigError
        An option has a line break, or ``training`` cannot be used.
    """
    before, after = head_arguments.split(training)
    directives = resources.directives()
    for each in directives:
        if not each.startswith("-") or not each.isprintable():
            raise ConfigError(f"--sbatch: got {each!r}, expected an option of sbatch: --sbatch=--account=NAME")
    return _SCRIPT.format(
        directives="\n".join(f"#SBATCH {each}" for each in directives),
        python=shlex.quote(sys.executable),
        before="".join(f"{shlex.quote(each)} " for each in before),
        after="".join(f" {shlex.quote(each)}" for each in after),
        srun=" ".join(resources.steps()),
    )


def submit(text: str) -> str:
    """Submit a batch script to Slurm; return the output of ``sbatch``.

    Raises
    ------
    ConfigError
        There is no sbatch on this machine.
    ClusterError
        It refuses the job.
    """
    try:
        done = subprocess.run(["sbatch"], input=text, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError(
            f"cannot start sbatch: {error.strerror}; run this where Slurm is, or see the script with --dry-run"
        ) from error
    if done.returncode:
        raise ClusterError(f"sbatch refuses the job: {done.stderr.strip() or f'status {done.returncode}'}")
    return done.stdout.strip()
