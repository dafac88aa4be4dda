"""The choices of ``task=``, read from conf/task as Hydra composes them, but in a thousandth of its time."""

from pathlib import Path
from typing import Any

import yaml

from pyes.config import TaskConfig, from_mapping

CONF = Path(__file__).parents[1] / "conf" / "task"
#: What a choice leaves open.
OPEN: dict[str, dict[str, Any]] = {
    "atari": {"env_id": "ALE/Breakout-v5"},
    "envpool": {"env_id": "CartPole-v1"},
    "function": {"factory": "pyes.tasks.functions:quadratic", "dim": 3},
    "gym": {"env_id": "CartPole-v1"},
    "gymnasium": {"env_id": "Acrobot-v1"},
    "native": {"env_id": "CartPole-v1"},
    "python": {"factory": "user_tasks:point", "env_kwargs": {"size": 3}},
}
NAMES = sorted({path.stem for path in CONF.glob("*.yaml")} - {"environment"})


def option(name: str, **keys: Any) -> TaskConfig:
    """Return the settings of ``task=NAME``, with other values for some keys."""
    network = {"name": "linear", "bias": False} if name == "function" else {}
    return from_mapping({"task": {**_composed(name), **OPEN.get(name, {}), **keys}, "network": network}).task


def _composed(name: str) -> dict[str, Any]:
    values = yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))
    merged: dict[str, Any] = {}
    for base in values.pop("defaults", []):
        if isinstance(base, str) and base != "_self_":  # not what it overrides in other groups
            merged |= _composed(base.partition("@")[0])
    return merged | values.get("task", values)
