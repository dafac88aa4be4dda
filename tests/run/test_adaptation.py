"""What a run adapts: episode limit, episodes per member, population."""

import numpy as np
import pytest
from optima import check_goes_on_exactly, check_runs_agree

import pyes
import pyes.reports.replay
from pyes.algorithms.population import Population
from pyes.config import AveragingConfig, EpisodeLimitConfig, GrowthConfig, algorithm_config, from_mapping
from pyes.episodes.batch import Batch, Plan
from pyes.errors import ConfigError
from pyes.node.worker import Sums
from pyes.numerics.noise import NoiseTable
from pyes.remote.open_batch import OpenBatch
from pyes.remote.scheduler import Pace
from pyes.remote.wire import Done, ranges_of
from pyes.run import journal
from pyes.run.adaptation import Averaging, EpisodeLimit, agreement, next_population_size
from pyes.run.metrics import read_rows

NAN = float("nan")
NOISY = {
    "task": {"env_id": "CartPole-v1", "episodes": 2, "common_random_numbers": "none", "reward_offset_per_step": 0.1},
    "averaging": {"episodes_max": 7, "agreement": 0.6},
}  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], 1.0),
        ([1, 2, 3, 4], [8, 7, 6, 5], -1.0),
        ([1, 2, 3, 4, 5], [2, 1, 4, 3, 5], 0.8),  # 1 - 6 * 4 / (5 * 24), Spearman's formula
        ([1, 1, 2], [1, 2, 3], 0.75**0.5),  # ranks 1.5, 1.5, 3
        ([1, NAN, 2, 3], [1, 9, 2, 3], 1.0),  # a failed member does not count
        ([1, 1, 1], [1, 2, 3], None),
        ([1, 2, NAN], [1, 2, 3], None),
    ],
)
def test_agreement_is_the_rank_correlation_of_the_halves(first, second, expected):
    assert agreement(np.array([first, second], np.float64).T) == pytest.approx(expected)


def test_halves_of_an_odd_number_are_the_first_ones_and_the_rest():
    sums = Sums(5, 0)
    for episode_return in (1.0, 2.0, 3.0, 4.0, 8.0):
        sums.add(episode_return, 10, None)
    assert (sums.total, sums.length, sums.halves.tolist()) == (18.0, 50, [1.5, 5.0])


def test_one_episode_has_no_halves():
    sums = Sums(1, 0)
    sums.add(1.0, 10, None)
    assert np.isnan(sums.halves).all()


def test_episodes_follow_the_agreement_between_their_bounds():
    averaging = Averaging(AveragingConfig(episodes_max=10, agreement=0.5, factor=1.5), 2)
    seen = []
    for value in (0.4, 0.4, None, -1.0, 0.1, 0.5, 0.9, 0.9, 0.9, 0.9):
        averaging.update(value)
        seen.append(averaging.episodes)
    assert seen == [4, 7, 7, 10, 10, 6, 4, 2, 2, 2]


def test_episodes_stay_as_they_are_without_a_largest_number():
    averaging = Averaging(AveragingConfig(), 3)
    averaging.update(-1.0)
    assert averaging.episodes == 3


@pytest.mark.parametrize(
    ("episodes", "most", "message"),
    [
        (1, 8, "task.episodes: got 1, expected at least 2 with averaging"),
        (8, 4, "averaging.episodes_max: got 4, expected at least task.episodes, which is 8"),
    ],
)
def test_numbers_that_leave_nothing_to_compare_or_to_add_are_refused(episodes, most, message):
    with pytest.raises(ConfigError, match=message):
        from_mapping({"task": {"episodes": episodes}, "averaging": {"episodes_max": most}})


@pytest.mark.parametrize("name", ["openai_es", pytest.param("snes", marks=pytest.mark.slow)])
def test_runs_agree(tmp_path, name):
    check_runs_agree(tmp_path, NOISY | {"algorithm": {"name": name}})


