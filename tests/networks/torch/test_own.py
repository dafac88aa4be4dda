"""Modules of the user's own: compiled where C knows them exactly, else run by torch, with the same runner around."""

import json
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import user_modules
from gymnasium import spaces
from heads import hashes_of

import pyes
import pyes.reports.replay
from pyes.errors import ConfigError
from pyes.networks import ActionDecoder, NamedModule, Policy, PolicySpec, Program, build
from pyes.networks.mlp import MLPConfig
from pyes.networks.own_module import OwnModuleConfig
from pyes.networks.torch.own import TorchNetwork
from pyes.networks.torch.own import build as build_module
from pyes.reports.export import export

DECODER = ActionDecoder.for_space(spaces.Box(-1, 1, (2,), np.float32))


def _build(name, decoder=DECODER, **kwargs):
    config = OwnModuleConfig(module=f"user_modules:{name}", module_kwargs=kwargs)
    return build(config, 6, decoder, seed=1, observation_clip=5.0)


def _runner(spec, theta, **options):
    runner = spec.runner(**options)
    runner.load(theta)
    runner.begin_episode(0, 0, 0, 0)
    return runner


def _observations(count=50):
    return np.random.default_rng(0).normal(0, 2, (count, 6)).astype(np.float32)


# What is compiled


def test_a_chain_that_c_knows_is_compiled():
    spec, theta = _build("chain", units=5)
    assert isinstance(spec.program, Program)
    assert len(theta) == 6 * 5 + 5 + 5 * 2 + 2
    assert PolicySpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["Plain", "Convolution", "Memory", "Chain", "hooked", "overridden", "recurrent", "hooked_cell", "fixed"]
)
def test_what_c_does_not_know_exactly_is_run_by_torch(name):
    spec, theta = _build(name)
    assert spec.program == NamedModule(f"user_modules:{name}", {}, 6, 2, len(theta))
    assert PolicySpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    torch.manual_seed(0)  # as the buffers are drawn
    module = getattr(user_modules, name)(6, 2).eval()
    torch.nn.utils.vector_to_parameters(torch.tensor(theta), module.parameters())
    runner = _runner(spec, theta)
    for observation in _observations():
        with torch.no_grad():
            expected = module(torch.tensor(observation).reshape(getattr(module, "observation_shape", (6,))))
        np.testing.assert_allclose(runner.forward(observation), expected.numpy(), atol=1e-6)


# How it runs


@pytest.mark.parametrize("mode", ["argmax", "identity", "clip", "scale", "tanh", "bins", "mixed"])
def test_normalisation_action_and_noise_are_those_of_the_compiled_policy(mode):
    """The same layers, compiled and run by torch, in everything that the runner does around them."""
    space = spaces.Discrete(4, start=3) if mode == "argmax" else spaces.Box(-1, 2, (2,), np.float32)
    noise = 0.3 if mode in ("identity", "clip", "scale", "tanh", "mixed") else 0.0
    if mode == "mixed":
        mode, space = "auto", spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2), space])
    decoder = ActionDecoder.for_space(space, mode, bins=3 if mode == "bins" else 0, noise=noise)
    config = MLPConfig(hidden=(8,))
    compiled, theta = build(config, 6, decoder, seed=1, observation_clip=5.0)
    foreign, _ = _build("Plain", decoder)
    runners = [_runner(spec, theta) for spec in (compiled, foreign)]
    sums = np.zeros((2, 2, 6))
    for runner, own in zip(runners, sums, strict=True):
        runner.normalize(np.full(6, 0.5, np.float32), np.full(6, 2.0, np.float32), 1.0)
        runner.collect(own)
    for observation in _observations():
        first, second = (runner.act(observation) for runner in runners)
        assert type(first) is type(second)
        for one, other in zip(*((x if isinstance(x, tuple) else (x,)) for x in (first, second)), strict=True):
            np.testing.assert_allclose(other, one, atol=1e-5)
    np.testing.assert_array_equal(*sums)


@pytest.mark.parametrize("name", ["Memory", "recurrent"])
def test_memory_is_emptied_by_begin_episode(name):
    spec, theta = _build(name)
    runner, (observation, *_) = _runner(spec, theta), _observations()
    first, second = runner.forward(observation), runner.forward(observation)
    assert (first != second).all()
    runner.begin_episode(1, 2, 3, 4)
    np.testing.assert_array_equal(runner.forward(observation), first)


