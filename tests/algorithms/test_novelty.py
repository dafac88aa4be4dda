"""Novelty search: the papers' updates, the archive, the choice of the center, and reproducible runs."""

import numpy as np
import pytest

import pyes
import pyes.reports.replay
from pyes.algorithms.archive import Archive
from pyes.algorithms.novelty import NSES, NSRAES, NSRES
from pyes.config import from_mapping
from pyes.errors import ConfigError, DivergedError
from pyes.numerics import streams
from pyes.run.history import History, setup_of
from pyes.run.journal import Generation, read

EACH = pytest.mark.parametrize("kind", [NSES, NSRES, NSRAES])
SETTINGS = {"population_size": 20, "sigma": 0.1, "learning_rate": 0.05, "parents": 3, "neighbours": 4}


def _behave(theta):
    """Return what a point of six dimensions does: two numbers."""
    return np.array([theta[:3].sum(), theta[3:].sum()])


def _run(algorithm, generations):
    for _ in range(generations):
        members = np.stack([algorithm.member(i) for i in range(len(algorithm.ask()))])
        algorithm.tell(-(members**2).sum(axis=1), np.stack([_behave(member) for member in members]))
    return algorithm.theta


def _distances(archive, behaviour):
    return float(np.sort(np.linalg.norm(np.array(archive) - behaviour, axis=1))[:4].mean())


def _ranks(values):
    return np.argsort(np.argsort(values)) / (len(values) - 1) - 0.5


@EACH
def test_novelty_search_equals_a_plain_numpy_implementation(table, kind):
    """Twenty generations on a noisy quadratic against algorithms 1 to 3 of Conti et al. (2018), written out."""
    extra = {"return_weight_patience": 3, "return_weight_step": 0.25} if kind is NSRAES else {}
    search = kind(np.full(6, 0.5), table, seed=4, **SETTINGS, **extra)
    noise, same = np.random.default_rng(1), np.random.default_rng(1)
    bound = table.offset_bound(6)
    starts = [table.slice(offset, 6) for offset in streams.starts(4, 3, bound)]
    centers = [np.full(6, 0.5) + (0.1 * each if index else 0) for index, each in enumerate(starts)]
    moments, steps = np.zeros((3, 2, 6)), [0] * 3
    archive, own, returns_of, unseen = [], [None] * 3, np.full(3, np.nan), [0, 1, 2]
    weight, best, waited = {NSES: 0.0, NSRES: 0.5, NSRAES: 1.0}[kind], None, 0
    for generation in range(20):
        novelties = [_distances(archive, each) if archive else 1.0 for each in own]
        share = streams.parents(4, generation, 1, 2**53)[0] / 2**53
        chosen = int(np.searchsorted(np.cumsum(novelties), share * sum(novelties), side="right"))
        eps = np.stack([table.slice(offset, 6) for offset in streams.offsets(4, generation, 10, bound)]).astype(float)
        eps = np.repeat(eps, 2, axis=0) * np.tile([1, -1], 10)[:, None]
        members = [centers[chosen] + 0.1 * each for each in eps] + [centers[index] for index in unseen]
        ours = [search.member(i) for i in range(len(search.ask()))]
        np.testing.assert_allclose(ours, members, atol=1e-4)
        values = np.array([-(member**2).sum() + 0.05 * same.standard_normal() for member in members])
        search.tell(
            [-(m**2).sum() + 0.05 * noise.standard_normal() for m in ours], np.stack([_behave(m) for m in ours])
        )
        for index, value, member in zip(unseen, values[20:], members[20:], strict=True):
            own[index], returns_of[index] = _behave(member), value
            archive.append(own[index])
        novelty = np.array([_distances(archive, _behave(member)) for member in members[:20]])
        gradient = (weight * _ranks(values[:20]) + (1 - weight) * _ranks(novelty)) @ eps / 20
        steps[chosen] += 1
        m, v = moments[chosen]
        m[:], v[:] = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        step = steps[chosen]
        centers[chosen] = centers[chosen] + 0.05 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        if kind is NSRAES:
            if best is None or values[20:].max() > best:
                weight = weight if best is None else min(1.0, weight + 0.25)
                best, waited = values[20:].max(), 0
            else:
                waited += 1
            if waited == 3:
                weight, waited = max(0.0, weight - 0.25), 0
        unseen = [chosen]
        np.testing.assert_allclose(search.theta, centers[int(np.argmax(returns_of))], atol=1e-4)
    assert len(search.state_dict()["archive"]["behaviours"]) == 3 + 19


