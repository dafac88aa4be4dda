"""Speed of compiled networks compared with torch, one timestep per call from Python.

Owns the measurement. Torch runs the same layers with the same parameters, on one thread and without gradients. Images
have the size of Atari observations.
"""

import math
from collections.abc import Callable

import numpy as np

from pyes.bench.kernels import best_times
from pyes.config import NetworkConfig
from pyes.errors import missing
from pyes.networks import ActionDecoder, Program, build
from pyes.networks.dqn import DQNConfig
from pyes.networks.mlp import MLPConfig
from pyes.networks.recurrent import GRUConfig, LSTMConfig

OBSERVATION, IMAGE = 3, (4, 84, 84)
CASES: dict[str, tuple[NetworkConfig, float | None]] = {
    "LSTM-16": (LSTMConfig(double_bias=True), 10),
    "GRU-16": (GRUConfig(double_bias=True), None),
    "LSTM-64-64": (LSTMConfig(hidden=(64, 64), double_bias=True), None),
    "64-64": (MLPConfig(hidden=(64, 64)), None),
    "DQN": (DQNConfig(virtual_batch_norm=False), 1),
}


def measure(*, full: bool = False) -> None:
    """Print one line per network: both speeds, their ratio and the target ratio."""
    print(f"networks: forward passes from {OBSERVATION} observed numbers, or an image, to one output, one thread")
    for name, (config, wanted) in CASES.items():
        ours, torch = speeds(config, repetitions=20 if full else 5)
        asked = "" if wanted is None else f" (aim {wanted})"
        print(f"{name:<52} {ours:>10,.0f} steps/s, torch {torch:>10,.0f}: {ours / torch:.1f}{asked}")


def speeds(config: NetworkConfig, repetitions: int) -> tuple[float, float]:
    """Return forward passes per second in C and in torch."""
    try:
        import torch

        from pyes.networks.torch.modules import policy_module
    except ImportError as error:
        raise missing("the comparison with torch", "torch", "torch", error) from error
    decoder = ActionDecoder("identity", 1, (1,), (-np.inf,), (np.inf,))
    shape = IMAGE if config.name == "dqn" else (OBSERVATION,)
    spec, theta = build(config, math.prod(shape), decoder, seed=0, observation_clip=5.0, shape=shape)
    runner = spec.runner()
    runner.load(theta)
    assert isinstance(spec.program, Program)
    module = policy_module(spec.program, theta).eval()
    array = np.ones(shape, np.uint8 if config.name == "dqn" else np.float32)
    tensor = torch.ones(math.prod(shape))
    torch.set_num_threads(1)
    calls = 20 if config.name == "dqn" else 2000

    def in_torch() -> None:
        with torch.inference_mode():
            repeat(lambda: module(tensor), calls)

    times = best_times({"c": lambda: repeat(lambda: runner.forward(array), calls), "torch": in_torch}, repetitions)
    return calls / times["c"], calls / times["torch"]


def repeat(work: Callable[[], object], times: int) -> None:
    """Call ``work`` a number of times."""
    for _ in range(times):
        work()
