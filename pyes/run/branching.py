"""How a run goes another way: from its theta, under other settings.

Owns what is kept of the state and what begins anew. Invariant: whatever the changed settings do not concern is kept.
"""

from typing import Any

from pyes.errors import ConfigError
from pyes.run.state import RunState, Setup

#: Values that change in the course of a run, and the settings of ``algorithm`` that their course depends on.
_SCHEDULES = {
    "sigma": ("sigma", "sigma_decay", "sigma_min"),
    "learning_rate": ("learning_rate", "learning_rate_decay", "learning_rate_min"),
    "population_size": ("population_size", "growth"),
    "return_weight": ("return_weight",),
}


def branch(state: RunState, setup: Setup) -> RunState:
    """Return a state that goes on from the theta of ``state`` under the settings of ``setup``.

    Raises
    ------
    ConfigError
        Theta does not fit the policy that the settings make.
    """
    _check_network(state.setup, setup)
    new = RunState(setup, state.table)
    new.algorithm.load_state_dict(_algorithm(state, new))
    _keep_adapted(state, new)
    if new.statistics is not None and state.statistics is not None:
        new.statistics.load_state_dict(state.statistics.state_dict())
    new.timesteps, new.episodes, new.failed = state.timesteps, state.episodes, state.failed
    return new


def _check_network(old: Setup, new: Setup) -> None:
    before, after = old.spec.program, new.spec.program
    if after != before:
        raise ConfigError(
            f"{new.config.task.title} needs a network of {after.observation_size} inputs and {after.outputs} outputs, "
            f"the run has one of {before.observation_size} and {before.outputs}; start a new run"
        )


def _algorithm(old: RunState, new: RunState) -> dict[str, Any]:
    """Return the algorithm's state; schedules and an optimizer whose settings have changed begin anew."""
    before, after = old.setup.config, new.setup.config
    kept = old.algorithm.state_dict()
    for value, settings in _SCHEDULES.items():
        if any(getattr(after.algorithm, key, None) != getattr(before.algorithm, key, None) for key in settings):
            kept[value] = getattr(after.algorithm, value)
    if after.optimizer != before.optimizer and "optimizer" in kept:
        kept["optimizer"] = new.algorithm.state_dict()["optimizer"]
    return kept


def _keep_adapted(old: RunState, new: RunState) -> None:
    """Keep the episode limit and the number of episodes as they have adapted, unless their settings have changed."""
    before, after = old.setup, new.setup
    if (after.config.algorithm.episode_limit, after.max_timesteps) == (
        before.config.algorithm.episode_limit,
        before.max_timesteps,
    ):
        new.limit.value = old.limit.value
    if (after.config.algorithm.averaging, after.config.task.episodes) == (
        before.config.algorithm.averaging,
        before.config.task.episodes,
    ):
        new.averaging.episodes = old.averaging.episodes