def test_archive_novelty_is_the_mean_distance_to_the_nearest():
    rng = np.random.default_rng(0)
    known, asked = rng.standard_normal((50, 3)).astype("f4"), rng.standard_normal((9, 3)).astype("f4")
    archive = Archive(7)
    np.testing.assert_array_equal(archive.novelty(asked), 0)
    archive.add(known[:20])
    archive.add(known[20:])
    distances = np.sort(np.linalg.norm(asked[:, None].astype(float) - known[None], axis=2), axis=1)
    np.testing.assert_allclose(archive.novelty(asked), distances[:, :7].mean(axis=1), rtol=1e-12)
    few = Archive(7)
    few.add(known[:2])
    assert few.novelty(known[:1])[0] == pytest.approx(np.linalg.norm(known[0].astype(float) - known[1]) / 2)


def test_archive_leaves_out_what_is_not_finite():
    archive = Archive(3)
    archive.add(np.array([[0, 0], [np.nan, 0], [np.inf, 1]], np.float32))
    assert archive.behaviours.tolist() == [[0, 0]]
    novelty = archive.novelty(np.array([[3, 4], [np.nan, 0], [np.inf, 1]], np.float32))
    assert novelty[0] == 5
    assert np.isnan(novelty[1:]).all()


def test_novelty_search_first_generation_evaluates_every_center_and_later_ones_the_one_that_moved(table):
    search = NSRES(np.zeros(6), table, **SETTINGS)
    population = search.ask()
    assert (len(population), population.rows[20:].tolist(), population.scales[20:].tolist()) == (23, [0, 1, 2], [0] * 3)
    np.testing.assert_array_equal(search.member(20), np.zeros(6))
    moved = population.rows[0]
    _run(search, 1)
    assert search.ask().rows[20:].tolist() == [moved]
    assert (len(search.ask()), len(set(search.ask().rows[:20].tolist()))) == (21, 1)


def test_novelty_search_the_center_that_has_gone_far_is_chosen_more_often(table):
    search = NSES(np.zeros(6), table, **(SETTINGS | {"parents": 2, "neighbours": 2}))
    chosen = []
    for _ in range(300):
        state = search.state_dict()
        state |= {
            "own_behaviours": np.array([[1, 0], [0, 3]], np.float32),  # with the archive, of novelty 1 and 3
            "archive": {"behaviours": np.zeros((1, 2), np.float32)},
        }
        search.load_state_dict(state)
        chosen.append(int(search.ask().rows[0]))
        search.tell(np.zeros(len(search.ask())), np.zeros((len(search.ask()), 2)))
    share = np.mean(chosen[1:])
    assert abs(share - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 299)


def test_novelty_search_failed_members_count_as_the_worst(table):
    search = NSRES(np.zeros(6), table, **SETTINGS)
    for _ in range(3):
        size = len(search.ask())
        search.tell(np.full(size, np.nan), np.full((size, 2), np.nan))
    assert np.isfinite(search.theta).all()
    assert len(search.state_dict()["archive"]["behaviours"]) == 0


def test_novelty_search_without_behaviours_is_refused(table):
    search = NSES(np.zeros(6), table, **SETTINGS)
    with pytest.raises(ValueError, match=r"behaviours: got None, expected \(23, numbers of a behaviour\)"):
        search.tell(np.zeros(23))
    with pytest.raises(ValueError, match=r"behaviours: got shape \(20, 2\)"):
        search.tell(np.zeros(23), np.zeros((20, 2)))
    with pytest.raises(ConfigError, match="a function has no behaviour"):
        pyes.maximize(lambda theta: 0.0, np.zeros(2), "ns_es")
    with pytest.raises(
        ConfigError, match=r"task\.behaviour: got 'none', expected 'final_observation', 'final_position'"
    ):
        from_mapping({"algorithm": {"name": "nsr_es"}})
    with pytest.raises(ConfigError, match=r"algorithm\.parents: got 2, expected 3"):
        NSES(np.zeros(6), table, **(SETTINGS | {"parents": 2})).load_state_dict(search.state_dict())


