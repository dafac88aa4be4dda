"""Long runs: runs that are killed repeatedly equal an undisturbed run, and each of their individuals can be replayed.

Minutes each: only ``make soak`` runs them.
"""

import itertools
import random
import sys
from typing import Any

import pytest
from heads import Head, count_of, judge, merge, size_of

import pyes
from pyes.reports import replay

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(sys.platform != "linux", reason="kills processes by /proc"),
]

GENERATIONS, KILLS = 200, 50
#: Small enough to end within a minute, with all that a generation can leave to the next one.
LANDER = (
    "task=lunar_lander",
    "task.normalize_observations=true",
    "algorithm.population_size=16",
    "episode_limit.initial=100",
    f"generations={GENERATIONS}",
    "noise.entries=1000000",
    "cluster.workers=2",
    "evaluation.episodes=4",
)


@pytest.mark.parametrize("optimizer", ["adam", "clipup"])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_run_killed_fifty_times_is_the_run_that_nobody_touched(tmp_path, dtype, optimizer):
    calm, storm = tmp_path / "calm", tmp_path / "storm"
    settings = (*LANDER, f"noise={dtype}", f"optimizer={optimizer}")
    with Head(*settings, f"run_dir={calm}") as head:
        head.process.wait()
        assert head.wait() == 0, head.errors
    chance = random.Random(f"{dtype} {optimizer}")
    for rows in sorted(chance.randrange(GENERATIONS * 3 // 4) for _ in range(KILLS)):  # the run must not end before
        with _start(storm, settings) as head:
            if chance.random() < 0.3:  # while it starts, most likely
                head.rest(chance.uniform(0, 3))
            else:
                head.reach(storm, rows)
                head.rest(chance.uniform(0, 0.2))
            head.kill()
    with _start(storm, settings) as head:
        head.process.wait()
        assert head.wait() == 0, head.errors
    judge(calm, storm)


def _start(run, settings):
    """Start a head on a new run, or on what is there of it."""
    return Head(f"resume={run}") if size_of(run) else Head(*settings, f"run_dir={run}")


#: Tasks whose members carry all kinds of state: action noise, several episodes, statistics, growing episode limits.
REPLAYED: dict[str, dict[str, Any]] = {
    "LunarLanderContinuous-v3": {"episode_limit": {"initial": 100}},
    "CartPole-v1": {"task": {"normalize_observations": True, "max_timesteps": 200}},
    "BipedalWalker-v3": {"task": {"normalize_observations": True, "max_timesteps": 300}, "noise": {"dtype": "int8"}},
    "Pendulum-v1": {"task": {"episodes": 2, "action_noise": 0.1, "action": "tanh"}, "noise": {"dtype": "bfloat16"}},
}


@pytest.mark.parametrize("task", REPLAYED)
def test_every_member_of_ten_generations_plays_again(tmp_path, task):
    base = {
        "run_dir": str(tmp_path / "run"),
        "generations": GENERATIONS,
        "algorithm": {"population_size": 16},
        "noise": {"entries": 1_000_000},
        "task": {"env_id": task},
        "evaluation": {"every": 0},
        "cluster": {"workers": 2},
    }
    pyes.train(merge(base, REPLAYED[task]), display=False)
    assert count_of(tmp_path / "run") == GENERATIONS
    chance = random.Random(task)
    with replay.open(tmp_path / "run") as run:
        for generation, index in itertools.product(chance.sample(range(GENERATIONS), 10), range(16)):
            played = run.play(generation, index)
            assert played.return_ == run.returns(generation)[index]
            assert played.length == run.lengths(generation)[index]
