"""CMA-ES (Hansen and Ostermeier 2001; Hansen 2016) as pycma implements it."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms.base import Common, accepts
from pyes.algorithms.library import LibraryAlgorithm, LibraryConfig
from pyes.algorithms.population import Vector
from pyes.config import Positive, Range, RestartConfig, refusal, unknown_key
from pyes.config.registry import ALGORITHMS
from pyes.config.section import JSON_MAPPING, is_json
from pyes.errors import ConfigError
from pyes.numerics.noise import NoiseTable
from pyes.system import limits

#: With more parameters than this, the covariance matrix is a diagonal unless told otherwise.
_MOST_FULL = 2_000
#: dim x dim matrices of float64 that pycma and its eigendecomposition hold at most (measured).
_MATRICES = 9

#: Options of pycma that are set here: by keys of the algorithm, or because they would run code or touch files.
_DECIDED = frozenset(
    {
        "CMA_diagonal", "CMA_eigenmethod", "CMA_recombination_weights", "CMA_sampler", "CMA_sampler_options",
        "fixed_variables", "is_feasible", "popsize", "popsize_factor", "randn", "seed", "signals_filename",
        "termination_callback", "transformation", "verb_append", "verb_disp", "verb_disp_overwrite",
        "verb_filenameprefix", "verb_log", "verb_log_expensive", "verb_plot", "verb_time", "verbose", "vv",
    }
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CMAESConfig(LibraryConfig):
    """Settings of CMA-ES."""

    packages = ("cma",)

    name: Literal["cma_es"] = "cma_es"
    population_size: Annotated[int, Range(minimum=4)] = 40
    sigma: Annotated[float, Positive] = 0.3  # standard deviation of every parameter at the start
    covariance: Literal["auto", "full", "diagonal", "vd", "vkd"] = "auto"  # auto: full up to 2,000 parameters
    options: dict[str, Any] = field(default_factory=dict)  # of pycma's CMAOptions
    restart: RestartConfig = field(default_factory=RestartConfig)

    @property
    def relative(self) -> bool:
        """Whether no member of an earlier generation is kept, and no return is compared with a setting."""
        return not self.options.get("CMA_elitist") and self.restart.after is None

    def check(self) -> None:
        """Refuse options that a run's configuration cannot hold."""
        super().check()
        if not is_json(self.options):
            raise refusal("algorithm.options", self.options, JSON_MAPPING)
        for key, value in self.options.items():
            if isinstance(value, str):  # pycma would evaluate it as an expression
                raise refusal(f"algorithm.options.{key}", value, "no text: a number, true, false, null or a list")


@dataclass(frozen=True)
class _Arguments(CMAESConfig, Common): ...


@ALGORITHMS.register("cma_es")
class CMAES(LibraryAlgorithm):
    """Evolution strategy that adapts the covariance matrix of its normal distribution.

    The center is the mean of the distribution. pycma's termination conditions have no effect: a run ends with its
    budget.

    Parameters
    ----------
    theta, table, seed, threads
        As for `pyes.Algorithm`; theta is the first mean.
    **settings
        The fields of `CMAESConfig`: population_size, sigma, covariance, options, restart.

    Attributes
    ----------
    sigma : float
        Standard deviation of a parameter: root mean square over the parameters.

    Raises
    ------
    ConfigError
        An impossible setting, or a covariance matrix that does not fit the memory.

    Examples
    --------
    >>> es = pyes.CMAES(np.zeros(3, np.float32), population_size=8, sigma=0.5)
    >>> for _ in range(100):
    ...     population = es.ask()
    ...     es.tell([function(es.member(i)) for i in range(len(population))])
    """

    Config = CMAESConfig
    config: CMAESConfig
    title = "CMA-ES"

    @accepts(_Arguments)
    def __init__(self, theta: Vector, table: NoiseTable | None = None, **settings: Any) -> None:
        super().__init__(theta, table, **settings)

    def _open(self, start: NDArray[np.float64], generator: np.random.RandomState) -> None:
        import cma.restricted_gaussian_sampler  # and cma itself

        config = self.config
        allowed = set(cma.CMAOptions.defaults()) - _DECIDED
        for key in config.options:
            if key not in allowed:
                raise unknown_key("algorithm.options", key, allowed)
        options = dict(config.options) | self._covariance(cma, len(start))
        # Nothing printed or written, and the global generator left as `LibraryAlgorithm` has set it.
        options |= {"popsize": config.population_size, "seed": np.nan, "verbose": -9, "signals_filename": None}
        self._es = cma.CMAEvolutionStrategy(start, config.sigma, options)
        self._measure()

    def _covariance(self, cma: Any, dim: int) -> dict[str, Any]:
        """Return pycma's options for the kind of covariance matrix."""
        kind = self.config.covariance
        if kind == "auto":
            kind = "full" if dim <= _MOST_FULL else "diagonal"
        if kind == "full":
            _check_fits(dim)
            return {}
        if kind == "diagonal":
            return {"CMA_diagonal": True}
        if dim < 10:
            raise refusal(
                "algorithm.covariance", kind, f"'auto', 'full' or 'diagonal' with fewer than 10 parameters ({dim})"
            )
        samplers = cma.restricted_gaussian_sampler
        sampler = samplers.GaussVDSampler if kind == "vd" else samplers.GaussVkDSampler
        options: dict[str, Any] = sampler.extend_cma_options()
        return options

    def _gives_up(self, mean: float) -> bool:
        return self.config.restart.gives_up(self.progress[0], mean)

    def _points(self) -> NDArray[np.float64]:
        self._asked = self._es.ask()
        return np.asarray(self._asked)

    def _minimize(self, losses: NDArray[np.float64]) -> Vector:
        self._es.tell(self._asked, losses.tolist())
        self._measure()
        mean: Vector = self._es.result.xfavorite.astype(np.float32)
        return mean

    def _measure(self) -> None:
        self.sigma = float(np.sqrt(np.mean(np.square(self._es.stds))))


def _check_fits(dim: int) -> None:
    """Refuse a full covariance matrix that the memory cannot hold."""
    size, free = _MATRICES * 8 * dim**2, limits.available_memory()
    if size > free:
        raise ConfigError(
            f"algorithm.covariance: got 'full' with {dim:,} parameters, which takes {size / 2**30:,.1f} GiB, and "
            f"{free / 2**30:,.1f} GiB of memory are available; try 'diagonal', 'vd' or 'vkd'"
        )