@pytest.mark.slow
def test_a_run_takes_the_episodes_that_its_journal_asks_for(tmp_path):
    config = {
        "generations": 6, "evaluation": {"every": 2, "episodes": 3}, "noise": {"entries": 10_000},
        "algorithm": {"population_size": 12}, "averaging": {"episodes_max": 7, "agreement": 1},
        "task": NOISY["task"] | {"normalize_observations": True}, "cluster": {"name": "inline"},
    }  # fmt: skip
    pyes.train(config | {"run_dir": str(tmp_path / "run")}, display=False)
    rows = read_rows(tmp_path / "run" / "metrics.csv")
    each = [int(row["episodes_per_member"]) for row in rows]
    assert each[:4] == [2, 4, 7, 7]  # hardly ever do the halves agree wholly
    assert [int(row["episodes"]) for row in rows] == (12 * np.cumsum(each)).tolist()
    assert all(1 <= float(row["length_mean"]) <= 500 for row in rows)
    with pyes.reports.replay.open(tmp_path / "run") as replay:
        played = replay.play(2, 5)
        assert (played.exact, len(played.seeds)) == (True, 7)
        assert replay.lengths(2).sum() == pytest.approx(float(rows[2]["length_mean"]) * 7 * 12)


@pytest.mark.slow
def test_another_way_keeps_the_episodes_unless_their_settings_change(tmp_path):
    def last(run, **changes):
        pyes.train({"resume": str(run), "force": True, **changes}, display=False)
        return int(read_rows(run / "metrics.csv")[-1]["episodes_per_member"])

    config = {
        "generations": 3, "evaluation": {"every": 0}, "noise": {"entries": 10_000}, "cluster": {"name": "inline"},
        "algorithm": {"population_size": 12}, "averaging": {"episodes_max": 7, "agreement": 1}, "task": NOISY["task"],
        "run_dir": str(tmp_path / "run"),
    }  # fmt: skip
    pyes.train(config, display=False)
    assert last(tmp_path / "run", generations=4, algorithm={"sigma": 0.2}) == 7
    assert last(tmp_path / "run", generations=5, averaging={"agreement": 0.9}) == 2


@pytest.mark.slow
def test_halves_of_many_members_at_once_are_those_of_each_alone(tmp_path):
    pytest.importorskip("envpool")
    config = {
        "generations": 3, "evaluation": {"every": 0}, "noise": {"entries": 10_000},
        "algorithm": {"population_size": 12}, "averaging": {"episodes_max": 5, "agreement": 0.9},
        "task": {"name": "envpool", "env_id": "CartPole-v1", "episodes": 2, "common_random_numbers": "none"},
    }  # fmt: skip
    for vector in (1, 8):
        changes = {"cluster": {"name": "inline", "vector": vector}, "run_dir": str(tmp_path / str(vector))}
        pyes.train(config | changes, display=False)
    records = [each for each in journal.read(tmp_path / "8" / "journal.bin") if isinstance(each, journal.Generation)]
    assert all(isinstance(record.agreement, float) for record in records)
    assert (tmp_path / "1" / "journal.bin").read_bytes() == (tmp_path / "8" / "journal.bin").read_bytes()


def test_head_gathers_the_halves_that_nodes_report():
    plan = Plan(
        seed=0, dim=1, capacity=3, episodes=2, observation_size=0, statistics_rows=0, policy=None, halves=True
    )  # fmt: skip
    batch = Batch(Population.center(0, np.zeros(1, np.float32), 3), np.zeros((3, 2), np.int64), limit=1)
    gathered = OpenBatch(1, batch, "hash", plan)
    gathered.scheduler.join(0, Pace(3))
    granted = np.concatenate([members for _, members in gathered.scheduler.grants(0.0)])
    assert granted.tolist() == [0, 1, 2]
    halves = np.array([[1.0, 2.0], [3.0, 4.0], [NAN, NAN]])

    def done(members, reported):
        n = len(members)
        return Done(
            1,
            "hash",
            ranges_of(np.array(members)),
            np.zeros(n),
            np.ones(n, np.uint8),
            None,
            None,
            None,
            reported,
            1.0,
            [],
        )

    with pytest.raises(ValueError, match=r"its halves have shape \(1, 0\), expected \(1, 2\)"):
        gathered.take(0, done([2], None), 1.0)
    gathered.take(0, done([2], halves[2:]), 1.0)
    gathered.take(0, done([0, 1], halves[:2]), 2.0)
    np.testing.assert_array_equal(gathered.results().halves, halves)


