"""The metrics of a run for Prometheus: scraped while it runs, and gone with it."""

import json
import re
import socket
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser

import pyes
from pyes.errors import ConfigError
from pyes.system import addresses
from pyes.training.exporter import Exporter

SETTINGS = {
    "task": {"env_id": "CartPole-v1"},
    "algorithm": {"population_size": 8},
    "generations": 4,
    "evaluation": {"every": 2, "episodes": 2},
    "noise": {"entries": 100_000},
}


def _scrape(url):
    request = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text"})
    with urllib.request.urlopen(request, timeout=10.0) as page:
        return page.read().decode()


def _samples(text):
    """Return the value of each sample, by its name and labels."""
    samples = {}
    for family in parser.text_string_to_metric_families(text):
        for each in family.samples:
            samples[each.name, *(each.labels[label] for label in sorted(each.labels))] = each.value
    return samples


def _train(run, **cluster):
    return pyes.train({**SETTINGS, "run_dir": str(run), "cluster": {"workers": 1, **cluster}}, display=False)


@pytest.fixture
def scraped(monkeypatch):
    """Return the page of the run after each generation, and the URL."""
    pages, publish = [], Exporter.publish

    def and_scrape(self, *arguments):
        publish(self, *arguments)
        pages.append((self.url, _scrape(self.url)))

    monkeypatch.setattr(Exporter, "publish", and_scrape)
    return pages


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inline", "local", "socket"])
def test_a_run_is_scraped_while_it_runs_and_leaves_nothing_behind(name, tmp_path, scraped):
    more = {"listen": "tcp://127.0.0.1:0"} if name == "socket" else {}
    threads = threading.active_count()
    result = _train(tmp_path / "run", name=name, metrics=0, **more)
    assert len(scraped) == 4
    first, last = _samples(scraped[0][1]), _samples(scraped[-1][1])
    assert (first["pyes_generation",], last["pyes_generation",]) == (0, 3)
    assert first["pyes_timesteps_total",] < last["pyes_timesteps_total",] == result.timesteps
    assert last["pyes_episodes_total",] == 32
    assert last["pyes_evaluation_return",] == result.objective
    assert last["pyes_workers",] == 1
    assert last["pyes_nodes",] == (name == "socket")
    assert last["pyes_failed_members_total",] == last["pyes_lost_members_total",] == 0
    assert last["pyes_run_info", str(tmp_path / "run"), "CartPole-v1"] == 1
    if name == "socket":
        (node,) = {key[1] for key in last if key[0] == "pyes_node_members_total"}
        assert last["pyes_node_members_total", node] == 36  # and evaluations
        assert last["pyes_node_steps_per_second", node] > 0
        assert min(last["pyes_bytes_total", "sent"], last["pyes_node_bytes_total", "sent", node]) > 0
    port = int(re.search(r"127\.0\.0\.1:(\d+)/metrics", scraped[0][0])[1])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5.0)
    assert threading.active_count() <= threads


def test_metrics_do_not_change_the_journal(tmp_path, scraped):
    _train(tmp_path / "with", name="inline", metrics=0)
    assert len(scraped) == 4
    scraped.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Exporter, "publish", lambda *arguments: None)
        _train(tmp_path / "without", name="inline")
    journals = [(tmp_path / name / "journal.bin").read_bytes() for name in ("with", "without")]
    assert journals[0] == journals[1]


def test_a_port_in_use_is_one_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            _train(tmp_path / "run", name="inline", metrics=port)
    message = f"cluster.metrics: cannot listen at 127.0.0.1:{port} (Address already in use)"
    assert str(caught.value) == f"{message}; does another run serve its metrics there?"


def test_an_address_of_another_machine_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1:9000 \(.*\); expected an address of this"):
        _train(tmp_path / "run", name="inline", metrics="192.0.2.1:9000")


def test_without_the_package_it_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with (
        pytest.raises(ConfigError, match=r"cluster.metrics needs the package prometheus-client: .*pyes-rl\[metrics\]"),
        Exporter(addresses.parse("tcp://127.0.0.1:0"), {}),
    ):
        pass


def test_the_page_of_grafana_and_the_guide_name_metrics_that_exist(tmp_path, scraped):
    _train(tmp_path / "run", name="inline", metrics=0)
    families = parser.text_string_to_metric_families(scraped[-1][1])
    kinds = {"counter": "_total", "info": "_info"}
    known = {each.name + kinds.get(each.type, "") for each in families}
    howto = Path(__file__).parents[2] / "docs" / "howto"
    for page in ("monitor.md", "grafana/pyes.json"):
        text = (howto / page).read_text(encoding="utf-8")
        named = set(re.findall(r"\bpyes_\w+", text))
        assert named <= known, page
        if page == "monitor.md":
            assert named == known
    panels = json.loads(text)["panels"]
    assert all(target["expr"] for panel in panels for target in panel["targets"])
