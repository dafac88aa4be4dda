import ctypes
import dataclasses
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces
from user_tasks import Parts

from pyes.errors import ConfigError
from pyes.networks import ACTIVATIONS, ActionDecoder, ObservationEncoder, Policy, build
from pyes.networks.dqn import DQNConfig
from pyes.networks.linear import LinearConfig
from pyes.networks.mlp import MLPConfig
from pyes.networks.recurrent import GRUConfig, LSTMConfig, RNNConfig
from pyes.reports.export import export
from pyes.reports.replay import load

COMPILERS = [name for name in ("gcc", "clang", "cc") if shutil.which(name)]
pytestmark = pytest.mark.skipif(not COMPILERS, reason="no C compiler")
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")

BOX = spaces.Box(np.array([[-1, 0], [-3, 2]], np.float32), np.array([[1, 5], [2, 3]], np.float32))
CLIP = ActionDecoder.for_space(BOX)
NETWORKS = {
    "linear": LinearConfig(),
    "linear without bias": LinearConfig(bias=False, output_activation="tanh"),
    **{name: MLPConfig(hidden=(19, 8), activation=name) for name in ACTIVATIONS},
    "rnn": RNNConfig(hidden=(16, 5)),
    "rnn relu": RNNConfig(hidden=(7,), activation="relu", bias=False),
    "gru": GRUConfig(hidden=(18, 5)),
    "gru with two biases": GRUConfig(hidden=(7,), double_bias=True, output_activation="tanh"),
    "lstm": LSTMConfig(hidden=(18, 5), double_bias=True),
}
HEADS = {
    "argmax": ActionDecoder.for_space(spaces.Discrete(4, start=-2)),
    "half open": ActionDecoder.for_space(spaces.Box(0, np.inf, (3,))),
    **{
        mode: ActionDecoder.for_space(BOX, mode, bins=5 if mode == "bins" else 0)
        for mode in ("identity", "tanh", "bins")
    },
    **{f"parts {name}": ActionDecoder.for_space(space) for name, space in Parts.ACTIONS.items()},
    "parts in bins": ActionDecoder.for_space(Parts.ACTIONS["integers"], "bins", bins=3),
}


def _policy(config, head=CLIP, *, size=6, gain=2.0, shape=(), encoder=None, batch=None, statistics=True):
    rng = np.random.default_rng(0)
    spec, theta = build(config, size, head, seed=1, observation_clip=3.0, shape=shape)
    theta = (gain * theta + 0.1 * rng.normal(size=len(theta))).astype(np.float32)
    mean, std = rng.normal(size=size).astype(np.float32), rng.uniform(0.5, 3, size).astype(np.float32)
    known = (mean, std) if statistics else ()
    return Policy(spec, theta, *known, encoder=encoder, reference_batch=batch)


def _exported(folder, policy, name="policy"):
    folder.mkdir(exist_ok=True)
    policy.save(folder)
    return export(folder, folder / f"{name}.c")


class Compiled:
    """The exported policy, compiled and called by ctypes."""

    def __init__(self, source: Path, compiler: str, *flags: str) -> None:
        library = source.with_name(f"{compiler}{''.join(flags)}.so")
        subprocess.run([compiler, *STRICT, *flags, "-shared", "-fPIC", "-o", library, source], check=True, timeout=120)
        made = ctypes.CDLL(str(library))
        self._reset, self._act = getattr(made, f"{source.stem}_reset"), getattr(made, f"{source.stem}_act")
        self._state = ctypes.create_string_buffer(1 << 20)
        header = source.with_suffix(".h").read_text()
        (size,) = [line for line in header.splitlines() if "ACTION_SIZE" in line] or [None]
        self._size = size and int(size.split("=")[1].strip(" ,"))
        self.reset()

    def reset(self):
        self._reset(self._state)

    def __call__(self, observation):
        floats = np.ascontiguousarray(observation, np.float32).ravel()
        observed = floats.ctypes.data_as(ctypes.c_void_p)
        if self._size is None:
            return self._act(self._state, observed)
        action = np.full(self._size, np.nan, np.float32)
        self._act(self._state, observed, action.ctypes.data_as(ctypes.c_void_p))
        return action


def _numbers(action):
    """Return the numbers of an action in their order, as float32."""
    if isinstance(action, dict | tuple):
        parts = action.values() if isinstance(action, dict) else action
        return np.concatenate([_numbers(part) for part in parts])
    return np.ravel(action).astype(np.float32)


