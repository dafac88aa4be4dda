"""Environments that Numba compiles: the same bits as in C, their form, and what is said of those that cannot be."""

import ctypes
import importlib
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import native_sources
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from native_sources import FUNCTIONS, RANDOM, computed

import pyes
from pyes import tasks
from pyes.config import from_mapping
from pyes.episodes.native import NativeRollout
from pyes.errors import ConfigError
from pyes.system import lookup
from pyes.tasks import numba_environment

pytest.importorskip("numba")
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)


def make(**keys: Any) -> tasks.Task:
    return tasks.make(from_mapping({"task": {"name": "native", **keys}}).task)


def walks() -> Any:
    import numba_environments

    return numba_environments


def test_a_worker_that_allows_the_package_takes_the_class(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lookup, "_allowed", ("numba_environments",))
    assert isinstance(lookup.find("task.factory", "numba_environments:Walk", "a class"), numba_environment.Environment)
    with pytest.raises(ConfigError, match="this worker may not run"):
        lookup.find("task.factory", "numba_environments:np.ndarray", "a class")


@pytest.mark.slow
def test_cart_pole_of_the_example_has_the_bits_of_the_one_in_c():
    ours, theirs = make(factory="cart_pole:CartPole"), make(env_id="CartPole-v1")
    assert (ours.max_timesteps, ours.action_space) == (theirs.max_timesteps, theirs.action_space)
    for seed in range(20):
        np.testing.assert_array_equal(ours.reset(seed), theirs.reset(seed))
        over, rng = False, np.random.default_rng(seed)
        while not over:
            action = int(rng.integers(2))
            mine, other = ours.step(action), theirs.step(action)
            np.testing.assert_array_equal(mine[0], other[0])
            assert mine[1:] == other[1:]
            over = mine[2]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_functions_have_the_bits_of_the_header():
    from pyes.numerics import compiled

    rng = np.random.default_rng(0)
    sizes = 10 ** rng.uniform(-323, 308, 20_000)
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan, 709.79, -709.0, 1e15]
    x = np.concatenate([rng.uniform(-1, 1, 20_000), rng.uniform(-1e6, 1e6, 20_000), sizes, -sizes, ends])
    for name in (*FUNCTIONS, "floor"):
        values = x[(np.abs(x) < 2**51) | ~np.isfinite(x)] if name == "floor" else x
        ours = np.array([getattr(compiled, name)(each) for each in values])
        theirs = computed(name, values)
        np.testing.assert_array_equal(ours, theirs, name)
        np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs) & ~np.isnan(ours) | np.signbit(ours), name)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1, 12345678901234567890])
def test_random_numbers_are_those_of_the_header(seed: int):
    from pyes.numerics import compiled

    library = ctypes.CDLL(native_sources.compiled(RANDOM, "random"))
    words, numbers = np.empty(11, np.uint32), np.empty(5)
    library.bits(ctypes.c_int64(11), ctypes.c_uint64(seed), ctypes.c_void_p(words.ctypes.data))
    library.uniform(ctypes.c_int64(5), ctypes.c_uint64(seed), ctypes.c_void_p(numbers.ctypes.data))
    normals = np.empty(5)
    library.normal(ctypes.c_int64(5), ctypes.c_uint64(seed), ctypes.c_void_p(normals.ctypes.data))
    state = np.zeros(3, numba_environment.RANDOM)
    state["key"] = seed
    assert [compiled.bits(state[0]) for _ in words] == words.tolist()
    assert [compiled.uniform(state[1], -2.0, 3.0) for _ in numbers] == numbers.tolist()
    assert [compiled.normal(state[2]) for _ in normals] == normals.tolist()


@pytest.mark.slow
def test_class_is_described_as_it_says():
    task = make(factory="numba_environments:Walk")
    assert walks().Walk.state.names == ("places", "time", "tired", "bad", "random", "failed")
    assert task.max_timesteps == 30
    assert task.observation_space.dtype == np.float64
    np.testing.assert_array_equal(task.observation_space.low, [-100.0, -100.0])
    np.testing.assert_array_equal(task.observation_space.high, [np.inf, np.inf])
    np.testing.assert_array_equal(task.action_space.high, np.array([1, 3], np.float32))


