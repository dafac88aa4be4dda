"""The contract of users' own algorithms: each breach is an error of one line before a run begins."""

import inspect
from dataclasses import dataclass

import numpy as np
import pytest

import pyes
from pyes.algorithms import check_contract
from pyes.config import algorithm_config
from pyes.errors import ConfigError
from pyes.numerics.noise import NoiseTable


@dataclass(frozen=True, kw_only=True)
class Settings(pyes.AlgorithmConfig):
    step: float = 0.1


class Good(pyes.Algorithm):
    """Walks to the best member, with a step that depends on how often it was told."""

    Config = Settings
    saved = ("_count",)

    def __init__(self, theta, *arguments, **settings):
        super().__init__(theta, *arguments, **settings)
        self._count = 0

    def _draw(self):
        return self.perturbed(self.config.step / (1 + self._count))

    def _learn(self, population, returns):
        self._count += 1
        self.theta += np.float32(0.5) * (self.member(int(np.nanargmax(returns))) - self.theta)


class Dense(Good):
    @dataclass(frozen=True, kw_only=True)
    class Config(Settings):
        on_table = False

    def _draw(self):
        random = np.random.default_rng((self._seed, self.generation))
        steps = random.standard_normal((self.population_size, len(self.theta)))
        return pyes.Population.of(self.generation, (self.theta + self.config.step * steps).astype(np.float32))


class NoConfig(pyes.Algorithm):
    _draw = Good._draw
    _learn = Good._learn


class ForgetsItsBase(Good):
    def __init__(self, theta, *arguments, **settings):
        self._count = 0


class ConfigOfAnotherKind(Good):
    Config = dict


class ConfigUndecorated(Good):
    class Config(Settings):
        other = 3


class ConfigOfAnotherSection(Good):
    Config = pyes.config.Section


class FailsAtOnce(Good):
    def __init__(self, theta, **settings):
        raise RuntimeError("no\nway")


class FailsInDraw(Good):
    def _draw(self):
        raise AttributeError("sgima")


class FailsInLearn(Good):
    def _learn(self, population, returns):
        raise IndexError("too far")


class LearnsFromFailures(Good):
    def _learn(self, population, returns):
        self.theta += np.float32(returns.mean())


class DrawsVectors(Good):
    def _draw(self):
        return np.zeros((8, 6), np.float32)


class DrawsTooFew(Good):
    def _draw(self):
        return pyes.Population.center(self.generation, self.theta, 7)


class DrawsDoubles(Good):
    def _draw(self):
        return pyes.Population.of(self.generation, np.zeros((8, 6)))


class DrawsManyBases(Dense):
    @dataclass(frozen=True, kw_only=True)
    class Config(Settings):
        """Says that its members lie on the noise table."""


class DrawsBeyondTheTable(Good):
    def _draw(self):
        offsets = np.full(8, 9_995)
        return pyes.Population.around(self.generation, self.theta, offsets, np.ones(8, np.float32))


class DrawsAnew(Good):
    def ask(self):
        self._population = None
        self.generation += 1
        return super().ask()


class ThetaOfDoubles(Good):
    def _learn(self, population, returns):
        self.theta = self.theta + np.nanmax(returns)


class ThetaOfAnotherShape(Good):
    def __init__(self, theta, *arguments, **settings):
        super().__init__(theta, *arguments, **settings)
        self.theta = self.theta[:3]


class StateOfObjects(Good):
    def state_dict(self):
        return super().state_dict() | {"random": np.random.default_rng(0)}


class StateForgets(Good):
    saved = ()


class StateIsNotLoaded(Good):
    def load_state_dict(self, state):
        super().load_state_dict(state)
        self._count = 0


class DrawsFromAGlobalGenerator(Good):
    def _learn(self, population, returns):
        self.theta += np.float32(np.random.standard_normal())


class CountsNoGenerations(Good):
    def tell(self, returns, behaviours=None):
        self._learn(self.ask(), returns)


def _check(kind: str) -> None:
    config = algorithm_config({"factory": f"tests.algorithms.test_contract:{kind}", "population_size": 8})
    with NoiseTable(10_000, 0) as table:
        check_contract(config, None, np.ones(6, np.float32), table, seed=1)


