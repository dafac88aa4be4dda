"""The description of a policy that a worker needs to act.

Joins a network, an action decoder and the observation clip, and chooses whether C or torch runs the network; holds no
parameters and no code, and does not import torch. Invariant: equal specs give equal results; with a program, on every
machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyes import _core
from pyes.errors import missing
from pyes.networks.action import ActionDecoder
from pyes.networks.named import NamedModule
from pyes.networks.program import Program

if TYPE_CHECKING:
    from pyes.networks.torch.own import TorchNetwork


class Runner(Protocol):
    """Runs a policy: in C, possibly with a network that torch runs."""

    @property
    def dim(self) -> int:
        """Length of theta."""

    @property
    def packed(self) -> NDArray[np.float32] | None:
        """The weights as the kernels read them, for a compiled network: a copy."""

    @property
    def state(self) -> NDArray[np.float32] | None:
        """The states of all recurrent layers, for a compiled network: a copy; may be set."""

    @state.setter
    def state(self, state: NDArray[np.float32], /) -> None: ...

    def load(
        self,
        theta: NDArray[np.float32],
        table: NDArray[Any] | None = None,
        offset: int = 0,
        scale: float = 0.0,
        deviation: NDArray[np.float32] | None = None,
        /,
    ) -> None:
        """Set the parameters: theta, float32 (dim,), plus ``scale`` times (``deviation`` times) a slice of a table."""

    def normalize(
        self, mean: NDArray[np.float32] | None, inverse_std: NDArray[np.float32] | None, clip: float, /
    ) -> None:
        """Set the observation statistics: float32 (observation_size,) each, or None for raw observations."""

    def begin_episode(self, seed: int, generation: int, member: int, episode: int, /) -> None:
        """Reset the recurrent states; the numbers select the stream of the action noise."""

    def set_action_noise(self, enabled: bool, /) -> None:
        """Switch the action noise on (the default) or off."""

    def collect(self, sums: NDArray[np.float64] | None, /) -> None:
        """Add each following raw observation and its square to float64 (2, observation_size); None stops this."""

    def act(self, observation: ArrayLike, /) -> Any:
        """Return the action: an int, a new float32 array, or for other spaces what the environment takes.

        Raises
        ------
        ValueError
            The observation has another size, or NaN.
        """

    def check(self, observation: ArrayLike, /) -> None:
        """Refuse an observation as `act` does, without acting."""

    def forward(self, observation: ArrayLike, /) -> NDArray[np.float32]:
        """Return the network's outputs before the action is chosen: new float32 (outputs,)."""


@dataclass(frozen=True)
class PolicySpec:
    """A network, the decoder of its outputs, and the clip of normalised observations.

    Parameters
    ----------
    program : Program or NamedModule
        Program for C, or name of the module that torch runs.
    decoder : ActionDecoder
        Turns the network's outputs into an action.
    observation_clip : float
        Largest absolute value of a normalised observation.

    Raises
    ------
    ValueError
        Network and decoder have different numbers of outputs.
    """

    program: Program | NamedModule
    decoder: ActionDecoder
    observation_clip: float

    def __post_init__(self) -> None:
        """Reject inconsistent parameters."""
        if self.program.outputs != self.decoder.outputs:
            raise ValueError(
                f"the network gives {self.program.outputs} outputs, the action takes {self.decoder.outputs}"
            )
        if not self.observation_clip > 0:
            raise ValueError(f"observation_clip is {self.observation_clip}, expected more than 0")

    @property
    def dim(self) -> int:
        """Length of theta."""
        return self.program.dim

    @property
    def normalized(self) -> bool:
        """Whether a runner needs a reference batch."""
        return isinstance(self.program, Program) and self.program.normalized

    def runner(
        self, level: str | None = None, *, noise: bool = True, reference_batch: NDArray[Any] | None = None
    ) -> Runner:
        """Return a new runner without parameters; imports torch if torch runs the network.

        Parameters
        ----------
        level : str or None
            CPU level of the C policy (default: the best one).
        noise : bool
            Whether the runner supports the decoder's action noise.
        reference_batch : uint8 or float32 (n, observation_size), or None
            Required by a network with virtual batch normalisation, and allowed only there.

        Raises
        ------
        ConfigError
            The module that torch runs cannot be made.
        ValueError
            A reference batch is missing, or given to a network without normalisation.
        """
        low, high = self.decoder.bounds
        parts = self.decoder.parts
        return _core.PolicyRunner(
            self._network(),
            self.program.observation_size,
            action=self.decoder.mode,
            low=low,
            high=high,
            bins=self.decoder.bins,
            action_start=self.decoder.start,
            action_shape=self.decoder.shape,
            action_noise=self.decoder.noise if noise else 0.0,
            rules=[part.mode for part in parts for _ in range(part.components)],
            widths=[width for part in parts for width in part.widths],
            assemble=self.decoder.assemble if parts else None,
            level=level,
            reference_batch=reference_batch,
        )

    def _network(self) -> "NDArray[np.int64] | TorchNetwork":
        """Return the network for the C runner."""
        if isinstance(self.program, Program):
            return self.program.array()
        try:
            from pyes.networks.torch.own import TorchNetwork
        except ImportError as error:
            raise missing(f"the network {self.program.name}", "torch", "torch", error) from error
        return TorchNetwork(self.program)

    def to_dict(self) -> dict[str, Any]:
        """Return the spec as JSON values, the network as ``program`` or as ``module``."""
        return {
            "program" if isinstance(self.program, Program) else "module": self.program.to_dict(),
            "action": self.decoder.to_dict(),
            "observation_clip": self.observation_clip,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "PolicySpec":
        """Invert ``to_dict``; raises KeyError, TypeError or ValueError if the values are damaged."""
        return cls(
            NamedModule.from_dict(values["module"]) if "module" in values else Program.from_dict(values["program"]),
            ActionDecoder.from_dict(values["action"]),
            float(values["observation_clip"]),
        )
