"""The description of a job for nodes, and the settings that a node refuses if it does not allow all code."""

from collections.abc import Iterator
from typing import Any

import pytest

from pyes.config import from_mapping
from pyes.errors import ConfigError
from pyes.remote import job
from pyes.system import lookup


@pytest.fixture(autouse=True)
def only_mine() -> Iterator[None]:
    lookup.allow_only(["mine"])
    yield
    lookup.allow_only(None)


@pytest.mark.parametrize(
    "settings",
    [
        {"task": {"env_id": "CartPole-v1", "factory": None}},
        {"task": {"env_id": "mine:Env-v0"}},
        {"task": {"env_id": "mine.envs:Env-v0"}},
        {"task": {"env_id": "pyes.tasks.maze:Maze-v0"}},
        {"task": {"env_kwargs": {"size": 3, "texts": ["a", "b/c"]}}, "network": {"module": "mine.nets:Net"}},
    ],
)
def test_settings_that_name_no_code_or_allowed_code_pass(settings: dict[str, Any]):
    job.check_allowed(settings)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"task": {"factory": "subprocess:Popen"}}, "task.factory"),
        ({"task": {"env_id": "minefield:Env-v0"}}, "task.env_id"),
        ({"network": {"module": "mines.nets:Net"}}, "network.module"),
        ({"algorithm": {"factory": "os:system"}}, "algorithm.factory"),
        ({"task": {"env_kwargs": {"wrapped": {"env_ids": ["x", "evil:Env-v0"]}}}}, "task.env_kwargs.wrapped.env_ids"),
        ({"task": {"env_id": "../evil:Env-v0"}}, "task.env_id"),
    ],
)
def test_settings_that_name_other_code_are_refused(settings: dict[str, Any], key: str):
    with pytest.raises(ConfigError, match=rf"^{key}: this worker may not run .*; allow it with: pyes worker --allow "):
        job.check_allowed(settings)


def test_replay_is_refused_where_nodes_would_come_to_other_numbers():
    config = from_mapping({"algorithm": {"name": "cma_es"}})
    assert (job.sync_of(config, "auto"), job.sync_of(config, "params")) == ("params", "params")
    with pytest.raises(
        ConfigError, match=r"cluster\.sync: got 'replay', expected auto or params with algorithm=cma_es"
    ):
        job.sync_of(config, "replay")
