"""What the settings of all algorithms have in common, and the settings of the rules that some of them move theta by.

Owns what others may know of an algorithm without making it. The settings of each algorithm lie beside its class, in
`pyes.algorithms` or in another package.
"""

import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal

from pyes.config.registry import ALGORITHMS
from pyes.config.section import Positive, Range, Section, parse, refusal
from pyes.errors import ConfigError
from pyes.system.text import literal

#: The algorithm of a configuration that names none.
_DEFAULT = "openai_es"


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(Section):
    """Base of every algorithm's settings; what it says of the algorithm beside its keys may be overridden."""

    PATH = "algorithm"
    ELSEWHERE = dict.fromkeys(
        ("growth", "averaging", "episode_limit"),
        "it is a section of a run, beside algorithm, and not available to ask-and-tell or pyes.maximize",
    )
    #: Whether an optimiser moves theta; then the constructor takes one.
    optimized: ClassVar[bool] = False
    #: Optimiser of a run that names none.
    default_optimizer: ClassVar[str] = "adam"
    #: Whether perturbations come from the noise table.
    on_table: ClassVar[bool] = True
    #: Whether generations may differ in size; see `pyes.config.GrowthConfig`.
    grows: ClassVar[bool] = False
    #: Whether it learns from behaviours, too.
    needs_behaviours: ClassVar[bool] = False
    #: Whether every parameter has a sigma of its own.
    scaled: ClassVar[bool] = False
    #: Distributions of other projects that decide its numbers.
    packages: ClassVar[tuple[str, ...]] = ()

    name: str = ""
    factory: str | None = None  # PACKAGE:CLASS of an algorithm of the user's own
    population_size: Annotated[int, Range(minimum=2)] = 40  # members evaluated, mirrored ones counted

    @classmethod
    def kind(cls, values: Mapping[str, Any]) -> type[Section]:
        """Return the settings' class of the algorithm that is named."""
        if cls is not AlgorithmConfig:
            return cls
        config: type[Section] = algorithm_class(values.get("name", _DEFAULT), values.get("factory")).Config
        return config

    @property
    def pairs(self) -> bool:
        """Whether members 2k and 2k + 1 are a mirrored pair."""
        return False

    def capacity(self, population_size: int) -> int:
        """Return how many members a generation with this population size has at most."""
        return population_size

    @property
    def bases(self) -> int:
        """Most vectors that the members of one generation are perturbations of; see `pyes.Population`."""
        return 1 if self.on_table else self.population_size

    def is_fixed(self, key: str) -> bool:
        """Return whether a run cannot go on with another value of a setting, not even with ``force=true``."""
        return False

    def starts(self, before: "AlgorithmConfig") -> dict[str, Any]:
        """Return the starting value of each setting that differs from those before, or whose schedule does."""
        return {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if any(
                getattr(self, key, None) != getattr(before, key, None)
                for key in (each.name, f"{each.name}_decay", f"{each.name}_min")
            )
        }

    def check(self) -> None:
        """Reject an odd mirrored population."""
        self.check_even("algorithm.population_size", self.population_size)

    def check_even(self, key: str, population_size: int) -> None:
        """Reject an odd number of mirrored members, which a key gives."""
        if not (self.pairs and population_size % 2):
            return
        expected = f"an even number with {self.chosen}, whose members are mirrored pairs"
        if hasattr(self, "mirrored"):
            expected = "an even number with algorithm.mirrored=true (or algorithm.mirrored=false)"
        raise refusal(key, population_size, expected)

    @property
    def chosen(self) -> str:
        """How the configuration chooses the algorithm, for messages."""
        return f"algorithm.factory={self.factory}" if self.factory else f"algorithm.name={self.name}"

    def check_optimizer(self, optimizer: "OptimizerConfig") -> None:
        """Refuse settings of an optimiser where there is none.

        Raises
        ------
        ConfigError
            One differs from its default, though the algorithm moves theta by itself.
        """
        default = OptimizerConfig()
        # What other rules read has no effect beside Adam: so optimizer=adam is enough where an experiment sets them.
        for key in ("name", "beta1", "beta2", "epsilon"):
            if not self.optimized and getattr(optimizer, key) != getattr(default, key):
                expected = f"{literal(getattr(default, key))} with {self.chosen}, which has no optimiser"
                raise refusal(f"optimizer.{key}", getattr(optimizer, key), expected)


def algorithm_class(name: object, factory: object = None) -> type[Any]:
    """Return the class of an algorithm: the user's own that ``factory`` names, or the registered one.

    Raises
    ------
    ConfigError
        There is no such algorithm, or its class is not one.
    """
    if factory is None:
        kind: type[Any] = ALGORITHMS.get(name)
    else:
        kind = ALGORITHMS.from_factory(factory, "a PACKAGE:CLASS, for example my_algorithms:OnePlusOne")
    if not issubclass(kind.Config, AlgorithmConfig):
        which = f"algorithm.name={name}" if factory is None else f"algorithm.factory={factory}"
        raise ConfigError(f"{which}: its Config must derive from pyes.AlgorithmConfig, the keys of every algorithm")
    return kind


def algorithm_config(values: Mapping[str, Any]) -> AlgorithmConfig:
    """Check the settings of the algorithm that they name; keys left out take their defaults.

    Raises
    ------
    ConfigError
        An unknown name or key, a wrong type or an impossible value.
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
