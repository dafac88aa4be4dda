"""Settings of the algorithms, one class each, and of the optimisers that some of them move theta with."""

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pyes.config.section import AtLeastOne, NotNegative, Positive, Range, Section, Share, parse, refusal


@dataclass(frozen=True)
class EpisodeLimitConfig(Section):
    """A limit on training episodes that grows as members come to reach it."""

    PATH = "algorithm.episode_limit"

    initial: Annotated[int, AtLeastOne] | None = None  # timesteps; None: no limit but the task's own
    threshold: Annotated[float, Share] = 0.2  # the limit grows when this share of the members reached it ...
    growth: Annotated[float, Range(minimum=1, open_minimum=True)] = 1.5  # ... by this factor


@dataclass(frozen=True)
class RestartConfig(Section):
    """When an attempt is given up, and the search begins again."""

    PATH = "algorithm.restart"

    after: Annotated[int, AtLeastOne] | None = None  # generations of an attempt; None: never
    below: float = 0.0  # mean return of that generation, reward offset included


@dataclass(frozen=True)
class AlgorithmConfig(Section):
    """What all algorithms have; each has a class of its own with its name and its keys."""

    PATH = "algorithm"
    #: Class of each algorithm, by name.
    KINDS: ClassVar[dict[str, "type[AlgorithmConfig]"]] = {}

    name: str = ""
    population_size: Annotated[int, Range(minimum=2)] = 40  # members evaluated, mirrored ones counted
    episode_limit: EpisodeLimitConfig = field(default_factory=EpisodeLimitConfig)

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

    @property
    def on_table(self) -> bool:
        """Whether perturbations come from the noise table."""
        return True

    @property
    def capacity(self) -> int:
        """Most members of one generation."""
        return self.population_size

    @property
    def bases(self) -> int:
        """Most vectors that the members of one generation are perturbations of; see `pyes.population`."""
        return 1

    @property
    def needs_behaviours(self) -> bool:
        """Whether it learns from behaviours, too."""
        return False

    @property
    def scaled(self) -> bool:
        """Whether every parameter has a sigma of its own."""
        return False


@dataclass(frozen=True)
class GradientConfig(AlgorithmConfig):
    """How the perturbations around a center are sampled, and how their weighted sum moves it."""

    sigma: Annotated[float, Positive] = 0.3
    sigma_decay: Annotated[float, Share] = 1.0  # factor a generation
    sigma_min: Annotated[float, NotNegative] = 0.0
    learning_rate: Annotated[float, Positive] = 0.1
    learning_rate_decay: Annotated[float, Share] = 1.0  # factor a generation
    learning_rate_min: Annotated[float, NotNegative] = 0.0
    weight_decay: Annotated[float, NotNegative] = 0.0
    weight_decay_mode: Literal["decoupled", "classic"] = "decoupled"
    mirrored: bool = True  # members 2i and 2i + 1 are theta + sigma * eps and theta - sigma * eps

    @property
    def pairs(self) -> bool:
        """Whether members 2i and 2i + 1 are a mirrored pair."""
        return self.mirrored

    def check(self) -> None:
        """Refuse an odd mirrored population, and floors above where the schedules start."""
        if self.mirrored and self.population_size % 2:
            raise refusal(
                "algorithm.population_size",
                self.population_size,
                "an even number with algorithm.mirrored=true (or algorithm.mirrored=false)",
            )
        if self.sigma_min > self.sigma:
            raise refusal("algorithm.sigma_min", self.sigma_min, f"at most algorithm.sigma, which is {self.sigma}")
        if self.learning_rate_min > self.learning_rate:
            expected = f"at most algorithm.learning_rate, which is {self.learning_rate}"
            raise refusal("algorithm.learning_rate_min", self.learning_rate_min, expected)


@dataclass(frozen=True)
class OpenAIESConfig(GradientConfig):
    """OpenAI's evolution strategy: how a generation is sampled and how theta moves."""

    name: Literal["openai_es"] = "openai_es"
    shaping: Literal["centered_ranks", "z_score", "none"] = "centered_ranks"
    restart: RestartConfig = field(default_factory=RestartConfig)


@dataclass(frozen=True)
class NoveltyConfig(GradientConfig):
    """What the three kinds of novelty search share: some centers, and an archive of what they did."""

    parents: Annotated[int, AtLeastOne] = 5  # centers, of which one moves in a generation
    neighbours: Annotated[int, AtLeastOne] = 10  # of the archive, to whom the mean distance is the novelty

    @property
    def capacity(self) -> int:
        """Most members of one generation: the perturbations, and in the first one every center."""
        return self.population_size + self.parents

    @property
    def bases(self) -> int:
        """Most vectors that the members of one generation are perturbations of; see `pyes.population`."""
        return self.parents

    @property
    def needs_behaviours(self) -> bool:
        """Whether it learns from behaviours, too."""
        return True


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
class GAConfig(AlgorithmConfig):
    """The genetic algorithm: who has offspring, and how that differs from its parent."""

    name: Literal["ga"] = "ga"
    sigma: Annotated[float, Positive] = 0.1  # standard deviation of a mutation
    sigma_decay: Annotated[float, Share] = 1.0  # factor a generation
    sigma_min: Annotated[float, NotNegative] = 0.0
    parents: Annotated[int, AtLeastOne] = 4  # the best of a generation, which have offspring in the next
    elites: Annotated[int, AtLeastOne] = 1  # the best of a generation, which are evaluated again in the next

    @property
    def bases(self) -> int:
        """Most vectors that the members of one generation are perturbations of; see `pyes.population`."""
        return self.parents

    def check(self) -> None:
        """Refuse more parents than members, more elites than parents, and a floor above where sigma starts."""
        if self.parents > self.population_size:
            expected = f"at most algorithm.population_size, which is {self.population_size}"
            raise refusal("algorithm.parents", self.parents, expected)
        if self.elites > self.parents or self.elites == self.population_size:
            most = min(self.parents, self.population_size - 1)
            expected = f"at most {most}: elites are parents, and not the whole population"
            raise refusal("algorithm.elites", self.elites, expected)
        if self.sigma_min > self.sigma:
            raise refusal("algorithm.sigma_min", self.sigma_min, f"at most algorithm.sigma, which is {self.sigma}")


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
