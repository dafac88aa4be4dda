"""What every algorithm is: ask, tell, and a state that can be saved.

Owns the generation, the population that is being evaluated, and perturbations from the noise table. Must not know any
algorithm. Invariant: equal settings, seed and returns give equal bytes of theta on every machine.

An algorithm is a subclass with its settings as `Config`, and two methods: `_draw` makes the members of a generation,
`_learn` moves theta by their returns. ``docs/howto/own_algorithm.md`` shows one.
"""

import copy
import dataclasses
import inspect
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Concatenate, ParamSpec, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms.population import Population, Vector
from pyes.config import AlgorithmConfig, OptimizerForm, refusal, schedules
from pyes.config.section import AtLeastOne, Range, Seed, parse
from pyes.errors import ConfigError, DivergedError
from pyes.numerics import shaping, streams
from pyes.numerics.noise import NoiseTable, few_entries

_Self = TypeVar("_Self")
_Keywords = ParamSpec("_Keywords")


@dataclass(frozen=True)
class Common:
    """Arguments of every algorithm's constructor beside theta and the settings; see `accepts`."""

    table: NoiseTable | None = None
    _: KW_ONLY
    seed: int = 0
    threads: int = 1


@dataclass(frozen=True, kw_only=True)
class Optimized(Common):
    """Arguments of the constructors of algorithms that an optimiser moves theta for."""

    optimizer: OptimizerForm | None = None


def accepts(
    arguments: Callable[_Keywords, Any],
) -> Callable[[Callable[Concatenate[_Self, Vector, ...], None]], Callable[Concatenate[_Self, Vector, _Keywords], None]]:
    """Tell type checkers and editors that a constructor takes theta and, by keyword, the fields of a dataclass.

    Parameters
    ----------
    arguments : dataclass
        Derived from the algorithm's `Config` and from `Common`.
    """
    return lambda constructor: constructor