def episode(seed: int, steps: int = 30) -> Any:
    """Step the walk; return what came of it."""
    task = make(factory="numba_environments:Walk")
    found = [task.reset(seed)]
    for _ in range(steps):
        found.append(task.step(np.array([0.5, 1.0], np.float32)))
        if found[-1][2] or found[-1][3]:
            break
    return found


def seed_with(bad: int) -> int:
    """Return a seed whose walk goes wrong in a certain way."""
    task = make(factory="numba_environments:Walk")
    return next(seed for seed in range(1_000) if task.reset(seed)[1] == bad)


@pytest.mark.slow
def test_step_ends_the_episode_as_it_says():
    found = episode(seed_with(0))
    assert len(found) == 22
    assert found[-1][2:4] == (False, True)


@pytest.mark.parametrize("bad", [1, 2, 4])
def test_exception_in_step_fails_it(bad: int):
    """An error that is raised, and an index out of bounds, in the function itself and in one that it calls."""
    with pytest.raises(ValueError, match=r"Walk failed: its step returned PYES_FAILED, .* pyes check-environment"):
        episode(seed_with(bad))


@pytest.mark.slow
def test_exception_is_found_where_actions_are_held():
    task, seed = make(factory="numba_environments:Walk", frame_skip=2), seed_with(1)
    actions = [np.zeros(2, np.float32)] * 3
    task.reset(seed)
    assert task.explain(seed, actions[:2]) is None
    for action in actions[:2]:
        task.step(action)
    with pytest.raises(ValueError, match="Walk failed"):
        task.step(actions[2])
    assert str(task.explain(seed, actions)) == "tripped"


@pytest.mark.slow
def test_exception_in_reset_fails_the_first_step():
    task = make(factory="numba_environments:Tripped")
    task.reset(0)
    with pytest.raises(ValueError, match="Tripped failed"):
        task.step(0)
    task.reset(0)


def test_division_by_zero_is_as_in_c():
    assert np.isinf(episode(seed_with(3), steps=5)[5][0][1])


def run_policy(seed: int) -> tuple[float, int]:
    """Run an episode of a linear policy in C."""
    from pyes import networks
    from pyes.networks import ActionDecoder

    task = make(factory="numba_environments:Walk")
    network = from_mapping({"network": {"name": "linear"}}).network
    spec, theta = networks.build(network, 2, ActionDecoder.for_space(task.action_space), 0, 5.0)
    runner: Any = spec.runner()
    runner.load(theta)
    runner.begin_episode(0, 0, 0, 0)
    return NativeRollout(task, runner).run(seed, None)


@pytest.mark.slow
def test_failure_within_an_episode_in_c_is_an_error():
    assert run_policy(seed_with(0))[1] == 21
    with pytest.raises(ValueError, match="Walk failed"):
        run_policy(seed_with(1))


# With Gymnasium's interface


@pytest.mark.slow
@pytest.mark.parametrize("which", ["Walk", "CartPole-v1"])
def test_as_gymnasium_passes_the_check_of_gymnasium(which: str):
    env = pyes.native.as_gymnasium(walks().Walk if which == "Walk" else which)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r".*(infinity|does not have a spec|not having a spec|symmetric).*")
        check_env(env)
    env.close()


@pytest.mark.slow
def test_as_gymnasium_plays_the_episode_of_the_task_and_ends_it_at_the_limit():
    import cart_pole

    env, task = pyes.native.as_gymnasium(cart_pole.CartPole), make(factory="cart_pole:CartPole")
    np.testing.assert_array_equal(env.reset(seed=7)[0], task.reset(7))
    np.testing.assert_array_equal(env.step(1)[0], task.step(1)[0])
    assert env.render_mode is None
    made = pyes.native.as_gymnasium(lambda: cart_pole.CartPole)  # a function, as task.factory takes it
    np.testing.assert_array_equal(made.reset(seed=7)[0], task.reset(7))
    car = pyes.native.as_gymnasium("MountainCar-v0")
    car.reset(seed=1)
    assert [car.step(1)[3] for _ in range(200)] == [False] * 199 + [True]


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_as_gymnasium_takes_a_library():
    env = pyes.native.as_gymnasium(
        f"{native_sources.point()}:point", render=lambda state: np.zeros((1, len(state), 3), np.uint8)
    )
    env.reset(seed=1)
    assert env.render().shape == (1, 56, 3)


