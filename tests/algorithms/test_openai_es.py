import numpy as np
import pytest
from optima import check_solves, noisy_quadratic

from pyes import reference
from pyes.algorithms.cma_es import CMAES
from pyes.algorithms.ga import GA
from pyes.algorithms.openai_es import OpenAIES
from pyes.algorithms.pgpe import PGPE
from pyes.algorithms.snes import SNES
from pyes.errors import ConfigError, DivergedError
from pyes.numerics.noise import NoiseTable
from pyes.tasks import functions


@pytest.mark.parametrize("mirrored", [True, False])
@pytest.mark.parametrize("mode", ["decoupled", "classic"])
def test_openai_es_equals_a_plain_numpy_implementation(table, mirrored, mode):
    """Twenty generations on a noisy quadratic against the paper's algorithm 2, written out slice by slice."""
    settings = {
        "population_size": 20,
        "sigma": "exponential 0.1 to 0.01326196 in 100 generations",
        "learning_rate": 0.05,
        "weight_decay": 0.01,
    }
    es = OpenAIES(np.ones(12), table, seed=4, mirrored=mirrored, weight_decay_mode=mode, **settings)
    theta, m, v = np.ones(12), np.zeros(12), np.zeros(12)
    function, same = noisy_quadratic(), noisy_quadratic()
    sigma = 0.1
    for step in range(1, 21):
        population = es.ask()
        eps = np.stack([table.slice(offset, 12) for offset in population.offsets]).astype(float)
        signs = np.sign(population.scales)
        members = theta + sigma * signs[:, None] * eps
        if mirrored:
            np.testing.assert_array_equal(eps[::2], eps[1::2])
        es.tell([function(es.member(i)) for i in range(20)])
        ranks = np.argsort(np.argsort([same(member) for member in members])) / 19 - 0.5
        gradient = (ranks * signs) @ eps / 20
        if mode == "classic":
            gradient -= 0.01 * theta
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        change = 0.05 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        theta = theta + change - (0.05 * 0.01 * theta if mode == "decoupled" else 0)
        sigma *= 0.98
        np.testing.assert_allclose(es.theta, theta, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "rate"), [("adam", 0.05), ("sgd", 0.3), ("clipup", 0.05)])
def test_openai_es_solves_the_sphere(table, optimizer, rate):
    settings = {
        "population_size": 40, "sigma": 0.1, "optimizer": optimizer,
        "learning_rate": f"exponential {rate} to {rate * 0.98**300} in 300 generations",
    }  # fmt: skip
    check_solves(
        lambda seed: OpenAIES(np.full(10, 2.0), table, seed=seed, **settings),
        functions.sphere, -0.05, generations=300, seeds=3,
    )  # fmt: skip


def test_scheduled_settings_have_their_values_in_every_generation(table):
    es = OpenAIES(
        np.full(2, 3.0), table, population_size=2, sigma="linear 1 to 0.5 in 2 generations",
        learning_rate="steps 1 then 0.5 at 20 timesteps", weight_decay="linear 0.5 to 0 in 20 timesteps",
    )  # fmt: skip
    seen = []
    for _ in range(4):
        seen.append((es.sigma, es.learning_rate, es.weight_decay))
        es.tell([0.0, 0.0], timesteps=10)
    assert seen == [(1.0, 1.0, 0.5), (0.75, 1.0, 0.25), (0.5, 0.5, 0.0), (0.5, 0.5, 0.0)]
    assert es.timesteps == 40


@pytest.mark.parametrize(("mirrored", "sizes"), [(True, [4, 6, 6, 8, 8]), (False, [4, 5, 6, 7, 7])])
def test_a_scheduled_population_has_whole_members_or_pairs(table, mirrored, sizes):
    es = OpenAIES(np.ones(2), table, population_size="linear 4 to 7 in 3 generations", mirrored=mirrored)
    seen = []
    for _ in range(5):
        seen.append((es.population_size, len(es.ask())))
        es.tell(np.arange(len(es.ask())))
    assert seen == [(size, size) for size in sizes]
    assert es.config.capacity(es.config.population_max) == max(sizes)


def test_sigma_follows_the_root_mean_square_of_theta(table):
    es = OpenAIES(np.array([3.0, 4.0, 0.0, 0.0]), table, population_size=2, sigma="norm 0.1 at least 0.02")
    assert es.sigma == pytest.approx(0.25)
    es.tell([1.0, 2.0])
    assert es.sigma == pytest.approx(0.1 * np.sqrt(np.mean(es.theta.astype(float) ** 2)))
    assert OpenAIES(np.zeros(4), table, population_size=2, sigma="norm 0.1 at least 0.02").sigma == 0.02


