"""Settings of what adapts in the course of a run to what its members came to; all of it is off by default."""

from dataclasses import dataclass
from typing import Annotated

from pyes.config.section import AtLeastOne, Range, Section, Share


@dataclass(frozen=True)
class EpisodeLimitConfig(Section):
    """A limit on training episodes that grows as members come to reach it."""

    PATH = "algorithm.episode_limit"

    initial: Annotated[int, AtLeastOne] | None = None  # timesteps; None: no limit but the task's own
    threshold: Annotated[float, Share] = 0.2  # the limit grows when this share of the members reached it ...
    growth: Annotated[float, Range(minimum=1, open_minimum=True)] = 1.5  # ... by this factor


@dataclass(frozen=True)
class GrowthConfig(Section):
    """A population that grows where episodes are short, so that each generation learns from enough timesteps."""

    PATH = "algorithm.growth"

    timesteps: Annotated[int, AtLeastOne] | None = None  # that a generation should have; None: no growth
    population_max: Annotated[int, AtLeastOne] | None = None  # members, at most


@dataclass(frozen=True)
class AveragingConfig(Section):
    """Episodes of a member that become more where the noise of returns drowns their ranking."""

    PATH = "algorithm.averaging"

    episodes_max: Annotated[int, AtLeastOne] | None = None  # of a member, at most; None: always task.episodes
    agreement: Annotated[float, Range(-1, 1)] = (
        0.5  # of two halves, a rank correlation; below it more episodes, else fewer ...
    )
    factor: Annotated[float, Range(minimum=1, open_minimum=True)] = 1.5  # ... by this factor
