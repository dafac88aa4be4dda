"""CMA-ES (Hansen and Ostermeier 2001; Hansen 2016) as pycma implements it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes.algorithms.base import Vector
from pyes.algorithms.library import LibraryAlgorithm
from pyes.config import CMAESConfig, refusal, unknown_key
from pyes.errors import ConfigError, missing
from pyes.system import limits

#: With more parameters than this, the covariance matrix is a diagonal unless told otherwise.
_MOST_FULL = 2_000
#: dim x dim matrices of float64 that pycma and its eigendecomposition hold at most (measured).
_MATRICES = 9

#: Options of pycma that are decided here: by keys of the algorithm, or because they would reach for code or files.
_DECIDED = frozenset(
    {
        "CMA_diagonal", "CMA_eigenmethod", "CMA_recombination_weights", "CMA_sampler", "CMA_sampler_options",
        "is_feasible", "popsize", "popsize_factor", "randn", "seed", "signals_filename", "termination_callback",
        "transformation", "verb_append", "verb_disp", "verb_disp_overwrite", "verb_filenameprefix", "verb_log",
        "verb_log_expensive", "verb_plot", "verb_time", "verbose",
    }
)  # fmt: skip


class CMAES(LibraryAlgorithm):
    """Evolution strategy that adapts the covariance matrix of its normal distribution.

    The center is the mean of the distribution. pycma's conditions of termination are not asked: a run ends with its
    budget.

    Parameters
    ----------
    theta : float32 (dim,)    the first mean; copied
    seed : int                decides, with the returns, every number of the run
    **settings                keys of `pyes.config.CMAESConfig`: population_size, sigma, covariance, options

    Attributes
    ----------
    sigma : float             standard deviation of a parameter: root mean square over the parameters

    Raises
    ------
    ConfigError    pycma is missing, an impossible setting, or a covariance matrix that does not fit the memory

    Examples
    --------
    >>> es = pyes.CMAES(np.zeros(3, np.float32), population_size=8, sigma=0.5)
    >>> for _ in range(100):
    ...     population = es.ask()
    ...     es.tell([function(es.member(i)) for i in range(len(population))])
    """

    sigma: float

    def __init__(self, theta: NDArray[np.float32], *, seed: int = 0, **settings: Any) -> None:
        self._config = CMAESConfig(**settings)
        super().__init__(theta, seed, self._config.population_size, "algorithm=cma_es")

    def _open(self, start: NDArray[np.float64], generator: np.random.RandomState) -> None:
        cma, config = _import_package(), self._config
        allowed = set(cma.CMAOptions.defaults()) - _DECIDED
        for key in config.options:
            if key not in allowed:
                raise unknown_key("algorithm.options", key, allowed)
        options = dict(config.options) | self._covariance(cma, len(start))
        # Nothing said or written, and the global generator left as `LibraryAlgorithm` has set it.
        options |= {"popsize": config.population_size, "seed": np.nan, "verbose": -9, "signals_filename": None}
        self._es = cma.CMAEvolutionStrategy(start, config.sigma, options)
        self._measure()

    def _covariance(self, cma: Any, dim: int) -> dict[str, Any]:
        """Return pycma's options for the kind of covariance matrix."""
        kind = self._config.covariance
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


def _import_package() -> Any:
    try:
        import cma
        import cma.restricted_gaussian_sampler
    except ImportError as error:
        raise missing("algorithm=cma_es", "cma", "cma", error) from error
    return cma
