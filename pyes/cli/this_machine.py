"""``pyes info | bench | check-environment``: show what this machine has, how fast it is, and whether a task is fit."""

import argparse
import sys
from collections.abc import Iterator

from pyes.cli.arguments import Add, add_config_dir
from pyes.cli.output import running_environments
from pyes.errors import PyesError
from pyes.system.lookup import version
from pyes.system.text import counted


def add_commands(add: Add) -> None:
    """Add these commands to the program."""
    add("info", _info, "show versions, CPU, memory and the default noise table")
    bench = add("bench", _bench, "measure the speed of kernels, networks and rollouts")
    _add_check(add("check-environment", _check_environment, "check that an environment is fit to train in"))
    bench.add_argument("--full", action="store_true", help="more repetitions and a larger table: 2 GB, several minutes")


def _info(options: argparse.Namespace) -> None:
    for name, value in _facts():
        print(f"{name:<14}{value}")


def _facts() -> Iterator[tuple[str, str]]:
    import platform

    from pyes import _core
    from pyes.node import selftest
    from pyes.numerics import noise
    from pyes.system import limits, memory

    yield "pyes", version("pyes-rl")
    yield "python", f"{platform.python_version()} ({sys.executable})"
    for name in ("numpy", "torch", "gymnasium", "hydra-core"):
        yield name, version(name)
    yield "platform", platform.platform()
    levels = _core.levels()
    yield "cpu level", f"{levels[-1]} (of {', '.join(levels)})"
    yield "kernels", selftest.digest()
    yield "cores", str(limits.usable_cores())
    yield "memory", f"{limits.available_memory() / 2**30:.1f} GiB available to this process"
    yield "shared memory", memory.default_kind()
    entries = noise.default_entries(1)
    yield "noise table", f"{entries:,} entries by default: {entries * 4 / 2**20:,.0f} MiB as float32"


def _bench(options: argparse.Namespace) -> None:
    from pyes import bench

    bench.run(full=options.full)


def _add_check(parser: argparse.ArgumentParser) -> None:
    text = "the task, as in pyes train: task=gymnasium task.env_id=CartPole-v1"
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help=text)
    text = "a Gymnasium environment that it should equal; MODULE:ID where a module registers it"
    parser.add_argument("--against", metavar="ENV_ID", help=text)
    add_config_dir(parser)


def _check_environment(options: argparse.Namespace) -> None:
    from pyes.cli import train

    task = train.settings(options.overrides, options.config_dir).task  # before what takes long
    from pyes.bench import checks, twins

    config = checks.only_environments(task)
    with running_environments() as print_result:
        failures = checks.run(config, lambda task: twins.checks(task, options.against), print_result)
    if failures:
        raise PyesError(f"{counted(failures, 'check')} of {config.title} failed")