@pytest.mark.parametrize("kind", ["Good", "Dense"])
def test_what_keeps_the_contract_is_taken(kind: str):
    _check(kind)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("Settings", r" is not a class that derives from pyes.algorithms.base.Algorithm"),
        ("NoConfig", r" has no settings: give it Config, a frozen dataclass of its keys"),
        ("ConfigOfAnotherKind", r" has no settings: give it Config, a frozen dataclass of its keys"),
        ("ConfigUndecorated", r": its Config is not a dataclass of its own; put @dataclass\(frozen=True\) before it"),
        ("ConfigOfAnotherSection", r": its Config must derive from pyes.AlgorithmConfig, the keys of every algorithm"),
        ("FailsAtOnce", r": the constructor failed with RuntimeError: no way \(.*test_contract\.py:\d+ in __init__\)$"),
        ("ForgetsItsBase", r": it has no theta; call super\(\).__init__\(theta, table, seed=seed, ...\) in its constr"),
        ("FailsInDraw", r": ask failed with AttributeError: sgima \(.*test_contract\.py:\d+ in _draw\)$"),
        ("FailsInLearn", r": tell failed with IndexError: too far \(.*test_contract\.py:\d+ in _learn\)$"),
        ("LearnsFromFailures", r": theta .* is not finite after returns of which one is NaN, a member .* as the worst"),
        ("DrawsVectors", r": ask returned ndarray, expected a pyes.Population; return self.perturbed\(sigma\)"),
        ("DrawsTooFew", r": ask returned 7 members, expected 8, its population_size; change the members or the"),
        ("DrawsDoubles", r": .* whose bases is float64 \(8, 6\), expected float32 \(8, 6\); see pyes.Population"),
        ("DrawsManyBases", r": ask returned 8 bases, expected at most 1; set on_table = False in its Config if"),
        ("DrawsBeyondTheTable", r": ask .* whose offsets are not all from 0 to 9994; see pyes.Population"),
        ("DrawsAnew", r": asking twice gave different members; override _draw, not ask"),
        ("ThetaOfDoubles", r": theta is float64 \(6,\), expected float32 \(6,\); change it in place: self.theta"),
        ("ThetaOfAnotherShape", r": theta is float32 \(3,\), expected float32 \(6,\)"),
        ("StateOfObjects", r": state_dict\(\) cannot be saved \(TypeError: .*\); keep arrays, numbers, strings, lists"),
        ("StateForgets", r": one restored from state_dict\(\) differs after equal returns; name all that changes in"),
        ("StateIsNotLoaded", r": state_dict\(\) is another one after it was saved and loaded; load all that it has"),
        ("DrawsFromAGlobalGenerator", r": another one made alike differs after equal returns; draw all random"),
        ("CountsNoGenerations", r": generation is 0 after 1 tell; override _learn, not tell"),
    ],
)
def test_what_breaks_the_contract_is_refused_in_one_line(kind: str, expected: str):
    with pytest.raises(
        ConfigError, match=rf"^algorithm\.factory=tests.algorithms.test_contract:{kind}( \({kind}\))?{expected}"
    ) as caught:
        _check(kind)
    assert "\n" not in str(caught.value)


def test_constructors_of_any_shape_show_the_settings():
    class Surrogate(Good):
        def __init__(self, theta, surrogate, table=None, **settings):
            super().__init__(theta, table, **settings)

    class Another(Surrogate):
        def __init__(this, theta, *arguments, step=0.2, **settings):
            super().__init__(theta, *arguments, step=step, **settings)

    assert list(inspect.signature(Surrogate).parameters) == [
        *("theta", "surrogate", "table", "seed", "threads", "population_size", "step")
    ]
    assert list(inspect.signature(Another).parameters) == ["theta", "seed", "threads", "step", "population_size"]
    assert Another(np.zeros(2), None, population_size=4).config.step == 0.2


def test_saved_is_no_string():
    with pytest.raises(TypeError, match=r"Momentum\.saved: got the string 'momentum', expected a tuple of names"):
        type("Momentum", (Good,), {"saved": ("momentum")})


def test_a_setting_without_a_default_must_be_given():
    @dataclass(frozen=True, kw_only=True)
    class Config(Settings):
        depth: int

    strict = type("Strict", (Good,), {"Config": Config})
    with pytest.raises(ConfigError, match=r"^algorithm\.depth: got no value, expected an integer$"):
        strict(np.zeros(2))
    assert strict(np.zeros(2), depth=3).config.depth == 3


def test_vectors_have_no_offsets():
    with pytest.raises(
        ConfigError, match=r"Dense: its members are no perturbations, for its Config\.on_table is False"
    ):
        Dense(np.zeros(2), population_size=4).offsets(2)


def test_it_is_refused_where_a_run_and_a_search_begin(tmp_path):
    broken = "tests.algorithms.test_contract:StateForgets"
    with pytest.raises(ConfigError, match="one restored from state_dict"):
        pyes.maximize(lambda theta: -float(theta @ theta), np.ones(6), broken)
    with pytest.raises(ConfigError, match="one restored from state_dict"):
        pyes.train(
            {
                "algorithm": {"factory": broken},
                "task": {"env_id": "CartPole-v1"},
                "noise": {"entries": 10_000},
                "cluster": {"name": "inline"},
                "run_dir": str(tmp_path / "run"),
            },
            display=False,
        )