@pytest.mark.parametrize("name", ["Convolution", "Projecting"])
def test_runners_are_equal_though_their_buffers_are_drawn_at_random(name):
    spec, theta = _build(name)
    _seed_globally(5)
    first = _runner(spec, theta)
    _seed_globally(6)
    second = _runner(spec, theta)
    drawn = torch.rand(()), np.random.rand(), random.random()
    _seed_globally(6)
    assert drawn == (torch.rand(()), np.random.rand(), random.random())  # the generators are as they were
    for observation in _observations():
        np.testing.assert_array_equal(first.forward(observation), second.forward(observation))


def test_parameters_are_views_of_one_array_that_load_fills():
    spec, theta = _build("Plain")
    network = TorchNetwork(spec.program)
    frozen = theta.copy()
    frozen.flags.writeable = False
    network.load(frozen)
    for start, parameter in zip((0, 48, 56, 72), network.module.parameters(), strict=True):
        np.testing.assert_array_equal(parameter.detach().numpy().ravel(), theta[start : start + parameter.numel()])
    theta[:] = np.nan  # copied
    assert np.isfinite(network.forward(_observations()[0])).all()


def _seed_globally(seed):
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


# In a run


def _config(run_dir, name, **changes):
    return {
        "run_dir": str(run_dir),
        "generations": 3,
        "algorithm": {"population_size": 8},
        "task": {"env_id": "Pendulum-v1", "normalize_observations": True, "episodes": 2, "max_timesteps": 20},
        "network": {"name": "torch", "module": f"user_modules:{name}"},
        "noise": {"entries": 10_000},
        "evaluation": {"every": 3, "episodes": 2},
        **changes,
    }


CLUSTERS = {
    "one": {"workers": 1},
    "five": {"workers": 5},
    "inline": {"name": "inline"},
    "spawned": {"workers": 2, "start_method": "spawn"},
}


@pytest.fixture(scope="module", params=["Convolution", "Memory"])
def reference_run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    result = pyes.train(_config(folder / "run", request.param, cluster={"workers": 2}), display=False)
    return request.param, folder / "run", result


@pytest.mark.slow
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_theta_does_not_depend_on_the_cluster(tmp_path, cluster, reference_run):
    name, run, _ = reference_run
    pyes.train(_config(tmp_path / "run", name, cluster=CLUSTERS[cluster]), display=False)
    assert hashes_of(tmp_path / "run") == hashes_of(run)


@pytest.mark.slow
def test_run_is_replayed_evaluated_and_gone_on_with(tmp_path, reference_run):
    name, run, result = reference_run
    with pyes.reports.replay.open(run) as replay:
        assert all(replay.play(generation, 5).exact for generation in range(3))
    assert pyes.reports.replay.evaluate(run, episodes=2).return_mean == pytest.approx(result.objective, rel=1e-12)
    part = _config(tmp_path / "part", name, cluster={"workers": 2}, generations=1)
    pyes.train(part, display=False)
    pyes.train({"resume": str(tmp_path / "part"), "generations": 3}, display=False)
    assert hashes_of(tmp_path / "part") == hashes_of(run)


@pytest.mark.slow
def test_command_line_takes_the_arguments_of_a_module(tmp_path):
    from pyes import cli

    arguments = [
        "network=torch", "network.module=user_modules:Plain", "network.module_kwargs.units=3", "task=pendulum",
        "debug=default", f"run_dir={tmp_path / 'run'}",
    ]  # fmt: skip
    assert cli.main(["train", *arguments]) == 0
    assert cli.main(["train", f"resume={tmp_path / 'run'}", "generations=3"]) == 0
    assert pyes.load(tmp_path / "run").spec.program == NamedModule("user_modules:Plain", {"units": 3}, 3, 1, 16)


# Files


@pytest.fixture
def saved(tmp_path):
    spec, theta = _build("Plain")
    policy = Policy(spec, theta, np.full(6, 0.5, np.float32), np.full(6, 2.0, np.float32))
    policy.save(tmp_path)
    return policy, tmp_path


def test_policy_survives_the_files(saved):
    policy, folder = saved
    loaded = Policy.load(folder)
    for observation in _observations():
        np.testing.assert_array_equal(loaded(observation), policy(observation))


def test_a_policy_in_torch_leaves_its_threads_alone(saved):
    _, folder = saved
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        Policy.load(folder)(_observations()[0])
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_state_dict_loads_into_the_module(saved):
    policy, folder = saved
    state = torch.load(export(folder, folder / "policy.pt"), weights_only=True)
    np.testing.assert_array_equal(state.pop("observation_mean"), policy.observation_mean)
    np.testing.assert_array_equal(state.pop("observation_inverse_std"), policy.observation_inverse_std)
    module = user_modules.Plain(6, 2)
    module.load_state_dict(state)
    np.testing.assert_array_equal(torch.nn.utils.parameters_to_vector(module.parameters()).detach(), policy.theta)


