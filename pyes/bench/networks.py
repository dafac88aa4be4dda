"""Compiled networks against torch, one timestep a call.

Owns the measurement; it changes nothing. Torch runs the same layers with the same parameters, in one thread and without
gradients, from tensor to tensor; C from array to array, with the call from Python. Images are those of Atari games.
"""

import math
from collections.abc import Callable

import numpy as np

from pyes.bench.kernels import best_times
from pyes.config import NetworkConfig
from pyes.networks import ActionHead, build

OBSERVATION, IMAGE = 3, (4, 84, 84)
DQN = NetworkConfig(
    "dqn", channels=(32, 64, 64), kernels=(8, 4, 3), strides=(4, 2, 1), hidden=(512,), activation="relu", divisor=255
)
CASES = {
    "LSTM-16": (NetworkConfig("lstm", hidden=(16,), double_bias=True), 10),
    "GRU-16": (NetworkConfig("gru", hidden=(16,), double_bias=True), None),
    "LSTM-64-64": (NetworkConfig("lstm", hidden=(64, 64), double_bias=True), None),
    "64-64": (NetworkConfig("mlp", hidden=(64, 64)), None),
    "DQN": (DQN, 1),
}


def measure(*, full: bool = False) -> None:
    """Print one line a network: both speeds, their ratio, and the ratio aimed at."""
    print(f"networks: forward passes from {OBSERVATION} observed numbers, or an image, to one output, one thread")
    for name, (config, wanted) in CASES.items():
        ours, torch = speeds(config, repetitions=20 if full else 5)
        asked = "" if wanted is None else f" (aim {wanted})"
        print(f"{name:<52} {ours:>10,.0f} steps/s, torch {torch:>10,.0f}: {ours / torch:.1f}{asked}")


def speeds(config: NetworkConfig, repetitions: int) -> tuple[float, float]:
    """Return forward passes a second in C and in torch."""
    import torch

    from pyes.networks.modules import policy_module

    head = ActionHead("identity", 1, (1,), (-np.inf,), (np.inf,))
    shape = IMAGE if config.name == "dqn" else (OBSERVATION,)
    spec, theta = build(config, math.prod(shape), head, seed=0, observation_clip=5.0, shape=shape)
    runner = spec.runner()
    runner.load(theta)
    module = policy_module(spec, theta, None, None).eval()
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
    """Call it so many times."""
    for _ in range(times):
        work()
