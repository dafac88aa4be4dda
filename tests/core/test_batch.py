"""PolicyBatch: one call for many runners, with the bits that each of them alone would give."""

from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import normals
from user_tasks import Parts

from pyes import _core, networks
from pyes.networks import ActionDecoder, NamedModule, PolicySpec
from tests.core.test_policy import instructions, recurrent

BOX = {"low": (-1.0, -0.5), "high": (1.0, 2.0), "shape": (2,)}
HEADS = {
    "argmax": ActionDecoder("argmax", 2, start=3),
    "identity": ActionDecoder("identity", 2, noise=0.5, **BOX),
    "clip": ActionDecoder("clip", 2, noise=0.1, **BOX),
    "tanh": ActionDecoder("tanh", 2, **{**BOX, "shape": (1, 2)}),
    "bins": ActionDecoder("bins", 6, bins=3, **BOX),
} | {
    name: ActionDecoder.for_space(space, noise=0.3 if name in ("tuple", "dict") else 0)
    for name, space in Parts.ACTIONS.items()
}


def _runner(op: int, head: ActionDecoder, observation_size: int, member: int, normalise: bool) -> Any:
    """Return a runner at the begin of a member's episode, with parameters of its own."""
    if op:
        rows = [recurrent(op, observation_size, 5, 1, 0, 1 if op == 1 else 0)]
        dim = {1: 1, 2: 3, 3: 4}[op] * 5 * (observation_size + 5 + 1)
        rows.append([0, 5, head.outputs, dim, -1, 0, -1, -1])
        program = networks.Program(
            tuple(networks.Instruction(*row) for row in rows), observation_size, head.outputs, dim + 5 * head.outputs
        )
    else:
        rows = instructions([observation_size, 17, head.outputs]).tolist()
        program = networks.Program(
            tuple(networks.Instruction(*row) for row in rows),
            observation_size,
            head.outputs,
            17 * (observation_size + 1 + head.outputs) + head.outputs,
        )
    runner = PolicySpec(program, head, 5.0).runner()
    runner.load(normals(program.dim, member))
    if normalise:
        runner.normalize(normals(observation_size, 100), np.abs(normals(observation_size, 101)), 2.0)
    runner.begin_episode(7, 1, member, 0)
    return runner


@pytest.mark.slow
@given(
    op=st.integers(0, 3),
    mode=st.sampled_from(sorted(HEADS)),
    size=st.integers(1, 20),
    dtype=st.sampled_from([np.float32, np.float64, np.uint8]),
    slots=st.lists(st.lists(st.integers(0, 4), min_size=0, max_size=5, unique=True), min_size=1, max_size=6),
    normalise=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_act_equals_the_runners_one_by_one(op, mode, size, dtype, slots, normalise):
    alone = [_runner(op, HEADS[mode], size, member, normalise) for member in range(5)]
    together = [_runner(op, HEADS[mode], size, member, normalise) for member in range(5)]
    sums = np.zeros((2, 5, 2, size))
    for member in range(5):
        alone[member].collect(sums[0, member])
        together[member].collect(sums[1, member])
    batch = _core.PolicyBatch(together)
    for time, chosen in enumerate(slots):
        observations = (50 + 20 * normals((len(chosen), size), time)).astype(dtype)
        actions = batch.act(observations, np.array(chosen, np.int64))
        expected = [alone[slot].act(row) for slot, row in zip(chosen, observations, strict=True)]
        assert len(actions) == len(chosen)
        for action, single in zip(actions, expected, strict=True):
            assert data_equivalence(action, single) or action == single
        if not HEADS[mode].parts:
            assert actions.dtype == (np.int64 if HEADS[mode].mode == "argmax" else np.float32)
    np.testing.assert_array_equal(sums[0], sums[1])


def test_act_with_a_network_that_torch_runs_equals_the_runners_one_by_one():
    pytest.importorskip("torch")
    head = ActionDecoder("identity", 2, shape=(2,), low=(-np.inf,) * 2, high=(np.inf,) * 2)
    named = NamedModule("torch.nn:Linear", {}, 3, 2, 8)
    alone, together = ([PolicySpec(named, head, 5.0).runner() for _ in range(3)] for _ in range(2))
    for slot in range(3):
        alone[slot].load(normals(8, slot))
        together[slot].load(normals(8, slot))
    observations = normals((3, 3))
    actions = _core.PolicyBatch(together).act(observations, np.arange(3))
    for slot in range(3):
        np.testing.assert_array_equal(actions[slot], alone[slot].act(observations[slot]))


def test_batch_refuses_what_it_cannot_run():
    two = [_runner(0, HEADS["clip"], 4, member, False) for member in range(2)]
    with pytest.raises(ValueError, match="runners: got none"):
        _core.PolicyBatch([])
    with pytest.raises(TypeError, match="runners: got str"):
        _core.PolicyBatch([*two, "x"])
    for other in (_runner(0, HEADS["clip"], 5, 0, False), _runner(0, HEADS["argmax"], 4, 0, False)):
        with pytest.raises(ValueError, match="of different policies"):
            _core.PolicyBatch([*two, other])
    batch = _core.PolicyBatch(two)
    with pytest.raises(ValueError, match=r"slots\[1\]: got 2, expected 0 <= slot < 2"):
        batch.act(np.zeros((2, 4)), np.array([0, 2]))
    for shape in ((2, 5), (1, 4), (4, 2)):
        with pytest.raises(ValueError, match=r"observations: got shape .* expected 2 of 4 values"):
            batch.act(np.zeros(shape), np.array([0, 1]))
    with pytest.raises(TypeError, match="slots: got dtype int32"):
        batch.act(np.zeros((2, 4)), np.array([0, 1], np.int32))
