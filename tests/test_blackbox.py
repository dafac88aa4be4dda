import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import pyes
from pyes.config import OptimizerConfig
from pyes.errors import ClusterError, ConfigError, TaskError
from pyes.tasks import functions


def _paraboloid(theta):
    return -float(((theta - [0.5, 0.1, -0.3]) ** 2).sum())


SETTINGS = {"algorithm": "openai_es", "population_size": 50, "sigma": 0.1, "learning_rate": 0.05, "generations": 120}


def test_maximize_finds_the_top_of_a_paraboloid():
    found = pyes.maximize(_paraboloid, np.zeros(3), **SETTINGS)
    np.testing.assert_allclose(found.theta, [0.5, 0.1, -0.3], atol=0.02)
    assert found.value == _paraboloid(found.theta)
    assert found.history[-1] > found.history[0]


@pytest.mark.slow
def test_an_algorithm_is_chosen_by_the_number_of_parameters():
    for dim, name in ((3, "cma_es"), (500, "cma_es"), (501, "snes")):
        settings = {"generations": 2, "population_size": 6}
        by_default = pyes.maximize(functions.sphere, np.ones(dim), **settings)
        named = pyes.maximize(functions.sphere, np.ones(dim), name, **settings)
        np.testing.assert_array_equal(by_default.theta, named.theta)


@pytest.mark.slow
def test_what_works_for_a_newcomer_needs_no_settings():
    found = pyes.maximize(lambda theta: functions.rosenbrock(5 * theta), np.zeros(5))
    assert found.value > -1e-6
    found = pyes.maximize(functions.ellipsoid, np.full(5, 0.4))
    assert found.value > -1e-6


def test_a_setting_of_another_algorithm_says_which_one_was_taken():
    with pytest.raises(ConfigError, match=r"^algorithm: got .*OpenAIES.*, expected a name"):
        pyes.maximize(_paraboloid, np.zeros(3), pyes.OpenAIES)
    with pytest.raises(ConfigError, match=r"^unknown key 'algorithm\.learning_rate'") as caught:
        pyes.maximize(_paraboloid, np.zeros(3), learning_rate=0.1)
    assert caught.value.__notes__ == ["(no algorithm is named, so it is cma_es)"]


@pytest.mark.slow
def test_maximize_survives_a_function_that_fails_now_and_then():
    def brittle(theta):
        if theta[0] > 0.52:
            raise ArithmeticError("too far")
        return _paraboloid(theta)

    found = pyes.maximize(brittle, np.zeros(3), **SETTINGS)
    np.testing.assert_allclose(found.theta[1:], [0.1, -0.3], atol=0.02)


@pytest.mark.slow
def test_maximize_says_why_when_everything_fails():
    with pytest.raises(TaskError, match=r"failed for all 4 members: ZeroDivisionError"):
        pyes.maximize(lambda theta: 1 / 0, np.zeros(3), population_size=4)


@pytest.mark.slow
def test_a_generation_that_fails_as_a_whole_ends_no_search():
    """The maximum lies on the edge of where the function is defined."""

    def edge(theta):
        if theta[0] < 1.2:
            raise ValueError("infeasible")
        return 5.0 - float(theta[0])

    found = pyes.maximize(edge, [1.2, 1.0], generations=60, population_size=6)
    assert found.history.shape == (60,)
    assert np.nanmax(found.history) > 3.7
    calls = iter(range(6 * 100))

    def breaking(theta):
        assert next(calls) < 12
        return 0.0

    with pytest.raises(TaskError, match=r"failed for all 6 members: AssertionError.* \(generation 11, "):
        pyes.maximize(breaking, [1.2, 1.0], "snes", generations=60, population_size=6)


def test_processes_draw_numbers_of_their_own(tmp_path):
    """From the global generators, whose state forked processes share."""

    def noisy(theta):
        time.sleep(0.01)
        with (tmp_path / "drawn").open("a") as file:
            file.write(f"{np.random.rand()} {random.random()}\n")
        return 0.0

    pyes.maximize(noisy, np.zeros(3), "snes", generations=2, population_size=8, workers=2)
    lines = (tmp_path / "drawn").read_text().splitlines()
    for drawn in zip(*map(str.split, lines), strict=True):
        assert len(set(drawn)) == 17


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # that pycma's are hidden is not certain with threads, before Python 3.14
def test_searches_in_threads_find_what_they_find_alone():
    """CMA-ES draws from the global generators, which the threads of a process share."""

    def search(seed):
        return pyes.maximize(_paraboloid, np.zeros(3), "cma_es", generations=40, population_size=8, seed=seed).theta

    alone = [search(seed) for seed in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as threads:
            together = list(threads.map(search, range(4)))
    finally:
        sys.setswitchinterval(interval)
    np.testing.assert_array_equal(together, alone)


def _search_for_long():
    pyes.maximize(_paraboloid, np.zeros(3), "cma_es", generations=300, population_size=8)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="forks")
@pytest.mark.filterwarnings("ignore")
def test_a_process_forked_while_another_thread_searches_can_search():
    _on_one_worker(np.zeros(3))  # a child of a thread that imports would wait for it when it imports the same
    forked = [get_context("fork").Process(target=_on_one_worker, args=(np.zeros(3),)) for _ in range(6)]
    with ThreadPoolExecutor(1) as thread:
        searching = thread.submit(_search_for_long)
        for each in forked:
            each.start()
        deadline = time.monotonic() + 60
        for each in forked:
            each.join(max(0.0, deadline - time.monotonic()))
            if each.exitcode is None:
                each.kill()
        searching.result()
    assert [each.exitcode for each in forked] == [0] * 6


