import dataclasses
import re

import numpy as np
import pytest
from compiled_policy import COMPILERS, Compiled
from gymnasium import spaces
from user_tasks import Parts

from pyes.errors import ConfigError
from pyes.networks import ActionDecoder, ObservationEncoder, Policy, build
from pyes.networks.linear import LinearConfig
from pyes.networks.mlp import MLPConfig
from pyes.networks.recurrent import GRUConfig, LSTMConfig
from pyes.reports.export import export
from pyes.reports.replay import load

pytestmark = pytest.mark.skipif(not COMPILERS, reason="no C compiler")

BOX = spaces.Box(np.array([[-1, 0], [-3, 2]], np.float32), np.array([[1, 5], [2, 3]], np.float32))
CLIP = ActionDecoder.for_space(BOX)
NETWORKS = {
    "gelu": MLPConfig(hidden=(19, 8), activation="gelu"),
    "gru": GRUConfig(hidden=(18, 5)),
    "lstm": LSTMConfig(hidden=(18, 5), double_bias=True),
}
HEADS = {
    "argmax": ActionDecoder.for_space(spaces.Discrete(4, start=-2)),
    "half open": ActionDecoder.for_space(spaces.Box(0, np.inf, (3,))),
    **{
        mode: ActionDecoder.for_space(BOX, mode, bins=5 if mode == "bins" else 0)
        for mode in ("identity", "scale", "tanh", "bins")
    },
    **{f"parts {name}": ActionDecoder.for_space(space) for name, space in Parts.ACTIONS.items()},
    "parts in bins": ActionDecoder.for_space(Parts.ACTIONS["integers"], "bins", bins=3),
    "truth": ActionDecoder.for_space(spaces.Box(0, 1, (3,), bool)),
    "integers as they are": ActionDecoder.for_space(spaces.Box(-1, 2, (3,), np.int8), "identity"),
}


def _policy(config, head=CLIP, *, size=6, gain=2.0, encoder=None, statistics=True, limit=3.0):
    rng = np.random.default_rng(0)
    spec, theta = build(config, size, head, seed=1, observation_clip=limit)
    theta = (gain * theta + 0.1 * rng.normal(size=len(theta))).astype(np.float32)
    mean, std = rng.normal(size=size).astype(np.float32), rng.uniform(0.5, 3, size).astype(np.float32)
    known = (mean, std) if statistics else ()
    return Policy(spec, theta, *known, encoder=encoder)


def _exported(folder, policy, name="policy"):
    folder.mkdir(exist_ok=True)
    policy.save(folder)
    return export(folder, folder / f"{name}.c")


def _numbers(action):
    """Return the numbers of an action in their order, as float32."""
    if isinstance(action, dict | tuple):
        parts = action.values() if isinstance(action, dict) else action
        return np.concatenate([_numbers(part) for part in parts])
    return np.ravel(action).astype(np.float32)


def _check(source, policy, compiler, *flags):
    compiled, size = Compiled(source, compiler, *flags), policy.spec.program.observation_size
    observations = np.random.default_rng(1).normal(0, 2, (1000, size)).astype(np.float32)
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


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["-O0"], ["-O2", "-ffp-contract=off"], ["-O3", "-march=native"]], ids=" ".join)
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", NETWORKS)
def test_bits_do_not_depend_on_the_compiler_or_its_level(tmp_path, name, compiler, flags):
    source = _exported(tmp_path / "run", _policy(NETWORKS[name]))
    _check(source, load(tmp_path / "run"), compiler, *flags)


@pytest.mark.parametrize("name", HEADS)
def test_compiled_policy_has_the_bits_of_every_action(tmp_path, name):
    source = _exported(tmp_path / "run", _policy(MLPConfig(hidden=(5,)), HEADS[name], statistics=name != "argmax"))
    _check(source, load(tmp_path / "run"), COMPILERS[0], "-O1")


def test_header_says_the_values_of_each_component_of_an_action_of_parts(tmp_path):
    box = spaces.Box(np.array([-1, 0], np.float32), np.array([1, 2.5], np.float32))
    space = spaces.Dict(arm=box, grip=spaces.MultiDiscrete([3, 2], start=[-1, 5]), lamp=spaces.MultiBinary(2))
    policy = _policy(MLPConfig(hidden=(5,)), ActionDecoder.for_space(space))
    policy.task.update(name="python", factory="lab:Arm")
    header = _exported(tmp_path / "run", policy).with_suffix(".h").read_text()
    values = ["0: -1 to 1", "1: 0 to 2.5", "2: -1 to 1", "3: 5 to 6", "4: 0 to 1", "5: 0 to 1"]
    assert re.findall(r"^ \* +(\d: .*)$", header, re.MULTILINE) == values
    assert "lab:Arm: " in header


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


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (2,), np.float16),
        spaces.Discrete(3, start=2**31 - 2),
        spaces.MultiDiscrete([3], start=[2**24]),
    ],
    ids=str,
)
def test_actions_that_c_does_not_have_are_one_line(tmp_path, space):
    policy = _policy(LinearConfig(), ActionDecoder.for_space(space))
    assert "cannot be exported to .c" in _refusal(policy, "policy", tmp_path / "run")


def test_limit_of_observations_beyond_float32_is_none(tmp_path):
    policy = _policy(LinearConfig(), limit=1e39)
    _check(_exported(tmp_path / "run", policy), load(tmp_path / "run"), COMPILERS[0], "-O1")


def test_parameters_that_are_not_finite_are_one_line(tmp_path):
    policy = _policy(LinearConfig(init="uniform"), gain=np.inf)
    assert "not finite" in _refusal(policy, "policy", tmp_path / "run")
