import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import pyes
import pyes.reports.replay
from pyes import tasks
from pyes.errors import ConfigError
from pyes.reports.replay import evaluate
from pyes.tasks.gymnasium import GymnasiumConfig

PENDULUM = {"env_id": "Pendulum-v1", "hide_observations": [2]}


def _whole_and_hidden(**settings):
    """Yield one episode as the whole task and the one with hidden numbers give it: observation and the rest of each."""
    config = {"env_id": "Pendulum-v1", **settings}
    with (
        tasks.make(GymnasiumConfig(**{**config, "hide_observations": ()})) as whole,
        tasks.make(GymnasiumConfig(**config)) as hidden,
    ):
        assert hidden.max_timesteps == whole.max_timesteps
        yield whole.reset(3), hidden.reset(3), (), ()
        for action in np.linspace(-2, 2, 20, dtype=np.float32):
            ours, theirs = hidden.step(action.reshape(1)), whole.step(action.reshape(1))
            yield theirs[0], ours[0], ours[1:], theirs[1:]


@pytest.mark.parametrize("remake", [False, True])
def test_removed_numbers_are_left_out_and_nothing_else_changes(remake):
    for whole, seen, ours, theirs in _whole_and_hidden(hide_observations=(2,), remake=remake):
        np.testing.assert_array_equal(seen, whole[:2])
        assert ours == theirs


def test_zeroed_numbers_are_zero_and_nothing_else_changes():
    for whole, seen, ours, theirs in _whole_and_hidden(hide_observations=(0, 2), hide_by="zero"):
        np.testing.assert_array_equal(seen, [0, whole[1], 0])
        assert ours == theirs


def test_indices_count_in_the_flattened_observation():
    with tasks.make(GymnasiumConfig(env_id="FrozenLake-v1", hide_observations=(1, 15))) as task:
        assert task.observation_size == 14
        np.testing.assert_array_equal(task.reset(0), np.eye(14)[0])


class _Shared(gymnasium.Env):
    """Gives out the array in which it keeps its own state."""

    observation_space = spaces.Box(-np.inf, np.inf, (2, 2))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.state = np.ones((2, 2), np.float32)
        return self.state, {}

    def step(self, action):
        self.state += 1
        return self.state, float(self.state.sum()), False, False, {}


gymnasium.register("Shared-v0", entry_point=_Shared)


def test_zeros_do_not_reach_the_environment():
    with tasks.make(GymnasiumConfig(env_id="Shared-v0", hide_observations=(1,), hide_by="zero")) as task:
        np.testing.assert_array_equal(task.reset(0), [1, 0, 1, 1])
        observation, reward, *_ = task.step(0)
        np.testing.assert_array_equal(observation, [2, 0, 2, 2])
        assert reward == 8


def test_frames_are_those_of_the_whole_task():
    with tasks.make(GymnasiumConfig(env_id="CartPole-v1", hide_observations=(1, 3)), "rgb_array") as task:
        task.reset(0)
        assert task.render().shape[-1] == 3
        assert task.render_fps == 50


@pytest.mark.parametrize(
    ("hidden", "message"),
    [
        ((3,), "task.hide_observations: got 3, expected at most 2: the task observes 3 numbers"),
        ((0, 1, 2), "task.hide_observations: got all 3 numbers, expected that the policy sees some"),
    ],
)
def test_what_cannot_be_hidden_is_refused(hidden, message):
    with pytest.raises(ConfigError, match=message):
        tasks.make(GymnasiumConfig(env_id="Pendulum-v1", hide_observations=hidden))


class _Mission(spaces.Space):
    """A space of the environment's own, as MiniGrid has one for its missions: Gymnasium cannot flatten it."""

    def __init__(self):
        super().__init__(dtype=str)


class _Parts(gymnasium.Env):
    """Observes parts with names, nested ones and texts among them."""

    action_space = spaces.Discrete(2)

    def __init__(self, texts=("mission", "note")):
        self.seen = {
            "image": np.arange(6, dtype=np.uint8).reshape(2, 3),
            "body": {"speed": np.array([7.5], np.float32), "legs": (1, np.array([8, 9], np.int8))},
            "mission": "go to the door",
            "note": "abc",
        }
        of_texts = {"mission": _Mission(), "note": spaces.Text(8)}
        legs = spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 9, (2,), np.int8)])
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (2, 3), np.uint8),
                "body": spaces.Dict({"speed": spaces.Box(0, 9, (1,)), "legs": legs}),
                **{name: of_texts[name] for name in texts},
            }
        )

    def reset(self, *, seed=None, options=None):
        return self.seen, {}

    def step(self, action):
        return self.seen, 1.0, False, False, {}


