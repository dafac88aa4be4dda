"""Settings of the algorithms, one class each, and of the optimisers that some of them move theta with."""

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pyes.config.adaptation import RestartConfig
from pyes.config.section import (
    JSON_MAPPING,
    AtLeastOne,
    NotNegative,
    Positive,
    Range,
    Section,
    Share,
    is_json,
    parse,
    refusal,
)
from pyes.system.text import literal


@dataclass(frozen=True)
class AlgorithmConfig(Section):
    """What all algorithms have; each has a class of its own with its name and its keys."""

    PATH = "algorithm"
    ELSEWHERE = dict.fromkeys(
        ("growth", "averaging", "episode_limit"),
        "it is a section of a run, beside algorithm, and not available to ask-and-tell or pyes.maximize",
    )
    #: Class of each algorithm, by name.
    KINDS: ClassVar[dict[str, "type[AlgorithmConfig]"]] = {}
    #: Whether an optimiser moves theta.
    optimized: ClassVar[bool] = True
    #: Optimiser of a run that names none.
    default_optimizer: ClassVar[str] = "adam"
    #: Whether perturbations come from the noise table.
    on_table: ClassVar[bool] = True
    #: Whether it learns from behaviours, too.
    needs_behaviours: ClassVar[bool] = False
    #: Whether one generation may have more members than another: see `pyes.config.GrowthConfig`.
    may_grow: ClassVar[bool] = False
    #: Whether every parameter has a sigma of its own.
    scaled: ClassVar[bool] = False
    #: Distributions of other projects that decide its numbers.
    packages: ClassVar[tuple[str, ...]] = ()

    name: str = ""
    population_size: Annotated[int, Range(minimum=2)] = 40  # members evaluated, mirrored ones counted

    def __init_subclass__(cls) -> None:
        """Enter the class of an algorithm under its name."""
        if "name" in vars(cls):
            cls.KINDS[cls.name] = cls

    @classmethod
    def kind(cls, values: Mapping[str, Any]) -> type[Section]:
        """Return the class of the algorithm that is named; OpenAI-ES when none is."""
        if cls is not AlgorithmConfig:
            return cls
        name = values.get("name", OpenAIESConfig.name)
        if not isinstance(name, str) or name not in cls.KINDS:
            raise refusal("algorithm.name", name, f"one of {', '.join(map(repr, sorted(cls.KINDS)))}")
        return cls.KINDS[name]

    @property
    def pairs(self) -> bool:
        """Whether members 2i and 2i + 1 are a mirrored pair."""
        return False

    def capacity(self, population_size: int) -> int:
        """Return how many members a generation with this population size has at most."""
        return population_size

    @property
    def bases(self) -> int:
        """Most vectors that the members of one generation are perturbations of; see `pyes.algorithms.population`."""
        return 1

    def check(self) -> None:
        """Refuse an odd mirrored population."""
        self.check_even("algorithm.population_size", self.population_size)

    def check_even(self, key: str, population_size: int) -> None:
        """Refuse an odd number of mirrored members, which a key gives."""
        if not (self.pairs and population_size % 2):
            return
        expected = f"an even number with algorithm.name={self.name}, whose members are mirrored pairs"
        if hasattr(self, "mirrored"):
            expected = "an even number with algorithm.mirrored=true (or algorithm.mirrored=false)"
        raise refusal(key, population_size, expected)

    def _check_floor(self, key: str) -> None:
        """Refuse a schedule that would stop above where it starts."""
        floor, start = getattr(self, f"{key}_min"), getattr(self, key)
        if floor > start:
            raise refusal(f"algorithm.{key}_min", floor, f"at most algorithm.{key}, which is {start}")

    def check_optimizer(self, optimizer: "OptimizerConfig") -> None:
        """Refuse settings of an optimiser where there is none.

        Raises
        ------
        ConfigError    one differs from its default, though the algorithm moves theta by itself
        """
        default = OptimizerConfig()
        # What other rules read has no effect beside Adam: so optimizer=adam is enough where an experiment sets them.
        for key in ("name", "beta1", "beta2", "epsilon"):
            if not self.optimized and getattr(optimizer, key) != getattr(default, key):
                expected = f"{literal(getattr(default, key))} with algorithm.name={self.name}, which has no optimiser"
                raise refusal(f"optimizer.{key}", getattr(optimizer, key), expected)


@dataclass(frozen=True)
class ScheduledConfig(AlgorithmConfig):
    """What algorithms have whose sigma and learning rate are the same for all parameters, and may shrink."""

    may_grow: ClassVar[bool] = True

    sigma: Annotated[float, Positive] = 0.3
    sigma_decay: Annotated[float, Share] = 1.0  # factor a generation
    sigma_min: Annotated[float, NotNegative] = 0.0
    learning_rate: Annotated[float, Positive] = 0.1
    learning_rate_decay: Annotated[float, Share] = 1.0  # factor a generation
    learning_rate_min: Annotated[float, NotNegative] = 0.0

    def check(self) -> None:
        """Refuse floors above where the schedules start."""
        super().check()
        for key in ("sigma", "learning_rate"):
            self._check_floor(key)


