"""Objects by their names, and which of them settings may name in a process that does not trust them all."""

import subprocess
from collections.abc import Iterator

import pytest

from pyes.errors import ConfigError
from pyes.system import lookup


@pytest.fixture
def only_user_tasks() -> Iterator[None]:
    lookup.allow_only(["user_tasks"])
    yield
    lookup.allow_only(None)


def find(name: str) -> object:
    return lookup.find("task.factory", name, "MODULE:FUNCTION")


def test_find_returns_any_object_where_nothing_is_limited():
    assert find("subprocess:Popen") is subprocess.Popen


@pytest.mark.usefixtures("only_user_tasks")
def test_find_returns_what_is_of_an_allowed_package():
    assert callable(find("user_tasks:point"))
    assert callable(find("pyes.tasks.functions:sphere"))


@pytest.mark.usefixtures("only_user_tasks")
@pytest.mark.parametrize("module", ["/home/me/point.so", ""])
def test_a_library_and_an_object_of_no_package_are_allowed_with_all_others(module: str):
    with pytest.raises(ConfigError, match=r"may not run 'point'; allow it with: pyes worker --allow '\*'"):
        lookup.check_allowed("task.library", "point", module)


@pytest.mark.usefixtures("only_user_tasks")
@pytest.mark.parametrize(
    "name",
    [
        "subprocess:Popen",
        "os:system",
        "user_tasks_of_others:make",
        "user_tasks:np.save",  # an object of another package that is imported there
        "pyes.tasks.functions:np.save",
        "user_tasks:gymnasium",
        "user_tasks:point.__class__",
        "user_tasks:Point.__subclasses__",
        "pyes.cli:main",
        "pyes.tasks.numba_environment:Struct",  # whose functions would be any addresses that the settings name
        "pyes.tasks.native:as_gymnasium",
    ],
)
def test_find_refuses_what_is_of_another_package(name: str):
    with pytest.raises(ConfigError) as caught:
        find(name)
    assert str(caught.value).startswith(f"task.factory: this worker may not run {name!r}; allow it with: pyes worker")
    assert "\n" not in str(caught.value)