class Algorithm(ABC):
    """Proposes members and learns from their returns.

    Parameters
    ----------
    theta : float32 (dim,)
        Where to start; copied.
    table : NoiseTable
        Source of the perturbations; None builds a private one. Not used where members are vectors of their own.
    seed : int
        Decides, with the returns, every number of the run.
    threads : int
        For large sums; the result does not depend on it.
    **settings
        The fields of `Config`.

    Attributes
    ----------
    theta : float32 (dim,)
        The center: the policy that the run has reached.
    generation : int
        Number of the generation that is asked for and told next.
    timesteps : int
        Told so far: what schedules count.
    population_size : int
        Members of that generation; may be changed between generations where `Config.grows` and it has no schedule.
    sigma, learning_rate, gradient_norm : float or None
        Of that generation; None where the algorithm has none. One that has no schedule stays as it is set, and is not
        part of the saved state.

    Raises
    ------
    ConfigError
        An impossible setting, a theta that is no vector of finite numbers, or a table that is no `NoiseTable`, or has
        fewer than two slices.
    """

    #: Settings: a frozen dataclass that derives from `AlgorithmConfig`.
    Config: ClassVar[type[AlgorithmConfig]]
    #: Name in the registry of the algorithms; "" outside of it.
    kind: ClassVar[str] = ""
    #: Name in plots and tables.
    title: ClassVar[str] = ""
    #: Names of the attributes, beside theta, that change from generation to generation: the saved state.
    saved: ClassVar[tuple[str, ...]] = ()

    sigma: float | None = None
    learning_rate: float | None = None
    gradient_norm: float | None = None
    _restarted = False  # set by an algorithm whose schedules are to begin anew
    #: Returns theta for another attempt (``restart``) by its first generation; None: the start as it is. Not saved.
    start_of: Callable[[int], Vector] | None = None

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Show the settings in the signature of the constructor, and check `saved`."""
        super().__init_subclass__(**keywords)
        saved: object = cls.saved
        if isinstance(saved, str):
            raise TypeError(f"{cls.__name__}.saved: got the string {saved!r}, expected a tuple of names, as ('m',)")
        if dataclasses.is_dataclass(getattr(cls, "Config", None)):
            cls.__signature__ = _signature(cls)  # type: ignore[attr-defined]

    def __init__(
        self, theta: Vector, table: NoiseTable | None = None, *, seed: int = 0, threads: int = 1, **settings: Any
    ) -> None:
        self.config = parse(self.Config, settings, AlgorithmConfig.PATH)
        if not isinstance(table, NoiseTable | None):  # other libraries have sigma in this place
            raise refusal("table", table, "a NoiseTable or None; settings are named: sigma=0.3")
        self.theta = checked_theta(theta)
        self.generation = 0
        self._population_size: int = self.config.population_min
        self._seed = parse(Annotated[int, Seed], seed, "seed")
        self._threads = parse(Annotated[int, AtLeastOne], threads, "threads")
        self.timesteps = 0
        self._attempt = (0, 0)  # generation and timesteps at which the schedules began
        self._schedules = schedules(self.config)
        if sigma := self._schedules.get("sigma"):  # before training, rather than when it gets there
            standard_deviations([each for each in (sigma.smallest, sigma.largest) if math.isfinite(each)])
        self._adjust()
        # Those that are constant have their value, for a run or a user may change it.
        self._schedules = {name: each for name, each in self._schedules.items() if each.kind != "constant"}
        self._population: Population | None = None
        if self.config.on_table:
            dim = len(self.theta)
            self._table = NoiseTable(few_entries(dim), seed=0) if table is None else table
            self._bound = self._table.offset_bound(dim)

    # Generations

    @property
    def population_size(self) -> int:
        """Members of the generation that is asked for next."""
        return self._population_size

    @population_size.setter
    def population_size(self, size: int) -> None:
        if "population_size" in self._schedules:
            raise ConfigError(
                f"algorithm.population_size: got {size}, expected none to be set: its schedule is "
                f"{self.config.population_size}"
            )
        if not self.config.grows and size != self._population_size:
            raise ConfigError(
                f"algorithm.population_size: got {size} after {self._population_size}, expected one size for all "
                f"generations of {type(self).__name__}"
            )
        self._population_size = parse(Annotated[int, Range(minimum=2)], size, "algorithm.population_size")

    def ask(self) -> Population:
        """Return the members of the current generation; asking twice gives the same."""
        if self._population is None:
            self._population = self._draw()
        return self._population

    def member(self, index: int) -> Vector:
        """Return theta of one member of the current generation: float32 (dim,), a new array."""
        theta: Vector = self.members((index,))[0]
        return theta

    def members(self, indices: Sequence[int] | None = None) -> NDArray[np.float32]:
        """Return theta of some members of the current generation, or of all: float32 (n, dim), a new array."""
        population, table = self.ask(), self._table.array if self.config.on_table else None
        indices = range(len(population)) if indices is None else indices
        thetas = np.empty((len(indices), len(self.theta)), np.float32)
        for theta, index in zip(thetas, indices, strict=True):
            population.member(index, table).write(theta)
        return thetas

    def tell(
        self,
        returns: NDArray[np.float64] | list[float],
        behaviours: NDArray[np.float32] | None = None,
        *,
        timesteps: int | None = None,
    ) -> None:
        """Learn from the returns of all members, in member order, and go on to the next generation.

        Whether `ask` was called makes no difference: a second call learns from the returns of the next members.

        Parameters
        ----------
        returns : (n,)
            Not finite where a member failed: NaN and both infinities mean the same.
        behaviours : (n, size)
            What characterises each member, for algorithms that need it.
        timesteps : int
            What the generation took, for schedules; None: one a member, as function evaluations.

        Raises
        ------
        ValueError
            The returns are not one number a member, or timesteps are negative.
        DivergedError
            Theta, or what the algorithm needs to go on from it, is not finite any more. Theta is as it was before; what
            else was learned is not, so a search ends here.
        """
        population = self.ask()
        returns = _as_numbers(returns, len(population))
        if returns.shape != (len(population),):
            raise ValueError(f"returns: got shape {returns.shape}, expected ({len(population)},), one a member")
        took = len(population) if timesteps is None else operator.index(timesteps)
        if took < 0:
            raise ValueError(f"timesteps: got {timesteps}, expected an integer >= 0")
        before = self.theta.copy()
        with np.errstate(all="ignore"):  # what comes of it is looked at below
            self._learn(population, shaping.failed_as_nan(returns))
            try:
                self._check_finite()
            except DivergedError:
                self.theta[:] = before
                raise
        self._population = None
        self.generation += 1
        self.timesteps += took
        if self._restarted:
            self._attempt, self._restarted = (self.generation, self.timesteps), False
        self._adjust()

    @property
    def progress(self) -> tuple[int, int]:
        """Generations and timesteps that schedules count: those of the attempt, where a search can begin again."""
        return self.generation - self._attempt[0], self.timesteps - self._attempt[1]

    def _adjust(self) -> None:
        """Give each scheduled setting its value in the current generation."""
        norms = [each for each in self._schedules.values() if each.kind == "norm"]
        rms = root_mean_square(self.theta) if norms else 0.0
        for name, each in self._schedules.items():
            value = each.at(*self.progress, rms)
            if name == "population_size":
                self._population_size = self.config.size_of(value)
            else:
                setattr(self, name, value)

    def _learned(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Yield the names and numbers of what was learned: once one of them is not finite, nothing can follow."""
        yield "theta", self.theta

    def _check_finite(self) -> None:
        for name, numbers in self._learned():
            known = np.isfinite(numbers)
            if not known.all():
                what = "that have a maximum" if self.config.relative else "of a smaller scale"
                raise DivergedError(
                    f"generation {self.generation}: its update was too large, {name} has a value of "
                    f"{numbers[~known][0]}; start again with smaller steps, or with returns {what} (to resume a run "
                    "repeats the update); the centers up to this one can be evaluated"
                )

    @abstractmethod
    def _draw(self) -> Population:
        """Return the members of the current generation."""

    @abstractmethod
    def _learn(self, population: Population, returns: NDArray[np.float64]) -> None:
        """Move theta in place, and change whatever else the algorithm keeps."""

    # For subclasses: members that are perturbations of theta

    def offsets(self, count: int) -> NDArray[np.int64]:
        """Draw where ``count`` slices of the noise table begin in this generation: int64 (count,).

        Raises
        ------
        ConfigError
            `Config.on_table` is False.
        """
        if not self.config.on_table:
            raise ConfigError(
                f"{type(self).__name__}: its members are no perturbations, for its Config.on_table is False"
            )
        return streams.offsets(self._seed, self.generation, count, self._bound)

    def perturbed(
        self, scale: float | Sequence[float], *, mirrored: bool = False, deviation: Vector | None = None
    ) -> Population:
        """Return ``population_size`` members: theta, each plus ``scale`` times a slice of the noise table.

        Parameters
        ----------
        scale : float or sequence
            Standard deviation of the perturbations, or one for each member; 0 gives theta itself.
        mirrored : bool
            Members 2k and 2k + 1 have the same slice, with opposite signs.
        deviation : float32 (dim,)
            Factor of each parameter of a slice; None stands for 1.

        Raises
        ------
        ConfigError
            ``population_size`` is odd and members are mirrored, `Config.on_table` is False, or a scale is not
            finite, or too small, as a float32.
        """
        size = self.population_size
        scales = standard_deviations(np.broadcast_to(scale, (size,)))
        if mirrored:
            if size % 2:
                raise ConfigError(f"algorithm.population_size: got {size}, expected an even number, for mirrored pairs")
            scales[1::2] *= -1
        offsets = np.repeat(self.offsets(size // 2), 2) if mirrored else self.offsets(size)
        # Copies: a population stays what it was when theta moves on.
        deviation = None if deviation is None else deviation.copy()
        return Population.around(self.generation, self.theta.copy(), offsets, scales, deviation)

    # The state as values

    def state_dict(self) -> dict[str, Any]:
        """Return what changes from generation to generation, and the seed, as arrays and numbers; a copy.

        An algorithm of the same settings, optimiser, seed and noise table goes on from it.
        """
        state = {"theta": self.theta.copy(), "generation": self.generation, "population_size": self.population_size}
        state |= {"timesteps": self.timesteps, "attempt": list(self._attempt), "seed": self._seed, "kind": self.kind}
        for name in self.saved:
            value = getattr(self, name)
            state[name.lstrip("_")] = value.state_dict() if hasattr(value, "state_dict") else copy.deepcopy(value)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state.

        Raises
        ------
        ConfigError
            It is of another algorithm, seed, size of theta or optimiser, or lacks what this algorithm saves; nothing is
            changed.
        """
        self._check_saved(state)
        values = {name: state[name.lstrip("_")] for name in self.saved}
        parts = {name for name in self.saved if hasattr(getattr(self, name), "load_state_dict")}
        for name in parts:  # first, for they may refuse it
            getattr(self, name).load_state_dict(values[name])
        for name in values.keys() - parts:
            setattr(self, name, copy.deepcopy(values[name]))
        self._population = None
        self.theta[:] = state["theta"]
        self.generation, self._population_size = int(state["generation"]), int(state["population_size"])
        self.timesteps, (began, at) = int(state["timesteps"]), state["attempt"]
        self._attempt = int(began), int(at)
        self._adjust()

    def _check_saved(self, state: dict[str, Any], *keys: str, vector: str = "theta") -> None:
        """Refuse the state of another search: it needs ``keys`` beside those in `saved`, and is of theta's size."""
        if (kind := state.get("kind", self.kind)) != self.kind:
            raise ConfigError(f"state: got one of algorithm={kind}, expected one of {type(self).__name__}")
        common = ("generation", "population_size", "timesteps", "attempt", "seed")
        for key in (vector, *common, *keys, *(name.lstrip("_") for name in self.saved)):
            if key not in state:
                raise ConfigError(f"state: got one without {key}, expected one of {type(self).__name__}")
        if state["seed"] != self._seed:
            raise ConfigError(f"seed: got {self._seed}, expected {state['seed']}, with which the state was saved")
        shape = np.shape(state[vector])
        if shape != self.theta.shape:
            raise ConfigError(f"theta: got shape {self.theta.shape}, expected {shape} as it was saved")


def checked_theta(theta: Any) -> Vector:
    """Return a copy of theta; ConfigError unless it is a vector of finite numbers."""
    try:
        given = np.asarray(theta)
        if np.iscomplexobj(given):
            raise TypeError("complex numbers")
        with np.errstate(over="ignore"):  # an infinity is refused below
            found = given.astype(np.float32)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise ConfigError(
            f"theta: got a {type(theta).__name__} ({error}), expected a vector of finite numbers"
        ) from error
    if found.ndim != 1 or not len(found):
        raise ConfigError(f"theta: got shape {found.shape}, expected (dim,) with dim >= 1")
    if not np.isfinite(found).all():
        raise ConfigError(f"theta: got {found[~np.isfinite(found)][0]} in it, expected finite numbers")
    return found


def standard_deviations(values: Any) -> NDArray[np.float32]:
    """Return numbers as float32, a copy; ConfigError where one is not finite then, or is 0 and was not."""
    given = np.atleast_1d(values)
    with np.errstate(over="ignore"):
        found = given.astype(np.float32)
    lost = ~np.isfinite(found) | ((found == 0) & (given != 0))
    if lost.any():
        raise ConfigError(
            f"algorithm.sigma: got {given[lost][0]}, expected a number that a float32 can hold: 1e-45 to 3e38"
        )
    return found


def _as_numbers(returns: Any, count: int) -> NDArray[np.float64]:
    """Return the returns of ``count`` members as float64; ValueError if they cannot be."""
    try:
        given = np.asarray(returns)
        if np.iscomplexobj(given):
            raise TypeError("complex numbers")
        if given.dtype.kind in "OSU" and any(each is None or isinstance(each, str | bytes) for each in given.flat):
            raise TypeError("None or a text in it")  # which would become NaN, a member that failed
        found: NDArray[np.float64] = given.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        kind = type(returns).__name__
        raise ValueError(f"returns: got a {kind} ({error}), expected {count} numbers, one a member") from error
    return found


def root_mean_square(theta: Vector) -> float:
    """Return the root mean square of a vector, with equal bits on every machine."""
    squares = theta.astype(np.float64) ** 2
    return math.sqrt(shaping.ordered_sum(squares) / len(squares))


def _signature(cls: type[Algorithm]) -> inspect.Signature:
    """Return the constructor's arguments with the settings by name, for ``help`` and interactive editors."""
    _, *own = inspect.signature(cls.__init__).parameters.values()
    positional = {each.name: each for each in own if each.kind < each.VAR_POSITIONAL}
    named: dict[str, inspect.Parameter] = {}
    for base in reversed([each for each in cls.mro() if issubclass(each, Algorithm)]):  # among the **settings of cls
        found = inspect.signature(base.__init__).parameters
        named |= {name: each for name, each in found.items() if each.kind is each.KEYWORD_ONLY}
    hints = get_type_hints(cls.Config)
    for name, each in inspect.signature(cls.Config).parameters.items():
        if name not in ("name", "factory"):  # decided by the class
            named.setdefault(name, each.replace(kind=each.KEYWORD_ONLY, annotation=hints[name]))
    return inspect.Signature([*positional.values(), *(named[name] for name in named if name not in positional)])
