"""Settings of what a run adapts to its results: population, episodes per member, episode limit; all off by default."""

from dataclasses import dataclass
from typing import Annotated

from pyes.config.section import AtLeastOne, Range, Section, Share, refusal


@dataclass(frozen=True)
class GrowthConfig(Section):
    """A population that grows while episodes are short, so that each generation has enough timesteps."""

    PATH = "growth"

    timesteps: Annotated[int, AtLeastOne] | None = None  # wanted in a generation; None: no growth
    population_max: Annotated[int, AtLeastOne] | None = None  # largest population

    def check(self) -> None:
        """Reject growth without a largest population, and a largest population without growth."""
        if self.timesteps is None and self.population_max is not None:
            raise refusal("growth.population_max", self.population_max, "null without growth.timesteps")
        if self.timesteps is not None and self.population_max is None:
            raise refusal("growth.population_max", None, "an integer with growth.timesteps: the largest population")


@dataclass(frozen=True)
class AveragingConfig(Section):
    """More episodes per member while noise in the returns hides the ranking of the members."""

    PATH = "averaging"

    episodes_max: Annotated[int, AtLeastOne] | None = None  # most episodes per member; None: always task.episodes
    #: Rank correlation of two halves of the episodes: below it more episodes, above it fewer ...
    agreement: Annotated[float, Range(-1, 1)] = 0.5
    factor: Annotated[float, Range(minimum=1, open_minimum=True)] = 1.5  # ... by this factor


@dataclass(frozen=True)
class EpisodeLimitConfig(Section):
    """A limit on the length of training episodes, which grows when members reach it."""

    PATH = "episode_limit"

    initial: Annotated[int, AtLeastOne] | None = None  # timesteps; None: no limit but the task's own
    threshold: Annotated[float, Share] = 0.2  # the limit grows when this share of the members reached it ...
    growth: Annotated[float, Range(minimum=1, open_minimum=True)] = 1.5  # ... by this factor
