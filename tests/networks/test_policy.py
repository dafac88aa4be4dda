import copy
import json
import os
import pickle

import numpy as np
import pytest
import safetensors.numpy
from gymnasium import spaces

from pyes.errors import ConfigError, RunDirectoryError
from pyes.networks import ActionDecoder, Instruction, ObservationEncoder, Policy, PolicySpec, Program, build
from pyes.networks.recurrent import LSTMConfig

TASK = {"name": "gymnasium", "env_id": "CartPole-v1"}


def _policy(seed=0, statistics=True, noise=0.0):
    rng = np.random.default_rng(seed)
    program = Program((Instruction(0, 4, 5, 0, 20, 1), Instruction(0, 5, 2, 25, 35, 0)), 4, 2, 37)
    decoder = ActionDecoder("clip", 2, (2,), (-1.0, -1.0), (1.0, 1.0), noise=noise)
    mean, inverse_std = rng.normal(size=4), rng.uniform(0.5, 2, size=4)
    return Policy(
        PolicySpec(program, decoder, 5.0),
        rng.normal(size=37).astype(np.float32),
        mean.astype(np.float32) if statistics else None,
        inverse_std.astype(np.float32) if statistics else None,
        network={"name": "mlp", "hidden": [5]},
        task=TASK,
        seed=2**64 - 1,
        generation=12,
    )


def _actions(policy):
    return [policy(observation) for observation in np.random.default_rng(9).normal(size=(20, 4))]


@pytest.mark.parametrize("statistics", [True, False])
def test_policy_that_is_loaded_acts_as_the_one_that_was_saved(tmp_path, statistics):
    policy = _policy(statistics=statistics)
    policy.save(tmp_path)
    loaded = Policy.load(tmp_path)
    np.testing.assert_array_equal(_actions(loaded), _actions(policy))
    np.testing.assert_array_equal(loaded.theta, policy.theta)
    assert (loaded.spec, loaded.task, loaded.network) == (policy.spec, policy.task, policy.network)
    assert (loaded.seed, loaded.generation) == (2**64 - 1, 12)
    assert sorted(os.listdir(tmp_path)) == ["policy.json", "policy.safetensors"]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])
def test_policy_can_be_copied_and_sent_to_processes(copied):
    policy = _policy()
    other = copied(policy)
    np.testing.assert_array_equal(_actions(other), _actions(policy))
    assert other.description() == policy.description()


def test_policy_is_deterministic_whatever_its_action_noise():
    policy = _policy(noise=1.0)
    np.testing.assert_array_equal(_actions(policy), _actions(_policy()))


def test_policy_with_memory_survives_the_files_and_forgets_when_reset(tmp_path):
    program = Program((Instruction(3, 4, 2, 0, 48, 0, 32, -1),), 4, 2, 56)  # an LSTM of two units
    theta = np.random.default_rng(0).normal(size=56).astype(np.float32)
    policy = Policy(PolicySpec(program, ActionDecoder("identity", 2, (2,), (-1.0,) * 2, (1.0,) * 2), 5.0), theta)
    first = np.array(_actions(policy))
    assert (np.array(_actions(policy)) != first).any()
    policy.reset()
    np.testing.assert_array_equal(_actions(policy), first)
    policy.save(tmp_path)
    np.testing.assert_array_equal(_actions(Policy.load(tmp_path)), first)


def test_policy_takes_observations_of_any_float_and_layout():
    policy = _policy()
    observation = np.random.default_rng(1).normal(size=4).astype(np.float32)
    expected = policy(observation)
    strided = np.repeat(observation, 2)[::2]
    for same in (observation.astype(np.float64), strided, observation.tolist(), observation.reshape(2, 2)):
        np.testing.assert_array_equal(policy(same), expected)


def test_policy_refuses_an_observation_of_another_size():
    with pytest.raises(ValueError, match=r"5.*4|4.*5"):
        _policy()(np.zeros(5, np.float32))


def test_policy_refuses_an_observation_that_is_not_there():
    with pytest.raises(ValueError, match="observation: got None, expected 4 values"):
        _policy()(None)


def test_policy_keeps_its_own_copy_of_theta():
    theta = np.zeros(37, np.float32)
    policy = Policy(_policy().spec, theta)
    theta[:] = 1
    assert not policy.theta.any()
    with pytest.raises(ValueError, match="read-only"):
        policy.theta[0] = 1


def test_policy_refuses_arrays_of_the_wrong_length():
    spec = _policy().spec
    with pytest.raises(ValueError, match="theta"):
        Policy(spec, np.zeros(36, np.float32))
    with pytest.raises(ValueError, match="observation_mean"):
        Policy(spec, np.zeros(37, np.float32), np.zeros(3, np.float32), np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="go together"):
        Policy(spec, np.zeros(37, np.float32), np.zeros(4, np.float32))


def test_description_is_readable_json(tmp_path):
    _policy().save(tmp_path)
    description = json.loads((tmp_path / "policy.json").read_text())
    assert description["format"] == 2
    assert description["generation"] == 12
    assert description["spec"]["program"]["instructions"][0]["activation"] == "tanh"
    assert description["task"]["env_id"] == "CartPole-v1"


