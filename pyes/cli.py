"""The command line: ``pyes train | evaluate | replay | plot | table | map | video | export | worker | launch | …``.

Owns arguments, exit statuses and what an error looks like: one line on standard error, status 2 (bad input) or 1
(failure), a traceback only with ``--debug``. Standard output is for results. The only module that knows Hydra. Imports
what a command needs when the command runs, so that ``pyes --help`` does not wait for torch.
"""

import argparse
import contextlib
import io
import json
import math
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

from pyes.config import AlgorithmConfig, TrainConfig, from_mapping, unknown_key
from pyes.errors import ConfigError, PyesError, RunDirectoryError
from pyes.versions import version

_INTERRUPTED = 130
_TRAIN_HELP = "train a policy: pyes train [KEY=VALUE ...] [-m]; pyes train --help lists what there is"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 (failure), 2 (bad input) or 130 (interrupted)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    sys.path.insert(0, "")  # as `python -m pyes` has it: modules of one's own lie in the current folder
    _one_thread_per_process()
    try:
        _run([each for each in arguments if each != "--debug"])
        if sys.stdout is not None:
            sys.stdout.flush()
        return 0
    except SystemExit as end:  # argparse and Hydra, after --help and the like
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone, as in `pyes info | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if debug:
            traceback.print_exc()
        if sys.stderr is not None:  # else print would take standard output
            print(f"pyes: error: {_describe(error)}", file=sys.stderr)
        return error.exit_status if isinstance(error, PyesError) else 1


def _one_thread_per_process() -> None:
    """Keep numeric libraries from starting threads of their own; must come before NumPy is imported."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


@contextlib.contextmanager
def _standard_output() -> Iterator[None]:
    """Keep standard output for results: what environments print meanwhile goes to standard error."""
    if sys.stdout is None or sys.stderr is None:  # closed from the start: their numbers may be other files' by now
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        with contextlib.suppress(OSError):
            os.dup2(2, 1)
        yield
        sys.stdout.flush()
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _describe(error: Exception) -> str:
    """Return an error as one line."""
    if isinstance(error, PyesError):
        return " ".join([_one_line(str(error)), *getattr(error, "__notes__", [])])
    text = _one_line(str(error))
    return f"{type(error).__name__}{': ' if text else ''}{text}; run again with --debug for the traceback"


def _one_line(text: str) -> str:
    return "; ".join(line.strip().rstrip(";") for line in text.splitlines() if line.strip())


def _run(arguments: list[str]) -> None:
    if arguments[:1] == ["train"]:  # the rest is Hydra's
        _train(arguments[1:])
        return
    training: list[str] = []
    if arguments[:1] == ["launch"] and "--" in arguments:  # what follows is another command line
        end = arguments.index("--")
        arguments, training = arguments[:end], arguments[end + 1 :]
    options = _parser().parse_args(arguments)
    options.training = training
    options.command(options)


class _Parser(argparse.ArgumentParser):
    """A parser that refuses in one line."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="pyes",
        description="Evolution strategies for policies in real simulators.",
        epilog="--debug anywhere on the line: show the traceback of an error.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"pyes {version('pyes-rl')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)

    def add(name: str, command: Callable[[argparse.Namespace], None], text: str) -> argparse.ArgumentParser:
        subparser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:], allow_abbrev=False)
        subparser.set_defaults(command=command)
        return subparser

    commands.add_parser("train", help=_TRAIN_HELP, add_help=False)
    _add_evaluate(add("evaluate", _evaluate, "run the center policy of a run on fixed seeds and report its returns"))
    _add_replay(add("replay", _replay, "rebuild one individual of a run and run its episodes again: the same return"))
    _add_plot(add("plot", _plot, "draw learning curves of one or more runs"))
    _add_table(add("table", _table, "print where runs ended and how fast they got there, as a Markdown table"))
    _add_map(add("map", _map, "draw all individuals of a run on a plane, and the path of the center through them"))
    _add_video(add("video", _video, "film the center policy of a run"))
    _add_export(add("export", _export, "write the policy of a run for other programs"))
    _add_worker(add("worker", _worker, "have this machine evaluate members for a head, one run after another"))
    _add_status(add("status", _status, "show how a head and its nodes are doing"))
    _add_output(
        add("keygen", _keygen, "make the key that a head and its nodes share"), "file to write, for its owner alone"
    )
    _add_launch(add("launch", _launch_ssh, "start a head and its nodes together, over SSH or by Slurm"))
    add("info", _info, "show versions, CPU, memory and the default noise table")
    bench = add("bench", _bench, "measure kernels and rollouts against this machine's limits")
    bench.add_argument("--full", action="store_true", help="more repetitions and a larger table: 2 GB, some minutes")
    return parser


def _add_run(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    if several:
        parser.add_argument("run", metavar="RUN", type=Path, nargs="+", help="run directory, or folder of a sweep")
    else:
        parser.add_argument("run", metavar="RUN", type=Path, help="run directory")


def _add_output(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, required=True, help=text)


def _integer(text: str, minimum: int, maximum: int) -> int:
    with contextlib.suppress(ValueError):
        if minimum <= int(text) <= maximum:
            return int(text)
    raise argparse.ArgumentTypeError(f"got {text!r}, expected an integer >= {minimum} and <= {maximum}")


def _count(text: str) -> int:
    return _integer(text, 1, 10**9)


def _seed(text: str) -> int:
    return _integer(text, 0, 2**64 - 1)


def _add_episodes(parser: argparse.ArgumentParser, default: int | None, shown: str) -> None:
    parser.add_argument("--episodes", metavar="N", type=_count, default=default, help=f"how many (default: {shown})")
    parser.add_argument("--seed", metavar="S", type=_seed, help="of the episodes (default: the run's own)")


def _index(text: str) -> int:
    return _integer(text, 0, 2**32 - 1)


def _add_generation(parser: argparse.ArgumentParser) -> None:
    text = "whose center, rebuilt from the journal (default: the policy that the run has saved last)"
    parser.add_argument("--generation", metavar="G", type=_index, help=text)


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, and nothing else, on standard output")


def _print_json(values: dict[str, Any]) -> None:
    """Print values as JSON, which has no NaN and no infinity: null."""
    print(json.dumps({key: _finite(value) for key, value in values.items()}, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    _add_run(parser)
    _add_generation(parser)
    _add_episodes(parser, None, "100; 1 of a function")
    _add_json(parser)


def _evaluate(options: argparse.Namespace) -> None:
    from pyes import replay

    with _standard_output():
        evaluation = replay.evaluate(
            options.run, episodes=options.episodes, seed=options.seed, generation=options.generation
        )
    if options.json:
        _print_json(evaluation.to_dict())
        return
    lengths = evaluation.lengths
    print(f"return {evaluation.return_mean:.2f} ± {evaluation.return_std:.2f} over {len(lengths)} episodes", end=" ")
    print(f"(min {min(evaluation.returns):.2f}, max {max(evaluation.returns):.2f})", end=", ")
    print(f"length {sum(lengths) / len(lengths):.1f}")


def _add_replay(parser: argparse.ArgumentParser) -> None:
    _add_run(parser)
    parser.add_argument("--generation", metavar="G", type=_index, required=True, help="the individual's generation")
    parser.add_argument("--member", metavar="M", type=_index, required=True, help="its number in the generation")
    parser.add_argument("--video", metavar="FILE", type=Path, help="film it, for example as member.mp4")
    _add_json(parser)


def _replay(options: argparse.Namespace) -> None:
    from pyes import replay, video

    with _standard_output():
        if options.video is None:
            with replay.open(options.run) as individuals:
                playback = individuals.play(options.generation, options.member)
        else:
            playback = video.record_member(options.run, options.video, options.generation, options.member)
    if options.json:
        _print_json(playback.to_dict())
    else:
        seeds = ", ".join(map(str, playback.seeds))
        print(f"return {playback.return_:.9g}, length {playback.length}, environment seed {seeds}")
    if not playback.exact:
        raise PyesError(
            f"the journal has return {playback.recorded_return!r} and length {playback.recorded_length}, "
            f"got {playback.return_!r} and {playback.length}: is the environment deterministic and the same?"
        )


def _add_plot(parser: argparse.ArgumentParser) -> None:
    _add_run(parser, several=True)
    _add_output(parser, "picture to write, for example curves.png")
    choices = ("timesteps", "seconds", "generation", "episodes")
    parser.add_argument("--x", choices=choices, default="timesteps", help="horizontal axis (default: timesteps)")
    bands = "range: mean, least and greatest; iqm: interquartile mean and bootstrap interval (default: range)"
    parser.add_argument("--band", choices=("range", "iqm"), default="range", help=bands)


def _plot(options: argparse.Namespace) -> None:
    from pyes import plots

    plots.plot(options.run, options.output, x=options.x, band=options.band)
    print(options.output)


def _returns(text: str) -> list[float]:
    with contextlib.suppress(ValueError):
        numbers = [float(each) for each in text.split(",")]
        if all(map(math.isfinite, numbers)):
            return numbers
    raise argparse.ArgumentTypeError(f"got {text!r}, expected numbers with commas between them, for example 200,250")


def _add_table(parser: argparse.ArgumentParser) -> None:
    _add_run(parser, several=True)
    targets = "returns, of which to say when evaluations reached them: 200,250 (negative ones: --targets=-400,-200)"
    parser.add_argument("--targets", metavar="RETURNS", type=_returns, default=[], help=targets)
    _add_json(parser)


def _table(options: argparse.Namespace) -> None:
    from pyes import tables

    made = tables.table(options.run, options.targets)
    print(json.dumps(made.to_mapping(), allow_nan=False) if options.json else made.to_markdown())


def _add_map(parser: argparse.ArgumentParser) -> None:
    _add_run(parser)
    _add_output(parser, "picture to write, for example map.png")
    choices = ("pca", "umap")
    parser.add_argument("--method", choices=choices, default="pca", help="projection (default: pca)")


def _map(options: argparse.Namespace) -> None:
    from pyes import maps

    with _standard_output():
        maps.draw(options.run, options.output, method=options.method)
    print(options.output)


def _add_video(parser: argparse.ArgumentParser) -> None:
    _add_run(parser)
    _add_generation(parser)
    _add_output(parser, "video to write, for example video.mp4")
    _add_episodes(parser, 1, "1")


def _video(options: argparse.Namespace) -> None:
    from pyes import video

    with _standard_output():
        video.record(
            options.run, options.output, episodes=options.episodes, seed=options.seed, generation=options.generation
        )
    print(options.output)


def _add_export(parser: argparse.ArgumentParser) -> None:
    _add_run(parser)
    _add_output(parser, "file to write; its suffix names the format: .safetensors, .pt or .onnx")


def _export(options: argparse.Namespace) -> None:
    from pyes import export

    print(export.export(options.run, options.output))


def _add_head(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("head", metavar="tcp://HEAD:PORT", help="where the head listens (cluster.listen)")
    parser.add_argument("--key", metavar="FILE", help="the key of the cluster (pyes keygen); of a worker, -: read it")


def _add_worker(parser: argparse.ArgumentParser) -> None:
    _add_head(parser)
    parser.add_argument("--workers", metavar="N", type=_count, help="processes (default: one a core)")
    parser.add_argument("--tied", action="store_true", help="end when standard input is closed")


def _worker(options: argparse.Namespace) -> None:
    from pyes import addresses, keys, noise
    from pyes.cluster import agent

    address = addresses.parse(options.head)
    with contextlib.ExitStack() as stack:
        read = options.key == "-"
        key = str(stack.enter_context(keys.in_memory(keys.from_standard_input()))) if read else options.key
        agent.work(address, key, options.workers or noise.usable_cores(), tied=options.tied)


def _add_status(parser: argparse.ArgumentParser) -> None:
    _add_head(parser)
    _add_json(parser)


def _status(options: argparse.Namespace) -> None:
    from pyes import addresses, status

    report = status.ask(addresses.parse(options.head), options.key)
    if options.json:
        _print_json(report)
    else:
        status.show(report)


def _keygen(options: argparse.Namespace) -> None:
    from pyes import keys

    keys.generate(options.output)
    print(options.output)


def _add_launch(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_subparsers(title="ways", metavar="WAY", required=True)
    usage = "pyes launch {} -- train [KEY=VALUE ...]"

    text = "a head here, and a node on each host for as long as it runs"
    ssh = ways.add_parser("ssh", usage=usage.format("ssh HOSTS [options]"), help=text, description=text)
    ssh.set_defaults(command=_launch_ssh)
    line = "[user@]host [workers=N] [python=PATH | pyes=COMMAND] [dir=PATH]"
    ssh.add_argument("hosts", metavar="HOSTS", type=Path, help=f"file with a host a line: {line}")
    ssh.add_argument("--key", metavar="FILE", type=Path, help="the key of the cluster (default: a new one)")
    ssh.add_argument("--port", metavar="P", type=_port, default=5555, help="of the head (default: 5555)")
    ssh.add_argument("--head", metavar="ADDRESS", help="where nodes find this machine (default: where its packets go)")

    text = "one job with the head on its first node and a worker on each"
    slurm = ways.add_parser("slurm", usage=usage.format("slurm [options]"), help=text, description=text)
    slurm.set_defaults(command=_launch_slurm)
    slurm.add_argument("--nodes", metavar="N", type=_count, default=1, help="machines (default: 1)")
    slurm.add_argument("--time", metavar="T", help="limit, as sbatch has it: 90 (minutes), 12:00:00, 2-00")
    slurm.add_argument("--partition", metavar="P", help="default: the cluster's")
    slurm.add_argument("--cpus", metavar="N", type=_count, help="of each node (default: whole nodes)")
    slurm.add_argument("--sbatch", metavar="OPTION", action="append", default=[], help="another: --sbatch=--mem=8G")
    slurm.add_argument("--dry-run", action="store_true", help="print the batch script, and submit nothing")


def _port(text: str) -> int:
    return _integer(text, 1, 65535)


def _launch_ssh(options: argparse.Namespace) -> None:
    from pyes import addresses
    from pyes.launch import head, hosts, ssh

    where = options.head or head.address_for_nodes()
    address = addresses.parse(f"tcp://[{where}]:{options.port}" if ":" in where else f"tcp://{where}:{options.port}")
    status = ssh.run(hosts.read(options.hosts), address, options.key, options.training)
    if status:
        raise SystemExit(status)  # the head has said why


def _launch_slurm(options: argparse.Namespace) -> None:
    from pyes.launch import slurm

    resources = slurm.Resources(options.nodes, options.time, options.partition, options.cpus, options.sbatch)
    text = slurm.script(resources, options.training)
    print(text if options.dry_run else slurm.submit(text), end="" if options.dry_run else "\n")


def _bench(options: argparse.Namespace) -> None:
    from pyes import bench

    bench.run(full=options.full)


def _info(options: argparse.Namespace) -> None:
    for name, value in _facts():
        print(f"{name:<14}{value}")


def _facts() -> Iterator[tuple[str, str]]:
    import platform

    from pyes import _core, memory, noise, selftest

    yield "pyes", version("pyes-rl")
    yield "python", f"{platform.python_version()} ({sys.executable})"
    for name in ("numpy", "torch", "gymnasium", "hydra-core"):
        yield name, version(name)
    yield "platform", platform.platform()
    levels = _core.levels()
    yield "cpu level", f"{levels[-1]} (of {', '.join(levels)})"
    yield "kernels", selftest.digest()
    yield "cores", str(noise.usable_cores())
    yield "memory", f"{memory.available() / 2**30:.1f} GiB available to this process"
    yield "shared memory", memory.default_kind()
    entries = noise.default_entries(1)
    yield "noise table", f"{entries:,} entries by default: {entries * 4 / 2**20:,.0f} MiB as float32"


# --- train: everything that knows Hydra ---

_FLAGS_OF_SWEEPS = {"-m", "--multirun"}
_GROUPS_WITHOUT_KEYS = ("experiment", "sweep", "debug")
#: Mappings that take any key: what stands there is for a constructor or a library.
_FREE = ("task.env_kwargs", "network.module_kwargs", "algorithm.options")
#: Groups whose options have keys of their own, and a name among them.
_NAMED_GROUPS = ("algorithm", "task", "network", "optimizer")


def _train(arguments: list[str]) -> None:
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    failures: list[Exception] = []

    def job(config: Any) -> float | None:
        # Hydra adds a line of its own to what a job raises, so a single run's error takes another way.
        try:
            return _run_job(config)
        except Exception as error:
            if _sweeping():
                raise
            failures.append(error)
            return None

    _check_flags(arguments)
    try:
        with _command_line(_directed(arguments)):
            hydra.main(config_path="pkg://pyes.conf", config_name="train", version_base="1.3")(job)()
    except (HydraException, OmegaConfBaseException) as error:
        raise _explained(error) from error
    except OSError as error:
        if error.filename is None or hasattr(error, "__notes__"):  # the second: a job's own error
            raise
        raise RunDirectoryError(
            f"run_dir: cannot make {error.filename} ({error.strerror}); choose another with run_dir=DIR"
        ) from error
    if failures:
        raise failures[0]


def _run_job(config: Any) -> float | None:
    """Train once, in the directory that Hydra made; return the objective. Runs in a launcher's process, too."""
    from hydra.core.hydra_config import HydraConfig

    run_dir = Path(HydraConfig.get().runtime.output_dir)
    try:
        checked = _checked(config, run_dir)
        from pyes import training

        with _standard_output():
            result = training.train(checked)
    except Exception as error:
        _log_failure(run_dir, error)
        if _sweeping():
            print(f"pyes: job {run_dir.name} failed: {_describe(error)}", file=sys.stderr)
            error.add_note(f"({run_dir / 'train.log'})")
        raise
    print(result.run_dir, flush=True)
    if result.stopped_by == "interrupt":
        raise KeyboardInterrupt  # the rest of a sweep is not wanted either
    return result.objective


def _checked(config: Any, run_dir: Path) -> TrainConfig:
    """Return Hydra's configuration of a job as ours."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    config.run_dir = str(run_dir)
    if config.resume is not None:
        config.resume = str(run_dir)
    try:
        values = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise _explained(error) from error
    try:
        return from_mapping(_fitting(cast(dict[str, Any], values)))
    except ConfigError as error:
        for group in _NAMED_GROUPS:
            if name := _path(_given(), f"{group}.name"):
                error.add_note(f"({group}={name} chooses its keys, too; {group}.name={name} does not)")
        raise


def _fitting(values: dict[str, Any]) -> dict[str, Any]:
    """Leave out the optimiser that an experiment chooses where the algorithm takes none; the user's own is refused."""
    given = any(text.lstrip("+").startswith("optimizer") for text in _given())
    if given or cast(type[AlgorithmConfig], AlgorithmConfig.kind(values["algorithm"])).optimized:
        return values
    return {key: value for key, value in values.items() if key != "optimizer"}


def _given() -> list[str]:
    """Return the overrides of a job that the command line or its sweep gives."""
    from hydra.core.hydra_config import HydraConfig

    return list(HydraConfig.get().overrides.task)


def _sweeping() -> bool:
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    return bool(HydraConfig.get().mode == RunMode.MULTIRUN)


def _log_failure(run_dir: Path, error: Exception) -> None:
    """Leave the error in the run's own log, where one looks when a sweep has gone on."""
    text = f"{error}\n" if isinstance(error, PyesError) else "".join(traceback.format_exception(error))
    with contextlib.suppress(OSError), open(run_dir / "train.log", "a", encoding="utf-8") as log:
        log.write(text)


def _check_flags(arguments: list[str]) -> None:
    """Refuse in one line what Hydra's parser would refuse in several."""
    from hydra._internal.utils import get_args_parser

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            get_args_parser().parse_args(arguments)
    except SystemExit as end:
        if end.code:
            reason = said.getvalue().strip().splitlines()[-1].partition("error: ")[2]
            raise ConfigError(f"{reason} (see pyes train --help and pyes train --hydra-help)") from None
        raise  # --version


@contextlib.contextmanager
def _command_line(arguments: list[str]) -> Iterator[None]:
    """Hand Hydra its arguments, and have it raise errors instead of printing them."""
    argv, full_error = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = ["pyes train", *arguments]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        sys.argv = argv
        if full_error is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = full_error


def _directed(arguments: list[str]) -> list[str]:
    """Tell Hydra about the directories that our own keys name: the run's to go on with, a new one's, or a sweep's."""
    arguments = [f"++{text}" if text.startswith(_FREE) else text for text in arguments]
    resumed, directory = _path(arguments, "resume"), _path(arguments, "run_dir")
    arguments = [_quoted(text) for text in arguments]
    sweeps = not _FLAGS_OF_SWEEPS.isdisjoint(arguments) or any(
        text.startswith("sweep=") and text != "sweep=null" for text in arguments
    )
    if resumed is not None:
        if "${" in resumed:  # Hydra would look it up in the path of its own output
            raise ConfigError(f"resume: got {resumed!r}, expected the path of a run, with no ${{...}} in it")
        if sweeps:
            raise ConfigError("resume: one run goes on at a time; leave out -m and sweep")
        if directory is not None:
            raise ConfigError("run_dir: a resumed run stays where it is; leave out run_dir, or resume")
        return _inserted(_resumed(Path(resumed), arguments), arguments)
    if directory is None:
        return arguments
    if sweeps:
        return _inserted([f"hydra.sweep.dir={_new_path(directory)}"], arguments)
    from pyes.run_directory import RunDirectory

    RunDirectory(directory).check_free()  # before Hydra writes into it
    return arguments


def _inserted(overrides: list[str], arguments: list[str]) -> list[str]:
    """Put overrides where the first one stands: Hydra's parser wants all of them in one place."""
    first = next(i for i, text in enumerate(arguments) if "=" in text and not text.startswith("-"))
    return [*arguments[:first], *overrides, *arguments[first:]]


def _path(arguments: list[str], key: str) -> str | None:
    """Return the last path that the command line gives a key, without the quotes of Hydra's grammar."""
    values = [text.partition("=")[2] for text in arguments if text.startswith(f"{key}=")]
    if not values or values[-1] in ("", "null"):
        return None
    text = values[-1]
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1].replace(f"\\{text[0]}", text[0])
    return text


def _quoted(text: str) -> str:
    """Return an override of ours whose value is a path so that Hydra takes it as it is: commas, spaces, any letter."""
    key = text.partition("=")[0]
    path = _path([text], key) if key in ("resume", "run_dir") else None
    if path is None:
        return text
    return f"{key}={_new_path(path) if key == 'run_dir' else _hydra_value(path)}"


def _new_path(path: str) -> str:
    """Return a path to make in Hydra's override grammar; ${...} in it is looked up."""
    return _hydra_value(path).replace("\\${", "${")


def _resumed(run: Path, arguments: list[str]) -> list[str]:
    """Return a run's whole configuration as overrides, less the groups that the command line chooses anew."""
    from pyes import resume
    from pyes.run_directory import RunDirectory

    chosen = {text.partition("=")[0] for text in arguments}
    for group in chosen.intersection(_GROUPS_WITHOUT_KEYS):
        raise ConfigError(f"{group}: a resumed run keeps its configuration; override single keys, or start a new run")
    values = resume.kept(RunDirectory(run))
    kept = {key: value for key, value in values.items() if key not in chosen | {"run_dir", "resume", "force"}}
    # Each algorithm has keys of its own: those of another one must not be there.
    algorithm = [f"algorithm={kept['algorithm']['name']}"] if "algorithm" in kept else []
    directory = [f"hydra.run.dir={_hydra_value(str(run))}", "hydra.output_subdir=null"]
    return [*algorithm, *_overrides(kept), *directory]


def _overrides(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Flatten a configuration to Hydra's overrides; ++ sets a key whether or not the chosen groups have it."""
    for key, value in values.items():
        if isinstance(value, dict) and key not in ("env_kwargs", "module_kwargs"):
            yield from _overrides(value, f"{prefix}{key}.")
        else:
            yield f"++{prefix}{key}={_hydra_value(value)}"


def _hydra_value(value: Any) -> str:
    """Return a JSON value in Hydra's override grammar (which has no quotes around the keys of a mapping)."""
    if isinstance(value, str):
        # Backslashes count only before a quote, and before the closing one; ${ would be looked up.
        value = re.sub(r"(\\+)(?='|$)", r"\1\1", value).replace("'", "\\'").replace("${", "\\${")
        return f"'{value}'"
    if isinstance(value, list):
        return "[" + ",".join(map(_hydra_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_hydra_value(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


def _explained(error: Exception) -> ConfigError:
    """Return Hydra's or OmegaConf's refusal as a line of our own: what, where, what is allowed."""
    from hydra.errors import MissingConfigException
    from omegaconf.errors import ConfigAttributeError, ConfigKeyError, MissingMandatoryValue

    if isinstance(error, MissingConfigException) and error.options and error.missing_cfg_file:
        group, _, option = error.missing_cfg_file.rpartition("/")
        return unknown_key("", option, error.options, what=group)
    cause = error.__cause__ or error
    if isinstance(cause, MissingMandatoryValue):
        return ConfigError(f"{cause.full_key}: missing; give it a value with {cause.full_key}=VALUE")
    if isinstance(cause, ConfigKeyError | ConfigAttributeError) and cause.parent_node is not None:
        path, _, key = str(cause.full_key).rpartition(".")
        allowed = {str(each) for each in cause.parent_node} - {"hydra"}
        return unknown_key(path, key, allowed if path else allowed.union(_GROUPS_WITHOUT_KEYS))
    parts = [str(error)] if cause is error else [str(error), str(cause)]
    return ConfigError(_one_line("\n".join(parts)))
