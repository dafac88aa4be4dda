import json
import math
import os
import shutil

import numpy as np
import pytest

import pyes
import pyes.reports.replay
from pyes import cli
from pyes.errors import ConfigError, JournalError, RunDirectoryError, TaskError
from pyes.networks import ActionDecoder, Instruction, Policy, PolicySpec, Program
from pyes.numerics import streams
from pyes.reports import export, maps, replay, video
from pyes.reports.replay import EvaluationResult, evaluate
from pyes.run import journal
from pyes.run.journal import Generation, Journal
from pyes.run.metrics import read_rows
from pyes.system.packing import theta_hash


def _config(run_dir, **task):
    return {
        "seed": 5,
        "generations": 2,
        "run_dir": str(run_dir),
        "algorithm": {"population_size": 4},
        "task": task,
        "network": {"name": "mlp", "hidden": [8], "init": "uniform"},
        "noise": {"entries": 10_000},
        "cluster": {"name": "inline"},
        "evaluation": {"every": 1, "episodes": 4, "share": None},
    }


def _policy(directory, size=4, task=None):
    program = Program((Instruction(0, size, 2, 0, -1, 0),), size, 2, 2 * size)
    theta = np.random.default_rng(0).normal(size=2 * size).astype(np.float32)
    task = {"env_id": "CartPole-v1", "max_timesteps": 200} if task is None else task
    directory.mkdir(parents=True, exist_ok=True)
    Policy(PolicySpec(program, ActionDecoder("argmax", outputs=2), 5.0), theta, task=task, seed=3).save(directory)
    return directory


@pytest.mark.slow
@pytest.mark.parametrize("network", ["lstm", "gru", "rnn"])
def test_individuals_with_memory_play_as_they_did(tmp_path, network):
    config = _config(tmp_path / "run", env_id="Pendulum-v1", episodes=2, max_timesteps=30, normalize_observations=True)
    result = pyes.train({**config, "network": {"name": network, "hidden": [8, 4]}}, display=False)
    with pyes.reports.replay.open(tmp_path / "run") as replay:
        played = [replay.play(generation, member) for generation in (1, 0) for member in (3, 0, 3)]
    assert all(each.exact for each in played)
    assert len({each.return_ for each in played}) == 4
    assert evaluate(tmp_path / "run", episodes=4).return_mean == pytest.approx(result.objective, rel=1e-12)


@pytest.mark.parametrize(
    "task",
    [
        {"env_id": "CartPole-v1", "normalize_observations": True, "max_timesteps": 100},
        {
            "env_id": "Pendulum-v1",
            "action_noise": 0.5,
            "frame_skip": 2,
            "max_timesteps": 30,
            "reward_offset_per_step": 1.0,
        },
    ],
    ids=["normalized", "noisy"],
)
def test_evaluate_gives_what_the_run_reported(tmp_path, task):
    result = pyes.train(_config(tmp_path / "run", **task), display=False)
    evaluation = evaluate(result.run_dir, episodes=4)
    assert evaluation.return_mean == pytest.approx(result.objective, rel=1e-12)
    last = read_rows(result.run_dir / "metrics.csv")[-1]
    assert float(last["eval_return_mean"]) == pytest.approx(evaluation.return_mean, rel=1e-8)
    assert float(last["eval_return_std"]) == pytest.approx(evaluation.return_std, rel=1e-8)


def test_evaluate_is_the_same_every_time(tmp_path):
    run = _policy(tmp_path)
    first = evaluate(run, episodes=5)
    assert evaluate(run, episodes=5) == first
    assert evaluate(run, episodes=3).returns == first.returns[:3]
    assert evaluate(run, episodes=5, seed=3) == first
    assert evaluate(run, episodes=5, seed=4) != first


def test_evaluate_keeps_to_the_episode_limit(tmp_path):
    run = _policy(tmp_path, task={"env_id": "CartPole-v1", "max_timesteps": 30})
    evaluation = evaluate(run, episodes=5)
    assert max(evaluation.lengths) == 30
    assert evaluation.returns == tuple(float(length) for length in evaluation.lengths)  # CartPole pays 1 a timestep