@dataclass(frozen=True)
class GradientConfig(ScheduledConfig):
    """How the perturbations around a center are sampled, and how their weighted sum moves it."""

    weight_decay: Annotated[float, NotNegative] = 0.0
    weight_decay_mode: Literal["decoupled", "classic"] = "decoupled"
    mirrored: bool = True  # members 2i and 2i + 1 are theta + sigma * eps and theta - sigma * eps

    @property
    def pairs(self) -> bool:
        """Whether members 2i and 2i + 1 are a mirrored pair."""
        return self.mirrored


@dataclass(frozen=True)
class OpenAIESConfig(GradientConfig):
    """OpenAI's evolution strategy: what the weights are, and when to begin again."""

    name: Literal["openai_es"] = "openai_es"
    shaping: Literal["centered_ranks", "z_score", "none"] = "centered_ranks"
    restart: RestartConfig = field(default_factory=RestartConfig)


@dataclass(frozen=True)
class NoveltyConfig(GradientConfig):
    """What the three kinds of novelty search share: some centers, and an archive of what they did."""

    needs_behaviours: ClassVar[bool] = True

    parents: Annotated[int, AtLeastOne] = 5  # centers, of which one moves in a generation
    neighbours: Annotated[int, AtLeastOne] = 10  # of the archive, to whom the mean distance is the novelty

    def capacity(self, population_size: int) -> int:
        """Return how many members a generation has at most: the first one has every center as well."""
        return population_size + self.parents

    @property
    def bases(self) -> int:
        """Most vectors that the members of one generation are perturbations of; see `pyes.algorithms.population`."""
        return self.parents


@dataclass(frozen=True)
class NSESConfig(NoveltyConfig):
    """NS-ES: novelty alone."""

    name: Literal["ns_es"] = "ns_es"


@dataclass(frozen=True)
class NSRESConfig(NoveltyConfig):
    """NSR-ES: returns and novelty, one half each."""

    name: Literal["nsr_es"] = "nsr_es"


@dataclass(frozen=True)
class NSRAESConfig(NoveltyConfig):
    """NSRA-ES: returns and novelty, more of novelty while the best return stays what it is."""

    name: Literal["nsra_es"] = "nsra_es"
    return_weight: Annotated[float, Range(0, 1)] = 1.0  # share of the returns, at first
    return_weight_step: Annotated[float, Share] = 0.05  # more on a new best return, less ...
    return_weight_patience: Annotated[int, AtLeastOne] = 50  # ... after as many generations without one


@dataclass(frozen=True)
class ARSConfig(ScheduledConfig):
    """Augmented random search: mirrored pairs, of which the best decide the step."""

    optimized: ClassVar[bool] = False

    name: Literal["ars"] = "ars"
    sigma: Annotated[float, Positive] = 0.05
    learning_rate: Annotated[float, Positive] = 0.02
    weight_decay: Annotated[float, NotNegative] = 0.0
    top: Annotated[int, AtLeastOne] | None = None  # pairs that the step is made of, the best ones; None: all

    @property
    def pairs(self) -> bool:
        """Whether members 2i and 2i + 1 are a mirrored pair."""
        return True

    def check(self) -> None:
        """Refuse to keep more pairs than there are."""
        super().check()
        if self.top is not None and self.top > self.population_size // 2:
            expected = f"at most {self.population_size // 2}, the mirrored pairs of algorithm.population_size"
            raise refusal("algorithm.top", self.top, expected)


@dataclass(frozen=True)
class PGPEConfig(AlgorithmConfig):
    """Policy gradients with parameter-based exploration: mirrored pairs, and a sigma of each parameter."""

    may_grow: ClassVar[bool] = True
    scaled: ClassVar[bool] = True
    default_optimizer: ClassVar[str] = "clipup"

    name: Literal["pgpe"] = "pgpe"
    sigma: Annotated[float, Positive] = 0.3  # of every parameter, at first
    sigma_learning_rate: Annotated[float, NotNegative] = 0.1
    sigma_max_change: Annotated[float, Range(0, 1, open_maximum=True)] = 0.2  # share of sigma, a generation
    learning_rate: Annotated[float, Positive] = 0.15
    shaping: Literal["centered_ranks", "z_score", "none"] = "centered_ranks"

    @property
    def pairs(self) -> bool:
        """Whether members 2i and 2i + 1 are a mirrored pair."""
        return True


@dataclass(frozen=True)
class SNESConfig(AlgorithmConfig):
    """Separable natural evolution strategies: a sigma of each parameter, moved by natural gradients."""

    optimized: ClassVar[bool] = False
    scaled: ClassVar[bool] = True

    name: Literal["snes"] = "snes"
    sigma: Annotated[float, Positive] = 0.3  # of every parameter, at first
    learning_rate: Annotated[float, Positive] = 1.0  # of theta, in units of sigma
    sigma_learning_rate: Annotated[float, NotNegative] | None = None  # None: (3 + ln dim) / (5 sqrt dim)


