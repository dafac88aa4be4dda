"""Registries: a kind is found by its name, in the package's folder or as an entry point of another package."""

import sys

import pytest

from pyes.config.registry import Registry
from pyes.errors import ConfigError
from pyes.system import lookup


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """Make a registry over a package of two modules, one with two kinds, and a sub-package that must not load."""
    package = tmp_path / "some_kinds"
    (package / "heavy").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from pyes.config.registry import Registry\nKINDS = Registry('thing', __name__)\n"
    )
    (package / "heavy" / "__init__.py").write_text("raise RuntimeError\n")
    kind = "@KINDS.register({0!r})\nclass {1}:\n    Config = int\n"
    head = "from some_kinds import KINDS\n"
    (package / "one.py").write_text(head + kind.format("one", "One"))
    (package / "others.py").write_text(head + kind.format("two", "Two") + kind.format("three", "Three"))
    monkeypatch.syspath_prepend(tmp_path)
    import some_kinds

    yield some_kinds.KINDS
    for name in [name for name in sys.modules if name.split(".")[0] in ("some_kinds", "elsewhere")]:
        del sys.modules[name]


def test_get_imports_the_module_of_that_name_alone(registry: Registry):
    assert registry.get("one").kind == "one"
    assert "some_kinds.others" not in sys.modules


def test_get_finds_a_kind_in_a_module_of_another_name(registry: Registry):
    assert registry.get("three").__name__ == "Three"


@pytest.mark.parametrize("name", ["four", "heavy", "", None, "a.b", 3])
def test_get_unknown_name_lists_the_known_ones(registry: Registry, name):
    with pytest.raises(ConfigError, match=r"^thing.name: got .*, expected one of 'one', 'three', 'two'$"):
        registry.get(name)


def test_classes_are_those_of_the_package(registry: Registry):
    assert sorted(registry.classes()) == ["One", "Three", "Two"]


def test_an_installed_package_adds_kinds_by_entry_points(registry: Registry, tmp_path):
    code = """
from dataclasses import dataclass
from pyes.config.section import Section

class Mine:
    @dataclass(frozen=True)
    class Config(Section): ...

class Bare: ...
"""
    (tmp_path / "elsewhere.py").write_text(code)
    info = tmp_path / "elsewhere-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[some_kinds]\nmine = elsewhere:Mine\nbare = elsewhere:Bare\nbroken = elsewhere:Missing\n"
    )
    assert registry.get("mine").__name__ == "Mine"
    assert registry.names() == ["bare", "broken", "mine", "one", "three", "two"]
    with pytest.raises(ConfigError, match=r"^thing.name=bare \(elsewhere:Bare\) has no settings: give it Config, a "):
        registry.get("bare")
    with pytest.raises(ConfigError, match=r"^thing.name=broken: elsewhere:Missing of an installed package cannot be"):
        registry.get("broken")


def test_from_factory_needs_permission_for_the_users_package_alone():
    registry = Registry("thing", "some_kinds", "pyes.algorithms.base:Algorithm")
    lookup.allow_only(["pyes.algorithms.ars"])
    try:
        assert registry.from_factory("pyes.algorithms.ars:ARS", "my:Kind").title == "ARS"
        with pytest.raises(ConfigError, match=r"^thing.factory: this worker may not run 'json:dumps'; allow it with"):
            registry.from_factory("json:dumps", "my:Kind")
    finally:
        lookup.allow_only(None)


def test_title_is_that_of_the_class_or_the_name(registry: Registry):
    registry.get("one").title = "The first"
    assert [registry.title(name) for name in ("one", "two", "nine")] == ["The first", "two", "nine"]


def test_from_factory_says_what_is_wrong_with_a_class():
    registry = Registry("thing", "some_kinds", "builtins:dict")
    with pytest.raises(ConfigError, match=r"^thing.factory=json:dumps is not a class that derives from builtins.dict$"):
        registry.from_factory("json:dumps", "my:Kind")
    with pytest.raises(ConfigError, match=r"^thing.factory=collections:OrderedDict has no settings: give it Config"):
        registry.from_factory("collections:OrderedDict", "my:Kind")
    with pytest.raises(ConfigError, match=r"^thing.factory: got 3, expected my:Kind$"):
        registry.from_factory(3, "my:Kind")
