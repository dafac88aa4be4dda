"""Shared by all tests: no test leaves a process, a shared block or an open memory file behind.

With ``-n 3`` pytest-xdist runs the tests in three workers. On Linux each leads a process group of its own, so that
none takes what another holds for left behind; the first process passes Ctrl-C on to them, and ends whatever they
leave.
"""

import contextlib
import faulthandler
import gc
import multiprocessing
import os
import signal
import sys
import time
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import leftovers
import pytest
from hypothesis import settings

from pyes.training import ending

_GRACE = 30.0  # seconds for what is just ending
#: The variable in the environment of the workers and of all that they start; only the first process has it here.
_MARK = pytest.StashKey[str]()
_STDERR = pytest.StashKey[int]()
_AGAIN = 30.0  # seconds after which a test that has passed its time limit is interrupted again

settings.register_profile("any_pace", settings.get_profile(settings.get_current_profile_name()), deadline=None)
settings.load_profile("any_pace")  # no test judges time

# Spawned children import a test module by the name it has here, tests.<folder>.test_<module>. Last in the
# path, so that pyes itself still comes from where it is installed.
sys.path.append(str(Path(__file__).parent.parent))


if sys.platform == "win32":  # tests of nodes, heads and relays, whose modules import what only POSIX has
    collect_ignore = [
        "cluster/test_cluster.py", "cluster/test_ray.py", "cluster/test_relay.py", "cluster/test_socket.py",
        "cluster/test_storm.py", "conformance/test_clusters.py", "launch/test_slurm.py", "launch/test_spot.py",
        "remote/test_agent.py", "remote/test_peer.py", "remote/test_state_copy.py", "reports/explorer/test_server.py",
    ]  # fmt: skip

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a script; what tests start would ignore it
    signal.signal(signal.SIGINT, signal.default_int_handler)

_draw_curve = ending.draw_curve


@pytest.fixture(autouse=True, scope="session")
def no_learning_curves() -> Iterator[None]:
    """Have runs end without their picture, which costs as much as three tiny runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ending, "draw_curve", lambda run: None)
        yield


@pytest.fixture
def learning_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the runs of this test draw it."""
    monkeypatch.setattr(ending, "draw_curve", _draw_curve)


@pytest.fixture(autouse=True)
def same_weights_every_time() -> None:
    """Seed torch, if a test has loaded it: its modules draw their weights from a generator of the process."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(autouse=True)
def nothing_left_behind(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test after which more processes, shared blocks or memory files are there than before it."""
    before = _held()
    yield
    deadline = time.monotonic() + _GRACE
    while (left := _held() - before) and time.monotonic() < deadline:
        caplog.get_records("call").clear()  # tracebacks in them hold arrays, and those their memory
        gc.collect()
        time.sleep(0.02)
    assert not left, f"left behind: {sorted(left)}"


def _held() -> set[str]:
    """Return what this process and its descendants hold now."""
    children = {f"process {child.pid} ({child.name})" for child in multiprocessing.active_children()}
    if sys.platform != "linux":
        return children
    return children | leftovers.processes() | leftovers.shared_blocks() | leftovers.memory_files()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option by which CI notices what is not installed."""
    parser.addoption("--no-skips", action="store_true", help="fail where a test would be skipped")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Report a skipped test as failed, if skips are not wanted."""
    report = _not_skipped((yield), item.config)
    # xdist ends at a text that is not UTF-8, such as a logged exception of a test whose environment raises one.
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Report a skipped module as failed, if skips are not wanted."""
    return _not_skipped((yield), collector.config)


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, Any, Any]:
    """Interrupt a test again, if it has caught the first exception, or waits in cleaning up after it."""
    done = yield
    if settings.method == "signal":
        signal.setitimer(signal.ITIMER_REAL, settings.timeout, _AGAIN)
    return done


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Guard the rest of a test that has failed: at a failure pytest gives its limit up, for the sake of debuggers."""
    limit = float(node.config.getini("faulthandler_timeout") or 0.0)
    if limit and isinstance(node, pytest.Item):
        faulthandler.dump_traceback_later(limit, file=node.config.stash[_STDERR], exit=True)


def _not_skipped(report: Any, config: pytest.Config) -> Any:
    if report.outcome == "skipped" and config.getoption("no_skips") and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"must not be skipped: {report.longrepr}"
    return report


def pytest_configure(config: pytest.Config) -> None:
    """Set a worker apart from the others; mark what the first process will start."""
    config.stash[_STDERR] = os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2)  # not yet captured
    if sys.platform != "linux":
        return
    if hasattr(config, "workerinput"):
        os.setpgid(0, 0)
    elif config.getoption("numprocesses", None):
        os.environ["PYES_TEST_RUN"] = uuid.uuid4().hex
        config.stash[_MARK] = f"PYES_TEST_RUN={os.environ['PYES_TEST_RUN']}"


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Pass an interrupt on to the workers, which a terminal no longer reaches."""
    if exitstatus == pytest.ExitCode.INTERRUPTED:
        for pid in _started(session.config):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End what workers that were killed or interrupted have left."""
    while left := _started(config):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _started(config: pytest.Config) -> list[int]:
    """Return the workers and all that they started; none in a worker, and without workers."""
    return leftovers.with_variable(config.stash[_MARK]) if _MARK in config.stash else []
