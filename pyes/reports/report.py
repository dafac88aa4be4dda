"""A report of runs as one HTML file that needs nothing else: curves, map, videos, tables, and commands to redo it all.

Owns the page. Figures, videos and numbers are those of `plots`, `maps`, `video` and `tables`. Invariant: equal runs
give equal text and figures, but for where the runs are and the machine that made the report.
"""

import base64
import html
import json
import math
import platform
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from string import Template
from typing import Any

import yaml

from pyes.config import TrainConfig, from_mapping
from pyes.errors import ConfigError, JournalError, PyesError, RunDirectoryError
from pyes.reports import figures, hub, maps, plots, replay, tables, video, wording
from pyes.reports.runs import Run, read, title
from pyes.run.directory import RunDirectory
from pyes.run.journal import Start
from pyes.system import limits
from pyes.system.files import write_file
from pyes.system.lookup import version
from pyes.system.text import counted, quoted, rounded, spread

_MOST_FRAMES = 200  # of a video: some 100 kB


def write(paths: Sequence[str | Path], output: str | Path) -> Path:
    """Write the report of runs, and return its path.

    Parameters
    ----------
    paths : sequence of str or Path
        Run directories, or folders with runs somewhere below them.
    output : str or Path
        .html file to write.

    Raises
    ------
    ConfigError
        The file has another suffix, or cannot be written.
    RunDirectoryError
        A run is missing, is damaged, or has no generations yet.
    """
    output = Path(output)
    if output.suffix != ".html":
        raise ConfigError(f"cannot write a report to {output}: suffix {output.suffix!r}, expected .html")
    figures.check_folder(output)
    runs = read(list(paths))
    shown = _middle(runs)
    name = title(runs) or "Runs"
    with tempfile.TemporaryDirectory(prefix="pyes-report-") as folder:
        parts = [
            _section("Returns", _figures(runs, Path(folder)), *_tables(runs)),
            _section("What the policy does", *_films(shown, Path(folder))),
            _section("All individuals", _map(shown, Path(folder))),
            _section("Runs", _runs(runs)),
            _section("Configuration", _configuration(shown, runs)),
            _section("The same again", *_commands(shown), _machine(shown)),
        ]
    page = Template(_PAGE).substitute(title=html.escape(name), style=_STYLE, body="\n".join(parts))
    write_file(output, page.encode())
    return output


