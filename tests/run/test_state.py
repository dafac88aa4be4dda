import pytest
from gymnasium import spaces

from pyes.config import from_mapping
from pyes.networks import ActionDecoder
from pyes.networks.observation import ObservationEncoder
from pyes.run.state import Interface, Setup

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
    interface = Interface(encoder.size, shape, ActionDecoder("argmax", 2), 10, 0, encoder)
    assert Setup.of(config, interface).config.task.normalize_observations is expected
    for told in (True, False):
        task = {"env_id": "CartPole-v1", "normalize_observations": told}
        if network == "mlp":
            config = from_mapping({"task": task, "network": {"name": network}})
            assert Setup.of(config, interface).config.task.normalize_observations is told