def test_render_is_called_with_the_state():
    env = pyes.native.as_gymnasium(walks().Walk)
    env.reset(seed=1)
    env.step(np.zeros(2, np.float32))
    assert env.render_mode == "rgb_array"
    np.testing.assert_array_equal(env.render(), np.full((2, 3, 3), 10, np.uint8))
    env = pyes.native.as_gymnasium(walks().Walk, render=lambda state: np.full((1, 1, 3), state.time, np.uint8))
    env.reset(seed=1)
    assert env.render().max() == 0


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("CartPole-v7", "task.env_id: got 'CartPole-v7', expected one of"),
        ("gone.so:point", "there is no file gone.so"),
        (3.5, "float is float, expected an environment of pyes.native, a PyCapsule"),
    ],
)
def test_as_gymnasium_refuses_what_is_no_environment(what: Any, message: str):
    with pytest.raises(ConfigError, match=message):
        pyes.native.as_gymnasium(what)


# What is refused

HEAD = "import numba\nimport numpy as np\nfrom pyes import native\n\n\n@native.environment\nclass Mine:\n"
STEP = "def step(self, action, observation):\n        "
GOOD = {
    "fields": "x: float",
    "settings": "observation_size, choices = 1, 2",
    "reset": "def reset(self, observation):\n        observation[0] = self.x",
    "step": f"{STEP}return 1.0, False",
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fields": "x: str"}, r"Mine \(mine.py\): the field x has the type <class 'str'>, expected float, int, bool"),
        ({"fields": "x: object"}, "the field x has the type <class 'object'>, expected float, int"),
        ({"fields": "x: wrong"}, r"cannot be imported \(NameError: name 'wrong' is not defined"),
        ({"fields": "x: float\n    random: int"}, "a field cannot have the name 'random'"),
        ({"fields": "x: float\n    size: float"}, "a field cannot have the name 'size'"),  # records have one
        ({"fields": "x: float\n    y: (float, 2**30)"}, "the field y has the type .* expected float"),
        ({"settings": "observation_size = 1"}, "got choices=0 and action_size=0, expected either choices"),
        ({"settings": "choices = 2"}, "observation_size: got null, expected an integer"),
        ({"settings": "observation_size, choices = 2**33, 2"}, "observation_size: got 8589934592, expected an integer"),
        ({"settings": "observation_sise, choices = 1, 2"}, "unknown 'observation_sise'; did you mean 'obs"),
        ({"settings": "GRAVITY = 9.8"}, "unknown 'GRAVITY'; constants and other functions belong outside of the class"),
        ({"settings": f"{GOOD['settings']}; observation_type = int"}, "observation_type: got <class 'int'>, expected"),
        ({"settings": f"{GOOD['settings']}; observation_low = [1, 2]"}, "observation_low: got .*, or one for each"),
        ({"settings": f"{GOOD['settings']}; reward_low = 'a'"}, "reward_low: got 'a', expected a number"),
        ({"step": ""}, r"it has no function step\(self, action, observation\)"),
        ({"step": "def step(self, action):\n        pass"}, r"^mine.py:15 in Mine: got step\(self, action\), expected"),
        ({"step": STEP + "self.y = 1.0"}, "^mine.py:16 in Mine: self.y is no field"),
        (
            {
                "settings": "observation_size = action_size = 1",
                "step": STEP + "action[0] = 0.0\n        return 1.0, False",
            },
            r"^mine.py:16 in Mine: No implementation of .* signature: setitem\(readonly array\(float32, 1d, C\), ",
        ),
        ({"step": STEP + "pass"}, "^mine.py:15 in Mine: it returns none, expected"),
        ({"step": STEP + "return False, 1.5"}, "^mine.py:15 in Mine: its second result is float64"),
        (
            {"step": STEP + "observation[0] = 'a'\n        return 1.0, False"},
            r"^mine.py:16 in Mine: No implementation of function Function\(<built-in function setitem>\) found for "
            r"signature: setitem\(array\(float32, 1d, C\), ",
        ),
        (
            {"step": STEP + "return helper(self), False"},
            "^mine.py:16 in Mine: NameError: name 'helper' is not defined",
        ),
        ({"step": STEP + "import os\n        return 1.0, False"}, "mine.py:15 .*opcode"),
    ],
)  # fmt: skip
def test_class_that_cannot_be_compiled_is_refused_in_one_line(
    changes: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    parts = (f"    {text}\n" for text in {**GOOD, **changes}.values())
    (tmp_path / "mine.py").write_text(HEAD + "\n".join(parts))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    with pytest.raises(ConfigError, match=message) as caught:
        make(factory="mine:Mine")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_without_numba_one_line_says_what_to_install():
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "from pyes import native\n"
        "made = native.environment(type('A', (), dict(reset=lambda a, b: 0, step=lambda a, b, c: 0)))\n"
        "try:\n    native.as_gymnasium(made)\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = (
        "ConfigError A (<string>): an environment in Python that is compiled needs the package numba: pip install"
    )
    assert done.stdout.startswith(expected)
    code = "import sys; sys.modules['numba'] = None\nfrom pyes.native import uniform"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ConfigError: pyes.native.uniform needs the package numba: pip install" in done.stderr


