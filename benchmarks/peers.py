"""pyes beside its peers on this machine: EvoTorch, Stable-Baselines3 (PPO, ARS), EnvPool, pycma and Nevergrad.

    make peers
    make peers ARGS='speed start wire'
    make peers ARGS='learning --tasks lunar_lander hopper --methods pyes ppo --seeds 5'

speed      timesteps a second by task, network and workers, and what simulators do without learning; six minutes
start      seconds to the first update, and memory; two minutes
wire       bytes of a generation, if members are on other machines; three minutes
blackbox   functions and targets reached by `pyes.maximize`, pycma and Nevergrad; half an hour
learning   trainings, evaluated by the same rules: seconds and timesteps to a return; half an hour
           for the lander, six hours for all tasks

FOLDER receives the raw data, and ``about.json`` with commands, machine, versions and commits; what is there is not
measured again. `tools/make_benchmarks.py` draws ``docs/benchmarks.md`` from it. Nothing else should run on the machine.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import peers_curves
import peers_learning
import peers_records
import peers_speed
import peers_start
import peers_wire

ROOT = Path(__file__).parent.parent
#: Of blackbox.py: the default of `pyes.maximize`, and the others.
SEARCHES = ("cma_es", "pycma with restarts", "Nevergrad CMA", "Nevergrad OnePlusOne")


def blackbox(options: argparse.Namespace) -> None:
    """Search in a process of its own, whose linear algebra has one thread."""
    program = [sys.executable, str(Path(__file__).with_name("blackbox.py")), "--seeds", str(options.blackbox_seeds)]
    output = ("--output", str(options.folder / "blackbox.csv"))
    subprocess.run([*program, *output, "--searches", *SEARCHES], env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True)


def learning(options: argparse.Namespace) -> None:
    """Train, and print what is there."""
    failed = list(peers_learning.learn(options.tasks, options.methods, options.seeds, options.minutes, options.folder))
    print(peers_curves.report(peers_curves.read(options.folder / "curves.csv")), end="")
    if failed:
        sys.exit(f"failed, see above: {'; '.join(failed)}")


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "speed": lambda options: peers_speed.measure(options.folder, options.repetitions, options.seconds),
    "start": lambda options: peers_start.measure(options.folder, options.repetitions),
    "wire": lambda options: peers_wire.measure(options.folder),
    "blackbox": blackbox,
    "learning": learning,
}


def main() -> None:
    """Measure what is missing, one part after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--folder", type=Path, default=ROOT / "results" / "benchmarks")
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="of speed and start")
    parser.add_argument("--seconds", type=float, default=5.0, metavar="S", help="of each training of speed")
    parser.add_argument("--blackbox-seeds", type=int, default=5, metavar="N", help="of each function")
    tasks, methods = list(peers_curves.TASKS), list(peers_curves.METHODS)
    parser.add_argument("--tasks", nargs="+", choices=tasks, default=tasks, metavar="TASK", help="of learning")
    parser.add_argument("--methods", nargs="+", choices=methods, default=methods, metavar="NAME", help="of learning")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="of each task of learning")
    parser.add_argument("--minutes", type=float, metavar="M", help="of each training of learning (default: by task)")
    options = parser.parse_args()
    if unknown := set(options.parts) - PARTS.keys():
        parser.error(f"no part {', '.join(sorted(unknown))}; expected of {', '.join(PARTS)}")
    options.folder = options.folder.resolve()
    options.folder.mkdir(parents=True, exist_ok=True)
    for part in options.parts or PARTS:  # before anything is measured for hours
        peers_records.check(options.folder, part)
    for part in options.parts or PARTS:
        before = sizes(options.folder)
        try:
            PARTS[part](options)
        finally:
            if sizes(options.folder) != before:
                peers_records.note(options.folder, part, command(part, options, parser))


def sizes(folder: Path) -> dict[Path, int]:
    """Return the sizes of the files with raw data, which tell whether anything was measured."""
    return {file: file.stat().st_size for file in folder.glob("*.csv")}


def command(part: str, options: argparse.Namespace, parser: argparse.ArgumentParser) -> str:
    """Return how a part is measured again: with the options that are not the defaults, but for the folder."""
    words = [part]
    for name, value in vars(options).items():
        if name not in ("parts", "folder") and value != parser.get_default(name):
            values = value if isinstance(value, list) else [value]
            words += [f"--{name.replace('_', '-')}", *map(str, values)]
    return f"make peers ARGS='{' '.join(words)}'"


if __name__ == "__main__":
    main()
