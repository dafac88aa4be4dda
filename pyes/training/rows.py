"""Computes the row of a generation in ``metrics.csv`` from its record and the states before and after it.

Knows no clock and no cluster, whose figures the loop adds. Invariant: apart from these, a row written during the run
equals the one rebuilt from the journal.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from pyes.episodes.batch import Status
from pyes.numerics import shaping
from pyes.run.journal import Evaluation, Generation, Kind, Recording
from pyes.run.metrics import MetricsRow
from pyes.run.state import RunState


def settings_in_use(state: RunState) -> dict[str, Any]:
    """Return the columns with settings of the next generation, which change when the state learns from it."""
    algorithm = state.algorithm
    return {
        "sigma": algorithm.sigma,
        "learning_rate": algorithm.learning_rate,
        "episode_limit": state.limit.value,
        "episodes_per_member": state.averaging.episodes,
    }


def recorded(recording: Recording) -> Iterator[dict[str, float | str]]:
    """Yield what a journal says of each row without being applied: returns, counts, evaluations, and theta."""
    row: dict[str, float | str] = {}
    timesteps = 0
    for index, entry in enumerate(recording.entries):
        if entry.kind == Kind.START:
            continue
        record = recording[index]
        if isinstance(record, Generation):
            if row:
                yield row | {"theta_hash": record.theta_hash}  # which the members of the next one were drawn around
            timesteps += int(record.lengths.sum())
            row = {"timesteps": timesteps, **_figures(record)}
        elif isinstance(record, Evaluation) and row:
            mean, std = record.summary
            row |= {"theta_hash": record.theta_hash, "eval_return_mean": mean, "eval_return_std": std}
            row |= {"eval_failed_episodes": record.failed}
    if row:
        yield row


def _figures(record: Generation) -> dict[str, Any]:
    """Return the columns that follow from the record alone."""
    known = record.returns[np.isfinite(record.returns)]
    if not len(known):
        known = np.full(1, np.nan)
    return {
        "return_mean": float(known.mean()),
        "return_std": float(known.std()),
        "return_min": float(known.min()),
        "return_max": float(known.max()),
        "failed_members": int(np.count_nonzero(record.status)),
    }


def row_of(record: Generation, used: dict[str, Any], state: RunState, seconds: float) -> MetricsRow:
    """Return the row of a generation.

    Parameters
    ----------
    record : Generation
        Record of the generation.
    used : dict
        `settings_in_use` before the record was applied.
    state : RunState
        State after the record was applied.
    seconds : float
        Wall-clock time since the run was ready to begin.
    """
    lengths = record.lengths[record.status == Status.OK]
    return MetricsRow(
        **used,
        **_figures(record),
        generation=record.generation,
        timesteps=state.timesteps,
        episodes=state.episodes,
        seconds=seconds,
        length_mean=float(lengths.mean()) / used["episodes_per_member"] if len(lengths) else math.nan,
        theta_norm=shaping.norm(state.algorithm.theta),
        gradient_norm=state.algorithm.gradient_norm,
        theta_hash=state.theta_hash,
    )


def add_evaluation(row: MetricsRow, record: Evaluation) -> None:
    """Fill in the columns of an evaluation of the center after the row's generation."""
    row.eval_return_mean, row.eval_return_std = record.summary
    row.eval_failed_episodes = record.failed