@pytest.mark.parametrize("suffix", [".onnx", ".c"])
def test_format_that_needs_a_compiled_network_is_refused_in_one_line(saved, suffix):
    _, folder = saved
    with pytest.raises(ConfigError, match=rf"user_modules:Plain cannot be exported to {suffix}, since torch runs it"):
        export(folder, folder / f"policy{suffix}")


def test_policy_of_a_module_that_has_changed_is_refused_in_one_line(saved):
    _, folder = saved
    for file in (folder / "policy.json", folder / "policy.safetensors"):
        data = file.read_bytes()
        file.write_bytes(data.replace(b"user_modules:Plain", b"user_modules:Chain"))
    with pytest.raises(ConfigError, match="user_modules:Chain has 14 parameters now, the policy has 74"):
        Policy.load(folder)


@pytest.mark.slow
def test_loading_a_network_that_torch_runs_imports_torch(saved):
    _, folder = saved
    code = f"import sys, pyes; pyes.load({str(folder)!r}); sys.exit('torch' in sys.modules)"
    path = [str(path) for path in sys.path if path]
    done = subprocess.run([sys.executable, "-c", f"import sys; sys.path += {path!r}; {code}"], timeout=120)
    assert done.returncode == 1


# Errors


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("user_modules", ["got 'user_modules'", "MODULE:CLASS"]),
        (":Plain", ["got ':Plain'", "MODULE:CLASS"]),
        ("no_such_package:Plain", ["no_such_package:Plain", "ModuleNotFoundError", "PYTHONPATH"]),
        ("user_modules:Nothing", ["is not there", "user_modules has no Nothing"]),
        ("collections:OrderedDict", ["OrderedDict", "expected a torch.nn.Module"]),
        ("user_modules:number", ["made a int", "expected a torch.nn.Module"]),
        ("user_modules:frozen", ["has the frozen parameter 0.weight", "make it a buffer"]),
        ("user_modules:double", ["float64", "expected torch.float32"]),
        ("user_modules:too_many", ["gives 3 outputs, expected 2"]),
        ("user_modules:blind", ["fails on an observation of 6 numbers, without a batch axis", "RuntimeError"]),
        ("user_modules:empty", ["has no parameters"]),
        ("user_modules:Quitting", ["could not be made: SystemExit"]),
        ("user_modules:Pair", ["fails on an observation of 6 numbers", "it returned a tuple, expected a tensor"]),
        ("user_modules:Unforgetting", ["gives other outputs in a second episode", "let its reset() empty its memory"]),
        ("user_modules:Hiding", ["gives other outputs in a second episode", "let its reset() empty its memory"]),
        ("user_modules:Counting", ["gives other outputs in a second episode", "let its reset() empty its memory"]),
        ("user_modules:NotANumber", ["gives only NaN with the parameters that it begins with"]),
        ("user_modules:Dropping", ["gives other outputs in a second episode", "draw no random numbers in forward()"]),
    ],
)
def test_a_module_that_cannot_be_used_is_one_line(name, words):
    with pytest.raises(ConfigError) as error:
        build(OwnModuleConfig(module=name), 6, DECODER, 0, 5.0)
    message = str(error.value)
    assert "\n" not in message
    assert "network.module" in message
    assert all(word in message for word in words), message


def test_a_module_of_which_nothing_has_a_gradient_is_trained():
    _, theta = build(OwnModuleConfig(module="user_modules:all_frozen"), 6, DECODER, 0, 5.0)
    assert len(theta) == 14


def test_unknown_arguments_of_a_module_are_one_line():
    with pytest.raises(ConfigError, match=r"could not be made: TypeError: .*unexpected keyword argument 'width'"):
        _build("Plain", width=3)


def test_predict_takes_one_observation_of_a_network_that_torch_runs(saved):
    policy, _ = saved
    observation = _observations()[0]
    expected = policy(observation)
    for each in (observation, observation[None]):
        action, state = policy.predict(each, episode_start=True)
        np.testing.assert_array_equal(np.reshape(action, expected.shape), expected)
        assert state is None
    with pytest.raises(ValueError, match="got 2 observations, expected one: torch runs the network"):
        policy.predict(np.stack([observation] * 2))


@pytest.mark.slow
def test_modules_that_threads_make_are_those_that_one_makes():
    def make(seed):
        return [build_module("user_modules:Convolution", {}, 64, 2, seed)[1] for _ in range(30)]

    alone, state, interval = [make(seed) for seed in range(3)], random.getstate(), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(3) as threads:
            together = list(threads.map(make, range(3)))
    finally:
        sys.setswitchinterval(interval)
    np.testing.assert_array_equal(together, alone)
    assert random.getstate() == state
