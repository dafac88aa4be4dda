"""``pyes launch slurm``: one job with the head on its first node and a ``pyes worker`` on each.

Owns the batch script. A job that Slurm starts again resumes its run. The keys are made when the job starts, in a folder
of the job's own in the directory in which it was submitted, and are removed at the job's end.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from pyes.errors import ClusterError, ConfigError
from pyes.launch import head_arguments
from pyes.system.lifetime import COMMAND

_SCRIPT = """\
#!/bin/bash
{directives}

set -u
pyes=({python} -m pyes)
folder="$PWD/pyes-$SLURM_JOB_ID"
key="$folder/cluster.key"
quoted=${{key//\\'/\\\\\\'}}  # for Hydra
quoted=${{quoted//'${{'/'\\${{'}}
host=$(scontrol --oneliner show node "$SLURMD_NODENAME" | grep -o ' NodeAddr=[^ ]*')  # its name may be Slurm's alone
host="${{host#*=}}"
[ "$host" ] || host="$SLURMD_NODENAME"  # Slurm's controller did not answer
listen=0.0.0.0
[[ $host != *:* ]] || {{ host="[$host]"; listen="[::]"; }}
port={port}  # two jobs may share a node
mkdir -p -m 700 "$folder"  # only the owner may read the keys
rm -f "$key" "$key.node" "$folder/tie"  # of this job before Slurm has started it again
trap 'rm -f "$key" "$key.node" "$folder/tie"; rmdir "$folder"' EXIT
"${{pyes[@]}}" keygen -o "$key" > /dev/null || exit
{training}
{variable}={again} "${{pyes[@]}}" \\
    train {before}"cluster.listen='tcp://$listen:$port'" "cluster.key='$quoted'" "${{training[@]}}" &
head=$!
told=
# Sent by Slurm shortly before the time limit: the run ends after its generation. Slurm sends it to the head as well
# where the job is cancelled: a second one ends the run immediately; a third one would keep the head from saying how to
# go on.
trap 'told=yes; trap : TERM; kill -TERM "$head"' TERM

mkfifo "$folder/tie"  # as long as this script has it open, nodes work
# A worker killed by the kernel for memory, or by hand, is started again; bash waits for one that ends on a signal.
srun {srun} \\
    bash -c 'trap : TERM; while "$@"; status=$?; ((status == 137)); do sleep 1; done; exit "$status"' worker \\
    "${{pyes[@]}}" worker "tcp://$host:$port" --key "$key.node" --tied{workers} < "$folder/tie" &
workers=$!
exec {{tie}}> "$folder/tie"

ended() {{  # waits some seconds for the end of a process
    for ((i = 0; i < 5 * $2; i++)); do
        kill -0 "$1" 2> /dev/null || return 0
        sleep 0.2
    done
    return 1
}}

while kill -0 "$head" && kill -0 "$workers"; do
    wait -n "$head" "$workers"
done 2> /dev/null
exec {{tie}}>&-
if kill -0 "$head" 2> /dev/null; then
    echo "no node is left: the run ends here" >&2
    {{ [ "$told" ] && ended "$head" 5; }} || kill -TERM "$head"  # it saves its state
    ended "$head" 60 || kill -KILL "$head"
fi
ended "$workers" 60 || kill -TERM "$workers"
wait "$head"
status=$?
wait "$workers"
exit "$status"
"""

# Of a run whose directory is known: a job that Slurm starts again goes on there, with the configuration of the run.
_RUN = """
run={run}
training=(cluster=socket "run_dir=$run"{after})
if [ "${{SLURM_RESTART_COUNT:-0}}" != 0 ] && [ -s "$run/journal.bin" ]; then
    training=("resume=$run")
fi
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
        """Return the options of sbatch, but for those of the user's own."""
        found = ["--job-name=pyes", "--output=pyes-%j.log", "--open-mode=append"]
        found += [f"--nodes={self.nodes}", "--ntasks-per-node=1"]
        found.append("--exclusive" if self.cpus is None else f"--cpus-per-task={self.cpus}")
        if self.time is not None:
            found.append(f"--time={self.time}")
        if self.partition is not None:
            found.append(f"--partition={self.partition}")
        return [*found, "--signal=B:TERM@120"]

    def steps(self) -> list[str]:
        """Return the options of srun: one task per node with all cores of the job there."""
        found = [f"--nodes={self.nodes}", f"--ntasks={self.nodes}", "--ntasks-per-node=1", "--cpu-bind=none"]
        if self.cpus is not None:
            found.append(f"--cpus-per-task={self.cpus}")  # newer versions do not inherit it from the job
        return [*found, "--kill-on-bad-exit=0", "--wait=0"]  # the others go on without a node


def script(
    resources: Resources, training: list[str], again: str = "pyes launch slurm -- train", port: int | None = None
) -> str:
    """Return the batch script of a run.

    Parameters
    ----------
    resources : Resources
        What the job asks for.
    training : list of str
        Command of the head, beginning with ``train``.
    again : str
        Command that resumes a run when followed by ``resume=RUN``, for messages.
    port : int or None
        Port of the head (default: one by the job's number).

    Raises
    ------
    ConfigError
        An option has a line break, or ``training`` cannot be used.
    """
    before, after = head_arguments.split(training)
    lines, requeue = _training(before, after)
    directives = [*resources.directives(), requeue, *resources.more]
    for each in directives:
        if not each.startswith("-") or not each.isprintable():
            raise ConfigError(f"--sbatch: got {each!r}, expected an option of sbatch: --sbatch=--account=NAME")
    return _SCRIPT.format(
        directives="\n".join(f"#SBATCH {each}" for each in directives),
        python=shlex.quote(sys.executable),
        port=port or "$((20000 + SLURM_JOB_ID % 10000))",
        training=lines,
        variable=COMMAND,
        again=shlex.quote(again),
        before="".join(f"{shlex.quote(each)} " for each in before),
        srun=" ".join(resources.steps()),
        workers="" if resources.cpus is None else f" --workers {resources.cpus}",
    )


def _training(before: list[str], after: list[str]) -> tuple[str, str]:
    """Return the lines that set the arguments of the run, and the option of sbatch for a job that may start again."""
    quoted = "".join(f" {shlex.quote(each)}" for each in after)
    if _has(after, "resume"):
        return f"training=(cluster=socket{quoted})", "--requeue"
    if {"-m", "--multirun"}.intersection(before + after) or _has(after, "sweep"):
        return f"training=(cluster=socket{quoted})", "--no-requeue"  # each of its runs is resumed by hand
    found = head_arguments.values(after, "run_dir")
    if found and (not found[-1] or re.search(r"^['\"]|\$\{", found[-1])):
        raise ConfigError(
            f"run_dir: got {found[-1]!r}, expected a path without quotes and ${{...}} of its own: "
            "a job that Slurm starts again looks for the run there"
        )
    run = shlex.quote(os.path.expanduser(found[-1])) if found else '"runs/slurm-$SLURM_JOB_ID"'
    rest = "".join(f" {shlex.quote(each)}" for each in after if not head_arguments.values([each], "run_dir"))
    return _RUN.format(run=run, after=rest), "--requeue"


def _has(arguments: list[str], key: str) -> bool:
    return any(value not in ("", "null") for value in head_arguments.values(arguments, key))


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
