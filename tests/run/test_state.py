import numpy as np
import pytest
from gymnasium import spaces

from pyes.config import from_mapping
from pyes.networks import ActionDecoder
from pyes.networks.observation import ObservationEncoder
from pyes.numerics import shaping
from pyes.numerics.noise import NoiseTable
from pyes.run.journal import Generation
from pyes.run.state import Interface, RunState, Setup
from pyes.system import limits
from pyes.training.rows import row_of, settings_in_use

VECTOR = spaces.Box(-1, 1, (3,))


@pytest.mark.parametrize(
    ("space", "network", "expected"),
    [
        (VECTOR, "mlp", True),
        (spaces.Discrete(5), "mlp", False),
        (spaces.MultiDiscrete([2, 3]), "mlp", False),
        (spaces.Dict({"place": spaces.Discrete(5), "speed": VECTOR}), "mlp", True),
        (spaces.Box(0, 255, (4, 36, 36), "uint8"), "dqn", False),
        (spaces.Box(0, 255, (4, 36, 36), "uint8"), "mlp", False),
    ],
)
def test_measurements_are_normalised_unless_told_otherwise(monkeypatch, space, network, expected):
    """Images and choices are not, nor what the network normalises itself."""
    encoder = ObservationEncoder.for_space(space)
    shape = space.shape if encoder.array else (encoder.size,)
    config = from_mapping({"task": {"env_id": "CartPole-v1"}, "network": {"name": network}})
    monkeypatch.setattr("pyes.run.state.draw_reference_batch", lambda task, seed: None)
    interface = Interface(encoder.size, shape, ActionDecoder("argmax", 2), 10, True, 0, encoder)
    assert Setup.of(config, interface).config.task.normalize_observations is expected
    for told in (True, False):
        task = {"env_id": "CartPole-v1", "normalize_observations": told}
        if network == "mlp":
            config = from_mapping({"task": task, "network": {"name": network}})
            assert Setup.of(config, interface).config.task.normalize_observations is told


RETURNS, LENGTHS = np.array([1000.0, 400.0, 900.0, 50.0]), np.array([1000, 150, 900, 60])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "relative"),
    [
        ({"name": "ars"}, True),
        ({"name": "ars", "restart": {"after": 9}}, False),
        ({"name": "openai_es"}, True),
        ({"name": "openai_es", "shaping": "none"}, False),
        ({"name": "openai_es", "restart": {"after": 9}}, False),
        ({"name": "pgpe"}, True),
        ({"name": "pgpe", "shaping": "none"}, False),
        ({"name": "pgpe", "restart": {"after": 9}}, False),
        ({"name": "snes"}, True),
        ({"name": "snes", "restart": {"after": 9}}, False),
        ({"name": "ga", "parents": 1}, True),
        ({"name": "cma_es"}, True),
        ({"name": "cma_es", "options": {"CMA_elitist": True}}, False),
        ({"name": "nevergrad"}, False),
    ],
    ids=str,
)
def test_a_bonus_weighs_less_only_where_a_generation_is_compared_with_itself(algorithm, relative):
    """Theta is that of an algorithm which is told the differential returns as well, or the task's own."""
    seen = shaping.with_differential(RETURNS, LENGTHS)
    told, other = (seen, RETURNS) if relative else (RETURNS, seen)
    theta = _theta(algorithm, {})
    np.testing.assert_array_equal(theta, _theta(algorithm, {}, told))
    assert not np.array_equal(theta, _theta(algorithm, {}, other))


def test_an_offset_is_added_for_each_timestep():
    algorithm, task = {"name": "openai_es", "shaping": "none"}, {"reward_offset_per_step": -1.5}
    theta = _theta(algorithm, task)
    np.testing.assert_array_equal(theta, _theta(algorithm, task, RETURNS - 1.5 * LENGTHS))


def test_an_offset_may_follow_a_schedule_that_an_attempt_begins_anew():
    told = []
    mapping = {
        "task": {"env_id": "CartPole-v1", "reward_offset_per_step": "steps 2 then -1.5 at 1 generations"},
        "algorithm": {"name": "openai_es", "population_size": 4, "restart": {"after": 1, "below": 1e9}},
        "noise": {"entries": 10_000},
    }
    with NoiseTable(10_000, 0) as table:
        state = RunState(Setup.of(from_mapping(mapping)), table)
        tell, state.algorithm.tell = state.algorithm.tell, lambda *a, **k: (told.append(a[0]), tell(*a, **k))
        for generation in range(3):
            failed, statistics = np.zeros(4, np.uint8), np.zeros(8)
            state.apply(Generation(generation, state.theta_hash, RETURNS, LENGTHS, failed, 0, statistics))
    for seen, offset in zip(told, (2, -1.5, 2), strict=True):
        np.testing.assert_array_equal(seen, RETURNS + offset * LENGTHS)