@pytest.mark.parametrize(
    ("settings", "lengths", "expected"),
    [
        ({}, [50, 70], 18),  # 16.7, then whole pairs
        ({"name": "openai_es", "mirrored": False}, [50, 70], 17),
        ({}, [500, 700], 8),
        ({}, [1, 1, 1], 100),
        ({}, [0, 0], 100),
        ({"name": "ars"}, [50, 70], 18),
    ],
)
def test_population_size_follows_the_lengths_of_episodes(settings, lengths, expected):
    algorithm, growth = algorithm_config({"population_size": 8, **settings}), GrowthConfig(1000, 100)
    assert next_population_size(growth, algorithm, np.array(lengths)) == expected


@pytest.mark.parametrize(
    ("growth", "message"),
    [
        ({"timesteps": 10}, "population_max: got null, expected an integer with growth.timesteps"),
        ({"timesteps": 10, "population_max": 6}, "population_max: got 6, expected at least algorithm.population_size"),
        ({"timesteps": 10, "population_max": 9}, "population_max: got 9, expected an even number with algorithm.mirr"),
        ({"population_max": 10}, "population_max: got 10, expected null without growth.timesteps"),
    ],
)
def test_growth_without_an_end_is_refused(growth, message):
    with pytest.raises(ConfigError, match=message):
        from_mapping({"algorithm": {"population_size": 8}, "growth": growth})


@pytest.mark.parametrize("name", ["snes", "ga", "cma_es", "nevergrad"])
def test_growth_of_an_algorithm_with_a_population_of_fixed_size_is_refused(name):
    with pytest.raises(ConfigError, match=f"growth.timesteps: got 10, expected null with algorithm.name={name}"):
        from_mapping({"algorithm": {"name": name}, "growth": {"timesteps": 10, "population_max": 100}})


def test_state_of_an_algorithm_keeps_its_population_size():
    def make():
        es = pyes.PGPE(np.zeros(4), table, population_size=4)
        es.population_size = 6
        return es

    with NoiseTable(10_000, 0) as table:
        check_goes_on_exactly(make)
        assert len(make().ask()) == 6


def _train(path, **changes):
    config = {
        "task": {"env_id": "CartPole-v1", "normalize_observations": True},
        "algorithm": {"name": "ars", "population_size": 4}, "growth": {"timesteps": 400, "population_max": 20},
        "evaluation": {"every": 0}, "snapshot": {"every": 1}, "noise": {"entries": 10_000}, "run_dir": str(path),
    }  # fmt: skip
    pyes.train(config | changes, display=False)


@pytest.mark.slow
def test_runs_with_growth_agree(tmp_path):
    _train(tmp_path / "two", cluster={"workers": 2}, generations=4)
    _train(tmp_path / "parts", cluster={"name": "inline"}, generations=2)
    pyes.train({"resume": str(tmp_path / "parts"), "generations": 4}, display=False)
    rows = [read_rows(tmp_path / name / "metrics.csv") for name in ("two", "parts")]
    assert [row["theta_hash"] for row in rows[0]] == [row["theta_hash"] for row in rows[1]]
    with pyes.reports.replay.open(tmp_path / "parts") as replay:
        sizes = [replay.population_size(generation) for generation in range(4)]
        assert sizes[0] == 4
        assert max(sizes) > 4
        for before, size in enumerate(sizes[1:]):
            assert size == next_population_size(replay.config.growth, replay.config.algorithm, replay.lengths(before))
        assert replay.play(3, sizes[3] - 1).exact