def test_saving_again_gives_the_same_bytes(tmp_path):
    _policy().save(tmp_path)
    first = [(tmp_path / name).read_bytes() for name in ("policy.safetensors", "policy.json")]
    _policy().save(tmp_path)
    assert [(tmp_path / name).read_bytes() for name in ("policy.safetensors", "policy.json")] == first


def test_crash_between_the_two_files_leaves_the_newer_policy(tmp_path):
    _policy(0).save(tmp_path)
    old = (tmp_path / "policy.json").read_bytes()
    _policy(1).save(tmp_path)
    (tmp_path / "policy.json").write_bytes(old)
    np.testing.assert_array_equal(Policy.load(tmp_path).theta, _policy(1).theta)


def test_failed_save_leaves_the_old_files(tmp_path, monkeypatch):
    _policy(0).save(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left"):
        _policy(1).save(tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_save_into_no_directory_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match="cannot write") as error:
        _policy().save(tmp_path / "none")
    assert "\n" not in str(error.value)


def _load_error(path):
    with pytest.raises(RunDirectoryError) as error:
        Policy.load(path)
    message = str(error.value)
    assert "\n" not in message
    assert error.value.exit_status == 2
    return message


def test_load_of_a_missing_policy_is_one_line(tmp_path):
    assert "no policy at" in _load_error(tmp_path / "none")


def test_weights_alone_are_a_policy(tmp_path):
    """As after a crash before the other file, or where only they were copied."""
    policy, observation = _policy(), np.ones(4, np.float32)
    policy.save(tmp_path)
    (tmp_path / "policy.json").unlink()
    np.testing.assert_array_equal(Policy.load(tmp_path)(observation), policy(observation))


@pytest.mark.parametrize("length", [0, 7, 8, 40, 200, -1])
def test_load_of_weights_cut_short_is_one_line(tmp_path, length):
    _policy().save(tmp_path)
    file = tmp_path / "policy.safetensors"
    file.write_bytes(file.read_bytes()[:length])
    assert "damaged" in _load_error(tmp_path)


def test_load_of_a_flipped_weight_is_one_line(tmp_path):
    policy = _policy(statistics=False)
    policy.save(tmp_path)
    file = tmp_path / "policy.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert "theta_hash" in _load_error(tmp_path)


def _describe(folder, change):
    """Change the description that the weights of a policy have."""
    file = folder / "policy.safetensors"
    description = change((folder / "policy.json").read_text())
    file.write_bytes(safetensors.numpy.save(safetensors.numpy.load_file(file), {"policy": description}))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", '{"pyes": 1}'])
def test_load_of_a_damaged_description_is_one_line(tmp_path, text):
    _policy().save(tmp_path)
    _describe(tmp_path, lambda _: text)
    assert "damaged" in _load_error(tmp_path)


def test_the_file_beside_the_weights_is_not_needed(tmp_path):
    """As after `pyes evaluate lander.safetensors --json > lander.json`."""
    _policy().save(tmp_path)
    (tmp_path / "policy.json").write_text("")
    np.testing.assert_array_equal(Policy.load(tmp_path).theta, _policy().theta)


def test_save_as_another_kind_of_file_is_one_line(tmp_path):
    """The description would replace the weights, or the file could not be loaded."""
    for name in ("champion", "champion.json"):
        with pytest.raises(ConfigError, match=rf"policy: got .*{name}, expected a path that ends in \.safetensors"):
            _policy().save_as(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("spec"),
        lambda d: d.pop("theta_hash"),
        lambda d: d.update(spec=None),
        lambda d: d.update(task=3),
        lambda d: d["spec"]["action"].update(mode="dance"),
        lambda d: d["spec"]["action"].update(outputs=3),
        lambda d: d["spec"]["action"].update(start=10**30),
        lambda d: d["spec"].update(observation_clip=0),
        lambda d: d["spec"]["program"].update(dim=10),
        lambda d: d["spec"]["program"].update(instructions=7),
        lambda d: d["spec"]["program"]["instructions"][0].update(op="jump"),
        lambda d: d["spec"]["program"]["instructions"][0].update(weight_offset=10**30),
        lambda d: d["spec"]["program"]["instructions"][1].update(inputs=6),
        lambda d: d["spec"]["program"]["instructions"][1].pop("activation"),
    ],
)
def test_load_of_an_impossible_description_is_one_line(tmp_path, change):
    def changed(text):
        description = json.loads(text)
        change(description)
        return json.dumps(description)

    _policy().save(tmp_path)
    _describe(tmp_path, changed)
    assert "damaged" in _load_error(tmp_path)


def test_load_of_another_format_says_so(tmp_path):
    policy = _policy()
    policy.save(tmp_path)
    _describe(tmp_path, lambda text: json.dumps({**json.loads(text), "format": 3}))
    assert f"expected 2; read it with pyes-rl {policy.description()['pyes']}, which" in _load_error(tmp_path)


