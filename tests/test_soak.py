"""Ten thousand generations with faults on: nothing grows, and theta is that of the calm run.

Minutes: only ``make soak`` runs it.
"""

import contextlib
import json
import signal
import statistics
import sys

import pytest
from heads import Head, held_by, hurt, rows_of, zombies

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(sys.platform != "linux", reason="kills processes by /proc"),
]

GENERATIONS = 10_000
SETTINGS = (
    "task=gymnasium",
    "task.env_id=faulty:Faulty-v0",
    "algorithm.population_size=8",
    "generations=1000000",
    "noise.entries=100000",
    "cluster.workers=2",
    "cluster.episode_time_limit=2",
    "evaluation.every=100",
    "evaluation.episodes=4",
    "snapshot.every=50",
)
#: The memory of a process may differ so much between two moments.
SLACK = 8 * 2**20


def test_nothing_grows_in_ten_thousand_generations_with_faults(tmp_path):
    calm, storm, marks = tmp_path / "calm", tmp_path / "storm", tmp_path / "marks"
    marks.mkdir()
    with Head(*SETTINGS, f"generations={GENERATIONS}", f"run_dir={calm}") as head:
        head.process.wait()
        assert head.wait() == 0, head.errors
    faulty = {"fault": "segfault", "every": 20, "once": str(marks)}
    with Head(*SETTINGS, f"run_dir={storm}", environment={"FAULTY": json.dumps(faulty)}) as head:
        _torment(head, storm, range(0, 1000, 100))
        early = _held(head)
        _torment(head, storm, range(1000, GENERATIONS, 100))
        late = _held(head)
        assert not zombies(head.pid)
        head.stop()
    assert len(list(marks.iterdir())) > 100
    for name, (memory, descriptors) in late.items():
        assert memory < early[name][0] + SLACK, (early, late)
        assert descriptors == early[name][1], (early, late)
    hashes, expected = ([row["theta_hash"] for row in rows_of(run)] for run in (storm, calm))
    assert hashes[:GENERATIONS] == expected
    journal = (calm / "journal.bin").read_bytes()
    assert (storm / "journal.bin").read_bytes()[: len(journal)] == journal


def _torment(head, run, generations):
    """Kill a worker, another one, and the parent of the workers, in each of these spans of a hundred generations."""
    for generation in generations:
        for victim in (30, 60):
            head.reach(run, generation + victim)
            hurt(head.until(lambda: head.workers, "a worker")[0], signal.SIGKILL)
        head.reach(run, generation + 90)
        hurt(head.until(lambda: head.nurseries, "a parent of workers")[0], signal.SIGKILL)
        head.reach(run, generation + 100)


def _held(head):
    """Return what head, nursery and workers hold, by the median of many looks: bytes of memory, descriptors."""
    looks = {"head": [], "nursery": [], "worker": []}
    while len(looks["worker"]) < 50:
        for name, pids in (("head", [head.pid]), ("nursery", head.nurseries), ("worker", head.workers)):
            for pid in pids:
                with contextlib.suppress(OSError):  # it has just ended
                    looks[name].append(held_by(pid))
        head.rest(0.02)
    return {name: tuple(map(statistics.median_low, zip(*seen, strict=True))) for name, seen in looks.items()}