def test_function_that_is_no_class_is_refused() -> None:
    with pytest.raises(ConfigError, match="got function, expected a class with reset and step"):
        pyes.native.environment(lambda: None)  # type: ignore[arg-type]


# Numba's cache


@pytest.mark.parametrize(
    "source",
    [
        "S = {}\ndef f(x):\n    return [S * i for i in x]",
        "S = {}\ndef f(x):\n    return (lambda: S)()",
        "import enum\nclass S(enum.Enum):\n    A = {}\ndef f(x):\n    return S.A.value",
        "import enum\nclass S(enum.Enum):\n    A = 1\n    B = 2\nM = S({})\ndef f(x):\n    return M is S.A",
        "from typing import NamedTuple\nclass S(NamedTuple('S', [('ab'[{} - 1], int), ('c', int)])): ...\n"
        "T = S(1, 2)\ndef f(x):\n    return T.a",
    ],
)
def test_digest_has_what_inner_code_and_members_of_enums_stand_for(source: str):
    def digest(value: int) -> str:
        names: dict[str, Any] = {"__name__": "user"}
        exec(source.format(value), names)
        return numba_environment._digest(names["f"])

    assert digest(1) == digest(1)
    assert digest(1) != digest(2)


def test_code_that_uses_something_unknown_has_no_digest():
    names: dict[str, Any] = {"__name__": "user"}
    source = "import math, numba, numpy as np\n@numba.vectorize\ndef g(x): return x\ndef f(x): return {}"
    exec(source.format("g(x)"), names)
    assert numba_environment._digest(names["f"]) == ""
    exec(source.format("math.sin(x) + np.sum(np.zeros(3)) + np.add(x, np.float32(1)) + float(x)"), names)
    assert numba_environment._digest(names["f"])


def test_own_module_with_the_name_of_a_library_is_no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "code.py").write_text("def f(x):\n    return x\n")
    monkeypatch.delitem(sys.modules, "code", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    own = importlib.import_module("code")
    assert not numba_environment._of_library(own.f)
    assert numba_environment._of_library(shutil.which)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_change_of_a_constant_or_a_helper_elsewhere_compiles_again(tmp_path: Path):
    (tmp_path / "env.py").write_text(
        "from pyes import native\nimport package.helper\n\n\n@native.environment\nclass Mine:\n"
        "    observation_size = choices = 1\n\n"
        "    def reset(self, observation):\n        observation[0] = package.helper.START\n\n"
        "    def step(self, action, observation):\n        return package.helper.reward(observation[0]), False\n"
    )
    code = (
        "from pyes import native\nfrom env import Mine\ne = native.as_gymnasium(Mine)\n"
        "print(e.reset(seed=0)[0][0], e.step(0)[1])"
    )
    found = []
    (tmp_path / "package").mkdir()
    for start, factor, times in ((1.0, 2.0, 1.0), (3.0, 2.0, 1.0), (3.0, 4.0, 1.0), (3.0, 4.0, 5.0)):
        text = f"START = {start}\n\n\n@numba.njit\ndef reward(x, times={times}):\n    return {factor} * x * times\n"
        (tmp_path / "package" / "helper.py").write_text(f"import numba\n\n{text}")
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-B", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
            )
            found.append(done.stdout.split())
    assert found == [["1.0", "2.0"]] * 2 + [["3.0", "6.0"]] * 2 + [["3.0", "12.0"]] * 2 + [["3.0", "60.0"]] * 2
    assert len(list(tmp_path.glob("__pycache__/*.nbc"))) == 8
