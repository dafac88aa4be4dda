import io
import logging
import sys

from rich.console import Console
from samples import row

from pyes.config import from_mapping
from pyes.run.metrics import NodeRow
from pyes.training.display import Display


def _display(terminal, **config):
    display = Display(from_mapping(config))
    stream = io.StringIO()
    display._console = Console(file=stream, force_terminal=terminal, width=120, highlight=False)
    return display, stream


def test_without_a_terminal_evaluations_are_plain_lines():
    display, stream = _display(False)
    with display:
        display.show(row(3, return_mean=12.5, eval_return_mean=200.0, eval_return_std=4.0))
    (line,) = stream.getvalue().splitlines()
    assert "generation     3" in line
    assert "evaluation 200.00 ± 4.00" in line
    assert "\x1b" not in line


def test_without_a_terminal_lines_come_every_two_seconds_only():
    display, stream = _display(False)
    with display:
        for generation in range(100):
            display.show(row(generation))
    assert len(stream.getvalue().splitlines()) == 1


def test_on_a_terminal_the_table_shows_the_time_left():
    display, stream = _display(True, generations=100)
    with display:
        display.show(row(49, seconds=30.0))
    assert "50% of generations" in stream.getvalue()
    assert "about 30.0 s left" in stream.getvalue()


def _node(name):
    return NodeRow(
        generation=3,
        node=name,
        workers=4,
        members=250,
        timesteps=61_000,
        steps_per_second=15_250.0,
        idle_fraction=0.03,
        round_trip=0.0021,
        bytes_sent=1_200,
        bytes_received=3_400,
    )


def test_on_a_terminal_nodes_are_listed_but_never_more_than_fit():
    display, stream = _display(True, generations=100)
    with display:
        display.show(row(49), [_node(f"host[{number}]:17") for number in range(12)], ["2 members were lost"])
    text = stream.getvalue()
    for shown in ("host[0]:17", "host[9]:17", "15,250", "2.1 ms", "4,600", "and 2 more; all of them: pyes status"):
        assert shown in text
    assert "host[10]:17" not in text
    assert "2 members were lost" in text


def test_without_a_terminal_nodes_take_no_lines():
    display, stream = _display(False)
    with display:
        display.show(row(0), [_node("host:17")])
    assert len(stream.getvalue().splitlines()) == 1


def test_names_are_shown_as_they_are(capsys):
    with Display(from_mapping({})) as display:
        display.note("my_functions:fire: 3 parameters of [bold]")
    assert capsys.readouterr().err == "my_functions:fire: 3 parameters of [bold]\n"


def test_disabled_display_is_silent():
    display, stream = _display(True)
    display._enabled = False
    with display:
        display.note("hello")
        display.show(row(0))
    assert stream.getvalue() == ""


def test_display_shows_rows_whose_clock_figures_were_lost(capsys):
    with Display(from_mapping({"generations": 10})) as display:
        display.show(row(3, steps_per_second=None, idle_fraction=None))
    assert "- steps/s" in capsys.readouterr().err


class _NobodyReads(io.StringIO):
    def flush(self):
        raise BrokenPipeError(32, "Broken pipe")


def test_display_goes_on_when_nobody_reads_it_any_more(monkeypatch):
    monkeypatch.setattr(sys, "stderr", _NobodyReads())
    with Display(from_mapping({"generations": 10})) as display:
        display.note("nobody sees this")
        display.show(row(3))


def test_display_shows_errors_that_are_logged(capsys):
    with Display(from_mapping({"generations": 10})):
        logging.getLogger("pyes.system.files").error("the disk is full")
        logging.getLogger("pyes.system.files").warning("only for the log")
    logging.getLogger("pyes.system.files").error("too late")
    shown = capsys.readouterr().err
    assert "the disk is full" in shown
    assert "only for the log" not in shown
    assert "too late" not in shown