def test_the_first_failed_episode_says_why_and_no_environment_is_made_after_the_last(run, monkeypatch):
    made, episodes = [], iter([5.0, np.nan, TaskError("boom"), 7.0, TaskError("again")])
    open_task = replay.open_task
    monkeypatch.setattr(replay, "open_task", lambda policy: made.append(0) or open_task(policy))

    def episode(*_):
        found = next(episodes)
        if isinstance(found, TaskError):
            raise found
        return found, 3

    monkeypatch.setattr(replay, "_episode", episode)
    found = replay.evaluate(run, episodes=5)
    assert (found.return_mean, found.lengths, found.error) == (6, (3, 3, 0, 3, 0), replay._NOT_FINITE)
    assert len(made) == 2
    episodes = iter([np.nan, TaskError("boom")])
    with pytest.raises(TaskError, match=f"^{replay._NOT_FINITE}$"):
        replay.evaluate(run, episodes=2)


def test_evaluation_sums_up_and_becomes_json():
    evaluation = EvaluationResult.of([(1.0, 10), (3.0, 20)])
    assert json.loads(json.dumps(evaluation.to_dict())) == {
        "return_mean": 2.0,
        "return_std": 1.0,
        "returns": [1.0, 3.0],
        "lengths": [10, 20],
        "error": "",
    }


def test_an_evaluation_is_over_the_episodes_whose_return_is_finite():
    evaluation = EvaluationResult.of([(1.0, 10), (math.nan, 20), (3.0, 20), (-math.inf, 1)])
    assert (evaluation.return_mean, evaluation.return_std, evaluation.returns[2]) == (2.0, 1.0, 3.0)
    assert math.isnan(EvaluationResult.of([(math.nan, 10)]).return_mean)


@pytest.fixture(scope="module")
def declining(tmp_path_factory):
    """Return a run whose best center is not its last one, and the generation of the best."""
    folder = tmp_path_factory.mktemp("declining")
    config = _config(folder / "run", env_id="CartPole-v1", max_timesteps=100, normalize_observations=False)
    config |= {"seed": 12, "generations": 8, "snapshot": {"every": 3}}
    config["algorithm"] |= {"name": "openai_es", "learning_rate": 0.3}
    run = pyes.train(config, display=False).run_dir
    means = [float(row["eval_return_mean"]) for row in read_rows(run / "metrics.csv")]
    best = means.index(max(means)) + 1
    assert 1 < best < 8
    return run, best


def test_the_best_center_is_kept_and_can_be_rebuilt(declining, tmp_path):
    run, best = declining
    kept, rebuilt, last = pyes.load(run / "best.safetensors"), pyes.load(run, best), pyes.load(run)
    assert (kept.generation, last.generation) == (best, 8)
    copy = shutil.copytree(run, tmp_path / "copy")
    (copy / "best.safetensors").unlink()
    old = shutil.copytree(run, tmp_path / "old")
    pyes.load(run, 1).save_as(old / "best.safetensors")  # as after a kill: not the best one any more
    for policy in (rebuilt, *(pyes.load(each, "best") for each in (run, copy, old))):
        assert policy.description() == kept.description()
        np.testing.assert_array_equal(policy.theta, kept.theta)


@pytest.mark.slow
def test_an_evaluation_has_a_hundred_episodes_unless_it_is_told_otherwise(declining, capsys):
    assert len(evaluate(declining[0]).returns) == 100
    assert cli.main(["evaluate", str(declining[0]), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["returns"]) == 100


def test_the_best_center_is_evaluated_on_episodes_that_had_no_part_in_choosing_it(declining):
    run, best = declining
    chosen = float(read_rows(run / "metrics.csv")[best - 1]["eval_return_mean"])
    assert evaluate(run, episodes=4, generation=best).return_mean == pytest.approx(chosen, rel=1e-8)
    assert evaluate(run, episodes=4, generation="best") != evaluate(run, episodes=4, generation=best)
    assert evaluate(run, episodes=4, generation="best", seed=12) == evaluate(run, episodes=4, generation=best)
    seeds = [set(draw(12, 1000).tolist()) for draw in (streams.confirmation_seeds, streams.evaluation_seeds)]
    assert not seeds[0] & seeds[1]


def test_a_run_that_goes_on_keeps_the_best_center_of_both_parts(declining, tmp_path, capsys):
    run, best = declining
    copy = shutil.copytree(run, tmp_path / "run")
    pyes.train({"resume": str(copy), "generations": 9})
    means = [float(row["eval_return_mean"]) for row in read_rows(copy / "metrics.csv")]
    expected = best if means[-1] <= max(means[:-1]) else 9
    assert pyes.load(copy / "best.safetensors").generation == expected
    if expected == best:
        assert f"of the center of generation {best} (best.safetensors; on fresh episodes:" in capsys.readouterr().err


def test_a_best_center_whose_file_is_damaged_is_rebuilt(declining, tmp_path):
    run, best = declining
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "best.safetensors").write_bytes(b"damaged")
    np.testing.assert_array_equal(pyes.load(copy, "best").theta, pyes.load(run, best).theta)