@dataclass(frozen=True)
class GAConfig(AlgorithmConfig):
    """The genetic algorithm: who has offspring, and how that differs from its parent."""

    optimized: ClassVar[bool] = False

    name: Literal["ga"] = "ga"
    sigma: Annotated[float, Positive] = 0.1  # standard deviation of a mutation
    sigma_decay: Annotated[float, Share] = 1.0  # factor a generation
    sigma_min: Annotated[float, NotNegative] = 0.0
    parents: Annotated[int, AtLeastOne] = 4  # the best of a generation, which have offspring in the next
    elites: Annotated[int, AtLeastOne] = 1  # the best of a generation, which are evaluated again in the next

    @property
    def bases(self) -> int:
        """Most vectors that the members of one generation are perturbations of; see `pyes.algorithms.population`."""
        return self.parents

    def check(self) -> None:
        """Refuse more parents than members, more elites than parents, and a floor above where sigma starts."""
        super().check()
        if self.parents > self.population_size:
            expected = f"at most algorithm.population_size, which is {self.population_size}"
            raise refusal("algorithm.parents", self.parents, expected)
        if self.elites > self.parents or self.elites == self.population_size:
            most = min(self.parents, self.population_size - 1)
            expected = f"at most {most}: elites are parents, and not the whole population"
            raise refusal("algorithm.elites", self.elites, expected)
        self._check_floor("sigma")


@dataclass(frozen=True)
class LibraryConfig(AlgorithmConfig):
    """What the algorithms of other libraries share: their members are vectors of their own."""

    optimized: ClassVar[bool] = False
    on_table: ClassVar[bool] = False

    @property
    def bases(self) -> int:
        """Most vectors that the members of one generation are perturbations of; see `pyes.algorithms.population`."""
        return self.population_size


@dataclass(frozen=True)
class CMAESConfig(LibraryConfig):
    """CMA-ES of pycma: its distribution at the start, and the kind of its covariance matrix."""

    packages: ClassVar[tuple[str, ...]] = ("cma",)

    name: Literal["cma_es"] = "cma_es"
    population_size: Annotated[int, Range(minimum=4)] = 40
    sigma: Annotated[float, Positive] = 0.3  # standard deviation of every parameter at the start
    covariance: Literal["auto", "full", "diagonal", "vd", "vkd"] = "auto"  # auto: full up to 2,000 parameters
    options: dict[str, Any] = field(default_factory=dict)  # of pycma's CMAOptions

    def check(self) -> None:
        """Refuse options that a run's configuration cannot hold."""
        super().check()
        if not is_json(self.options):
            raise refusal("algorithm.options", self.options, JSON_MAPPING)
        for key, value in self.options.items():
            if isinstance(value, str):  # pycma would evaluate it as an expression
                raise refusal(f"algorithm.options.{key}", value, "no text: a number, true, false, null or a list")


@dataclass(frozen=True)
class NevergradConfig(LibraryConfig):
    """An optimiser of Nevergrad's registry: which one, and where it starts."""

    packages: ClassVar[tuple[str, ...]] = ("nevergrad", "cma", "scipy")

    name: Literal["nevergrad"] = "nevergrad"
    optimizer: str = "ES"  # any name of Nevergrad's registry
    sigma: Annotated[float, Positive] = 0.3  # with init=theta: unit of the search, a standard deviation
    init: Literal["theta", "own"] = "theta"  # own: Nevergrad's, which is 0 and a unit of 1
    budget: Annotated[int, AtLeastOne] | None = None  # evaluations, for optimisers that plan by it


def algorithm_config(values: Mapping[str, Any]) -> AlgorithmConfig:
    """Check the settings of the algorithm that they name; keys left out take their defaults.

    Raises
    ------
    ConfigError    an unknown name or key, a wrong type or an impossible value
    """
    return typing.cast(AlgorithmConfig, parse(AlgorithmConfig, values, AlgorithmConfig.PATH))


@dataclass(frozen=True)
class OptimizerConfig(Section):
    """The rule that turns a gradient into a step; each rule reads its own keys."""

    PATH = "optimizer"

    name: Literal["adam", "sgd", "clipup"] = "adam"
    beta1: Annotated[float, Range(0, 1, open_maximum=True)] = 0.9  # adam
    beta2: Annotated[float, Range(0, 1, open_maximum=True)] = 0.999  # adam
    epsilon: Annotated[float, Positive] = 1e-8  # adam
    momentum: Annotated[float, Range(0, 1, open_maximum=True)] = 0.9  # sgd, clipup
    max_speed: Annotated[float, Positive] = 0.3  # clipup: longest step
