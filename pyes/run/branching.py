"""Continues a run from its theta under other settings (``force=true``).

Owns which parts of the state are kept or reset. Invariant: only parts that changed settings affect are reset.
"""

from dataclasses import replace
from typing import Any

from pyes.errors import ConfigError
from pyes.run.state import RunState, Setup


def branch(state: RunState, setup: Setup) -> RunState:
    """Return a state that continues from the theta of ``state`` under the settings of ``setup``.

    Raises
    ------
    ConfigError
        Theta does not fit the policy of the new settings.
    """
    _check_network(state.setup, setup)
    new = RunState(setup, state.table)
    new.algorithm.load_state_dict(_algorithm(state, new))
    _keep_adapted(state, new)
    if new.statistics is not None and state.statistics is not None:
        new.statistics.load_state_dict(state.statistics.state_dict())
    new.timesteps, new.episodes, new.failed = state.timesteps, state.episodes, state.failed
    new.evaluation_costs = replace(state.evaluation_costs)
    return new


def _check_network(old: Setup, new: Setup) -> None:
    before, after = old.spec.program, new.spec.program
    if after != before:
        raise ConfigError(
            f"{new.config.task.title} needs a network of {after.observation_size} inputs and {after.outputs} outputs, "
            f"the run has one of {before.observation_size} and {before.outputs}; start a new run"
        )


def _algorithm(old: RunState, new: RunState) -> dict[str, Any]:
    """Return the algorithm's state; an optimizer whose settings have changed is reset."""
    before, after = old.setup.config, new.setup.config
    kept = old.algorithm.state_dict()
    starts = after.algorithm.starts(before.algorithm)
    kept |= {key: starts[key] for key in kept.keys() & starts.keys()}
    if after.algorithm.on_table:  # the search of a library goes on with the seed that it began with
        kept["seed"] = after.seed
    paired = after.algorithm.pairs and not before.algorithm.pairs  # it may have grown to an odd number
    if after.growth != before.growth or "population_size" in starts or paired:
        kept["population_size"] = new.algorithm.population_size
    if after.optimizer != before.optimizer and "optimizer" in kept:
        kept["optimizer"] = new.algorithm.state_dict()["optimizer"]
    return kept


def _keep_adapted(old: RunState, new: RunState) -> None:
    """Keep the adapted episode limit and number of episodes, unless their settings have changed."""
    before, after = old.setup, new.setup
    limits = [
        (each.config.episode_limit, each.config.task.max_timesteps, each.interface.max_timesteps)
        for each in (before, after)
    ]
    if limits[0] == limits[1]:
        new.limit.value = old.limit.value
    numbers = [(each.config.averaging, each.config.task.episodes) for each in (before, after)]
    if numbers[0] == numbers[1]:
        new.averaging.episodes = old.averaging.episodes
    new.follow_schedules()
