"""The reference batch, from its drawing to all that a run does with it."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
import user_tasks
from heads import Head, hashes_of, merge
from numpy.typing import NDArray

import pyes
import pyes.reports.replay
from pyes import cli
from pyes.config import from_mapping
from pyes.episodes.reference_batch import draw_reference_batch
from pyes.errors import ConfigError, JournalError, RunDirectoryError, TaskError
from pyes.networks import Policy, Program
from pyes.networks.torch.layers import VirtualBatchNorm
from pyes.networks.torch.modules import PolicyModule, module_of
from pyes.reports.export import export
from pyes.run import journal
from pyes.run.directory import RunDirectory
from pyes.run.metrics import read_rows
from pyes.system.packing import array_hash
from pyes.tasks.gymnasium import GymnasiumConfig
from pyes.tasks.python import PythonConfig

TASK: dict[str, Any] = {"name": "python", "factory": "user_tasks:pixels"}
NETWORK: dict[str, Any] = {
    "name": "dqn",
    "channels": [4, 6],
    "kernels": [4, 2],
    "strides": [2, 1],
    "hidden": [8],
    "activation": "relu",
    "divisor": 255,
    "virtual_batch_norm": True,
}
SETTINGS: dict[str, Any] = {
    "seed": 3,
    "generations": 2,
    "task": TASK,
    "network": NETWORK,
    "algorithm": {"population_size": 6},
    "noise": {"entries": 50_000},
    "cluster": {"name": "inline"},
    "evaluation": {"every": 1, "episodes": 2, "share": None},
}


def trained(run: Path, **changes: Any) -> Path:
    pyes.train(merge(SETTINGS, {"run_dir": str(run), **changes}), display=False)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("pixels") / "run")


def images(count: int = 10) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (count, 2, 12, 10), np.uint8)


# Drawing


def test_draw_follows_the_seed_and_keeps_bytes() -> None:
    first, again, other = (draw_reference_batch(PythonConfig(**TASK), seed) for seed in (1, 1, 2))
    assert (first.shape, first.dtype) == ((128, 240), np.uint8)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert not first.flags.writeable


def test_draw_sees_different_moments_of_many_episodes() -> None:
    """The second channel is the time: 0 to 10 timesteps."""
    batch = draw_reference_batch(PythonConfig(**TASK), 0).reshape(-1, 2, 120)
    assert set(np.unique(batch[:, 1])) == {20 * time for time in range(11)}
    assert len(np.unique(batch[:, 0], axis=0)) > 5


def test_draw_makes_float32_of_all_but_bytes_and_heeds_the_limit() -> None:
    batch = draw_reference_batch(GymnasiumConfig(env_id="CartPole-v1", max_timesteps=1), 0)
    assert (batch.shape, batch.dtype) == ((128, 4), np.float32)
    assert np.abs(batch).max() < 0.5  # nothing falls in a timestep


def test_draw_leaves_the_action_space_of_the_environment_alone() -> None:
    user_tasks.Pixels.action_space.seed(5)
    before = str(user_tasks.Pixels.action_space.np_random.bit_generator.state)
    draw_reference_batch(PythonConfig(**TASK), 0)
    assert str(user_tasks.Pixels.action_space.np_random.bit_generator.state) == before


def test_draw_names_the_task_that_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_tasks.Pixels, "bright", 256)
    with pytest.raises(
        TaskError, match=r"^user_tasks:pixels raised while the reference batch was drawn: Overflow.*256"
    ):
        draw_reference_batch(PythonConfig(**TASK), 0)


def test_draw_names_the_task_whose_observation_has_another_size(monkeypatch: pytest.MonkeyPatch) -> None:
    step = user_tasks.Pixels.step
    monkeypatch.setattr(
        user_tasks.Pixels, "step", lambda self, action: (np.zeros(3, np.uint8), *step(self, action)[1:])
    )
    with pytest.raises(TaskError, match=r"^user_tasks:pixels: an observation has 3 values, expected \d+, as in its"):
        draw_reference_batch(PythonConfig(**TASK), 0)


# Runs


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_workers_do_not_change_a_run_on_images(run: Path, tmp_path: Path, workers: int) -> None:
    again = trained(tmp_path / "run", cluster={"name": "local", "workers": workers})
    assert hashes_of(again) == hashes_of(run)
    ours, theirs = (read_rows(each / "metrics.csv") for each in (again, run))
    assert [row["eval_return_mean"] for row in ours] == [row["eval_return_mean"] for row in theirs]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_killed_run_on_images_goes_on_exactly(tmp_path: Path) -> None:
    whole, killed = trained(tmp_path / "whole", generations=6), trained(tmp_path / "killed", generations=1)
    with Head(f"resume={killed}", "generations=100000") as head:
        head.reach(killed, 3)
        head.send_all(signal.SIGKILL)
        head.wait()
    pyes.train({"resume": str(killed), "generations": max(6, len(hashes_of(killed)))}, display=False)
    assert hashes_of(killed)[:6] == hashes_of(whole)


@pytest.mark.slow
def test_the_center_acts_after_loading_as_it_did(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy, recording = pyes.load(run), journal.read(run / "journal.bin")
    records = [recording[k] for k in range(len(recording))]
    recorded = [record.returns.tolist() for record in records if isinstance(record, journal.Evaluation)]
    assert cli.main(["evaluate", str(run), "--episodes", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["returns"] == recorded[-1]
    with pyes.reports.replay.open(run) as replay:
        rebuilt = replay.policy(2)
    for image in images():
        np.testing.assert_array_equal(policy.runner.forward(image), rebuilt.runner.forward(image))
    assert [
        list(pyes.reports.replay.evaluate(run, episodes=2, generation=center).returns) for center in (0, 1)
    ] == recorded[:2]


def test_every_member_plays_again_exactly(run: Path) -> None:
    with pyes.reports.replay.open(run) as replay:
        assert all(replay.play(generation, member).exact for generation in range(2) for member in range(6))
        assert len({replay.play(1, member).return_ for member in range(6)}) > 1


@pytest.mark.slow
def test_the_journal_proves_the_batch(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = journal.read(run / "journal.bin")[0]
    batch = draw_reference_batch(PythonConfig(**TASK), SETTINGS["seed"])
    assert isinstance(start, journal.Start)
    assert start.reference == array_hash(batch)
    trained(tmp_path / "run")
    monkeypatch.setattr(user_tasks.Pixels, "bright", 254)  # as another version of the environment may have it
    for bare in (False, True):
        if bare:
            for snapshot in RunDirectory(tmp_path / "run").snapshots.iterdir():
                snapshot.unlink()
        with pytest.raises(
            JournalError, match=r"^generation 0: the reference batch of the task is \w+ here.*began with"
        ):
            pyes.train({"resume": str(tmp_path / "run"), "generations": 3}, display=False)
    with pyes.reports.replay.open(tmp_path / "run") as replay, pytest.raises(JournalError, match="the reference batch"):
        replay.policy(1)


def test_a_run_without_normalisation_has_no_batch(tmp_path: Path) -> None:
    plain = trained(tmp_path / "run", network={"virtual_batch_norm": False}, generations=1)
    start = journal.read(plain / "journal.bin")[0]
    assert isinstance(start, journal.Start)
    assert start.reference is None
    assert b"reference" not in (plain / "journal.bin").read_bytes()
    assert "reference_batch_hash" not in json.loads((plain / "policy.json").read_text())


@pytest.mark.slow
def test_another_way_from_here_keeps_the_network_and_draws_its_own_batch(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    changes = {"resume": str(tmp_path / "run"), "force": True, "generations": 3, "seed": 4}
    pyes.train(changes, display=False)
    recording = journal.read(tmp_path / "run" / "journal.bin")
    starts = [record for record in (recording[k] for k in range(len(recording))) if isinstance(record, journal.Start)]
    assert [start.generation for start in starts] == [0, 2]
    assert starts[0].reference != starts[1].reference
    with pyes.reports.replay.open(tmp_path / "run") as replay:
        assert all(replay.play(generation, 1).exact for generation in (0, 2))


# Policies


def test_a_damaged_batch_is_refused(run: Path, tmp_path: Path) -> None:
    for name in ("policy.safetensors", "policy.json"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    weights = tmp_path / "policy.safetensors"
    data = bytearray(weights.read_bytes())
    place = bytes(data).index(pyes.load(run).reference_batch.tobytes())
    data[place] ^= 1
    weights.write_bytes(data)
    with pytest.raises(RunDirectoryError, match="reference batch is not the one that was saved"):
        Policy.load(tmp_path)
    arrays = safetensors.numpy.load(bytes(data))
    del arrays["reference_batch"]
    header = (run / "policy.json").read_text()
    weights.write_bytes(safetensors.numpy.save(arrays, {"policy": header}))
    with pytest.raises(RunDirectoryError, match="reference batch is not the one"):
        Policy.load(tmp_path)


def _with_torchs_own(network: torch.nn.Sequential) -> torch.nn.Sequential:
    """Return a network with torch's batch normalisation in place of the virtual one."""
    for place, layer in enumerate(network):
        if isinstance(layer, VirtualBatchNorm):
            kind = torch.nn.BatchNorm2d if layer.image else torch.nn.BatchNorm1d
            network[place] = kind(len(layer.weight), eps=1e-3)
    return network


