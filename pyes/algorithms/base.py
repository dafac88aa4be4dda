"""What every algorithm offers to the training loop: ask, tell, and a state that can be saved."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pyes.population import Population


class Algorithm(Protocol):
    """Proposes members and learns from their returns. Equal returns give equal bytes of theta, anywhere."""

    theta: NDArray[np.float32]
    generation: int
    sigma: float
    learning_rate: float
    gradient_norm: float

    def ask(self) -> Population:
        """Return the members of the current generation; asking twice gives the same."""

    def tell(self, returns: NDArray[np.float64]) -> None:
        """Take the members' returns, in member order (NaN: failed), and go on to the next generation."""

    def member(self, index: int) -> NDArray[np.float32]:
        """Return theta of one member of the current generation: float32 (dim,), a new array."""

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on, as arrays and numbers."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