def test_a_last_center_whose_file_is_damaged_is_rebuilt(declining, tmp_path):
    copy = shutil.copytree(declining[0], tmp_path / "run")
    (copy / "policy.safetensors").write_bytes(b"damaged")
    np.testing.assert_array_equal(pyes.load(copy).theta, pyes.load(declining[0]).theta)
    (copy / "journal.bin").unlink()
    assert "policy.safetensors is damaged" in _error(RunDirectoryError, copy)


@pytest.mark.parametrize("rows", [0, 8])
def test_a_best_center_that_a_kill_left_unsaved_is_found_again(declining, tmp_path, rows):
    run, best = declining
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "best.safetensors").unlink()
    for snapshot in (copy / "snapshots").iterdir():
        snapshot.unlink()
    lines = (copy / "metrics.csv").read_text().splitlines(keepends=True)
    (copy / "metrics.csv").write_text("".join(lines[: 1 + rows]))
    pyes.train({"resume": str(copy), "generations": 9}, display=False)
    means = [float(row["eval_return_mean"]) for row in read_rows(copy / "metrics.csv")]
    assert pyes.load(copy / "best.safetensors").generation == (best if means[-1] <= max(means[:-1]) else 9)


def test_a_center_that_has_not_been_saved_yet_is_rebuilt(declining, tmp_path):
    run = shutil.copytree(declining[0], tmp_path / "run")
    (run / "policy.json").unlink()
    np.testing.assert_array_equal(pyes.load(run).theta, pyes.load(declining[0]).theta)
    assert pyes.load(run).generation == 8


def test_commands_take_the_best_center_or_one_by_its_generation(declining, tmp_path, capsys):
    run, best = declining
    for option in (["--best"], ["--generation", str(best)]):
        assert cli.main(["export", str(run), "-o", str(tmp_path / "center.safetensors"), *option]) == 0
        assert pyes.load(tmp_path / "center.safetensors").generation == best
        assert cli.main(["evaluate", str(run), "--episodes", "2", *option]) == 0
    assert cli.main(["evaluate", str(run), "--best", "--generation", "1"]) == 2
    assert "not allowed with argument --best" in capsys.readouterr().err


def test_a_run_without_evaluations_has_no_best_center(tmp_path):
    pyes.train({**_config(tmp_path / "run", env_id="CartPole-v1"), "evaluation": {"every": 0}}, display=False)
    assert "no evaluation to choose the best center by" in _error(ConfigError, tmp_path / "run", generation="best")
    (tmp_path / "run" / "metrics.csv").unlink()
    message = _error(RunDirectoryError, tmp_path / "run", generation="best")
    assert message.startswith("no metrics.csv in")
    assert f"pyes train resume={tmp_path / 'run'} writes it anew" in message
    pyes.train({"resume": str(tmp_path / "run")}, display=False)
    assert len(read_rows(tmp_path / "run" / "metrics.csv")) == 2


def _error(kind, *arguments, **options):
    with pytest.raises(kind) as error:
        evaluate(*arguments, **options)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_evaluate_refuses_impossible_arguments(tmp_path):
    run = _policy(tmp_path)
    assert "episodes: got 0, expected an integer >= 1" in _error(ConfigError, run, episodes=0)
    assert "seed: got -1, expected an integer" in _error(ConfigError, run, episodes=1, seed=-1)
    assert "no policy at" in _error(RunDirectoryError, tmp_path / "none")


