"""``pyes plot | table | diff | map | explore | report | log | video | export``: reports and exports of runs."""

import argparse
import contextlib
import math
from pathlib import Path

from pyes.cli.arguments import Add, add_episodes, add_generation, add_json, add_output, add_run, count, port_or_any
from pyes.cli.output import print_json, running_environments
from pyes.errors import missing
from pyes.reports.loggers import OWN
from pyes.system.text import counted, tell

_PORT = 8321  # of the explorer


def add_commands(add: Add) -> None:
    """Add these commands to the program."""
    _add_plot(add("plot", _plot, "draw learning curves of one or more runs"))
    _add_table(
        add("table", _table, "print final returns of runs and how fast they reached others, as a Markdown table")
    )
    _add_diff(add("diff", _diff, "print where two runs first differ; the exit status is 1 if they do"))
    _add_map(add("map", _map, "draw all individuals of a run in two dimensions, with the path of the center"))
    _add_explore(
        add("explore", _explore, "show runs in a browser: curves, and every individual, played again at a click")
    )
    _add_report(add("report", _report, "write curves, map, videos, tables and settings of runs as one HTML file"))
    _add_log(add("log", _log, "send a run to a program that tracks experiments, or the rest of it"))
    _add_video(add("video", _video, "record the center policy of a run as a video"))
    _add_export(add("export", _export, "write the policy of a run for other programs"))


def _add_plot(parser: argparse.ArgumentParser) -> None:
    add_run(parser, several=True)
    add_output(parser, "picture to write, for example curves.png")
    choices = ("timesteps", "seconds", "generation", "episodes")
    parser.add_argument("--x", choices=choices, default="timesteps", help="horizontal axis (default: timesteps)")
    bands = "range: mean, minimum and maximum; iqm: interquartile mean and bootstrap interval (default: range)"
    parser.add_argument("--band", choices=("range", "iqm"), default="range", help=bands)
    parser.add_argument("--width", metavar="INCHES", type=float, help="width of the figure (default: 7.2)")
    parser.add_argument("--height", metavar="INCHES", type=float, help="height of the figure (default: 4.5)")
    parser.add_argument("--title", help="title (default: the task)")
    labels = "label of each group, with commas between them, in the order drawn (default: what distinguishes it)"
    parser.add_argument("--labels", type=lambda text: text.split(","), default=[], help=labels)
    orders = "given: by first run; label: numbers by value; return: highest last return first (default: given)"
    parser.add_argument("--order", choices=("given", "label", "return"), default="given", help=orders)
    parser.add_argument("--logy", action="store_true", help="logarithmic vertical axis")
    smooth = "each point is the mean of the last N points (default: 1)"
    parser.add_argument("--smooth", metavar="N", type=count, default=1, help=smooth)


def _plot(options: argparse.Namespace) -> None:
    from pyes.reports import plots

    names = ("x", "band", "width", "height", "title", "labels", "order", "logy", "smooth")
    print(plots.plot(options.run, options.output, **{name: getattr(options, name) for name in names}))


def _returns(text: str) -> list[float]:
    with contextlib.suppress(ValueError):
        numbers = [float(each) for each in text.split(",")]
        if all(map(math.isfinite, numbers)):
            return numbers
    raise argparse.ArgumentTypeError(f"got {text!r}, expected numbers with commas between them, for example 200,250")


def _add_table(parser: argparse.ArgumentParser) -> None:
    add_run(parser, several=True)
    targets = "returns whose time to be reached is reported: 200,250 (negative ones: --targets=-400,-200)"
    parser.add_argument("--targets", metavar="RETURNS", type=_returns, action="extend", default=[], help=targets)
    add_json(parser)


def _table(options: argparse.Namespace) -> None:
    from pyes.reports import tables

    made = tables.table(options.run, options.targets)
    if options.json:
        print_json(made.to_mapping())
    else:
        print(made.to_markdown())


def _add_diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", metavar="RUN", type=Path, help="run directory")
    parser.add_argument("second", metavar="RUN", type=Path, help="run directory to compare with it")
    add_json(parser)


def _diff(options: argparse.Namespace) -> None:
    from pyes.reports import differences

    found = differences.compare(options.first, options.second)
    if options.json:
        print_json({"generations": found.generations, "difference": found.difference})
    else:
        print(found.difference or f"equal over {counted(found.generations, 'generation')}")
    if found.difference:
        raise SystemExit(1)


def _add_map(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_output(parser, "picture to write, for example map.png")
    choices = ("pca", "umap")
    parser.add_argument("--method", choices=choices, default="pca", help="projection (default: pca)")


def _map(options: argparse.Namespace) -> None:
    from pyes.reports import maps

    with running_environments():
        maps.draw(options.run, options.output, method=options.method)
    print(options.output)


def _add_explore(parser: argparse.ArgumentParser) -> None:
    add_run(parser, several=True)
    text = f"port to listen at on this machine (default: {_PORT}); 0: any that is free"
    parser.add_argument("--port", metavar="PORT", type=port_or_any, default=_PORT, help=text)


def _explore(options: argparse.Namespace) -> None:
    try:
        from pyes.reports.explorer import server
    except ImportError as error:
        raise missing("pyes explore", "starlette and uvicorn", "explore", error) from error

    server.serve(options.run, options.port, lambda url: print(f"open {url}\nCtrl-C ends it", flush=True))


def _add_report(parser: argparse.ArgumentParser) -> None:
    add_run(parser, several=True)
    add_output(parser, "page to write, for example report.html")


def _report(options: argparse.Namespace) -> None:
    from pyes.reports import report

    with running_environments():
        report.write(options.run, options.output)
    print(options.output)


def _add_log(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    names = (*OWN, "own")
    text = f"{', '.join(OWN)}, or own: that of logger.factory"
    parser.add_argument("--to", metavar="NAME", choices=names, required=True, help=text)


def _log(options: argparse.Namespace) -> None:
    from pyes.training import loggers

    print(f"{counted(loggers.send(options.run, options.to), 'row')} sent")


def _add_video(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_generation(parser)
    add_output(parser, "video to write, for example video.mp4")
    add_episodes(parser, 1, "1")


def _video(options: argparse.Namespace) -> None:
    from pyes.reports import video

    with running_environments():
        video.record(
            options.run,
            options.output,
            episodes=options.episodes,
            seed=options.seed,
            generation=options.generation,
            tell=tell,
        )
    print(options.output)


def _add_export(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_generation(parser)
    add_output(
        parser,
        "file to write; its suffix names the format: .safetensors, .pt, .onnx or .c; none: a folder for a model hub",
    )


def _export(options: argparse.Namespace) -> None:
    from pyes.reports import export

    print(export.export(options.run, options.output, options.generation, tell=tell))
