"""The measurements run; their results are not checked."""

import pytest

from pyes.bench import kernels, networks


@pytest.mark.parametrize("name", networks.CASES)
def test_networks_are_measured(name: str) -> None:
    config, _ = networks.CASES[name]
    assert min(networks.speeds(config, repetitions=1)) > 0


def test_policies_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    kernels.policy(None, 1)
    assert capsys.readouterr().out.count("PolicyRunner.act") == 2
