"""The documentation holds what it says: links lead somewhere, programs run, commands are accepted, tables are whole.

Programs and commands run in a folder that has the runs of which the pages speak: all of them one tiny run of CartPole.
"""

import contextlib
import dataclasses
import inspect
import operator
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import textwrap
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import commands
import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

import pyes
from pyes import cli
from pyes.config import AlgorithmConfig, TrainConfig, from_mapping
from pyes.config.registry import ALGORITHMS, CLUSTERS, NETWORKS, TASKS, Registry
from pyes.config.section import Section
from pyes.config.task import TaskConfig
from pyes.errors import ConfigError
from pyes.launch import head_arguments
from pyes.node import nursery, supervisor
from pyes.remote import head
from pyes.remote.wire.messages import KINDS
from pyes.reports import export
from pyes.run.journal import Evaluation, Generation, Start
from pyes.run.metrics import COLUMNS
from pyes.training import loop

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
#: Runs that pages and programs begin with: run directories, and the jobs of sweeps.
RUNS = (
    "runs/lander", "runs/walker", "runs/again", "runs/cart_pole", "runs/ray", "runs/sigma/0", "runs/sigma/1",
    "multirun/2026-11-21/10-00-00/0",
)  # fmt: skip
COMMANDS_THAT_RUN = (
    "evaluate",
    "replay",
    "plot",
    "table",
    "diff",
    "map",
    "export",
    "video",
    "keygen",
    "info",
    "check-environment",
)

Block = tuple[str, str, str]  # page and line, language, text


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL):
        yield f"{name(page)}:{text.count(chr(10), 0, match.start()) + 1}", match[2], textwrap.dedent(match[3])


BLOCKS = [block for page in PAGES for block in blocks(page)]
#: Programs by their place, and the lines of shell by their page, in its order.
PROGRAMS = {where: text for where, language, text in BLOCKS if language == "python"}
LINES: dict[str, list[str]] = {}
for where, language, text in BLOCKS:
    if language == "sh":
        lines = (line.split("  #")[0].strip() for line in text.splitlines())
        LINES.setdefault(where.partition(":")[0], []).extend(line for line in lines if line and line[0] != "#")
TITLE = re.compile(r"(?:#|/\*) (\w+\.(?:py|c))(?: \*/)?\n")  # a program may name itself as a module, or in C
#: What `make test` runs of the programs.
QUICK = ("README.md", "examples/ask_tell.py")


def quick_or_slow(names: Iterable[str]) -> list[Any]:
    """Return a parameter for each name; those that a stranger does not try first are slow."""
    marks = {name: () if name.partition(":")[0] in QUICK else pytest.mark.slow for name in names}
    return [pytest.param(name, marks=mark) for name, mark in marks.items()]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the runs, the policy, the environment and the options that the pages name.

    The runs have the generations and the members that the pages name, too.
    """
    folder = tmp_path_factory.mktemp("home")
    first, *others = (folder / run for run in RUNS)
    config = {
        "run_dir": str(first),
        "generations": 40,
        "task": {"env_id": "CartPole-v1", "max_timesteps": 30},
        "algorithm": {"population_size": 8},
        "noise": {"entries": 100_000},
        "cluster": {"name": "inline"},
        "evaluation": {"every": 5, "episodes": 2},
    }
    loop.train(config, display=False)
    for run in others:
        shutil.copytree(first, run)
    export.export(folder / "runs/cart_pole", folder / "policy.pt")
    with contextlib.suppress(ConfigError):  # where onnx is not installed
        export.export(folder / "runs/cart_pole", folder / "policy.onnx")
    (folder / "corridor.py").write_text(block_that("entry_point=", "docs/howto/own_environment.md"))
    (folder / "my" / "experiment").mkdir(parents=True)
    mine = block_that("# @package", "docs/reference/configuration.md")
    (folder / "my" / "experiment" / "mine.yaml").write_text(mine)
    shutil.copy(ROOT / "examples" / "own_algorithm.py", folder)
    (folder / "my" / "algorithm").mkdir()
    option = block_that("# my/algorithm", "docs/howto/own_algorithm.md")
    (folder / "my" / "algorithm" / "one_plus_one.yaml").write_text(option)
    (folder / "my_loggers.py").write_text(block_that("# my_loggers.py", "docs/howto/loggers.md"))
    (folder / "walks.py").write_text(block_that("# walks.py", "docs/howto/own_task_family.md"))
    (folder / "my" / "task").mkdir()
    option = block_that("# my/task", "docs/howto/own_task_family.md")
    (folder / "my" / "task" / "walk.yaml").write_text(option)
    return folder


def test_page_of_an_own_algorithm_shows_its_example():
    shown = block_that("# own_algorithm.py", "docs/howto/own_algorithm.md").partition("\n")[2]
    assert (ROOT / "examples" / "own_algorithm.py").read_text(encoding="utf-8").endswith(f'"""\n\n{shown}')


