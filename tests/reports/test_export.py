import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces
from user_tasks import Parts

from pyes.errors import ConfigError, RunDirectoryError
from pyes.networks import ACTIVATIONS, ActionDecoder, ObservationEncoder, Policy, build
from pyes.networks.mlp import MLPConfig
from pyes.networks.recurrent import GRUConfig, LSTMConfig, RNNConfig
from pyes.networks.torch.modules import PolicyModule, module_of
from pyes.reports.export import export, onnx_model

HEADS = {
    "argmax": ActionDecoder.for_space(spaces.Discrete(4, start=2)),
    **{
        mode: ActionDecoder.for_space(
            spaces.Box(np.array([[-1, 0], [-3, 2]], np.float32), np.array([[1, 5], [2, 3]], np.float32)),
            mode,
            bins=5 if mode == "bins" else 0,
        )
        for mode in ("identity", "clip", "scale", "tanh", "bins")
    },
    "half_open": ActionDecoder.for_space(spaces.Box(0, np.inf, (2,))),
}
CONFIG = MLPConfig(hidden=(16, 8))


MIXED = {name: ActionDecoder.for_space(space) for name, space in Parts.ACTIONS.items() if name != "start"}
MIXED["bins"] = ActionDecoder.for_space(Parts.ACTIONS["integers"], "bins", bins=3)
MIXED["integers as they are"] = ActionDecoder.for_space(Parts.ACTIONS["integers"], "identity")
MIXED["truth"] = ActionDecoder.for_space(spaces.Box(0, 1, (2,), bool))
MIXED["tanh"] = ActionDecoder.for_space(Parts.ACTIONS["tuple"], "tanh")


def _policy(head=HEADS["clip"], config=CONFIG, statistics=True, gain=3):
    rng = np.random.default_rng(0)
    spec, theta = build(config, 6, head, seed=1, observation_clip=3.0)
    theta = gain * theta
    if not statistics:
        return Policy(spec, theta)
    return Policy(spec, theta, rng.normal(size=6).astype(np.float32), rng.uniform(0.5, 3, 6).astype(np.float32))


def _observations():
    return np.random.default_rng(1).normal(0, 2, (40, 6)).astype(np.float32)


def _saved(tmp_path, **arguments):
    policy = _policy(**arguments)
    (tmp_path / "run").mkdir()
    policy.save(tmp_path / "run")
    return policy, tmp_path / "run"


def test_safetensors_rebuild_the_policy(tmp_path):
    policy, run = _saved(tmp_path)
    output = export(run, tmp_path / "exported.safetensors")
    assert (tmp_path / "exported.json").exists()
    loaded = Policy.load(output)
    for observation in _observations():
        np.testing.assert_array_equal(loaded(observation), policy(observation))


@pytest.mark.parametrize("suffix", [".pt", ".pth"])
def test_state_dict_loads_into_the_plain_module(tmp_path, suffix):
    policy, run = _saved(tmp_path, statistics=False)
    state = torch.load(export(run, tmp_path / f"policy{suffix}"), weights_only=True)
    module = module_of(policy.spec.program)
    module.load_state_dict(state)
    with torch.no_grad():
        outputs = module(torch.tensor(_observations())).numpy()
    for observation, output in zip(_observations(), outputs, strict=True):
        np.testing.assert_allclose(policy.runner.forward(observation), output, atol=1e-5)


def test_state_dict_holds_the_observation_statistics(tmp_path):
    policy, run = _saved(tmp_path)
    state = torch.load(export(run, tmp_path / "policy.pt"), weights_only=True)
    np.testing.assert_array_equal(state["observation_mean"], policy.observation_mean)
    zeros = np.zeros(6, np.float32)
    module = PolicyModule(module_of(policy.spec.program), zeros, zeros, policy.spec.observation_clip)
    module.load_state_dict(state)
    with torch.no_grad():
        outputs = module(torch.tensor(_observations())).numpy()
    for observation, output in zip(_observations(), outputs, strict=True):
        np.testing.assert_allclose(policy.runner.forward(observation), output, atol=1e-5)
    # The plain module takes the rest.
    rest = module_of(policy.spec.program).load_state_dict(state, strict=False)
    assert rest.missing_keys == []
    assert set(rest.unexpected_keys) == {"observation_mean", "observation_inverse_std"}


def _run_onnx(policy, observations):
    runtime = pytest.importorskip("onnxruntime")
    model = onnx_model(policy).SerializeToString()
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    action, output = session.run(None, {"observation": observations})
    return action, output


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("mode", HEADS)
def test_onnx_acts_as_the_policy_does(mode, statistics):
    policy = _policy(HEADS[mode], statistics=statistics)
    actions, outputs = _run_onnx(policy, _observations())
    for observation, action, output in zip(_observations(), actions, outputs, strict=True):
        np.testing.assert_allclose(output, policy.runner.forward(observation), atol=1e-5)
        expected = policy(observation)
        assert action.shape == np.shape(expected)
        np.testing.assert_allclose(action, expected, atol=1e-5)
    assert actions.dtype == (np.int64 if mode == "argmax" else np.float32)


