"""What `pyes status --watch` says of nodes; heads and nodes are in tests/cluster/test_socket.py."""

import pytest
from rich.console import Console

from pyes.reports import watching

NODE = {
    "node": "a:1",
    "state": "at work",
    "workers": 2,
    "cores": 2,
    "memory": 2**30,
    "round_trip": 0.002,
    "heard": 0.1,
    "seconds": 100.0,
    "members": 500,
    "timesteps": 100_000,
    "busy_seconds": 190.0,
    "bytes_sent": 2**20,
    "bytes_received": 2**10,
    "reconnects": 0,
    "lost": 0,
}


def _judged(*changes, before=None):
    """Return the lines of nodes b:0, b:1, ... with these changes, beside three that are well."""
    well = [NODE | {"node": f"a:{number}"} for number in range(3)]
    nodes = [*well, *(NODE | {"node": f"b:{number}"} | each for number, each in enumerate(changes))]
    reports = [(10.0, {"nodes": nodes})]
    if before is not None:
        reports = [(0.0, {"nodes": before}), *reports]
    return watching.judged(reports)


@pytest.mark.parametrize(
    ("change", "trouble"),
    [
        ({}, ""),
        ({"timesteps": 60_000}, "slow: 0.6 of the median"),
        ({"timesteps": 85_000}, ""),
        ({"state": "preparing", "timesteps": 0, "busy_seconds": 0.0, "seconds": 0.0}, "preparing"),
        ({"state": "No module named 'x'"}, "No module named 'x'"),
        ({"heard": 7.2}, "silent for 7 s"),
        ({"heard": 7.2, "timesteps": 60_000}, "silent for 7 s; slow: 0.6 of the median"),
        ({"reconnects": 1}, "came back once"),
        ({"reconnects": 3}, "came back 3 times"),
        ({"timesteps": 10_000, "busy_seconds": 19.0, "round_trip": 0.3}, "waits: 10% busy, round trip 300 ms"),
        ({"timesteps": 0, "busy_seconds": 0.0, "seconds": 1.0}, ""),  # it has just joined
    ],
)
def test_each_trouble_is_named(change, trouble):
    (line,) = (line for line in _judged(change) if line.node["node"] == "b:0")
    assert line.trouble == trouble


def test_the_worst_is_on_top():
    lines = _judged({"timesteps": 70_000}, {"timesteps": 50_000}, {"heard": 9.0}, {"reconnects": 1})
    assert [line.node["node"] for line in lines[:4]] == ["b:2", "b:1", "b:0", "b:3"]


def test_paces_are_those_since_the_first_report():
    before = NODE | {"node": "b:0", "timesteps": 90_000, "busy_seconds": 180.0}
    (line,) = (line for line in _judged({}, before=[before]) if line.node["node"] == "b:0")
    assert (line.pace, line.busy) == (1000.0, 0.5)


def test_a_node_that_came_back_is_measured_since_then():
    before = NODE | {"node": "b:0", "timesteps": 90_000}
    change = {"timesteps": 5_000, "busy_seconds": 9.5, "seconds": 5.0, "reconnects": 1}
    (line,) = (line for line in _judged(change, before=[before]) if line.node["node"] == "b:0")
    assert (line.pace, line.relative) == (1000.0, 1.0)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_every_width_shows_whole_figures_and_the_trouble(width):
    console = Console(width=width, height=24, force_terminal=False)
    with console.capture() as capture:
        console.print(watching.fitting(_judged({"heard": 9.0, "timesteps": 60_000}), console))
    text = capture.get()
    assert max(map(len, text.splitlines())) <= width
    if width >= 80:
        assert "b:0" in text
        assert "silent for 9 s" in text
        assert "…" not in text
    assert ("received" in text) == (width >= 120)