def test_page_of_environments_shows_its_example():
    shown = block_that("# cart_pole.py", "docs/howto/native_environment.md").partition("\n")[2]
    assert (ROOT / "examples" / "cart_pole.py").read_text(encoding="utf-8").endswith(f'"""\n\n{shown}')


def block_that(contains: str, page: str) -> str:
    (text,) = (text for where, _, text in BLOCKS if where.startswith(f"{page}:") and contains in text)
    return text


def run(program: Path, *arguments: str | Path, cwd: Path) -> str:
    """Run a program in a process that has imported everything; return what it printed."""
    from hosts import Program

    folder = str(program.parent)  # first in the path, as Python has it
    with Program(_run, str(program), list(map(str, arguments)), str(cwd), path=(folder,)) as process:
        process.succeed()
        return process.said


def _run(program: str, arguments: list[str], cwd: str) -> None:
    os.chdir(cwd)
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")


# Links


def slug(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


def test_links_lead_to_files_and_headings_that_exist():
    wrong = []
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", target):  # another site
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists() or (anchor and anchor not in anchors(file)):
                wrong.append(f"{name(page)}: {target}")
    assert wrong == []


def test_pages_have_no_figures_that_are_still_to_come():
    """A cell of a table such as ROW300, or a note to oneself."""
    pattern = r"\| *([A-Z]{3,}\d\w*) *(?=\|)|\b(TODO|TBD|FIXME|XXX)\b"
    found = {name(page): re.findall(pattern, page.read_text(encoding="utf-8")) for page in PAGES}
    assert {page: each for page, each in found.items() if each} == {}


def test_index_lists_every_page():
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - {"README.md"}
    assert pages == set(re.findall(r"\]\(([^)]+\.md)\)", index))


# Programs


posix = pytest.mark.skipif(sys.platform == "win32", reason="forks a process for each program")


@pytest.fixture(scope="module")
def server():
    import hosts

    hosts.start_server()


def test_times_that_the_pages_give_are_those_of_the_code():
    faults, protocol = ((DOCS / page).read_text() for page in ("explanation/faults.md", "reference/protocol.md"))
    assert f"| replaced after {supervisor._STOPPED_SECONDS:g} seconds | `test_a_stopped_worker_is_replaced`" in faults
    assert f"| replaced after {nursery._SILENT_SECONDS:g} seconds | `test_a_stopped_nursery_is_replaced`" in faults
    assert f"to a node that prepares, after {head._PREPARING_SECONDS:g} s." in protocol


@posix
@pytest.mark.parametrize("where", quick_or_slow(PROGRAMS))
def test_program_of_a_page_runs(where: str, server: None, home: Path, tmp_path: Path):
    text = PROGRAMS[where]
    if "import onnxruntime" in text:
        pytest.importorskip("onnxruntime")
    shutil.copytree(home, tmp_path / "home")
    titled = TITLE.match(text)
    program = tmp_path / "home" / (titled[1] if titled else "program.py")
    program.write_text(text)
    run(program, cwd=program.parent)


@pytest.mark.slow
@posix
# cart_pole.py is a module, which its page trains.
@pytest.mark.parametrize("where", quick_or_slow(name(each) for each in EXAMPLES if each.name != "cart_pole.py"))
def test_example_runs(where: str, server: None, home: Path, tmp_path: Path):
    path = ROOT / where
    arguments = [str(home / "runs/cart_pole")] if path.name in ("load_policy.py", "replay_run.py") else []
    assert run(path, *arguments, cwd=tmp_path)


# Commands


#: Runs that a page begins with, because another page has made them.
GIVEN = {
    "docs/howto/compare.md": ["multirun"],
    "docs/howto/export.md": ["runs/cart_pole"],
    "docs/howto/ray.md": ["runs/ray"],
    "docs/howto/replay.md": ["runs/lander"],
    "docs/howto/resume.md": ["runs/lander"],
    "docs/reference/commands.md": ["runs/lander", "runs/walker", "runs/again", "runs/sigma"],
}
#: Trainings of the pages are this small, whatever else they say.
SHORT = (
    "timesteps=null", "algorithm.population_size=6", "noise.entries=8000000", "evaluation.episodes=1",
    "evaluation.every=13", "growth={timesteps:null,population_max:null}", "averaging.episodes_max=null",
)  # fmt: skip


@posix
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", sorted(LINES))
def test_commands_of_a_page_run_in_its_order(page: str, server: None, home: Path, tmp_path: Path):
    """In one folder, which has the page's files and what its commands before have made. Other machines are left out."""
    folder = Path(shutil.copytree(home, tmp_path / "page", ignore=shutil.ignore_patterns("runs", "multirun")))
    for run in GIVEN.get(page, ()):
        shutil.copytree(home / run, folder / run)
    for where, _, text in BLOCKS:
        if where.startswith(f"{page}:") and (titled := TITLE.match(text)):
            (folder / titled[1]).write_text(text)
    generations = 39 if any("--generation" in line for line in LINES[page]) else 2
    for number, line in enumerate(LINES[page]):
        words = [word for word in shlex.split(line) if not word.startswith("PYTHONPATH=")]
        if words[0] == "make":
            assert set(words[1:]) <= make_targets(), line
        elif words[0] == "cc":
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            subprocess.run(line, shell=True, cwd=folder, check=True, env={**os.environ, "PATH": path})
        elif words[0] == "pyes":
            check(words[1:], folder, f"generations={generations}", f"run_dir=made/{number}")
        else:
            assert words[0] in ("pip", "ray"), f"not known to this test: {line}"


def check(words: list[str], folder: Path, generations: str, run_dir: str) -> None:
    """Run a command of a page, shortened; of a cluster, Slurm or old Gym, check that the command line is accepted."""
    if words[0] == "launch":
        launched = words[words.index("--") + 1 :]
        assert head_arguments.split(launched)
        words = [*launched, "cluster=socket"]
    elsewhere = {"cluster=socket", "cluster=ray", "task=gym", "hydra/launcher=submitit_slurm"}
    if words[0] == "train" and elsewhere.intersection(words):
        if not any(word.startswith("resume=") for word in words):
            words = [word for word in words if word != "-m" and "," not in word and "run_dir=" not in word] + [
                "--cfg",
                "job",
            ]
            from_mapping(yaml.safe_load(succeed(words, folder)))
    elif words[0] == "train" and not {"--cfg", "--help"}.intersection(words):
        succeed(shortened(words, generations, run_dir), folder)
    elif words[0] == "tune":
        few = [] if "--resume" in words else ["timesteps=900", "--trials", "1", "--seeds", "1", "--confirm", "1"]
        succeed([word for word in words if not word.startswith("timesteps=")] + few, folder)
    elif words[0] in COMMANDS_THAT_RUN:
        succeed(words, folder)
        for option in {"-o", "--video"}.intersection(words):
            assert (folder / words[words.index(option) + 1]).exists()
    else:
        succeed([words[0], "--help"], folder)


def succeed(words: list[str], folder: Path) -> str:
    """Run a command; return what it printed."""
    joblib = any("joblib" in word for word in words)  # which starts Pythons like its own
    done = (commands.started if joblib else commands.pyes)(*words, cwd=folder)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def shortened(words: list[str], generations: str, run_dir: str) -> list[str]:
    """Return a training that takes a second, in a directory of its own unless it names one."""
    keys = {word.partition("=")[0] for word in words}
    if "resume" in keys:
        return [*words, "generations=40"]
    words = [few_values(word) for word in words]
    added = [] if "debug" in keys else [*SHORT, generations]
    if "sweep" in keys:
        added += [each for each in ("seed=0", "task.episodes=1") if each.partition("=")[0] not in keys]
    names = [word.partition("=")[2] for word in words if word.startswith("experiment=")]
    recipes = [path.read_text() for path in ROOT.glob("conf/experiment/*.yaml") if path.stem in names]
    if "algorithm=ars" in words or any("/algorithm: ars" in text for text in recipes):
        added.append("algorithm.top=2")
    if "task=walk" not in words:  # the example of a family, which has keys of its own
        added.append("task.max_timesteps=8")
    if not any(key.startswith("cluster") for key in keys):
        added.append("cluster=inline")
    return [*words, *added, *([] if "run_dir" in keys else [run_dir])]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def few_values(argument: str) -> str:
    """Return an override that sweeps with its first and last value; anything else as it is."""
    if "=" not in argument:
        return argument
    override = OverridesParser.create().parse_override(argument)
    if not override.is_sweep_override():
        return argument
    if "glob(" in argument:
        options = sorted(path.stem for path in (ROOT / "conf" / override.key_or_group).glob("*.yaml"))
        return f"{override.key_or_group}={options[0]},{options[-1]}"
    values = list(override.sweep_string_iterator())
    return f"{override.get_key_element()}={values[0]},{values[-1]}"


def help_text(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with contextlib.suppress(SystemExit):  # of argparse; Hydra's help just returns
        cli.main([*command, "--help"])
    return capsys.readouterr().out


# Tables


def rows(page: Path) -> dict[str, list[str]]:
    """Return the table rows of a page by each name in backticks in their first cell."""
    found: dict[str, list[str]] = {}
    for line in re.findall(r"^\|(.*)\|$", page.read_text(encoding="utf-8"), re.MULTILINE):
        cells = [cell.strip() for cell in line.split(" | ")]
        for key in re.findall(r"`([^`]+)`", cells[0]):
            found[key] = cells
    return found


def keys(section: type[Section] = TrainConfig, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield every key of the configuration with its type and its default."""
    hints = typing.get_type_hints(section, include_extras=True)
    default = TrainConfig(task=TaskConfig.kind({})()) if section is TrainConfig else section()
    for field in dataclasses.fields(section):
        value = getattr(default, field.name)
        if isinstance(value, Section):
            yield from keys(type(value), f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", hints[field.name], value


def settings_of(registry: Registry[Any], name: str) -> set[str]:
    """Return the dotted keys of a kind's settings."""
    return {f"{registry.section}.{field.name}" for field in dataclasses.fields(registry.get(name).Config)}


KEYS = list(keys())


def literals(hint: Any) -> set[str]:
    if typing.get_origin(hint) is Literal:
        return set(typing.get_args(hint))
    return set().union(*map(literals, typing.get_args(hint))) if typing.get_args(hint) else set()


def test_configuration_page_has_every_key_with_its_values_and_default():
    table, wrong = rows(DOCS / "reference" / "configuration.md"), []
    for key, hint, default in KEYS:
        _, values, shown, meaning = table[key]
        expected = list(default) if isinstance(default, tuple) else default
        # The first default follows from other keys, the second from the time.
        if (
            not meaning
            or not literals(hint) <= set(re.findall(r"`([^`]+)`", values))
            or (key not in ("generations", "run_dir") and yaml.load(shown.strip("`"), _Loader) != expected)
        ):
            wrong.append((key, values, shown))
    assert wrong == []


class _Loader(yaml.SafeLoader):
    """YAML as a configuration has it: 1e-08 is a number."""


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[0-9.]+e-?[0-9]+$"), list("0123456789"))


def test_configuration_page_has_no_key_that_does_not_exist():
    registries = (ALGORITHMS, TASKS, NETWORKS, CLUSTERS)
    known = {key for key, _, _ in KEYS}
    known |= {key for each in registries for name in each.names() for key in settings_of(each, name)}
    sections = {key.split(".")[0] for key in known if "." in key}
    named = {key for key in rows(DOCS / "reference" / "configuration.md") if key.split(".")[0] in sections}
    assert {key for key in named if "=" not in key} <= known


#: Algorithms whose section refers to the keys of another one.
_LIKE = {"ns_es": "openai_es", "nsr_es": "ns_es", "nsra_es": "ns_es"}


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS.names()) - {"ars"}))
def test_algorithms_page_has_keys_of_every_algorithm(name: str, tmp_path: Path):
    page = (DOCS / "reference" / "algorithms.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {name}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "section.md").write_text(section, encoding="utf-8")
    table, common = rows(tmp_path / "section.md"), {key for key, _, _ in keys(AlgorithmConfig, "algorithm.")}
    own = {key: (hint, default) for key, hint, default in keys(ALGORITHMS.get(name).Config, "algorithm.")}
    if name in _LIKE:  # what its section refers to
        common |= {key for key, _, _ in keys(ALGORITHMS.get(_LIKE[name]).Config, "algorithm.")}
    table = {key: cells for key, cells in table.items() if key.startswith("algorithm.")}
    assert table.keys() == own.keys() - common
    for key, (_, values, shown, _) in table.items():
        assert literals(own[key][0]) <= set(re.findall(r"`([^`]+)`", values))
        assert yaml.load(shown.strip("`"), _Loader) == own[key][1]


def test_page_has_every_option_of_every_group():
    table = rows(DOCS / "reference" / "configuration.md")
    for path in sorted(set((ROOT / "conf").glob("*/*.yaml")) - set((ROOT / "conf" / "tune").iterdir())):
        option = f"{path.parent.name}={path.stem}"
        assert option in table or f"`{path.stem}`" in table[path.parent.name][1], option


@pytest.mark.parametrize(
    "command",
    [
        "tune",
        "evaluate",
        "replay",
        "plot",
        "table",
        "diff",
        "map",
        "video",
        "export",
        "keygen",
        "info",
        "bench",
        "check-environment",
    ],
)
def test_commands_page_has_every_option(command: str, capsys: pytest.CaptureFixture[str]):
    page = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## pyes {command}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    for option in set(re.findall(r"--\w+", help_text([command], capsys))) - {"--help", "--debug"}:
        assert f"`{option}" in section or f", {option}" in section or f"{option} FILE`" in section, option


def test_every_command_has_a_section_and_a_row(capsys: pytest.CaptureFixture[str]):
    commands = set(re.findall(r"^    ([\w-]+)(?: |$)", help_text([], capsys), re.MULTILINE)) - {"COMMAND"}
    page = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    assert commands == set(re.findall(r"^## pyes ([\w-]+)$", page, re.MULTILINE))
    table = rows(DOCS / "reference" / "commands.md")
    assert commands == {words[1] for words in map(str.split, table) if words[0] == "pyes" and len(words) > 1}


def test_protocol_page_has_every_message_with_its_number_and_fields():
    page = (DOCS / "reference" / "protocol.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| (\d+) \| `(\w+)` \| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE)
    messages = [
        (str(number), kind.__name__, ", ".join(field.name for field in dataclasses.fields(kind)) or "none")
        for number, kind in KINDS.items()
    ]
    assert table == messages


def test_files_page_has_every_column_of_the_metrics():
    assert set(COLUMNS) <= set(rows(DOCS / "reference" / "files.md"))


def test_files_page_has_every_file_of_a_run(home: Path):
    table = rows(DOCS / "reference" / "files.md")
    names = {path.name + ("/" if path.is_dir() else "") for path in (home / "runs/cart_pole").iterdir()}
    assert {file for file in names if not any(key.startswith(file) for key in table)} == set()


def functions(path: Path) -> set[str]:
    """Return the names of the test functions of a file."""
    return set(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))


def test_faults_page_names_tests_that_exist_and_all_of_test_faults():
    table = re.findall(r"^\|.*\|$", (DOCS / "explanation" / "faults.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = set(re.findall(r"`(test_\w+)`", "\n".join(table)))
    assert named - set().union(*map(functions, (ROOT / "tests").rglob("test_*.py"))) == set()
    assert functions(ROOT / "tests" / "cluster" / "test_faults.py") - named == set()


def test_files_page_has_every_key_of_the_journal():
    page = (DOCS / "reference" / "files.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## journal.bin$(.*?)(?=^## )", page, re.MULTILINE | re.DOTALL)
    for record in (Start, Generation, Evaluation):
        for field in dataclasses.fields(record):
            assert field.name == "generation" or f"`{field.name}`" in section, field.name


def test_api_page_has_the_arguments_of_functions_and_classes():
    page = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    found = re.findall(r"^## (pyes[\w.]*)\((.*)\)(?: -> .*)?$", page, re.MULTILINE)
    assert len(found) > 8
    for name, said in found:
        signature = inspect.signature(operator.attrgetter(name.removeprefix("pyes."))(pyes))
        bare = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
        actual = str(inspect.Signature(bare))[1:-1].replace("'", '"')
        assert said == actual or (said.endswith("...") and actual.startswith(said[:-3])), name


def test_api_page_has_every_public_name():
    page = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    assert [public for public in pyes.__all__ if f"pyes.{public}" not in page] == []
