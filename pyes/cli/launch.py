"""``pyes launch ssh | slurm``: a head and its nodes, started together."""

import argparse
import shlex
from pathlib import Path

from pyes.cli.arguments import Add, count, port
from pyes.errors import ConfigError


def add_commands(add: Add) -> None:
    """Add these commands to the program."""
    _add_launch(add("launch", _launch_ssh, "start a head and its nodes together, over SSH or by Slurm"))


def _add_launch(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_subparsers(title="ways", metavar="WAY", required=True)
    usage = "pyes launch {} -- train [KEY=VALUE ...]"

    text = "a head here, and a node on each host for as long as it runs"
    ssh = ways.add_parser("ssh", usage=usage.format("ssh HOSTS [options]"), help=text, description=text)
    ssh.set_defaults(command=_launch_ssh)
    line = "[user@]host [workers=N] [python=PATH | pyes=COMMAND] [dir=PATH]"
    ssh.add_argument("hosts", metavar="HOSTS", type=Path, help=f"file with one host per line: {line}")
    ssh.add_argument(
        "--key", metavar="FILE", type=Path, help="the head's key, FILE of pyes keygen (default: a new one)"
    )
    ssh.add_argument("--port", metavar="P", type=port, default=5555, help="port of the head (default: 5555)")
    ssh.add_argument(
        "--head", metavar="ADDRESS", help="this machine as nodes reach it (default: this machine's outgoing address)"
    )

    text = "one job with the head on its first node and a worker on each"
    slurm = ways.add_parser("slurm", usage=usage.format("slurm [options]"), help=text, description=text)
    slurm.set_defaults(command=_launch_slurm)
    slurm.add_argument("--nodes", metavar="N", type=count, default=1, help="machines (default: 1)")
    slurm.add_argument("--time", metavar="T", help="limit, as sbatch takes it: 90 (minutes), 12:00:00, 2-00")
    slurm.add_argument("--partition", metavar="P", help="default: the cluster's")
    slurm.add_argument("--cpus", metavar="N", type=count, help="CPUs of each node (default: whole nodes)")
    slurm.add_argument("--sbatch", metavar="OPTION", action="append", default=[], help="option: --sbatch=--mem=8G")
    slurm.add_argument(
        "--port", metavar="P", type=port, help="port of the head (default: by the job's number, 20000 to 29999)"
    )
    slurm.add_argument("--dry-run", action="store_true", help="print the batch script without submitting it")


def _launch_ssh(options: argparse.Namespace) -> None:
    from pyes.launch import head_arguments, hosts, ssh
    from pyes.system import addresses

    where = options.head or head_arguments.address_for_nodes()
    bare = where.removeprefix("[").removesuffix("]")
    try:
        address = addresses.parse(f"tcp://[{bare}]:{options.port}" if ":" in bare else f"tcp://{bare}:{options.port}")
    except ConfigError as error:
        expected = "a name or an IP address alone; the port is that of --port"
        raise ConfigError(f"--head: got {where!r}, expected {expected}") from error
    given = hosts.read(options.hosts)
    again = shlex.join(["pyes", *options.before, "--", "train"])
    works_itself = _workers_of_head(options.training) not in (0, "0")
    status = ssh.run(given, address, options.key, options.training, again, works_itself=works_itself)
    if status:
        raise SystemExit(status)  # the head has shown the reason


def _launch_slurm(options: argparse.Namespace) -> None:
    from pyes.launch import slurm

    if options.time is not None and not options.time.isprintable():
        raise ConfigError(f"--time: got {options.time!r}, expected minutes, HH:MM:SS or D-HH")
    resources = slurm.Resources(options.nodes, options.time, options.partition, options.cpus, options.sbatch)
    again = shlex.join(["pyes", *(word for word in options.before if word != "--dry-run"), "--", "train"])
    text = slurm.script(resources, options.training, again, options.port)
    _workers_of_head(options.training)  # for what it refuses: the job would do so when it begins, perhaps in hours
    print(text if options.dry_run else slurm.submit(text), end="" if options.dry_run else "\n")


def _workers_of_head(training: list[str]) -> int | str:
    """Return the setting of the head's own workers, and refuse now what the head would refuse when it begins.

    Of a sweep, or with flags of Hydra, only what the command line says is known.
    """
    from pyes.cli import train
    from pyes.launch import head_arguments

    overrides = training[1:]
    if any(word.lstrip("+").startswith(("-", "sweep=", "hydra.mode=")) for word in overrides):
        return (head_arguments.values(overrides, "cluster.workers") or ["0"])[-1]
    return train.settings(["cluster=socket", *overrides]).cluster.workers