def test_episode_limit_grows_when_enough_members_reach_it():
    limit = EpisodeLimit(EpisodeLimitConfig(initial=100, threshold=0.5, growth=2.0), max_timesteps=300)
    limit.update(np.array([100, 20, 30, 40]), episodes=1)
    assert limit.value == 100
    limit.update(np.array([100, 100, 30, 40]), episodes=1)
    assert limit.value == 201
    limit.update(np.array([402, 402]), episodes=2)
    assert limit.value == 300


def test_episode_limit_is_the_tasks_own_without_an_initial_one():
    assert EpisodeLimit(EpisodeLimitConfig(), max_timesteps=500).value == 500
    assert EpisodeLimit(EpisodeLimitConfig(initial=900), max_timesteps=500).value == 500


SCHEDULED = {
    "task": {
        "env_id": "CartPole-v1", "episodes": "steps 1 then 3 at 2 generations",
        "max_timesteps": "exponential 10 to 40 in 4 generations", "reward_offset_per_step": -0.1,
        "reward_min": "steps -1 then 1.5 at 3 generations", "normalize_observations": True,
    },
    "algorithm": {
        "population_size": "linear 4 to 11 in 4 generations", "sigma": "cosine 0.3 to 0.05 in 500 timesteps",
        "learning_rate": "norm 0.1 at least 0.02", "weight_decay": "steps 0 then 0.1 at 200 timesteps",
    },
    "generations": 6, "evaluation": {"every": 2, "episodes": 3, "share": None}, "snapshot": {"every": 1},
    "noise": {"entries": 10_000},
}  # fmt: skip


@pytest.mark.slow
def test_a_run_with_all_settings_scheduled_is_the_same_however_it_is_run(tmp_path):
    for name, cluster in {"one": {"workers": 1}, "two": {"workers": 2}, "parts": {"name": "inline"}}.items():
        changes = {"run_dir": str(tmp_path / name), "cluster": cluster, "generations": 4 if name == "parts" else 6}
        pyes.train(SCHEDULED | changes, display=False)
    for snapshot in (tmp_path / "parts" / "snapshots").iterdir():
        snapshot.unlink()  # so that the journal alone says where the schedules are
    pyes.train({"resume": str(tmp_path / "parts"), "generations": 6}, display=False)
    assert len({(tmp_path / name / "journal.bin").read_bytes() for name in ("one", "two", "parts")}) == 1
    rows = read_rows(tmp_path / "two" / "metrics.csv")
    assert [int(row["episode_limit"]) for row in rows] == [10, 14, 20, 28, 40, 40]
    assert [int(row["episodes_per_member"]) for row in rows] == [1, 1, 3, 3, 3, 3]
    assert [float(row["sigma"]) for row in rows][::5] == [0.3, 0.05]
    earned = [float(row["return_mean"]) / float(row["length_mean"]) for row in rows]  # a timestep earns 1
    np.testing.assert_allclose(earned, [1, 1, 1, 1.5, 1.5, 1.5])
    with pyes.reports.replay.open(tmp_path / "two") as replay:
        sizes = [replay.population_size(generation) for generation in range(6)]
        assert sizes == [4, 6, 8, 10, 12, 12]  # 4, 5.75, 7.5, 9.25, 11: in whole pairs
        played = [replay.play(generation, index) for generation in range(6) for index in range(sizes[generation])]
    assert all(each.exact for each in played)