def test_another_attempt_begins_without_what_was_adapted():
    mapping = {
        "task": {"env_id": "CartPole-v1", "episodes": 2},
        "algorithm": {"name": "openai_es", "population_size": 4, "restart": {"after": 1, "below": 1e9}},
        "noise": {"entries": 10_000},
        "episode_limit": {"initial": 5},
        "averaging": {"episodes_max": 20},
        "growth": {"timesteps": 60, "population_max": 8},
    }
    adapted = []
    with NoiseTable(10_000, 0) as table:
        state = RunState(Setup.of(from_mapping(mapping)), table)
        for generation in range(4):  # the second and the fourth are judged
            size = state.algorithm.population_size
            returns, lengths = np.arange(size) * 1.0, np.full(size, 10)
            failed, statistics = np.zeros(size, np.uint8), np.zeros(8)
            record = Generation(generation, state.theta_hash, returns, lengths, failed, 0, statistics, None, -1.0)
            state.apply(record)
            adapted.append((state.limit.value, state.averaging.episodes, state.algorithm.population_size))
    assert adapted[0][0] > 5
    assert adapted[0][1] > 2
    assert adapted[0][2] == 6
    assert adapted == [adapted[0], (5, 2, 4)] * 2


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ars", "openai_es", "pgpe", "snes", "cma_es"])
def test_another_attempt_begins_with_other_random_weights(algorithm):
    settings = {"name": algorithm, "population_size": 4, "restart": {"after": 1, "below": 1e9}}
    if algorithm == "ars":
        settings["top"] = None
    mapping = {
        "task": {"env_id": "CartPole-v1", "normalize_observations": False},
        "algorithm": settings,
        "network": {"name": "mlp", "hidden": [3]},
        "noise": {"entries": 10_000},
    }

    def learn(state, generations):
        for generation in generations:
            failed = np.zeros(4, np.uint8)
            state.apply(Generation(generation, state.theta_hash, RETURNS, LENGTHS, failed, 0, np.empty(0)))
        return state.algorithm.theta.copy()

    with NoiseTable(10_000, 0) as table:
        setup = Setup.of(from_mapping(mapping))
        state = RunState(setup, table)
        begun = [setup.theta, learn(state, range(2)), learn(state, range(2, 4))]
        for theta, generation in zip(begun, (0, 2, 4), strict=True):
            np.testing.assert_array_equal(theta, setup.start_of(generation))
        assert len({theta.tobytes() for theta in begun}) == 3
        saved, last = state.state_dict(), learn(state, range(4, 7))
        resumed = RunState(setup, table)
        resumed.load_state_dict(saved)
        np.testing.assert_array_equal(learn(resumed, range(4, 7)), last)


def test_another_attempt_begins_with_what_the_network_draws(monkeypatch):
    def starts(**network):
        setup = Setup.of(from_mapping({"task": {"env_id": "CartPole-v1"}, "network": network}))
        return setup.theta, setup.start_of(7)

    first, later = starts(name="mlp", hidden=[3], init="zero")
    np.testing.assert_array_equal(later, first)
    first, later = starts(name="mlp", hidden=[3], init="zero_output")
    assert (later[:4] != first[:4]).all()
    assert not later[-2:].any()
    setup = Setup.of(from_mapping({"task": {"env_id": "CartPole-v1"}, "network": {"name": "mlp", "init": "uniform"}}))
    monkeypatch.setattr(limits, "available_memory", lambda: 1)  # what it takes is there already
    assert setup.start_of(7).shape == setup.theta.shape
    monkeypatch.undo()
    pytest.importorskip("torch")
    first, later = starts(name="torch", module="torch.nn:Linear")  # its class may draw others when it is made again
    np.testing.assert_array_equal(later, first)


def test_failed_members_say_nothing_of_the_length_of_episodes():
    mapping = {
        "task": {"env_id": "CartPole-v1", "normalize_observations": False},
        "algorithm": {"name": "openai_es", "population_size": 4},
        "noise": {"entries": 10_000},
        "episode_limit": {"initial": 10, "threshold": 1},
        "growth": {"timesteps": 40, "population_max": 8},
    }
    lengths, status = np.array([10, 0, 10, 0]), np.array([0, 1, 0, 3], np.uint8)
    returns = np.where(status == 0, 1.0, np.nan)
    with NoiseTable(10_000, 0) as table:
        state = RunState(Setup.of(from_mapping(mapping)), table)
        used = settings_in_use(state)
        record = Generation(0, state.theta_hash, returns, lengths, status, 0, np.empty(0))
        state.apply(record)
    assert row_of(record, used, state, 0.0).length_mean == 10
    assert state.limit.value > 10
    assert state.algorithm.population_size == 4


def _theta(algorithm, task, told=None):
    """Return theta after a generation of `RETURNS` and `LENGTHS`: by its record, or by what the algorithm is told."""
    mapping = {
        "task": {"env_id": "CartPole-v1", "episodes": 3, "normalize_observations": False, **task},
        "algorithm": {**algorithm, "population_size": 4},
        "noise": {"entries": 10_000},
    }
    setup, lengths = Setup.of(from_mapping(mapping)), 3 * LENGTHS
    with NoiseTable(10_000, 0) as table:
        state = RunState(setup, table)
        if told is None:
            state.apply(Generation(0, state.theta_hash, RETURNS, lengths, np.zeros(4, np.uint8), 0, np.empty(0)))
        else:
            state.algorithm.tell(told, timesteps=int(lengths.sum()))
        return state.algorithm.theta.copy()


def test_another_attempt_begins_without_observation_statistics():
    mapping = {
        "task": {"env_id": "CartPole-v1", "normalize_observations": True},
        "algorithm": {"name": "openai_es", "population_size": 4, "restart": {"after": 1, "below": 1e9}},
        "noise": {"entries": 10_000},
    }
    with NoiseTable(10_000, 0) as table:
        state = RunState(Setup.of(from_mapping(mapping)), table)
        for generation, kept in enumerate((True, False, True)):  # the second one is judged
            sums = np.ones((2, 4)).ravel()
            state.apply(Generation(generation, state.theta_hash, RETURNS, LENGTHS, np.zeros(4, np.uint8), 9, sums))
            assert (state.batch().mean is not None) == kept
