"""Types of the compiled kernels; contracts are in ``csrc/pyes_kernels.h``, NumPy twins in ``pyes.reference``."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

Table: TypeAlias = NDArray[Any]  # float32, uint16 (bfloat16) or int8

def levels() -> tuple[str, ...]: ...
def stream_bits(
    seed: int, purpose: int, generation: int, member: int, episode: int, out: NDArray[np.uint32]
) -> None: ...
def draw_offsets(seed: int, purpose: int, generation: int, bound: int, out: NDArray[np.int64]) -> None: ...
def draw_seeds(seed: int, purpose: int, generation: int, episode: int, out: NDArray[np.int64]) -> None: ...
def fill_noise(out: Table, seed: int, start: int = 0, *, level: str | None = None) -> None: ...
def perturb(
    theta: NDArray[np.float32],
    table: Table,
    offset: int,
    scale: float,
    out: NDArray[np.float32],
    *,
    deviation: NDArray[np.float32] | None = None,
    level: str | None = None,
) -> None: ...
def weighted_sum(
    table: Table,
    offsets: NDArray[np.int64],
    weights: NDArray[np.float32],
    out: NDArray[np.float32],
    *,
    level: str | None = None,
) -> None: ...
def add_slices(
    table: Table,
    offsets: NDArray[np.int64],
    weights: NDArray[np.float32],
    out: NDArray[np.float32],
    *,
    level: str | None = None,
) -> None: ...
def weighted_moments(
    table: Table,
    offsets: NDArray[np.int64],
    weights: NDArray[np.float32],
    spread_weights: NDArray[np.float32],
    mean: NDArray[np.float32],
    spread: NDArray[np.float32],
    *,
    level: str | None = None,
) -> None: ...
def centered_ranks(returns: NDArray[np.float64], out: NDArray[np.float32]) -> None: ...
def adam_step(
    theta: NDArray[np.float32],
    gradient: NDArray[np.float32],
    m: NDArray[np.float32],
    v: NDArray[np.float32],
    step: int,
    learning_rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    *,
    level: str | None = None,
) -> None: ...
def sgd_step(
    theta: NDArray[np.float32],
    gradient: NDArray[np.float32],
    velocity: NDArray[np.float32],
    learning_rate: float,
    momentum: float,
    weight_decay: float,
    *,
    level: str | None = None,
) -> None: ...
def clipup_step(
    theta: NDArray[np.float32],
    gradient: NDArray[np.float32],
    velocity: NDArray[np.float32],
    learning_rate: float,
    momentum: float,
    max_speed: float,
    weight_decay: float,
    *,
    level: str | None = None,
) -> None: ...
def deviation_step(
    deviation: NDArray[np.float32],
    gradient: NDArray[np.float32],
    learning_rate: float,
    max_change: float,
    *,
    level: str | None = None,
) -> None: ...
def snes_step(
    theta: NDArray[np.float32],
    deviation: NDArray[np.float32],
    gradient: NDArray[np.float32],
    deviation_gradient: NDArray[np.float32],
    learning_rate: float,
    deviation_rate: float,
    *,
    level: str | None = None,
) -> None: ...
def board_claim(cursor: NDArray[np.int64], states: NDArray[np.int32], count: int, worker: int) -> int: ...
def board_finish(states: NDArray[np.int32], member: int, worker: int) -> bool: ...
def board_release(states: NDArray[np.int32], count: int, worker: int) -> None: ...
def board_remaining(states: NDArray[np.int32], count: int) -> int: ...
def board_withhold(states: NDArray[np.int32], count: int) -> None: ...
def board_offer(cursor: NDArray[np.int64], states: NDArray[np.int32], begin: int, end: int) -> None: ...
def board_withdraw(states: NDArray[np.int32], begin: int, end: int) -> None: ...
def board_collect(states: NDArray[np.int32], count: int) -> NDArray[np.int64]: ...

class Network(Protocol):
    """A network that a PolicyRunner does not run itself."""

    @property
    def dim(self) -> int: ...
    @property
    def outputs(self) -> int: ...
    def load(self, theta: NDArray[np.float32], /) -> None: ...
    def reset(self) -> None: ...
    def forward(self, observation: NDArray[np.float32], /) -> NDArray[np.float32]: ...

def own_environments() -> dict[str, int]: ...

class Simulator(Protocol):
    """What Python does before an environment in C is reset; it may have an ``error``, see `CompiledEnvironment`."""

    def begin(self, seed: int, /) -> None: ...

@final
class Rays:
    def __init__(
        self, offsets: NDArray[np.float64], segments: NDArray[np.float32], quads: NDArray[np.float32]
    ) -> None: ...
    def cast(self, x: float, y: float, out: NDArray[np.float32]) -> None: ...

@final
class CompiledEnvironment:
    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def observation_size(self) -> int: ...
    @property
    def choices(self) -> int: ...
    @property
    def time_limit(self) -> int: ...
    @property
    def state(self) -> NDArray[np.uint8]: ...
    @property
    def observation_bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
    @property
    def action_bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]: ...
    def __init__(self, address: int, frame_skip: int = 1, simulator: Simulator | None = None) -> None: ...
    def reset(self, seed: int) -> NDArray[Any]: ...
    def step(self, action: Any) -> tuple[NDArray[Any], float, bool, bool]: ...

_Range = tuple[float, float]
_Part = tuple[NDArray[np.float64], NDArray[np.float64] | None, tuple[int, int] | None, float, float]

class Box2DTimestep:
    @property
    def address(self) -> int: ...
    @property
    def error(self) -> BaseException | None: ...
    def give_back(self) -> None: ...

@final
class LanderTimestep(Box2DTimestep):
    def __init__(self, *, step: int, set_listener: int, discrete: bool, sine: int, cosine: int) -> None: ...
    def attach(
        self, env: Any, legs: Sequence[tuple[Any, int]], first: Any, *, world: int, body: int, ground: float
    ) -> None: ...

@final
class WalkerTimestep(Box2DTimestep):
    def __init__(self, *, step: int, set_listener: int, set_speed: int, set_most_torque: int) -> None: ...
    def attach(
        self,
        env: Any,
        legs: Sequence[tuple[Any, int]],
        first: Any,
        *,
        world: int,
        hull: int,
        joints: Sequence[tuple[int, int, int, float]],
        rays: Rays,
    ) -> None: ...

@final
class MujocoTimestep:
    @property
    def address(self) -> int: ...
    def __init__(
        self,
        *,
        engine: tuple[int, int, int, int],
        clock: tuple[int, int],
        frames: int,
        control: NDArray[np.float64],
        observation: Sequence[_Part],
        limits: Sequence[tuple[NDArray[np.float64], float, float, bool]],
        falls: bool,
        reward: str,
        seconds: float = 1.0,
        place: NDArray[np.float64] | None = None,
        speeds: NDArray[np.float64] | None = None,
        mass: NDArray[np.float64] | None = None,
        centers: NDArray[np.float64] | None = None,
        whole_mass: float = 1.0,
        speed_weight: float = 0.0,
        health_reward: float | None = None,
        effort_weight: float = 0.0,
        effort_of_control: bool = False,
        contact: tuple[NDArray[np.float64], float, _Range, _Range] | None = None,
        distances: Sequence[tuple[NDArray[np.float64], NDArray[np.float64], float]] = (),
        power: int = 0,
        fused: int = 0,
    ) -> None: ...

@final
class PolicyRunner:
    @property
    def dim(self) -> int: ...
    @property
    def observation_size(self) -> int: ...
    @property
    def outputs(self) -> int: ...
    def __init__(
        self,
        network: NDArray[np.int64] | Network,
        observation_size: int,
        *,
        action: str,
        low: NDArray[np.float32] | None = None,
        high: NDArray[np.float32] | None = None,
        bins: int = 0,
        action_start: int = 0,
        action_shape: tuple[int, ...] = (),
        action_noise: float = 0.0,
        rules: Sequence[str] = (),
        widths: Sequence[int] = (),
        assemble: Callable[[NDArray[np.float32]], Any] | None = None,
        level: str | None = None,
        reference_batch: NDArray[np.uint8] | NDArray[np.float32] | None = None,
    ) -> None: ...
    def load(
        self,
        theta: NDArray[np.float32],
        table: NDArray[Any] | None = None,
        offset: int = 0,
        scale: float = 0.0,
        deviation: NDArray[np.float32] | None = None,
    ) -> None: ...
    def normalize(
        self, mean: NDArray[np.float32] | None, inverse_std: NDArray[np.float32] | None, clip: float
    ) -> None: ...
    def set_action_noise(self, enabled: bool, /) -> None: ...
    def begin_episode(self, seed: int, generation: int, member: int, episode: int) -> None: ...
    def collect(self, sums: NDArray[np.float64] | None) -> None: ...
    def act(self, observation: ArrayLike) -> Any: ...
    @property
    def compiled(self) -> bool: ...
    @property
    def packed(self) -> NDArray[np.float32] | None: ...
    @property
    def state(self) -> NDArray[np.float32] | None: ...
    @state.setter
    def state(self, state: NDArray[np.float32], /) -> None: ...
    def run(
        self,
        environment: CompiledEnvironment,
        seed: int,
        limit: int,
        seen: NDArray[np.int64] | None = None,
        reward_min: float = ...,
    ) -> tuple[float, int, NDArray[Any]]: ...
    def check(self, observation: ArrayLike) -> None: ...
    def forward(self, observation: ArrayLike) -> NDArray[np.float32]: ...

@final
class PolicyBatch:
    def __init__(self, runners: Sequence[PolicyRunner]) -> None: ...
    def act(self, observations: NDArray[Any], slots: NDArray[np.int64]) -> Any: ...