def test_exports_hold_the_statistics_of_the_center(run: Path, tmp_path: Path) -> None:
    policy = pyes.load(run)
    expected = np.array([policy.runner.forward(image) for image in images()])
    tensors = torch.load(export(run, tmp_path / "policy.pt"), weights_only=True)
    assert isinstance(policy.spec.program, Program)
    module = PolicyModule(_with_torchs_own(module_of(policy.spec.program)), None, None, 5.0)
    module.load_state_dict(tensors, strict=False)  # torch's own also count their batches
    with torch.inference_mode():
        outputs = module.eval()(torch.tensor(images().reshape(10, -1), dtype=torch.float32)).numpy()
    np.testing.assert_allclose(outputs, expected, rtol=1e-3, atol=1e-4)

    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(export(run, tmp_path / "policy.onnx"))
    flat = images().reshape(10, -1).astype(np.float32)
    actions, outputs = session.run(["action", "network_output"], {"observation": flat})
    np.testing.assert_allclose(outputs, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(actions, [policy(image) for image in images()])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network": {"kernels": [4]}}, "network.channels: got [4, 6], expected at least one, and as many kernels"),
        ({"network": {"channels": []}}, "network.channels: got []"),
        (
            {"network": {"name": "mlp"}},
            "unknown key 'network.channels': it is a key of network=dqn; allowed: activation",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        from_mapping(merge(SETTINGS, changes))
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("network", [NETWORK, {"name": "torch", "module": "user_modules:normalized"}])
def test_normalised_networks_take_observations_as_they_are(network: dict[str, Any], tmp_path: Path) -> None:
    """The reference batch is of raw observations, whoever made the network."""
    settings = {**SETTINGS, "network": network, "task": {**TASK, "normalize_observations": True}}
    with pytest.raises(ConfigError, match=r"^task\.normalize_observations: got true, expected false with virtual"):
        pyes.train({**settings, "run_dir": str(tmp_path / "run")}, display=False)


def test_a_module_that_torch_runs_cannot_be_normalised(tmp_path: Path) -> None:
    network = {"name": "torch", "module": "user_modules:unknown_normalized"}
    settings = {**SETTINGS, "network": network, "run_dir": str(tmp_path / "run")}
    with pytest.raises(ConfigError, match="has a VirtualBatchNorm, but cannot be compiled: network layer Softplus"):
        pyes.train(settings, display=False)
