"""Made-up values that several test modules need."""

import dataclasses
from typing import Any

from pyes.run.metrics import MetricsRow


def row(generation: int, **changes: Any) -> MetricsRow:
    values: dict[str, Any] = {field.name: 0.5 for field in dataclasses.fields(MetricsRow)}
    values |= {"generation": generation, "theta_hash": "ab", "timesteps": 100 * generation, "eval_return_mean": None}
    values |= changes
    if values["eval_return_mean"] is None:
        values["eval_return_std"] = None
    return MetricsRow(**values)
