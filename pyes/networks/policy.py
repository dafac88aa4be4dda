"""A trained policy, the result of a run: it acts, and it is saved and loaded.

Owns the two files of a policy and their format; knows no task and no training. Invariant: the files hold only values
(numbers and names, no pickle), and a loaded policy equals the saved one, which is checked by its theta_hash.

    policy.safetensors    theta float32 (dim,); observation_mean, observation_inverse_std float32 (observation_size,)
                          if observations are normalised; reference_batch uint8 or float32 (n, observation_size)
                          with virtual batch normalisation; a copy of the description in its metadata
    policy.json           the description: format, versions, seed, generation, theta_hash, spec, network, task,
                          observation where the task has an environment, and reference_batch_hash with virtual batch
                          normalisation
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError

from pyes.errors import ConfigError, RunDirectoryError
from pyes.networks import batched
from pyes.networks.observation import ObservationEncoder
from pyes.networks.spec import PolicySpec
from pyes.system import lookup
from pyes.system.files import write_file
from pyes.system.packing import array_hash, theta_hash

#: Format 2 has other names for the reference batch and the action in the description.
FORMAT = 2
WEIGHTS_FILE = "policy.safetensors"


class Policy:
    """A center policy that acts: ``action = policy(observation)``, ``policy.reset()`` before each episode.

    Parameters
    ----------
    spec : PolicySpec
        The network, the action and the observation clip.
    theta : float32 (dim,)
    observation_mean, observation_inverse_std : float32 (observation_size,), or None
        None for raw observations.
    reference_batch : uint8 or float32 (n, observation_size), or None
        For virtual batch normalisation.
    encoder : ObservationEncoder or None
        Turns the environment's own observations into the network's input; None if they are the same.
    network, task : mapping
        Configurations of the training, as JSON values.
    seed, generation : int
        Seed of the run, and generation of theta.

    Raises
    ------
    ValueError
        An array has the wrong length or is missing, or only one of the two statistics is given.
    """

    def __init__(
        self,
        spec: PolicySpec,
        theta: NDArray[np.float32],
        observation_mean: NDArray[np.float32] | None = None,
        observation_inverse_std: NDArray[np.float32] | None = None,
        *,
        reference_batch: NDArray[Any] | None = None,
        encoder: ObservationEncoder | None = None,
        network: Mapping[str, Any] | None = None,
        task: Mapping[str, Any] | None = None,
        seed: int = 0,
        generation: int = 0,
    ) -> None:
        if (observation_mean is None) != (observation_inverse_std is None):
            raise ValueError("observation_mean and observation_inverse_std go together, got only one of them")
        size = spec.program.observation_size
        self.spec = spec
        self.theta = _vector("theta", theta, spec.dim)
        self.observation_mean = _vector("observation_mean", observation_mean, size)
        self.observation_inverse_std = _vector("observation_inverse_std", observation_inverse_std, size)
        self.network = dict(network or {})
        self.task = dict(task or {})
        self.seed = seed
        self.generation = generation
        self.reference_batch = reference_batch
        if encoder is not None and encoder.size != size:
            raise ValueError(f"the encoder gives {encoder.size} numbers, the network reads {size}")
        self.encoder = encoder
        # Action noise is for exploration; the center acts without it.
        self.runner = spec.runner(noise=False, reference_batch=reference_batch)
        self.runner.load(self.theta)
        self.runner.normalize(self.observation_mean, self.observation_inverse_std, spec.observation_clip)
        self.reset()

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it be copied and pickled; a copy begins an episode."""
        make = partial(
            type(self),
            reference_batch=self.reference_batch,
            encoder=self.encoder,
            network=self.network,
            task=self.task,
            seed=self.seed,
            generation=self.generation,
        )
        return make, (self.spec, self.theta, self.observation_mean, self.observation_inverse_std)

    def __call__(self, observation: Any) -> Any:
        """Return the environment's own action for one of its own observations.

        Raises
        ------
        ValueError
            The observation is not of the space that the policy was trained on; the message says which part of it.
        """
        return self.runner.act(observation if self.encoder is None else self.encoder(observation))

    def predict(
        self,
        observation: Any,
        state: NDArray[np.float32] | None = None,
        episode_start: ArrayLike | None = None,
        deterministic: bool = True,
    ) -> tuple[Any, NDArray[np.float32] | None]:
        """Return the action for an observation and the state after it, as policies of Stable-Baselines3 do.

        Parameters
        ----------
        observation : object
            One of the environment's own, or several with an axis in front: each part (n, *shape).
        state : float32 (size,) or (n, size), or None
            What the last call returned; None when episodes begin. The memory of the policy itself stays as it is.
        episode_start : bool or bool (n,), or None
            Where an episode begins: its state is forgotten.
        deterministic : bool
            Must be true: the center has no action noise.

        Returns
        -------
        action : array, or a dict or tuple of arrays
            For several observations, with their axis in front.
        state : float32 (size,) or (n, size), or None
            None for networks without a memory, and for those that torch runs: these keep their memory themselves, so
            they take one observation a call, and ``episode_start`` resets them.

        Raises
        ------
        ValueError
            An argument does not fit the policy.
        """
        if not deterministic:
            raise ValueError("deterministic is False, but a loaded policy has no action noise; leave it True")
        several = batched.count(observation, self.encoder, self.spec.program.observation_size)
        observations = (
            [observation] if several is None else [batched.item(observation, i, self.encoder) for i in range(several)]
        )
        if not observations:
            raise ValueError("got 0 observations, expected at least one")
        actions, states = self._predict(observations, state, episode_start)
        if several is not None:
            return batched.joined(actions), states
        action = actions[0] if isinstance(actions[0], dict | tuple) else np.asarray(actions[0])
        return action, None if states is None else states[0]

    def _predict(
        self, observations: Sequence[Any], state: NDArray[np.float32] | None, episode_start: ArrayLike | None
    ) -> tuple[list[Any], NDArray[np.float32] | None]:
        """Return the actions and the states after them, float32 (n, size)."""
        own, n = self.runner.state, len(observations)
        starts = np.broadcast_to(np.array(False if episode_start is None else episode_start, bool), (n,))
        if own is None:
            if n > 1:
                raise ValueError(f"got {n} observations, expected one: torch runs the network, which has one memory")
            if starts[0]:
                self.reset()
        if own is None or not len(own):
            return [self(each) for each in observations], None
        states = _states(state, n, len(own))
        states[starts] = 0
        actions = []
        try:
            for each, memory in zip(observations, states, strict=True):
                self.runner.state = memory
                actions.append(self(each))
                memory[:] = self.runner.state
        finally:
            self.runner.state = own
        return actions, states

    def reset(self) -> None:
        """Begin an episode: reset the states of recurrent layers."""
        self.runner.begin_episode(self.seed, self.generation, 0, 0)

    def save(self, directory: str | Path) -> None:
        """Write policy.safetensors and policy.json into an existing directory; each is replaced atomically.

        Raises
        ------
        ConfigError
            The files cannot be written.
        """
        self.save_as(Path(directory) / WEIGHTS_FILE)

    def save_as(self, path: str | Path) -> None:
        """Write the two files as ``path`` (ending in .safetensors) and the same name ending in .json.

        Raises
        ------
        ConfigError
            The path has another ending, or the files cannot be written.
        """
        path = Path(path)
        if path.suffix != ".safetensors":
            raise ConfigError(f"policy: got {path}, expected a path that ends in .safetensors")
        arrays = {
            "theta": self.theta,
            "observation_mean": self.observation_mean,
            "observation_inverse_std": self.observation_inverse_std,
            "reference_batch": self.reference_batch,
        }
        description = self.description()
        tensors = {name: np.ascontiguousarray(array) for name, array in arrays.items() if array is not None}
        # The weights contain the description too, so that a crash between the two files leaves a loadable policy.
        write_file(path, safetensors.numpy.save(tensors, {"policy": json.dumps(description)}))
        write_file(path.with_suffix(".json"), (json.dumps(description, indent=2) + "\n").encode())

    @classmethod
    def load(cls, run: str | Path) -> "Policy":
        """Read a policy from a run directory, or from a .safetensors file; .json beside it is for people to read.

        Raises
        ------
        RunDirectoryError
            The weights are missing, or a file is damaged or of another format.
        """
        weights = Path(run)
        if weights.suffix != ".safetensors":
            weights = weights / WEIGHTS_FILE
        try:
            data = weights.read_bytes()
        except OSError as error:
            raise RunDirectoryError(
                f"no policy at {weights} ({error.strerror}); give a run directory that has finished a generation"
            ) from error
        try:
            arrays = safetensors.numpy.load(data)
            header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
            description = json.loads(header["__metadata__"]["policy"])
            if description["format"] != FORMAT:
                raise RunDirectoryError(
                    f"policy {weights} has format {description['format']}, expected {FORMAT}; read it with "
                    f"pyes-rl {description['pyes']}, which wrote it"
                )
            digest = theta_hash(arrays["theta"])
            if description["theta_hash"] != digest:
                raise ValueError(f"theta_hash is {digest}, expected {description['theta_hash']}")
            if array_hash(arrays.get("reference_batch")) != description.get("reference_batch_hash"):
                raise ValueError("its reference batch is not the one that was saved")
            return cls._from_description(description, arrays)
        except (SafetensorError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise RunDirectoryError(
                f"policy {weights} is damaged ({_reason(error)}); restore it from a copy, or export or train it again"
            ) from error

    @classmethod
    def _from_description(cls, values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "Policy":
        return cls(
            PolicySpec.from_dict(values["spec"]),
            arrays["theta"],
            arrays.get("observation_mean"),
            arrays.get("observation_inverse_std"),
            reference_batch=arrays.get("reference_batch"),
            encoder=ObservationEncoder.from_dict(values["observation"]) if "observation" in values else None,
            network=values["network"],
            task=values["task"],
            seed=int(values["seed"]),
            generation=int(values["generation"]),
        )

    @property
    def title(self) -> str:
        """Name of its task: the environment or the factory that makes it; empty without a task."""
        names = (self.task.get(key) for key in ("env_id", "factory", "name"))
        return str(next(filter(None, names), ""))

    @property
    def handling(self) -> str:
        """What whoever runs it outside its task must do with its actions, as a sentence; empty if nothing.

        Environments of `pyes.make_env` do it.
        """
        levels, held = self.task.get("action_levels"), self.task.get("frame_skip")
        steps = []
        if isinstance(levels, int) and levels > 1:
            steps.append(f"round each component to the nearest of {levels} evenly spaced values, from bound to bound")
        if isinstance(held, int) and held > 1:
            steps.append(f"give each action to {held} steps of the environment, and ask the policy again after them")
        return f"Whoever runs it outside its task must do what that did: {'; '.join(steps)}." if steps else ""

    def description(self) -> dict[str, Any]:
        """Return all but the arrays as JSON values: the content of policy.json."""
        batch = self.reference_batch
        normalized = {} if batch is None else {"reference_batch_hash": array_hash(batch)}
        return {
            "format": FORMAT,
            "pyes": lookup.version("pyes-rl"),
            "seed": self.seed,
            "generation": self.generation,
            "theta_hash": theta_hash(self.theta),
            "task": self.task,
            "network": self.network,
            "spec": self.spec.to_dict(),
            **({} if self.encoder is None else {"observation": self.encoder.to_dict()}),
            **normalized,
        }


def _vector(name: str, array: Any, size: int) -> Any:
    """Return a read-only copy as float32 (size,); None stays None."""
    if array is None:
        return None
    vector = np.array(array, np.float32)
    if vector.shape != (size,):
        raise ValueError(f"{name} has shape {vector.shape}, expected ({size},)")
    vector.flags.writeable = False
    return vector


def _states(state: NDArray[np.float32] | None, n: int, size: int) -> NDArray[np.float32]:
    """Return a copy of the states of n episodes, float32 (n, size); zeros for None."""
    if state is None:
        return np.zeros((n, size), np.float32)
    found = np.shape(state)
    if found not in ([(n, size), (size,)] if n == 1 else [(n, size)]):
        raise ValueError(
            f"state has shape {found}, expected {(n, size)}: what predict returned for as many observations"
        )
    return np.array(state, np.float32).reshape(n, size)


def _reason(error: Exception) -> str:
    """Return the error's message as one line."""
    text = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return " ".join(text.split()) or type(error).__name__
