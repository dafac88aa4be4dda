import io
import logging
import re
import sys

import pytest
from samples import row

from pyes.config import from_mapping
from pyes.run.metrics import NodeRow
from pyes.training.display import Display
from pyes.training.panel import Panel


def _display(monkeypatch, terminal=None, **config):
    """Return a display, and what it writes: to a terminal of some width and height, or to a file."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    display = Display(from_mapping(config))
    if terminal is not None:
        display._panel = Panel(stream, terminal)
    return display, stream


def test_without_a_terminal_evaluations_are_plain_lines(monkeypatch):
    display, stream = _display(monkeypatch)
    with display:
        display.show(row(3, return_mean=12.5, eval_return_mean=200.0, eval_return_std=4.0))
    (line,) = stream.getvalue().splitlines()
    assert "generation     3" in line
    assert "evaluation 200.00 ± 4.00" in line
    assert "\x1b" not in line


@pytest.mark.parametrize(("kind", "lines"), [("dumb", 1), ("xterm", 0)])
def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines(monkeypatch, kind, lines):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", kind)
    with Display(from_mapping({})) as display:
        display.show(row(3, eval_return_mean=200.0, eval_return_std=4.0))
        assert stream.getvalue().count("generation     3") == lines


def test_without_a_terminal_lines_come_every_two_seconds_only(monkeypatch):
    display, stream = _display(monkeypatch)
    with display:
        for generation in range(100):
            display.show(row(generation))
    assert len(stream.getvalue().splitlines()) == 1


def test_on_a_terminal_the_table_shows_the_time_left(monkeypatch):
    display, stream = _display(monkeypatch, (120, 40), generations=100)
    with display:
        display.show(row(49, seconds=30.0))
    assert "50% of generations" in stream.getvalue()
    assert re.search(r"about 3\d\.\d s left", stream.getvalue())


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


def test_on_a_terminal_nodes_are_listed_but_never_more_than_fit(monkeypatch):
    display, stream = _display(monkeypatch, (120, 40), generations=100)
    with display:
        display.show(row(49), [_node(f"host[{number}]:17") for number in range(12)], ["2 members were lost"])
    text = stream.getvalue()
    for shown in ("host[0]:17", "host[9]:17", "15,250", "2.1 ms", "4,600", "and 2 more; all of them: pyes status"):
        assert shown in text
    assert "host[10]:17" not in text
    assert "2 members were lost" in text


def test_without_a_terminal_nodes_take_no_lines(monkeypatch):
    display, stream = _display(monkeypatch)
    with display:
        display.show(row(0), [_node("host:17")])
    assert len(stream.getvalue().splitlines()) == 1


def test_names_are_shown_as_they_are(capsys):
    with Display(from_mapping({})) as display:
        display.note("my_functions:fire: 3 parameters of [bold]")
    assert capsys.readouterr().err == "my_functions:fire: 3 parameters of [bold]\n"


def test_disabled_display_is_silent(monkeypatch):
    display, stream = _display(monkeypatch, (120, 40))
    display._enabled, display._panel = False, None
    with display:
        display.note("hello")
        display.show(row(0))
    assert stream.getvalue() == ""


def test_display_shows_rows_whose_clock_figures_were_lost(capsys):
    with Display(from_mapping({"generations": 10})) as display:
        display.show(row(3, steps_per_second=None, idle_fraction=None))
    assert "- steps/s" in capsys.readouterr().err


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (100, 30)])
def test_panel_has_all_figures_at_any_size(size, monkeypatch):
    figures = {
        "timesteps": 12_345_678,
        "episodes": 123_456,
        "seconds": 4_000.0,
        "return_mean": -1234.56,
        "return_max": -1042.25,
        "length_mean": 987.0,
        "steps_per_second": 123_456.0,
        "eval_return_mean": -1111.25,
        "eval_return_std": 123.45,
        "failed_members": 17,
    }
    display, stream = _display(monkeypatch, size, generations=2_000)
    with display:
        display.show(row(1_234, **figures), [_node(f"host[{number}]:17") for number in range(12)], ["2 were lost"])
        shown = stream.getvalue()
    lines = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", shown).splitlines()
    assert max(map(len, lines)) <= size[0]
    assert len(lines) <= size[1]
    text = re.sub(" +", " ", "\n".join(lines))
    words = ("generation 1,234", "timesteps 12,345,678", "episodes 123,456", "time 1:06 h", "return -1234.56")
    words += ("best member -1042.25", "episode length 987", "workers idle 50%", "evaluation -1111.25 ± 123.45")
    words += ("best evaluation -1111.25", "steps/s 123,456", "failed members 17", "62% of generations", "left")
    for word in (*words, "2 were lost", "host[0]:17", "15,250", "pyes status"):
        assert word in text


def test_panel_is_shown_before_the_first_generation_ends(monkeypatch):
    display, stream = _display(monkeypatch, (60, 20))
    with display:
        display._changed -= 10.0
        display.progress(0, 3, 40, evaluation=False)
        display.progress(0, 4, 40, evaluation=False)  # too soon
    assert "generation 0, 3 of 40 members" in stream.getvalue()
    assert "best evaluation" in stream.getvalue()
    assert "4 of 40" not in stream.getvalue()


def test_without_a_terminal_a_long_silence_has_lines(monkeypatch):
    display, stream = _display(monkeypatch)
    with display:
        display.progress(0, 3, 40, evaluation=False)
        display._changed -= 10.0
        display.progress(5, 7, 50, evaluation=True)
    assert re.fullmatch(r"generation 5, evaluation: 7 of 50 episodes, \d+\.\d s\n", stream.getvalue())


def test_request_to_end_is_answered_even_while_something_is_written(monkeypatch):
    display, stream = _display(monkeypatch)
    display.answer_request()
    assert stream.getvalue() == "the run ends after this generation; again (Ctrl-C): it stops now\n"
    monkeypatch.setattr(stream, "write", _reentered)
    display.answer_request()


def _reentered(text):
    raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")


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


def test_errors_of_forked_workers_do_not_write_into_the_panel(capsys, monkeypatch):
    with Display(from_mapping({"generations": 10})):
        monkeypatch.setattr("os.getpid", lambda: -1)
        logging.getLogger("pyes.node.worker_process").error("worker 0 stopped")
    assert capsys.readouterr().err == ""