def test_evaluate_refuses_a_policy_of_another_task(tmp_path):
    assert "observes 4 numbers, the policy expects 5" in _error(RunDirectoryError, _policy(tmp_path / "a", size=5))
    text = "takes Discrete(3), for which a policy needs 3 outputs, this one has 2; use the version"
    other = {"name": "python", "factory": "user_tasks:three_choices"}
    assert text in _error(RunDirectoryError, _policy(tmp_path / "d", size=1, task=other))
    assert "names no task" in _error(RunDirectoryError, _policy(tmp_path / "b", task={}))
    assert "task.env_di" in _error(ConfigError, _policy(tmp_path / "c", task={"env_di": "CartPole-v1"}))


# Individuals


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a run with everything on that a replay must repeat."""
    path = tmp_path_factory.mktemp("replay") / "run"
    task = {
        "env_id": "Pendulum-v1",
        "episodes": 2,
        "action_noise": 0.2,
        "max_timesteps": 30,
        "normalize_observations": True,
        "reward_offset_per_step": 1.0,
        "reward_min": -4.0,
        "common_random_numbers": "pair",
    }
    more = {"algorithm": {"population_size": 6}, "episode_limit": {"initial": 10, "threshold": 0.5}, "generations": 4}
    pyes.train({**_config(path, **task), **more}, display=False)
    return path


def test_every_member_replays_to_its_recorded_return(run):
    with pyes.reports.replay.open(run) as replay:
        assert replay.generations == 4
        for generation in (3, 0, 2, 1):  # backwards, too
            returns, lengths = replay.returns(generation), replay.lengths(generation)
            assert len(returns) == replay.population_size(generation) == 6
            for member in range(6):
                playback = replay.play(generation, member)
                assert playback.exact
                assert (playback.return_, playback.length) == (returns[member], lengths[member])
                assert len(set(playback.seeds)) == 2


def test_replay_needs_the_journal_alone(run, tmp_path):
    (tmp_path / "journal.bin").write_bytes((run / "journal.bin").read_bytes())
    with pyes.reports.replay.open(tmp_path) as bare, pyes.reports.replay.open(run) as whole:
        np.testing.assert_array_equal(bare.theta(4), whole.theta(4))
        assert bare.play(2, 3) == whole.play(2, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["journal.bin"]


def test_theta_and_members_are_those_of_the_run(run):
    rows = read_rows(run / "metrics.csv")
    with pyes.reports.replay.open(run) as replay:
        for generation in range(4):
            assert theta_hash(replay.theta(generation + 1)) == rows[generation]["theta_hash"]
            center, plus, minus = replay.theta(generation), replay.member(generation, 0), replay.member(generation, 1)
            np.testing.assert_allclose((plus + minus) / 2, center, atol=1e-6)
            assert np.abs(plus - center).max() > 0.1
            every = [replay.member(generation, index) for index in range(6)]
            np.testing.assert_array_equal(replay.members(generation), every)
            np.testing.assert_array_equal(replay.members(generation, [4, 1]), [every[4], every[1]])
            assert replay.members(generation, []).shape == (0, len(center))
        np.testing.assert_array_equal(replay.theta(4), pyes.load(run).theta)


@pytest.mark.slow
def test_evaluate_a_generation_gives_what_the_run_reported_there(run):
    rows = read_rows(run / "metrics.csv")
    for generation in range(1, 5):
        evaluation = evaluate(run, episodes=4, generation=generation)
        assert f"{evaluation.return_mean:.9g}" == rows[generation - 1]["eval_return_mean"]


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (lambda replay: replay.play(4, 0), "generation: got 4, expected 0 to 3"),
        (lambda replay: replay.member(0, 6), "member: got 6, expected 0 to 5 in generation 0"),
        (lambda replay: replay.members(0, [5, 6]), "member: got 6, expected 0 to 5 in generation 0"),
        (lambda replay: replay.members(4), "generation: got 4, expected 0 to 3"),
        (lambda replay: replay.returns(-1), "generation: got -1, expected 0 to 3"),
        (lambda replay: replay.theta(5), "generation: got 5, expected 0 to 4"),
    ],
)
def test_replay_refuses_what_was_not_recorded(run, ask, expected):
    with pyes.reports.replay.open(run) as replay, pytest.raises(ConfigError, match=expected):
        ask(replay)


def test_replay_refuses_a_member_before_it_makes_anything(run, monkeypatch):
    monkeypatch.setattr("pyes.reports.replay.setup_of", None)  # from which the task and the noise table are made
    with pyes.reports.replay.open(run) as replay, pytest.raises(ConfigError, match="member: got 6"):
        replay.play(0, 6)


def test_replay_of_no_run_or_a_damaged_one_is_one_line(run, tmp_path):
    with pytest.raises(RunDirectoryError, match="no journal at"):
        pyes.reports.replay.open(tmp_path)
    data = bytearray((run / "journal.bin").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "journal.bin").write_bytes(data)
    with pytest.raises(JournalError, match="is damaged: record"):
        pyes.reports.replay.open(tmp_path)


def test_a_replay_that_comes_out_differently_is_said(run, tmp_path, capfd):
    """As with another version of the environment: here the journal has another return, under digests that hold."""
    recording = journal.read(run / "journal.bin")
    with Journal(journal.read(tmp_path / "journal.bin")) as writer:
        for index in range(len(recording)):
            record = recording[index]
            if isinstance(record, Generation) and record.generation == 3:
                record.returns[1] += 1e-9
            writer.append(record)
    with pyes.reports.replay.open(tmp_path) as replay:
        assert replay.play(3, 0).exact
        assert not replay.play(3, 1).exact
    assert cli.main(["replay", str(tmp_path), "--generation", "3", "--member", "0", "--json"]) == 0
    assert json.loads(capfd.readouterr().out).keys() == {"return", "length", "seed"}
    assert cli.main(["replay", str(tmp_path), "--generation", "3", "--member", "1"]) == 1
    assert "another environment, or one that is not deterministic?" in capfd.readouterr().err


@pytest.mark.slow
def test_replay_follows_a_run_that_goes_on(tmp_path):
    config = {
        "run_dir": str(tmp_path / "run"),
        "generations": 2,
        "task": {"env_id": "CartPole-v1", "max_timesteps": 20},
        "algorithm": {"population_size": 4},
        "noise": {"entries": 10_000},
        "cluster": {"name": "inline"},
    }
    run = pyes.train(config, display=False).run_dir
    with pyes.reports.replay.open(run) as individuals:
        history, before = individuals._history, individuals.theta(2)
        longer = pyes.train({"resume": str(run), "generations": 4}, display=False)
        assert individuals.follow()
        assert (individuals.generations, individuals._history) == (4, history)
        np.testing.assert_array_equal(individuals.theta(4), pyes.load(longer.run_dir).theta)
        shutil.rmtree(run)
        pyes.train({**config, "seed": 1}, display=False)
        assert not individuals.follow()
        assert individuals.generations == 2
        assert (individuals.theta(2) != before).any()


@pytest.mark.slow
def test_an_environment_that_changes_the_working_folder_changes_no_path(tmp_path, monkeypatch):
    """As simulators do to find their files."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "wandering.py").write_text(
        "import os\nfrom gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Wandering(CartPoleEnv):\n"
        "    def __init__(self, **kwargs):\n"
        f"        os.chdir({str(tmp_path / 'assets')!r})\n"
        "        super().__init__(**kwargs)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    task = {"name": "python", "factory": "wandering:Wandering", "max_timesteps": 20}
    pyes.train({**_config("run"), "task": task}, display=False)
    evaluate("run", episodes=2, generation=1)
    maps.draw("run", "map.png")
    export.export("run", "policy.safetensors", 1)
    video.record("run", "center.mp4", generation=1)
    video.record_member("run", "member.mp4", 0, 1)
    with pyes.reports.replay.open("run") as individuals:
        assert individuals.play(1, 2).exact
    assert os.getcwd() == str(tmp_path)
    assert not list((tmp_path / "assets").iterdir())
    made = {"run", "assets", "wandering.py", "map.png", "policy.safetensors", "policy.json", "center.mp4", "member.mp4"}
    assert {each.name for each in tmp_path.iterdir()} - {"__pycache__"} == made