def test_novelty_search_ends_when_a_center_that_is_not_the_best_diverges(table):
    search = NSES(np.ones(6), table, **(SETTINGS | {"weight_decay": 30.0, "learning_rate": 0.1}))
    returns = np.random.default_rng(0).standard_normal(30)

    def tell_for_long():
        for _ in range(1000):
            size = len(search.ask())
            search.tell(returns[:size], np.stack([returns[:size], returns[-size:]], axis=1))

    with pytest.raises(DivergedError, match="its update was too large, a center has a value of"):
        tell_for_long()


def test_novelty_search_refuses_behaviours_of_another_size_and_stays_as_it_was(table):
    search = NSES(np.zeros(6), table, **SETTINGS)
    with pytest.raises(ValueError, match=r"behaviours: got shape \(23, 0\)"):
        search.tell(np.zeros(23), np.zeros((23, 0)))
    _run(search, 1)
    before = search.state_dict()
    size = len(search.ask())
    with pytest.raises(ValueError, match=rf"got shape \({size}, 3\), expected \({size}, 2\), one row a member"):
        search.tell(np.zeros(size), np.zeros((size, 3)))
    np.testing.assert_equal(search.state_dict(), before)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [NSRES, NSRAES])
def test_novelty_search_solves_the_sphere_and_a_rotated_ellipsoid(table, kind):
    """From 1 in six dimensions; 200 generations of 20 members and one; ten seeds."""
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))[0]
    matrices = [np.eye(6), rotation * np.linspace(1, 5, 6) @ rotation.T]
    for matrix in matrices:
        for seed in range(10):
            search = kind(np.ones(6), table, seed=seed, **(SETTINGS | {"parents": 1}))
            best = -np.inf
            for _ in range(200):
                members = np.stack([search.member(i) for i in range(len(search.ask()))]).astype(float)
                returns = -np.einsum("ni,ij,nj->n", members, matrix, members)
                best = max(best, returns.max())
                search.tell(returns, members[:, :2])
            assert best > -0.5


def _config(path, name="nsr_es", **changes):
    return {
        "task": {"env_id": "pyes.tasks.maze:Maze-v0", "behaviour": "final_position", "episodes": 2},
        "algorithm": {"name": name, "population_size": 8, "parents": 3}, "noise": {"entries": 10_000},
        "generations": 6, "evaluation": {"every": 2, "episodes": 2}, "snapshot": {"every": 3},
        "cluster": {"name": "inline"}, "run_dir": str(path), **changes,
    }  # fmt: skip


def test_novelty_search_run_records_behaviours_and_keeps_their_kind(tmp_path):
    pyes.train(_config(tmp_path / "run", generations=3), display=False)
    records = [record for record in read(tmp_path / "run" / "journal.bin") if isinstance(record, Generation)]
    assert [len(record.returns) for record in records] == [11, 9, 9]
    assert [record.behaviours.shape for record in records] == [(22,), (18,), (18,)]
    with pytest.raises(ConfigError, match=r"these settings decide the run and cannot change: task\.behaviour"):
        pyes.train(
            {"resume": str(tmp_path / "run"), "force": True, "task": {"behaviour": "final_observation"}},
            display=False,
        )


@pytest.mark.slow
def test_novelty_search_run_takes_a_changed_return_weight(tmp_path):
    pyes.train(_config(tmp_path / "run", "nsra_es", generations=2), display=False)
    changes = {"resume": str(tmp_path / "run"), "generations": 3, "force": True}
    pyes.train(changes | {"algorithm": {"return_weight": 0.25}}, display=False)
    recording = read(tmp_path / "run" / "journal.bin")
    setup = setup_of(recording)
    with setup.make_table() as table:
        history = History(recording, setup, table)
        while not history.ended:
            history.advance()
        # A new best return may have added a step since.
        assert history.state.algorithm.state_dict()["return_weight"] in (0.25, 0.25 + 0.05)