@pytest.mark.parametrize("name", MIXED)
def test_onnx_has_an_output_for_each_part_of_an_action(tmp_path, name):
    runtime = pytest.importorskip("onnxruntime")
    policy, run = _saved(tmp_path, head=MIXED[name])
    session = runtime.InferenceSession(export(run, tmp_path / "policy.onnx"), providers=["CPUExecutionProvider"])
    *names, last = [each.name for each in session.get_outputs()]
    assert last == "network_output"
    *parts, _ = session.run(None, {"observation": _observations()})
    for index, observation in enumerate(_observations()):
        action = policy(observation)
        for part, values in zip(names, parts, strict=True):
            expected = action
            for key in part.split(".")[1:]:
                expected = expected[int(key) if isinstance(expected, tuple) else key]
            expected = np.asarray(expected)
            assert (values[index].dtype, values[index].shape) == (expected.dtype, expected.shape)
            np.testing.assert_allclose(values[index], expected, atol=1e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_onnx_knows_every_activation(activation, bias):
    config = MLPConfig(hidden=(16,), activation=activation, bias=bias)
    policy = _policy(config=config)
    _, outputs = _run_onnx(policy, _observations())
    for observation, output in zip(_observations(), outputs, strict=True):
        np.testing.assert_allclose(output, policy.runner.forward(observation), atol=1e-5)


RECURRENT = [
    LSTMConfig(hidden=(16, 5)),
    GRUConfig(hidden=(16, 5), double_bias=True, output_activation="tanh"),
    GRUConfig(hidden=(7,)),
    RNNConfig(hidden=(16,), activation="relu", bias=False),
]


@pytest.mark.parametrize("config", RECURRENT, ids=lambda config: config.name)
def test_onnx_of_a_network_with_memory_is_one_timestep_with_its_states(tmp_path, config):
    runtime = pytest.importorskip("onnxruntime")
    policy, run = _saved(tmp_path, config=config, gain=1)  # larger, and rounding grows from timestep to timestep
    session = runtime.InferenceSession(export(run, tmp_path / "policy.onnx"), providers=["CPUExecutionProvider"])
    kinds = ("hidden", "cell") if config.name == "lstm" else ("hidden",)
    names = [f"{kind}_{layer}" for layer in range(len(config.hidden)) for kind in kinds]
    assert [each.name for each in session.get_inputs()] == ["observation", *names]
    assert [each.name for each in session.get_outputs()][2:] == [f"next_{name}" for name in names]
    states = {each.name: np.zeros((1, each.shape[1]), np.float32) for each in session.get_inputs()[1:]}
    policy.reset()
    for observation in np.random.default_rng(1).normal(0, 2, (200, 6)).astype(np.float32):
        action, _, *new = session.run(None, {"observation": observation[None], **states})
        states = dict(zip(states, new, strict=True))
        np.testing.assert_allclose(action[0], policy(observation), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("config", RECURRENT, ids=lambda config: config.name)
def test_state_dict_of_a_network_with_memory_loads_into_the_plain_module(tmp_path, config):
    policy, run = _saved(tmp_path, config=config, statistics=False, gain=1)
    module = module_of(policy.spec.program)
    module.load_state_dict(torch.load(export(run, tmp_path / "policy.pt"), weights_only=True))
    loaded = Policy.load(export(run, tmp_path / "policy.safetensors"))
    for observation in _observations():
        with torch.no_grad():
            expected = module(torch.tensor(observation)).numpy()
        np.testing.assert_allclose(loaded.runner.forward(observation), expected, atol=1e-5, rtol=1e-5)


def test_onnx_file_is_valid_and_the_same_every_time(tmp_path):
    onnx = pytest.importorskip("onnx")
    _, run = _saved(tmp_path)
    first = export(run, tmp_path / "a.onnx").read_bytes()
    assert export(run, tmp_path / "b.onnx").read_bytes() == first
    model = onnx.load_from_string(first)
    onnx.checker.check_model(model, full_check=True)
    assert [value.name for value in model.graph.output] == ["action", "network_output"]


def _error(kind, *arguments):
    with pytest.raises(kind) as error:
        export(*arguments)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_unknown_suffix_lists_the_known_ones(tmp_path):
    _, run = _saved(tmp_path)
    assert ".safetensors, .pt, .pth, .onnx, .c" in _error(ConfigError, run, tmp_path / "policy.tflite")


def test_policy_of_a_run_is_not_replaced(tmp_path):
    _, run = _saved(tmp_path)
    (run / "journal.bin").touch()
    before = (run / "policy.safetensors").read_bytes()
    for name in ("policy", "config"):
        assert "is the run's own" in _error(ConfigError, run, run / f"{name}.safetensors")
    export(run, run / "policy.onnx")
    assert (run / "policy.safetensors").read_bytes() == before


def test_missing_run_and_missing_folder_are_one_line(tmp_path):
    _, run = _saved(tmp_path)
    assert "no policy at" in _error(RunDirectoryError, tmp_path / "none", tmp_path / "policy.pt")
    assert "cannot write" in _error(ConfigError, run, tmp_path / "none" / "policy.pt")


def test_missing_onnx_says_how_to_install_it(tmp_path, monkeypatch):
    _, run = _saved(tmp_path)
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "pyes-rl[onnx]" in _error(ConfigError, run, tmp_path / "policy.onnx")
    assert not (tmp_path / "policy.onnx").exists()


@pytest.mark.slow
def test_safetensors_export_needs_no_torch(tmp_path):
    _, run = _saved(tmp_path)
    code = "import sys; from pyes.reports.export import export; "
    code += f"export({str(run)!r}, {str(tmp_path / 'a.safetensors')!r}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_files_say_what_the_policy_expects(tmp_path):
    """Order and bounds of the observation's parts, statistics, action and task, in both formats."""
    onnx = pytest.importorskip("onnx")
    space = spaces.Dict(
        {
            "b": spaces.Discrete(3, start=2),
            "a": spaces.Box(-1, np.array([[2, 3]], np.float32), (1, 2)),
            "t": spaces.Text(3),
        }
    )
    encoder = dataclasses.replace(ObservationEncoder.for_space(space), hidden=(3,))
    spec, theta = build(CONFIG, 4, HEADS["argmax"], seed=1, observation_clip=3.0)
    statistics = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    policy = Policy(spec, theta, *statistics, encoder=encoder, task={"env_id": "Own-v0"})
    policy.save(tmp_path)
    export(tmp_path, tmp_path / "policy.onnx")
    properties = {each.key: json.loads(each.value) for each in onnx.load(tmp_path / "policy.onnx").metadata_props}
    described = json.loads(export(tmp_path, tmp_path / "p.safetensors").with_suffix(".json").read_text())
    assert properties == {**described, "observation_mean": [0, 1, 2, 3], "observation_inverse_std": [1, 1, 1, 1]}
    box, discrete = described["observation"]["parts"]
    assert (box["name"], box["low"], box["high"], box["size"]) == ("a", -1, [2, 3], 2)
    assert (discrete["keys"], discrete["choices"], discrete["start"]) == (["b"], [3], [2])
    assert (described["observation"]["hidden"], described["spec"]["action"]["start"]) == ([3], 2)
    assert (described["observation"]["size"], described["task"]) == (4, {"env_id": "Own-v0"})
    seen = {"a": np.ones((1, 2), np.float32), "b": 4, "t": "x"}
    assert Policy.load(tmp_path)(seen) == policy.runner.act(np.array([1, 1, 0, 1], np.float32))


@pytest.mark.parametrize("suffix", [".safetensors", ".c"])
def test_a_file_of_something_else_is_not_replaced_by_the_second_one(tmp_path, suffix):
    _, run = _saved(tmp_path)
    other = tmp_path / {".safetensors": "package.json", ".c": "package.h"}[suffix]
    other.write_text('{"name": "mine"}')
    with pytest.raises(ConfigError, match=rf"{other.name} is not of an exported policy, and would be replaced"):
        export(run, tmp_path / f"package{suffix}")
    assert other.read_text() == '{"name": "mine"}'
    other.unlink()
    export(run, export(run, tmp_path / f"package{suffix}"))  # replaces its own


def test_what_the_task_does_with_actions_is_told(tmp_path):
    """Without it the policy acts otherwise elsewhere."""
    policy = _policy()
    policy.task |= {"action_levels": 11, "frame_skip": 4}
    (tmp_path / "run").mkdir()
    policy.save(tmp_path / "run")
    told = []
    for name in ("policy.c", "policy.onnx", "folder"):
        export(tmp_path / "run", tmp_path / name, tell=told.append)
    assert told[0] == (
        "Whoever runs it outside its task must do what that did: round each component to the nearest of 11 evenly "
        "spaced values, from bound to bound; give each action to 4 steps of the environment, and ask the policy again "
        "after them."
    )
    assert told == told[:1] * 3
    assert "the nearest of 11" in (tmp_path / "policy.h").read_text()
    assert "the nearest of 11" in (tmp_path / "folder" / "README.md").read_text()
    policy.task |= {"action_levels": 0, "frame_skip": "auto"}
    policy.save(tmp_path / "run")
    export(tmp_path / "run", tmp_path / "policy.onnx", tell=pytest.fail)