def _middle(runs: Sequence[Run]) -> Run:
    """Return the run with the median last return, the lower one of two."""
    ordered = sorted(runs, key=lambda run: float(run.curve("timesteps")[1][-1]))
    return ordered[(len(ordered) - 1) // 2]


# --- the parts


def _figures(runs: Sequence[Run], folder: Path) -> str:
    plots.plot(runs, folder / "curves.svg")
    drawing = (folder / "curves.svg").read_text(encoding="utf-8")
    return f'<figure class="paper">{drawing[drawing.index("<svg") :]}</figure>'


def _tables(runs: Sequence[Run]) -> Iterator[str]:
    made = tables.table(runs)
    yield from (_table(lines[0], lines[1:]) for lines in made.tables())
    yield from map(_note, made.notes())


def _films(run: Run, folder: Path) -> Iterator[str]:
    """Yield videos of the center at the beginning, half-way and at the end, or a line that says why there are none."""
    shown = []
    try:
        for name, generation in _turning_points(run).items():
            film = folder / f"{generation}.mp4"
            (episode,) = video.record(run.path, film, generation=generation, most_frames=_MOST_FRAMES).returns
            player = f'<video controls loop muted playsinline src="{_data(film, "video/mp4")}"></video>'
            caption = html.escape(f"{name}: generation {generation}, return {rounded(episode)}")
            shown.append(f"<figure>{player}<figcaption>{caption}</figcaption></figure>")
    except PyesError as error:
        yield _note(f"No video: {error}")
        return
    yield f'<div class="row">{"".join(shown)}</div>'
    yield _note(f"The first episode of the evaluation of the center of {run.path.name}.")


def _turning_points(run: Run) -> dict[str, int]:
    """Return generations of centers to look at, by what they are."""
    last = int(run.rows[-1]["generation"]) + 1
    points = {"the beginning": 0}
    evaluations = [row for row in run.comparable if "generation" in row]
    if evaluations:
        returns = [row["eval_return_mean"] for row in run.comparable]
        half = (returns[0] + max(returns)) / 2
        # None is, if the first center was the best.
        reached = next((row for row in evaluations if row["eval_return_mean"] >= half), None)
        if reached is not None:
            points["half-way"] = int(reached["generation"]) + 1
    return {name: generation for name, generation in points.items() if generation < last} | {"the end": last}


def _map(run: Run, folder: Path) -> str:
    try:
        maps.draw(run.path, folder / "map.png")
    except PyesError as error:
        return _note(f"No map: {error}")
    image = f'<img alt="map of all individuals" src="{_data(folder / "map.png", "image/png")}">'
    return f'<figure class="paper">{image}</figure>'


def _runs(runs: Sequence[Run]) -> str:
    head = ["run", "seed", "generations", "timesteps", "seconds", "last evaluation", "theta_hash"]
    return _table(head, [_row(run) for run in runs])


def _row(run: Run) -> list[str]:
    last, evaluation = run.rows[-1], run.last_evaluation
    evaluated = "-"
    if run.ends_in_failure:
        evaluated = "failed"
    elif evaluation is not None:
        evaluated = spread(*(evaluation.get(f"eval_return_{each}", math.nan) for each in ("mean", "std")))
    counts = (f"{last[key]:,.0f}" for key in ("timesteps", "seconds"))
    generations = f"{last['generation'] + 1:,.0f}"
    return [run.path.name, str(run.seed), generations, *counts, evaluated, run.theta_hash]


def _configuration(run: Run, runs: Sequence[Run]) -> str:
    """Return the settings of one run; those that differ from another run's are marked."""
    every = [{"seed": each.seed, **each.settings, **each.conditions} for each in runs]
    own = {"seed": run.seed, **run.settings, **run.conditions}
    marked = {key for key, value in own.items() if any(other.get(key) != value for other in every)}
    lines = [[key, json.dumps(value)] for key, value in sorted(own.items())]
    note = _note("Bold: not the same in all runs.") if len(runs) > 1 else ""
    summary = f"<summary>{len(lines)} settings of {html.escape(run.path.name)}</summary>"
    return f"<details>{summary}{note}{_table([], lines, marked)}</details>"


def _commands(run: Run) -> Iterator[str]:
    directory = RunDirectory(run.path)
    branched = wording.CHANGED in run.settings
    config = None
    try:
        config = directory.read_config() if directory.config.exists() else None
    except RunDirectoryError as error:
        yield _note(f"No settings: {error}")
    if config is not None:
        if not branched and (overrides := _overrides(run.path, config)) is not None:
            yield f"<p>Training:</p>{_code(' '.join(map(quoted, ['pyes', 'train', *overrides])))}"
        settings = hub.shareable(config).encode()
        file = f'<a download="config.json" href="{_encoded(settings, "application/json")}">config.json</a>'
        if branched:
            yield f"<p>Settings were changed on the way, so no one command makes it; {file} has the last ones.</p>"
        else:
            yield f"<p>The same from {file}:</p>{_code(_FROM_SETTINGS)}"
    where = quoted(run.path)
    lines = (f"evaluate {where}", f"video {where} -o video.mp4", f"map {where} -o map.png", f"explore {where}")
    yield f"<p>From the run directory:</p>{_code(chr(10).join(f'pyes {line}' for line in lines))}"


def _overrides(path: Path, config: TrainConfig) -> list[str] | None:
    """Return what was typed after ``pyes train``, without places.

    None if the run was started otherwise, or with a folder of configurations, which another machine does not have; or
    if what was typed last makes other settings: of a run that went on with another budget, or of a start that was
    refused because the run was there.
    """
    record = path / ".hydra"
    try:
        typed = yaml.safe_load((record / "overrides.yaml").read_bytes()) or []
        sources = yaml.safe_load((record / "hydra.yaml").read_bytes())["hydra"]["runtime"]["config_sources"]
        made = from_mapping(yaml.safe_load((record / "config.yaml").read_bytes()))
    except (OSError, yaml.YAMLError, KeyError, TypeError, ConfigError):
        return None
    if any(source["provider"] == "command-line" for source in sources) or not _agree(*map(_values, (made, config))):
        return None
    return [text for text in map(str, typed) if text.partition("=")[0].partition(".")[0] not in hub.PLACES]


def _values(config: TrainConfig) -> Any:
    return json.loads(hub.shareable(config))


def _agree(typed: Any, used: Any) -> bool:
    """Whether a run used the settings that were typed: all of them, but for ``auto``."""
    if isinstance(typed, dict) and isinstance(used, dict):
        return all(_agree(typed.get(key), used.get(key)) for key in typed | used)
    return bool(typed == used) or typed == "auto"


def _machine(run: Run) -> str:
    versions: dict[str, str] = {}
    with suppress(JournalError):  # the map says it
        start = next(iter(replay.recording_of(run.path)), None) if RunDirectory(run.path).journal.exists() else None
        versions = dict(start.versions) if isinstance(start, Start) else {}
    trained = ", ".join(f"{name} {number}" for name, number in versions.items())
    here = f"pyes {version('pyes-rl')} on {platform.machine()} with {counted(limits.usable_cores(), 'core')}"
    return _table([], [["trained with", trained], ["report made with", here]])


# --- HTML


def _section(name: str, *parts: str) -> str:
    return f"<section><h2>{name}</h2>\n{''.join(parts)}</section>"


def _table(head: Sequence[str], lines: Sequence[Sequence[Any]], marked: Collection[str] = ()) -> str:
    """Return a table; lines whose first cell is in ``marked`` are bold."""

    def row(kind: str, cells: Sequence[Any]) -> str:
        texts = (f"<{kind}>{html.escape(str(cell))}</{kind}>" for cell in cells)
        return f"<tr{' class=marked' * (cells[0] in marked)}>{''.join(texts)}</tr>"

    body = "".join(row("td", line) for line in lines)
    return f'<div class="scroll"><table>{row("th", head) if head else ""}{body}</table></div>'


def _note(text: str) -> str:
    return f"<p class=note>{html.escape(text)}</p>"


def _code(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"


def _data(file: Path, kind: str) -> str:
    return _encoded(file.read_bytes(), kind)


def _encoded(data: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


_FROM_SETTINGS = """\
import json, pyes

if __name__ == "__main__":
    pyes.train(json.load(open("config.json")))"""

_STYLE = """\
:root { color-scheme: light dark; --line: #d8dce2; --quiet: #667; font: 15px/1.5 system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { :root { --line: #3a4047; --quiet: #9aa2ab; } }
body { max-width: 64rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
figure { margin: 0; } figcaption, .note { color: var(--quiet); font-size: .85rem; }
.paper { background: #fff; border: 1px solid var(--line); border-radius: 6px; padding: .5rem; }
.paper > * { max-width: 100%; height: auto; display: block; margin: auto; }
.row { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); }
video { width: 100%; border-radius: 6px; background: #000; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { text-align: left; padding: .2rem 1rem .2rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
.marked { font-weight: 600; }
pre { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; padding: .6rem; font-size: .85rem; }
summary { cursor: pointer; }
@media print { details::details-content { content-visibility: visible; block-size: auto; } }
"""

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<link rel="icon" href="data:,">
<style>
$style</style>
</head>
<body>
<h1>$title</h1>
$body
</body>
</html>
"""