def test_evaluation_and_other_episodes_have_the_largest_scheduled_limit(tmp_path):
    task = SCHEDULED["task"] | {"max_timesteps": "steps 30 then 4 at 1 generations"}
    config = (
        SCHEDULED
        | {"network": {"name": "linear", "init": "uniform"}}
        | {"task": task, "generations": 2, "run_dir": str(tmp_path / "run")}
    )
    pyes.train(config | {"cluster": {"name": "inline"}}, display=False)
    assert [int(row["episode_limit"]) for row in read_rows(tmp_path / "run" / "metrics.csv")] == [30, 4]
    recording = journal.read(tmp_path / "run" / "journal.bin")
    (evaluation,) = (each for each in recording if isinstance(each, journal.Evaluation) and each.generation)
    assert evaluation.returns.min() > 4
    assert max(pyes.reports.replay.evaluate(tmp_path / "run", episodes=20).lengths) == 30
    with pyes.reports.replay.make_env(tmp_path / "run") as environment:
        environment.reset(seed=0)
        lengths = [environment.step(each % 2)[3] for each in range(30)]
    assert (len(lengths), lengths[-1]) == (30, True)


@pytest.mark.slow
def test_another_way_takes_other_schedules_at_the_progress_reached(tmp_path):
    run = tmp_path / "run"
    pyes.train(
        SCHEDULED | {"generations": 2, "run_dir": str(run), "cluster": {"name": "inline"}, "evaluation": {"every": 0}},
        display=False,
    )

    def last(generations, **changes):
        pyes.train({"resume": str(run), "force": True, "generations": generations, **changes}, display=False)
        row = read_rows(run / "metrics.csv")[-1]
        with pyes.reports.replay.open(run) as replay:
            size = replay.population_size(generations - 1)
            assert replay.play(generations - 1, size - 1).exact
        return size, int(row["episodes_per_member"]), int(row["episode_limit"])

    assert last(3, algorithm={"sigma": 0.1}) == (8, 3, 20)
    scheduled = {"episodes": "linear 1 to 7 in 6 generations", "max_timesteps": "linear 40 to 10 in 6 generations"}
    assert last(4, task=scheduled, algorithm={"population_size": "linear 4 to 16 in 6 generations"}) == (10, 4, 25)
    assert last(5, task={"episodes": 2, "max_timesteps": 40}, algorithm={"population_size": 6}) == (6, 2, 40)


@pytest.mark.parametrize(
    ("key", "rule", "message"),
    [
        ("task.episodes", {"averaging": {"episodes_max": 8}}, "averaging.episodes_max: got 8"),
        ("task.max_timesteps", {"episode_limit": {"initial": 9}}, "episode_limit.initial: got 9"),
        ("algorithm.population_size", {"growth": {"timesteps": 9, "population_max": 99}}, "growth.timesteps: got 9"),
    ],
)
def test_a_schedule_beside_a_rule_that_adapts_the_same_is_refused(key, rule, message):
    section, name = key.split(".")
    settings = {"task": {"env_id": "CartPole-v1"}} | rule
    settings[section] = settings.get(section, {}) | {name: "linear 4 to 8 in 9 generations"}
    with pytest.raises(ConfigError, match=f"{message}, expected null with a schedule of {key}"):
        from_mapping(settings)


@pytest.mark.parametrize("name", ["snes", "ga", "nevergrad", "cma_es"])
def test_a_schedule_of_a_population_of_fixed_size_is_refused(name):
    with pytest.raises(
        ConfigError, match=r"population_size: got 'linear 4 to 8 in 9 generations', expected an integer"
    ):
        algorithm_config({"name": name, "population_size": "linear 4 to 8 in 9 generations"})


def test_ask_and_tell_refuses_what_only_a_run_adapts():
    for key in ("growth", "averaging", "episode_limit"):
        with pytest.raises(ConfigError, match=f"unknown key 'algorithm.{key}': it is a section of a run, beside algor"):
            pyes.maximize(lambda theta: 0.0, np.zeros(2), **{key: {}})
        with pytest.raises(ConfigError, match=f"unknown key 'algorithm.{key}': it is a section of a run, beside algor"):
            from_mapping({"algorithm": {key: {}}})
        with pytest.raises(ConfigError, match=f"unknown key 'algorithm.{key}': it is a section of a run, beside algor"):
            pyes.OpenAIES(np.zeros(2), **{key: {}})