def test_an_attempt_that_has_come_to_nothing_begins_again_with_other_noise(table):
    settings = {
        "population_size": 10,
        "sigma": "linear 0.3 to 0.1 in 5 generations",
        "learning_rate": "steps 0.1 then 0.05 at 15 timesteps",
    }
    es = OpenAIES(np.ones(8), table, restart={"after": 3, "below": -1.0}, **settings)
    free = OpenAIES(np.ones(8), table, **settings)
    first = es.ask().offsets
    for _ in range(3):
        es.tell(np.arange(10.0) - 100)
        free.tell(np.arange(10.0) - 100)
        np.testing.assert_array_equal(es.theta, free.theta)
    es.tell([np.nan, *(-2.0 - np.arange(9.0))])
    np.testing.assert_array_equal(es.theta, 1)
    assert (es.sigma, es.learning_rate, es.generation, es.progress) == (0.3, 0.1, 4, (0, 0))
    assert not np.isin(es.ask().offsets, first).any()
    moments = es.state_dict()["optimizer"]
    assert (moments["steps"], moments["m"].any(), es.gradient_norm) == (0, False, 0.0)
    resumed = OpenAIES(np.zeros(8), table, restart={"after": 3, "below": -1.0}, **settings)
    for generation in range(5):  # the second attempt is good enough at its third generation, and goes on
        if generation == 2:
            resumed.load_state_dict(es.state_dict())
            es = resumed
        es.tell(np.arange(10.0))
    assert (es.sigma, es.learning_rate) == (0.1, 0.05)


def test_a_restart_after_a_saved_state_returns_to_the_start_of_the_search_that_it_is_of(table):
    settings = {"population_size": 4, "restart": {"after": 1, "below": 0.0}}
    es, other = OpenAIES(np.full(3, 5), table, **settings), OpenAIES(np.zeros(3), table, **settings)
    es.tell(np.arange(4.0) - 9)
    other.load_state_dict(es.state_dict())
    other.tell(np.arange(4.0) - 9)
    np.testing.assert_array_equal(other.theta, 5)


def test_an_optimizer_that_can_learn_no_more_ends_the_search(table):
    """The square of such a gradient is infinite as a float32, and Adam would stand still for ever."""
    es = OpenAIES(np.zeros(3), table, population_size=8, shaping="none")
    with pytest.raises(DivergedError, match=r"a moment of the optimizer has a value of inf; .* smaller scale"):
        es.tell(np.arange(8.0) * 1e22)


def test_a_center_that_diverges_stays_as_it_was(table):
    search = OpenAIES(
        np.ones(5, np.float32), table, population_size=4, optimizer="sgd", shaping="none", learning_rate=1e30
    )
    with pytest.raises(DivergedError, match=r"theta has a value of -?inf; start again with smaller steps"):
        search.tell([1e10, 0, 3e10, -1])
    np.testing.assert_array_equal(search.theta, np.ones(5))


@pytest.mark.parametrize(
    ("returns", "message"),
    [
        ([1j, 0, 0, 0], r"returns: got a list \(complex numbers\), expected 4 numbers, one a member"),
        ((each for each in "abcd"), r"returns: got a generator \(.*\), expected 4 numbers"),
        ([1.0, None, 0, 0], r"returns: got a list \(None or a text in it\), expected 4 numbers"),
        (["1", "2", "3", "4"], r"returns: got a list \(None or a text in it\), expected 4 numbers"),
        ([10**400, 0, 0, 0], r"returns: got a list \(.*\), expected 4 numbers"),
        ([[1, 2], 0, 0, 0], r"returns: got a list \(.*\), expected 4 numbers"),
        ([1, 0, 0], r"returns: got shape \(3,\), expected \(4,\), one a member"),
    ],
)
def test_returns_that_are_no_numbers_are_one_line(table, returns, message):
    with pytest.raises(ValueError, match=message):
        OpenAIES(np.ones(5, np.float32), table, population_size=4).tell(returns)


@pytest.mark.parametrize("threads", [0, -1, 1.5, "auto", None])
def test_threads_are_a_number(table, threads):
    with pytest.raises(ConfigError, match=r"threads: got .*, expected an integer >= 1"):
        OpenAIES(np.ones(5, np.float32), table, threads=threads)
    with pytest.raises(ConfigError, match=r"threads: got .*, expected an integer >= 1"):
        NoiseTable(1000, seed=1, threads=threads)


