"""Which tasks have a recipe."""

import pytest

from pyes.cli import recipes


@pytest.mark.parametrize(
    ("option", "env_id", "name"),
    [
        ("acrobot", "Acrobot-v1", "acrobot"),
        ("gymnasium", "Acrobot-v1", "acrobot"),
        ("native", "CartPole-v1", "cart_pole"),
        ("pusher_mujoco", "Pusher-v5", None),
        ("gymnasium", "Acrobot-v", None),
        ("python", "", None),
    ],
)
def test_recipe_is_found_by_option_or_environment(option: str, env_id: str, name: str | None):
    line = recipes.advice(option, env_id)
    assert (
        line is None
        if name is None
        else line.startswith(f"there is a recipe for this task: experiment={name} (median ")
    )
