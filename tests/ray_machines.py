"""A Ray cluster on this machine, in a network of its own that nobody else can reach."""

import subprocess
from pathlib import Path
from typing import Any


def environment_of(folder: str) -> dict[str, str]:
    """Return the environment of a program that starts Ray, which keeps its files in a folder with a short path."""
    return {
        "PYTHONPATH": str(Path(__file__).parent),
        "RAY_TMPDIR": folder,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": "60",
    }


def machine(number: int) -> dict[str, Any]:
    """Return the options of a node of Ray; it waits for none of its helpers, whose ports are given."""
    ports = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
    given = {name: 20_000 + 10 * number + i for i, name in enumerate(ports)}
    return {
        "num_cpus": 1,
        "resources": {"simulator": 2},
        "wait": False,
        "include_dashboard": False,
        "include_log_monitor": False,
        **given,
    }


def make_network() -> None:
    """Give this process's network an interface beside the loopback, which Ray does not take, and a way out for it."""
    for command in (
        "link set lo up",
        "link add one type veth peer name two",
        "addr add 10.1.1.1/24 dev one",
        "link set one up",
        "link set two up",
        "route add default dev one",
    ):
        subprocess.run(["ip", *command.split()], check=True, capture_output=True)
