"""What every network must do; all registered kinds are tested here.

Each kind runs with the defaults of its YAML file, and with the variants of its settings that take another way through
the kernels. Kernels are compared with the NumPy twins, and with torch where it is installed.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml
from compiled_policy import COMPILERS, Compiled
from numpy.typing import NDArray

from pyes import _core, reference
from pyes.config import from_mapping
from pyes.config.registry import NETWORKS
from pyes.networks import ACTIVATIONS, ActionDecoder, Policy, PolicySpec, Program, build
from pyes.reports.export import export
from pyes.system.packing import theta_hash

YAML = Path(__file__).parents[2] / "conf" / "network"
#: What a kind's YAML file leaves to be said.
MISSING: dict[str, dict[str, Any]] = {"torch": {"module": "user_modules:chain"}}
CLIP = 1.5
IMAGE = {"dqn": (4, 84, 84)}
SMALL_DQN = {"channels": [5, 18], "kernels": [4, 2], "strides": [2, 1], "hidden": [20]}
VARIANTS: list[dict[str, Any]] = [
    {"name": "linear", "bias": False, "output_activation": "tanh"},
    *({"name": "mlp", "hidden": [33, 17], "activation": each} for each in ACTIVATIONS),
    {"name": "mlp", "hidden": [7], "bias": False, "output_activation": "tanh"},
    {"name": "lstm", "hidden": [16, 5], "double_bias": True},
    {"name": "lstm", "hidden": [7], "bias": False, "output_activation": "tanh"},
    {"name": "gru", "hidden": [3, 20, 4], "double_bias": True},
    {"name": "gru", "hidden": [7], "bias": False},
    {"name": "rnn", "hidden": [16, 8], "activation": "relu", "double_bias": True},
    {"name": "dqn", "virtual_batch_norm": False, **SMALL_DQN},
    {"name": "dqn", "bias": False, "activation": "elu", **SMALL_DQN},
    {"name": "torch", "module": "user_modules:Memory"},
    {"name": "torch", "module": "user_modules:Convolution"},
]
#: Digests of the initial parameters for 6 observed numbers, or an image, 3 actions and seed 3.
FIRST = {
    "linear": "77e363969c7b8504",
    "mlp": "72af1ab4fc5f379d",
    "rnn": "389fce14c33e1aa5",
    "gru": "94b643dc4149fab5",
    "lstm": "ab5d14b3c06fa20a",
    "dqn": "6252af3133cb9d1f",
}


def defaults(name: str) -> dict[str, Any]:
    values = yaml.safe_load((YAML / f"{name}.yaml").read_text(encoding="utf-8"))
    return {**values, **MISSING.get(name, {})}


class Case(NamedTuple):
    """A network, and what it is given."""

    config: Any
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    def build(self, seed: int = 3, **changes: Any) -> tuple[PolicySpec, NDArray[np.float32]]:
        config = type(self.config)(**{**self.config.__dict__, **changes})
        return build(config, self.size, ActionDecoder("argmax", 3), seed, CLIP, self.shape)

    def observations(self, count: int) -> NDArray[Any]:
        rng = np.random.default_rng(1)
        if len(self.shape) == 3:
            return rng.integers(0, 256, (count, self.size), np.uint8)
        return rng.normal(0, 2, (count, self.size)).astype(np.float32)

    def batch(self, spec: PolicySpec) -> NDArray[Any] | None:
        return self.observations(3)[::-1].copy() if spec.normalized else None

    def policy(self) -> Policy:
        """Return a policy with parameters that none of its layers begins with, and statistics where it may have any."""
        spec, theta = self.build()
        theta = theta + np.random.default_rng(0).normal(0, 0.1, spec.dim).astype(np.float32)
        batch = self.batch(spec)
        if len(self.shape) == 3:
            return Policy(spec, theta, reference_batch=batch)
        mean, inverse_std = np.linspace(-1, 1, self.size, dtype=np.float32), np.full(self.size, 0.7, np.float32)
        return Policy(spec, theta, mean, inverse_std, reference_batch=batch)

    def episodes(self, policy: Policy, count: int = 6) -> list[NDArray[np.float32]]:
        """Return the outputs of two episodes, the second of which begins like the first."""
        outputs = []
        for _ in range(2):
            policy.reset()
            outputs += [policy.runner.forward(each).copy() for each in self.observations(count)]
        return outputs


def case_of(values: dict[str, Any]) -> Case:
    name = values["name"]
    shape = (3, 11, 9) if name == "dqn" and values.get("channels") == SMALL_DQN["channels"] else IMAGE.get(name, (6,))
    return Case(from_mapping({"network": values}).network, shape)


def label(values: dict[str, Any]) -> str:
    changes = (f"{key}={value}" for key, value in values.items() if key not in ("name", *SMALL_DQN))
    return " ".join([values["name"], *changes])


KINDS = NETWORKS.names()
CASES = [
    *(pytest.param(defaults(name), id=name) for name in KINDS),
    *(pytest.param(values, id=label(values)) for values in VARIANTS),
]


#: Without those that torch runs, timestep by timestep.
COMPILED = [each for each in CASES if each.values[0].get("module") in (None, "user_modules:chain")]


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Case:
    if request.param["name"] == "torch":
        pytest.importorskip("torch")
    return case_of(request.param)


every_network = pytest.mark.parametrize("case", CASES, indirect=True)
every_compiled_network = pytest.mark.parametrize("case", COMPILED, indirect=True)


@pytest.mark.parametrize("name", KINDS)
def test_kind_has_a_name_settings_and_a_yaml_file(name: str) -> None:
    kind = NETWORKS.get(name)
    assert kind.kind == kind.Config.name == name
    assert defaults(name)["name"] == name


@pytest.mark.parametrize("name", sorted(FIRST))
def test_initial_parameters_are_the_same_on_every_machine(name: str) -> None:
    hidden = {"hidden": (64, 64)} if name == "mlp" else {}
    _, theta = case_of(defaults(name)).build(init="uniform", **hidden)
    assert theta_hash(theta) == FIRST[name]


@pytest.mark.slow
@every_network
def test_build_follows_the_seed_and_init(case: Case) -> None:
    spec, theta = case.build()
    assert (theta.dtype, len(theta)) == (np.float32, spec.dim)
    assert np.isfinite(theta).all()
    np.testing.assert_array_equal(case.build()[1], theta)
    drawn = {} if case.config.name == "torch" else {"init": "uniform"}
    assert (case.build(seed=4, **drawn)[1] != case.build(**drawn)[1]).any()
    assert case.build(seed=2**64 - 1)[0] == spec
    zero, zeros = case.build(init="zero")
    assert zero == spec
    assert not zeros.any()


@every_network
def test_spec_survives_json(case: Case) -> None:
    spec, _ = case.build()
    assert PolicySpec.from_dict(spec.to_dict()) == spec


@every_network
def test_runner_forgets_between_episodes(case: Case) -> None:
    outputs = case.episodes(case.policy())
    np.testing.assert_array_equal(outputs[:6], outputs[6:])


@pytest.mark.slow
@every_compiled_network
def test_runner_equals_its_twin(case: Case) -> None:
    policy = case.policy()
    twin = reference.PolicyNetwork(policy.spec.program.array(), policy.theta, policy.reference_batch)
    for observation, output in zip(case.observations(6), case.episodes(policy), strict=False):
        values = observation.astype(np.float32)
        if policy.observation_mean is not None:
            values = ((values - policy.observation_mean) * policy.observation_inverse_std).clip(-CLIP, CLIP)
        np.testing.assert_array_equal(twin.forward(values), output)


@every_compiled_network
def test_runner_is_what_torch_makes_of_the_same_layers(case: Case) -> None:
    torch = pytest.importorskip("torch")
    from pyes.networks.torch.compiler import compile_module
    from pyes.networks.torch.modules import module_of, policy_module

    policy = case.policy()
    program = policy.spec.program
    assert compile_module(module_of(program)) == program
    statistics = policy.observation_mean, policy.observation_inverse_std
    module = policy_module(program, policy.theta, *statistics, CLIP, policy.reference_batch)
    flat = torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    np.testing.assert_array_equal(flat, policy.theta)  # theta is in torch's order
    for observation, output in zip(case.observations(6), case.episodes(policy), strict=False):
        with torch.no_grad():
            expected = module(torch.tensor(observation, dtype=torch.float32)).numpy()
        np.testing.assert_allclose(output, expected, rtol=2e-4, atol=1e-4 * max(1, np.abs(expected).max()))


@every_compiled_network
def test_batch_of_runners_acts_as_each_alone(case: Case) -> None:
    alone, together = ([case.policy() for _ in range(3)] for _ in range(2))
    for number, (one, other) in enumerate(zip(alone, together, strict=True)):
        for runner in (one.runner, other.runner):
            runner.load(one.theta * np.float32(1 + number))
            runner.begin_episode(0, 0, number, 0)
    batch = _core.PolicyBatch([policy.runner for policy in together])
    for observation in case.observations(4):
        actions = batch.act(np.stack([observation] * 3), np.arange(3))
        assert actions.tolist() == [policy.runner.act(observation) for policy in alone]


@every_network
def test_files_and_exports_give_the_policy_back(case: Case, tmp_path: Path) -> None:
    policy = case.policy()
    outputs = case.episodes(policy)
    policy.save(tmp_path)
    for path in (tmp_path, export(tmp_path, tmp_path / "exported.safetensors")):
        loaded = Policy.load(path)
        assert (loaded.spec, theta_hash(loaded.theta)) == (policy.spec, theta_hash(policy.theta))
        np.testing.assert_array_equal(case.episodes(loaded), outputs)
    if isinstance(policy.spec.program, Program):
        check_onnx(case, export(tmp_path, tmp_path / "policy.onnx"), outputs)


# Compiling the 1.7 million weights of the default network for images takes 15 s; its variants are small.
@pytest.mark.parametrize("case", [each for each in COMPILED if each.id != "dqn"], indirect=True)
def test_policy_in_c_has_the_bits_of_the_loaded_one(case: Case, tmp_path: Path) -> None:
    if not COMPILERS:
        pytest.skip("no C compiler")
    argmax = case.policy()
    decoder = ActionDecoder("identity", 3, (3,), (-1.0,) * 3, (1.0,) * 3)  # shows the bits of the outputs
    spec = PolicySpec(argmax.spec.program, decoder, CLIP)
    statistics = argmax.observation_mean, argmax.observation_inverse_std
    Policy(spec, argmax.theta, *statistics, reference_batch=argmax.reference_batch).save(tmp_path)
    loaded = Policy.load(tmp_path)
    compiled = Compiled(export(tmp_path, tmp_path / "policy.c"), COMPILERS[0], "-O1")
    for step, observation in enumerate(case.observations(1000)):
        if step % 400 == 0:
            loaded.reset()
            compiled.reset()
        assert compiled(observation).tobytes() == loaded(observation).tobytes(), step


def check_onnx(case: Case, path: Path, outputs: list[NDArray[np.float32]]) -> None:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    states = {each.name: np.zeros((1, each.shape[1]), np.float32) for each in session.get_inputs()[1:]}
    for observation, output in zip(case.observations(6), outputs, strict=False):
        _, given, *new = session.run(None, {"observation": observation[None].astype(np.float32), **states})
        np.testing.assert_allclose(given[0], output, rtol=2e-4, atol=1e-4 * max(1, np.abs(output).max()))
        states = dict(zip(states, new, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in KINDS if name != "torch"])
def test_kind_needs_no_torch(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [each for each in sys.modules if each.split(".")[0] == "torch" or "networks.torch" in each]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it raises
    test_files_and_exports_give_the_policy_back(case_of(defaults(name)), tmp_path)