def _on_one_worker(theta):
    return pyes.maximize(_paraboloid, theta, "cma_es", generations=2).value


def _on_two_workers(theta):
    return pyes.maximize(_paraboloid, theta, generations=2, workers=2).value


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_a_process_that_may_start_no_others_is_told_so():
    with get_context("fork").Pool(1) as pool, pytest.raises(ClusterError, match=r"is a daemonic process, .*workers=1"):
        pool.map(_on_two_workers, [np.zeros(3)])


@pytest.mark.slow
def test_what_is_no_function_of_numbers_is_named():
    with pytest.raises(TaskError, match=r"the function returned an array of shape \(2,\), expected a number"):
        pyes.maximize(lambda theta: theta[:2], np.zeros(3), population_size=4)
    with pytest.raises(TaskError, match="the function returned NoneType None, expected a number"):
        pyes.maximize(lambda theta: None, np.zeros(3), population_size=4)
    with pytest.raises(ConfigError, match="function: got 5, expected a function of theta"):
        pyes.maximize(5, np.zeros(3))


def test_maximize_takes_schedules_with_any_number_of_workers():
    settings = SETTINGS | {"generations": 9, "population_size": "steps 4 then 20 at 30 timesteps"}
    found = [pyes.maximize(_paraboloid, np.zeros(3), workers=workers, **settings) for workers in (1, 2)]
    np.testing.assert_array_equal(found[0].theta, found[1].theta)


def test_maximize_refuses_impossible_settings():
    with pytest.raises(ConfigError, match="population_size"):
        pyes.maximize(_paraboloid, np.zeros(3), "openai_es", population_size=3)
    for generations in (-1, 2.5, True):
        with pytest.raises(ConfigError, match=r"^generations: got .*, expected an integer >= 0"):
            pyes.maximize(_paraboloid, np.zeros(3), generations=generations)
    for seed in (-1, 1.5, None, 2**64):
        with pytest.raises(ConfigError, match=r"^seed: got .*, expected an integer >= 0 and <= 18446744073709551615"):
            pyes.maximize(_paraboloid, np.zeros(3), seed=seed)
    for settings in ({"name": "snes"}, {"factory": "json:loads"}):
        with pytest.raises(ConfigError, match=r"^(name|factory): got .*, expected none: the argument algorithm"):
            pyes.maximize(_paraboloid, np.zeros(3), "ars", **settings)
    with pytest.raises(ConfigError, match=r"^algorithm\.sigma: got 1000000.*, expected "):
        pyes.maximize(_paraboloid, np.zeros(3), "ars", sigma=10**400)
    with pytest.raises(ConfigError, match=r"^unknown key 'algorithm\.averaging': it is a section of a run"):
        pyes.maximize(_paraboloid, np.zeros(3), averaging={"episodes_max": 5})


@pytest.mark.parametrize(
    "theta",
    ["abc", [[1], [2, 3]], [[1, 2]], _paraboloid, [1 + 2j, 3.0], [], [np.nan], 1.0, [1e300, 1.0], [10**400, 1]],
)
def test_a_theta_that_is_no_vector_of_numbers_is_refused_in_one_line(theta):
    with pytest.raises(ConfigError, match=r"^theta: got .*, expected (\(dim,\)|a vector of finite numbers|finite num)"):
        pyes.maximize(_paraboloid, theta)


def test_settings_of_an_optimizer_without_its_name_are_of_the_own_one_of_the_algorithm():
    few = {"algorithm": "pgpe", "generations": 3}
    own, named, adam = (
        pyes.maximize(_paraboloid, np.zeros(3), optimizer=form, **few).theta
        for form in ({"max_speed": 0.1}, {"name": "clipup", "max_speed": 0.1}, "adam")
    )
    np.testing.assert_array_equal(own, named)
    assert (own != adam).any()


def test_optimizer_is_the_rule_that_moves_theta_in_any_form():
    forms = ("clipup", {"name": "clipup"}, OptimizerConfig(name="clipup"))
    few = {"algorithm": "openai_es", "generations": 3}
    found = [pyes.maximize(_paraboloid, np.zeros(3), optimizer=form, **few).theta for form in forms]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    adam, own = (pyes.maximize(_paraboloid, np.zeros(3), optimizer=form, **few).theta for form in ("adam", None))
    np.testing.assert_array_equal(adam, own)
    assert (adam != found[0]).any()


@pytest.mark.parametrize(
    ("algorithm", "optimizer", "message"),
    [
        ("openai_es", "adamw", r"^optimizer\.name: got 'adamw', expected one of 'adam', 'sgd', 'clipup'$"),
        ("openai_es", {"beta": 1}, r"^unknown key 'optimizer\.beta'"),
        ("openai_es", 3, r"^optimizer: got 3, expected a mapping with keys among: beta1, "),
        ("ars", "adam", r"^optimizer: got 'adam', expected none with algorithm=ars, which moves theta by itself$"),
        ("nevergrad", "adam", r"^algorithm\.optimizer: got 'adam', expected a name of Nevergrad's registry"),
        ("nevergrad", OptimizerConfig(), r"^algorithm\.optimizer: got OptimizerConfig\(.*\), expected a string$"),
    ],
)
def test_an_optimizer_that_would_have_no_effect_is_refused(algorithm, optimizer, message):
    if algorithm == "nevergrad":
        pytest.importorskip("nevergrad")
    with pytest.raises(ConfigError, match=message):
        pyes.maximize(_paraboloid, np.zeros(3), algorithm, optimizer=optimizer)
