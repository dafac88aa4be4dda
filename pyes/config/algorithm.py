"""The common settings of all algorithms, and the settings of optimisers.

Owns the properties of an algorithm that are known without making it. The settings of each algorithm are defined beside
its class, in `pyes.algorithms` or in another package.
"""

import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal

from pyes.config.registry import ALGORITHMS
from pyes.config.schedule import Schedule, nearest
from pyes.config.section import AtLeastOne, Positive, Range, Scheduled, Section, parse, refusal
from pyes.errors import ConfigError
from pyes.system.text import literal

#: The default algorithm.
_DEFAULT = "ars"


@dataclass(frozen=True, kw_only=True)
class RestartConfig(Section):
    """When an attempt is given up, and the search begins again."""

    PATH = "algorithm.restart"

    after: Annotated[int, AtLeastOne] | None = None  # number of the generation that is judged; None: never
    below: float = 0.0  # mean return of that generation, as the algorithm is told it

    def gives_up(self, generation: int, mean: float) -> bool:
        """Return whether an attempt is given up in this generation of its own, which has this mean return."""
        return generation == self.after and mean < self.below


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(Section):
    """Base of every algorithm's settings; subclasses add keys and override properties of the algorithm."""

    PATH = "algorithm"
    ELSEWHERE = dict.fromkeys(
        ("growth", "averaging", "episode_limit"),
        "it is a section of a run, beside algorithm, and not available to ask-and-tell or pyes.maximize",
    )
    #: Whether an optimiser updates theta; then the constructor takes one.
    optimized: ClassVar[bool] = False
    #: Default optimiser of a run.
    default_optimizer: ClassVar[str] = "adam"
    #: Whether perturbations come from the noise table.
    on_table: ClassVar[bool] = True
    #: Whether generations may differ in size; see `pyes.config.GrowthConfig`.
    grows: ClassVar[bool] = False
    #: Whether it also learns from behaviours.
    needs_behaviours: ClassVar[bool] = False
    #: Whether every parameter has its own sigma.
    scaled: ClassVar[bool] = False
    #: Distributions of other projects whose versions affect its numbers.
    packages: ClassVar[tuple[str, ...]] = ()

    name: str = ""
    factory: str | None = None  # MODULE:CLASS of an algorithm of the user's own
    #: Members evaluated, mirrored ones counted; a schedule only where it ``grows``.
    population_size: Annotated[int | str, Scheduled(Range(minimum=2), whole=True)] = 40

    @classmethod
    def kind(cls, values: Mapping[str, Any]) -> type[Section]:
        """Return the settings' class of the named algorithm."""
        if cls is not AlgorithmConfig:
            return cls
        config: type[Section] = algorithm_class(values.get("name", _DEFAULT), values.get("factory")).Config
        return config

    @classmethod
    def where(cls, key: str) -> str:
        """Return where a key is that this algorithm lacks: in another section, or with other algorithms."""
        return super().where(key) or ALGORITHMS.with_key(key)

    @property
    def pairs(self) -> bool:
        """Whether members 2k and 2k + 1 are a mirrored pair."""
        return False

    @property
    def relative(self) -> bool:
        """Whether it compares a return with others of its generation alone, in whatever unit they are."""
        return False

    @property
    def population_min(self) -> int:
        """Smallest population size that the settings lead to; the only one unless it is scheduled."""
        return self.size_of(Schedule.parse(self.population_size).smallest)

    @property
    def population_max(self) -> int:
        """Largest population size that the settings lead to, growth not counted."""
        return self.size_of(Schedule.parse(self.population_size).largest)

    def size_of(self, value: float) -> int:
        """Return the population size for a value of its schedule: in whole pairs where members are mirrored."""
        return nearest(value, 2 if self.pairs and isinstance(self.population_size, str) else 1)

    def capacity(self, population_size: int) -> int:
        """Return the maximum number of members in a generation with this population size."""
        return population_size

    @property
    def bases(self) -> int:
        """Maximum number of bases of a generation's members; see `pyes.Population`."""
        return 1 if self.on_table else self.population_max

    def is_fixed(self, key: str) -> bool:
        """Return whether a setting cannot change when a run is resumed, not even with ``force=true``."""
        return False

    def starts(self, before: "AlgorithmConfig") -> dict[str, Any]:
        """Return the new value of each setting that has changed."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {key: value for key, value in values.items() if value != getattr(before, key, None)}

    def check(self) -> None:
        """Reject an odd mirrored population, and a schedule of a population of fixed size."""
        if isinstance(self.population_size, int):
            self.check_even("algorithm.population_size", self.population_size)
        elif not self.grows:
            expected = f"an integer with {self.chosen}, whose population has a fixed size"
            raise refusal("algorithm.population_size", self.population_size, expected)

    def check_even(self, key: str, population_size: int) -> None:
        """Reject an odd number of mirrored members, the value of ``key``."""
        if not (self.pairs and population_size % 2):
            return
        expected = f"an even number with {self.chosen}, whose members are mirrored pairs"
        if hasattr(self, "mirrored"):
            expected = "an even number with algorithm.mirrored=true (or algorithm.mirrored=false)"
        raise refusal(key, population_size, expected)

    @property
    def chosen(self) -> str:
        """The setting that chooses the algorithm, for messages."""
        return f"algorithm.factory={self.factory}" if self.factory else f"algorithm.name={self.name}"

    def check_optimizer(self, optimizer: "OptimizerConfig") -> None:
        """Reject optimiser settings other than the defaults if the algorithm has no optimiser."""
        default = OptimizerConfig()
        # Keys of other rules are ignored with Adam, so optimizer=adam is enough if an experiment sets them.
        for key in ("name", "beta1", "beta2", "epsilon"):
            if not self.optimized and getattr(optimizer, key) != getattr(default, key):
                expected = f"{literal(getattr(default, key))} with {self.chosen}, which has no optimiser"
                raise refusal(f"optimizer.{key}", getattr(optimizer, key), expected)


def algorithm_class(name: object, factory: object) -> type[Any]:
    """Return the class of an algorithm: the user's own named by ``factory``, or the registered one.

    Raises
    ------
    ConfigError
        There is no such algorithm, or its class is not valid.
    """
    if factory is None:
        kind: type[Any] = ALGORITHMS.get(name)
    else:
        kind = ALGORITHMS.from_factory(factory, "a MODULE:CLASS, for example my_algorithms:OnePlusOne")
    if not issubclass(kind.Config, AlgorithmConfig):
        which = f"algorithm.name={name}" if factory is None else f"algorithm.factory={factory}"
        raise ConfigError(f"{which}: its Config must derive from pyes.AlgorithmConfig, the keys of every algorithm")
    return kind


def algorithm_config(values: Mapping[str, Any]) -> AlgorithmConfig:
    """Check the settings of an algorithm; missing keys have their defaults.

    Raises
    ------
    ConfigError
        A name or key is unknown, or a value is invalid.
    """
    return typing.cast(AlgorithmConfig, parse(AlgorithmConfig, values, AlgorithmConfig.PATH))


@dataclass(frozen=True)
class OptimizerConfig(Section):
    """The rule that turns a gradient into a step; each rule reads its own keys."""

    PATH = "optimizer"

    name: Literal["adam", "sgd", "clipup"] = "adam"
    beta1: Annotated[float, Range(0, 1, open_maximum=True)] = 0.9  # adam
    beta2: Annotated[float, Range(0, 1, open_maximum=True)] = 0.999  # adam
    epsilon: Annotated[float, Range(minimum=1e-30)] = 1e-8  # adam; as a float32 it must not be 0
    momentum: Annotated[float, Range(0, 1, open_maximum=True)] = 0.9  # sgd, clipup
    max_speed: Annotated[float, Positive] = 0.3  # clipup: longest step

    @classmethod
    def of(cls, form: "OptimizerForm | None", default: str = "adam") -> "OptimizerConfig":
        """Return the settings of an optimiser in any form; one without a name is the ``default``.

        Raises
        ------
        ConfigError
            A name or key is unknown, or a value is invalid.
        """
        values = {"name": form} if isinstance(form, str) else {} if form is None else form
        if isinstance(values, Mapping):
            values = {"name": default, **values}
        return typing.cast(OptimizerConfig, parse(cls, values, cls.PATH))


#: What users may give as an optimiser: its settings, the same as a mapping, or its name alone.
OptimizerForm = OptimizerConfig | Mapping[str, Any] | str
