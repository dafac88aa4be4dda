import pytest

from pyes.reports.wording import features, labels


def _labels(*settings):
    return labels([features(each) for each in settings])


def test_labels_show_only_what_differs():
    each = [
        {"algorithm.sigma": s, "algorithm.learning_rate": r, "task.episodes": 1} for s in (0.1, 0.3) for r in (1, 2)
    ]
    assert _labels(*each) == [f"sigma {s}, learning rate {r}" for s in (0.1, 0.3) for r in (1, 2)]


def test_a_switch_that_is_off_is_as_one_that_an_older_version_did_not_have():
    assert features({"algorithm.name": "ars", "task.remake": False}) == features({"algorithm.name": "ars"})
    assert _labels({"task.remake": True}, {"task.remake": False}) == ["remake", "no remake"]


def test_labels_one_name_stands_for_all_that_differs_with_it():
    each = [
        {"algorithm.name": "openai_es", "algorithm.sigma": 0.1, "algorithm.population_size": 20},
        {"algorithm.name": "cma_es", "algorithm.sigma": 0.3, "algorithm.population_size": 40},
        {"algorithm.name": "pgpe", "algorithm.sigma": 0.3, "algorithm.population_size": 60},
    ]
    assert _labels(*each) == ["OpenAI-ES", "CMA-ES", "PGPE"]


def test_labels_one_setting_stands_for_all_that_differs_with_it():
    each = [{"algorithm.sigma": s, "algorithm.learning_rate": r} for s, r in ((0.1, 1.0), (0.1, 2.0), (0.3, 4.0))]
    assert _labels(*each) == ["learning rate 1", "learning rate 2", "learning rate 4"]


def test_labels_name_the_algorithm_though_a_number_would_do():
    each = [
        {"algorithm.name": name, "algorithm.population_size": size, "task.episodes": episodes}
        for name, size, episodes in (("ars", 200, 1), ("ars", 40, 5), ("ga", 100, 1), ("ga", 20, 5))
    ]
    assert _labels(*each) == ["ARS, 200 members", "ARS, 40 members", "GA, 100 members", "GA, 20 members"]


@pytest.mark.parametrize(
    ("key", "values", "expected"),
    [
        ("algorithm.mirrored", (True, False), ["mirrored", "not mirrored"]),
        ("task.normalize_observations", (True, False), ["normalised observations", "raw observations"]),
        ("network.virtual_batch_norm", (True, False), ["virtual batch norm", "no virtual batch norm"]),
        ("task.max_timesteps", (500, None), ["500 timesteps an episode", "no limit of timesteps an episode"]),
        (
            "task.episodes",
            (1, "linear 1 to 5 in 9 generations"),
            ["1 episode", "episodes linear 1 to 5 in 9 generations"],
        ),
        ("task.env_kwargs.gravity", (-5.0, None), ["gravity -5", "default gravity"]),
        ("episode_limit.initial", (400, None), ["episode limit 400", "no episode limit"]),
        ("task.name", ("gymnasium", "envpool"), ["task gymnasium", "task envpool"]),
        ("cluster.name", ("local", "inline"), ["cluster local", "cluster inline"]),
        ("noise.dtype", ("float32", "int8"), ["noise float32", "noise int8"]),
        ("noise.seed", (1, 2), ["noise seed 1", "noise seed 2"]),
        ("noise.entries", (1_000_000, "auto"), ["noise entries 1,000,000", "noise entries auto"]),
        ("timesteps", (10**6, None), ["1,000,000 timesteps", "no limit of timesteps"]),
        ("target_return", (200.5, 250.0), ["target return 200.5", "target return 250"]),
        ("task.hide_observations", ([2], []), ["hide observations [2]", "hide observations []"]),
        ("algorithm.learning_rate", (0.1 + 0.2, 1e-8), ["learning rate 0.3", "learning rate 1e-08"]),
        ("task.env_id", ("CartPole-v1", "Pendulum-v1"), ["CartPole-v1", "Pendulum-v1"]),
        ("optimizer.name", ("clipup", "mine"), ["ClipUp", "mine"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_labels_say_a_setting_in_words(key, values, expected):
    assert _labels(*({key: value} if value is not None else {} for value in values)) == expected


def test_labels_have_the_sections_of_keys_that_would_be_mistaken():
    each = [{"task.init": a, "network.init": b} for a in (1, 2) for b in (1, 2)]
    assert _labels(*each)[1] == "task init 1, network init 2"


def test_labels_of_networks_have_their_layers():
    networks = [("linear", []), ("mlp", [64, 64]), ("lstm", [16])]
    each = [{"network.name": name, "network.hidden": hidden} for name, hidden in networks]
    assert _labels(*each) == ["linear", "MLP 64-64", "LSTM 16"]
    modules = [{"network.name": "torch", "network.module": f"mine:{name}", "network.hidden": []} for name in "AB"]
    assert _labels(*modules) == ["mine:A", "mine:B"]