def _recurrent():
    spec, theta = build(LSTMConfig(hidden=(5,)), 4, ActionDecoder("identity", 2, (2,), (-1.0,) * 2, (1.0,) * 2), 1, 5.0)
    return Policy(spec, theta)


def test_predict_acts_as_a_call_does():
    policy = _policy()
    observations = np.random.default_rng(2).normal(size=(6, 4))
    expected = np.stack([policy(observation) for observation in observations])
    actions, state = policy.predict(observations)
    np.testing.assert_array_equal(actions, expected)
    assert state is None
    action, state = policy.predict(observations[0], deterministic=True)
    np.testing.assert_array_equal(action, expected[0])
    assert state is None


def test_predict_takes_a_tuple_of_observations_for_a_list():
    policy, observations = _policy(), np.random.default_rng(2).normal(size=(4, 4))
    for given in (tuple(observations), list(observations), tuple(map(tuple, observations))):
        np.testing.assert_array_equal(policy.predict(given)[0], policy.predict(observations)[0])


def test_predict_passes_the_memory_of_each_episode():
    policy, twin = _recurrent(), _recurrent()
    observations = np.random.default_rng(2).normal(size=(3, 9, 4)).astype(np.float32)
    expected = np.empty((3, 9, 2), np.float32)
    for episode in range(3):
        twin.reset()
        for step in range(9):
            if (episode, step) == (1, 5):
                twin.reset()
            expected[episode, step] = twin(observations[episode, step])
    states, single = None, None
    first = policy(observations[0, 0])
    for step in range(9):
        starts = np.array([False, step == 5, False])
        actions, states = policy.predict(observations[:, step], states, episode_start=starts)
        np.testing.assert_array_equal(actions, expected[:, step])
        action, single = policy.predict(observations[1, step], single, episode_start=step == 5)
        np.testing.assert_array_equal(action, expected[1, step])
    # The memory of the policy itself goes on as if there had been no predict.
    np.testing.assert_array_equal(first, expected[0, 0])
    np.testing.assert_array_equal(policy(observations[0, 1]), expected[0, 1])


def test_predict_takes_observations_and_actions_of_parts():
    space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3)})
    decoder = ActionDecoder.for_space(spaces.Dict({"x": spaces.Discrete(3), "y": spaces.Box(-1, 1, (2,))}))
    spec, theta = build(LSTMConfig(hidden=(5,)), 5, decoder, 1, 5.0)
    policy = Policy(spec, theta, encoder=ObservationEncoder.for_space(space))
    single = [{"a": np.array([0.5, k]), "b": k} for k in range(3)]
    several = {"a": np.stack([each["a"] for each in single]), "b": np.arange(3)}
    actions, states = policy.predict(several)
    assert len(states) == 3
    for index, each in enumerate(single):
        action, _ = policy.predict(each)
        assert action["x"] == actions["x"][index]
        np.testing.assert_array_equal(action["y"], actions["y"][index])


def test_predict_leaves_out_texts_of_several_observations():
    space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "mission": spaces.Text(20)})
    encoder = ObservationEncoder.for_space(space)
    spec, theta = build(LSTMConfig(hidden=(5,)), 2, ActionDecoder.for_space(spaces.Discrete(3)), 1, 5.0)
    actions, _ = Policy(spec, theta, encoder=encoder).predict({"a": np.ones((4, 2)), "mission": ("go",) * 4})
    assert actions.shape == (4,)


def test_predict_of_an_observation_without_a_part_is_refused():
    encoder = ObservationEncoder.for_space(spaces.Dict({"a": spaces.Box(-1, 1, (2,))}))
    spec, theta = build(LSTMConfig(hidden=(5,)), 2, ActionDecoder.for_space(spaces.Discrete(3)), 1, 5.0)
    with pytest.raises(ValueError, match="observation"):
        Policy(spec, theta, encoder=encoder).predict({})


def test_predict_gives_a_discrete_action_as_an_array():
    spec, theta = build(LSTMConfig(hidden=(5,)), 4, ActionDecoder.for_space(spaces.Discrete(3, start=7)), 1, 5.0)
    policy = Policy(spec, theta)
    action, _ = policy.predict(np.ones(4))
    assert (action.shape, action.dtype) == ((), np.int64)
    assert policy.predict(np.ones((2, 4)))[0].tolist() == [action, action]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones(4), None, None, False), "deterministic is False"),
        ((np.ones((0, 4)),), "got 0 observations"),
        ((np.ones((2, 4)), np.ones((3, 5), np.float32)), r"state has shape \(3, 5\), expected \(2, "),
        ((np.ones(3),), "expected 4"),
    ],
)
def test_predict_refuses_in_one_line(arguments, message):
    with pytest.raises(ValueError, match=message) as error:
        _recurrent().predict(*arguments)
    assert "\n" not in str(error.value)


def test_state_of_another_length_is_refused():
    runner = _recurrent().runner
    with pytest.raises(ValueError, match=f"state: got length 3, expected {len(runner.state)}"):
        runner.state = np.zeros(3, np.float32)