gymnasium.register("Parts-v0", entry_point=_Parts)
LEGS, SPEED, IMAGE = [0, 1, 0, 8, 9], [7.5], [0, 1, 2, 3, 4, 5]


def _parts(*hidden, texts=("mission", "note"), **settings):
    return tasks.make(
        GymnasiumConfig(env_id="Parts-v0", hide_observations=hidden, env_kwargs={"texts": texts}, **settings)
    )


def test_text_in_an_observation_is_refused_in_one_line_that_names_it():
    expected = (
        r"^task.env_id: 'Parts-v0' observes a _Mission in its part 'mission', which is no list of numbers; "
        r"hide it with task.hide_observations=\[mission,note\], or wrap the environment$"
    )
    with pytest.raises(ConfigError, match=expected):
        _parts()
    with pytest.raises(ConfigError, match=r"a Text in its part 'note'.*hide_observations=\[note\]"):
        _parts("mission")


def test_observation_that_is_a_text_is_refused():
    class Talking(_Shared):
        observation_space = spaces.Text(5)

    gymnasium.register("Talking-v0", entry_point=Talking)
    with pytest.raises(ConfigError, match="'Talking-v0' observes a Text, which is no list of numbers; wrap the env"):
        tasks.make(GymnasiumConfig(env_id="Talking-v0"))


@pytest.mark.parametrize(
    ("hidden", "seen"),
    [
        ((), LEGS + SPEED + IMAGE),
        (("body.speed",), LEGS + IMAGE),
        (("body",), IMAGE),
        (("body.legs.0", "image"), [8, 9, *SPEED]),
        (("image", 3), [0, 1, 0, 9, *SPEED]),
    ],
)
@pytest.mark.parametrize("hide_by", ["remove", "zero"])
def test_parts_are_hidden_by_name(hidden, seen, hide_by):
    with _parts("mission", "note", *hidden, hide_by=hide_by) as task:
        for observation in (task.reset(0), task.step(0)[0]):
            assert len(observation) == task.observation_size == (len(seen) if hide_by == "remove" else 12)
            assert [x for x in observation if x] == [x for x in seen if x]


def test_parts_without_texts_are_flattened_as_gymnasium_does():
    with _parts(texts=()) as task:
        env = gymnasium.make("Parts-v0", texts=()).unwrapped
        expected = spaces.flatten(env.observation_space, env.seen)
        ours = task.reset(0)
        assert (ours.dtype, ours.tobytes()) == (expected.dtype, expected.tobytes())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"env_id": "Parts-v0", "hide_observations": ["mission", "note", "sped"]},
            "got 'sped', expected indices, or names of parts: "
            "body.legs.0, body.legs.1, body.speed, image, mission, note",
        ),
        (
            {"env_id": "Pendulum-v1", "hide_observations": ["speed"]},
            "got 'speed', expected indices: this observation has no named parts",
        ),
    ],
)
def test_name_that_no_part_has_is_refused_with_those_there_are(config, message):
    with pytest.raises(ConfigError, match=rf"^task.hide_observations: {message}$"):
        tasks.make(GymnasiumConfig(**config))


# In a run


def _config(run_dir, **changes):
    return {
        "run_dir": str(run_dir),
        "generations": 3,
        "algorithm": {"population_size": 6},
        "task": {**PENDULUM, "episodes": 2, "max_timesteps": 30, "normalize_observations": True},
        "network": {"name": "lstm", "hidden": [4]},
        "noise": {"entries": 10_000},
        "cluster": {"name": "inline"},
        "evaluation": {"every": 3, "episodes": 3},
        **changes,
    }


def test_run_is_replayed_and_evaluated_without_the_hidden_numbers(tmp_path):
    result = pyes.train(_config(tmp_path / "run"), display=False)
    policy = pyes.load(tmp_path / "run")
    assert policy.spec.program.observation_size == 2
    assert policy.task["hide_observations"] == [2]
    assert evaluate(tmp_path / "run", episodes=3).return_mean == pytest.approx(result.objective, rel=1e-12)
    with pyes.reports.replay.open(tmp_path / "run") as replay:
        assert all(replay.play(generation, member).exact for generation in (2, 0) for member in (5, 0))