def _check(source, policy, compiler, *flags, steps=1000, scale=2.0):
    compiled, size = Compiled(source, compiler, *flags), policy.spec.program.observation_size
    observations = np.random.default_rng(1).normal(0, scale, (steps, size)).astype(np.float32)
    policy.reset()
    for step, observation in enumerate(observations):
        if step % 300 == 299:
            policy.reset()
            compiled.reset()
        expected = policy.runner.act(observation)
        got = compiled(observation)
        if isinstance(got, int):
            assert got == expected
        elif policy.spec.decoder.parts:
            np.testing.assert_array_equal(got, _numbers(expected))
        else:
            assert got.tobytes() == expected.tobytes(), step


@pytest.mark.parametrize("name", NETWORKS)
def test_compiled_policy_has_the_bits_of_the_loaded_one(tmp_path, name):
    source = _exported(tmp_path / "run", _policy(NETWORKS[name]))
    _check(source, load(tmp_path / "run"), COMPILERS[0])


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["-O0"], ["-O2", "-ffp-contract=off"], ["-O3", "-march=native"]], ids=" ".join)
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", ["gelu", "gru", "lstm"])
def test_bits_do_not_depend_on_the_compiler_or_its_level(tmp_path, name, compiler, flags):
    source = _exported(tmp_path / "run", _policy(NETWORKS[name]))
    _check(source, load(tmp_path / "run"), compiler, *flags)


@pytest.mark.parametrize("name", HEADS)
def test_compiled_policy_has_the_bits_of_every_action(tmp_path, name):
    source = _exported(tmp_path / "run", _policy(MLPConfig(hidden=(5,)), HEADS[name], statistics=name != "argmax"))
    _check(source, load(tmp_path / "run"), COMPILERS[0], "-O1")


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("channels", [(3,), (18, 5)])
def test_compiled_policy_has_the_bits_of_a_network_for_images(tmp_path, channels, normalized):
    shape = (2, 12, 9)
    config = DQNConfig(
        channels=channels,
        kernels=(4, 2)[: len(channels)],
        strides=(2, 1)[: len(channels)],
        hidden=(6,),
        virtual_batch_norm=normalized,
    )
    batch = np.random.default_rng(2).integers(0, 256, (9, 216), np.uint8) if normalized else None
    policy = _policy(config, HEADS["identity"], size=216, shape=shape, batch=batch, statistics=False)
    source = _exported(tmp_path / "run", policy)
    _check(source, load(tmp_path / "run"), COMPILERS[0], "-O2", scale=100.0)


@pytest.mark.parametrize("hide_by", ["remove", "zero"])
def test_compiled_policy_does_not_see_hidden_numbers(tmp_path, hide_by):
    space = spaces.Dict({"a/*": spaces.Box(-1, 1, (2, 2)), "b": spaces.Discrete(3), "c": spaces.Box(-1, 1, (1,))})
    encoder = dataclasses.replace(ObservationEncoder.for_space(space), hidden=(1, 7), hide_by=hide_by)
    policy = _policy(LinearConfig(), encoder=encoder, size=encoder.size)
    source = _exported(tmp_path / "run", policy, "walker")
    compiled, loaded = Compiled(source, COMPILERS[0]), load(tmp_path / "run")
    space.seed(1)
    for _ in range(50):
        observation = space.sample()
        numbers = spaces.flatten(space, observation)
        given = np.delete(numbers, (1, 7)) if hide_by == "remove" else numbers
        assert compiled(given).tobytes() == loaded(observation).tobytes()
    header = source.with_suffix(".h").read_text()
    assert ("numbers 0, 2, 3" in header) == (hide_by == "remove")
    assert ("does not see numbers 1, 7" in header) == (hide_by == "zero")


def _refusal(policy, name, folder):
    with pytest.raises(ConfigError) as error:
        _exported(folder, policy, name)
    assert "\n" not in str(error.value)
    assert not list(folder.glob("*.[ch]"))
    return str(error.value)


@pytest.mark.parametrize("name", ["my-policy", "2d", "größe"])
def test_name_that_cannot_begin_functions_is_one_line(tmp_path, name):
    assert "for example policy.c" in _refusal(_policy(LinearConfig()), name, tmp_path / "run")


def test_parameters_that_are_not_finite_are_one_line(tmp_path):
    policy = _policy(LinearConfig(), gain=np.inf)
    assert "not finite" in _refusal(policy, "policy", tmp_path / "run")