@pytest.mark.parametrize("algorithm", [OpenAIES, PGPE])
def test_a_constant_in_all_returns_cancels_in_mirrored_pairs(table, algorithm):
    """Though it is so large that float32 would lose the differences."""
    one, other = (algorithm(np.zeros(3), table, population_size=8, shaping="none") for _ in range(2))
    returns = np.random.default_rng(0).integers(0, 100, 8) / 64
    one.tell(returns)
    other.tell(returns + 2**30)
    np.testing.assert_array_equal(one.theta, other.theta)
    assert np.any(one.theta)


@pytest.mark.parametrize("algorithm", [OpenAIES, CMAES])
def test_sigma_in_the_place_of_the_table_is_refused(algorithm):
    """Other libraries have it there."""
    with pytest.raises(ConfigError, match=r"^table: got 0\.5, expected a NoiseTable .*sigma=0\.3"):
        algorithm(np.zeros(3), 0.5)


def test_a_finite_center_is_not_said_to_have_diverged(table):
    """Its norm is infinite as a float32."""
    es = OpenAIES(np.array([3e19, 0.0]), table, population_size=8)
    es.tell(np.arange(8.0))
    assert np.isfinite(es.theta).all()


def test_what_has_no_schedule_stays_as_it_is_set(table):
    es = OpenAIES(np.zeros(3), table, population_size=8, sigma="linear 0.3 to 0.1 in 10 generations")
    es.learning_rate, es.sigma = 0.01, 0.5
    es.tell(np.arange(8.0))
    assert (es.learning_rate, round(es.sigma, 9)) == (0.01, 0.28)


def test_a_population_that_has_a_schedule_cannot_be_set(table):
    es = OpenAIES(np.zeros(3), table, population_size="linear 4 to 20 in 10 generations")
    with pytest.raises(ConfigError, match=r"population_size: got 8, expected none .*: its schedule is linear 4 to 20"):
        es.population_size = 8
    assert len(es.ask()) == 4


@pytest.mark.parametrize("sigma", [np.nan, np.inf, 1e39, 1e-50])
def test_a_sigma_that_no_float32_holds_is_refused_before_members_are_drawn(table, sigma):
    es = OpenAIES(np.ones(3), table, population_size=8)
    es.sigma = sigma
    with pytest.raises(ConfigError, match=r"algorithm\.sigma: got .*, expected a number that a float32 can hold"):
        es.ask()


@pytest.mark.parametrize("algorithm", [GA, PGPE, SNES])
def test_a_sigma_too_small_for_a_float32_is_refused(table, algorithm):
    with pytest.raises(ConfigError, match=r"algorithm\.sigma: got 1e-50, expected a number that a float32 can hold"):
        algorithm(np.ones(3), table, population_size=8, sigma=1e-50).ask()


def test_the_state_of_another_algorithm_is_refused(table):
    state = SNES(np.ones(3), table, population_size=8).state_dict()
    with pytest.raises(ConfigError, match="state: got one of algorithm=snes, expected one of PGPE"):
        PGPE(np.ones(3), table, population_size=8).load_state_dict(state)


def test_a_population_of_mirrored_members_cannot_become_odd(table):
    es = OpenAIES(np.zeros(3), table, population_size=8)
    es.population_size = 7
    with pytest.raises(ConfigError, match=r"population_size: got 7, expected an even number"):
        es.ask()


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"population_size": 3}, "even"),
        ({"population_size": 0}, "population_size"),
        ({"sigma": -1.0}, "sigma"),
        ({"shaping": "softmax"}, "centered_ranks"),
    ],
)
def test_impossible_settings_are_refused(table, settings, match):
    with pytest.raises(ConfigError, match=match):
        OpenAIES(np.zeros(2), table, **settings)


def test_update_equals_the_reference_kernels(table):
    es = OpenAIES(np.zeros(30), table, population_size=16, learning_rate=0.1, seed=2)
    population, returns = es.ask(), np.random.default_rng(0).standard_normal(16)
    es.tell(returns)
    ranks, gradient = np.empty(16, np.float32), np.empty(30, np.float32)
    reference.centered_ranks(returns, ranks)
    weights = (ranks[::2] - ranks[1::2]) / np.float32(16)
    reference.weighted_sum(table.array, population.offsets[::2], weights, gradient)
    theta, m, v = (np.zeros(30, np.float32) for _ in range(3))
    reference.adam_step(theta, gradient, m, v, 1, 0.1, 0.9, 0.999, 1e-8, 0.0)
    np.testing.assert_allclose(es.theta, theta, rtol=1e-6)
