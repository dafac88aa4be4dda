"""Compiled networks against torch, one timestep a call.

Owns the measurement; it changes nothing. Torch runs the same layers with the same parameters, in one thread and without
gradients, from tensor to tensor; C from array to array, with the call from Python.
"""

from collections.abc import Callable

import numpy as np

from pyes.bench.kernels import best_times
from pyes.config import NetworkConfig
from pyes.networks import ActionHead, build

OBSERVATION, CALLS = 3, 2000
CASES = {
    "LSTM-16": (NetworkConfig("lstm", hidden=(16,), double_bias=True), 10),
    "GRU-16": (NetworkConfig("gru", hidden=(16,), double_bias=True), None),
    "LSTM-64-64": (NetworkConfig("lstm", hidden=(64, 64), double_bias=True), None),
    "64-64": (NetworkConfig("mlp", hidden=(64, 64)), None),
}


def measure(*, full: bool = False) -> None:
    """Print one line a network: both speeds, their ratio, and the ratio aimed at."""
    print(f"networks: forward passes from {OBSERVATION} observed numbers to one output, one thread")
    for name, (config, wanted) in CASES.items():
        ours, torch = speeds(config, repetitions=20 if full else 5)
        asked = "" if wanted is None else f" (aim {wanted})"
        print(f"{name:<52} {ours:>10,.0f} steps/s, torch {torch:>10,.0f}: {ours / torch:.1f}{asked}")


def speeds(config: NetworkConfig, repetitions: int) -> tuple[float, float]:
    """Return forward passes a second in C and in torch."""
    import torch

    from pyes.networks.modules import policy_module

    head = ActionHead("identity", 1, (1,), (-np.inf,), (np.inf,))
    spec, theta = build(config, OBSERVATION, head, seed=0, observation_clip=5.0)
    runner = spec.runner()
    runner.load(theta)
    module = policy_module(spec, theta, None, None).eval()
    array, tensor = np.ones(OBSERVATION, np.float32), torch.ones(OBSERVATION)
    torch.set_num_threads(1)

    def in_torch() -> None:
        with torch.inference_mode():
            repeat(lambda: module(tensor))

    times = best_times({"c": lambda: repeat(lambda: runner.forward(array)), "torch": in_torch}, repetitions)
    return CALLS / times["c"], CALLS / times["torch"]


def repeat(work: Callable[[], object]) -> None:
    """Call it ``CALLS`` times."""
    for _ in range(CALLS):
        work()
