import logging
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from commands import running

from pyes.errors import TaskError
from pyes.system import user_code
from pyes.system.lifetime import Stop, interruptible
from pyes.system.text import reason


class _Unreadable(Exception):
    def __str__(self):
        raise GeneratorExit


def _raised(error):
    try:
        raise error
    except BaseException as caught:
        return reason(caught)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("two\nlines"), "ValueError: two lines"),
        (ValueError(), "ValueError"),
        (RuntimeError("caf\udce9"), r"RuntimeError: caf\udce9"),
        (_Unreadable(), "_Unreadable: (its text cannot be made: GeneratorExit)"),
    ],
)
def test_reason_is_one_line_of_utf_8_with_the_users_frame(error, text):
    line = _raised(error)
    assert line.encode()
    assert line.startswith(f"{text} (")
    assert line.endswith(" in _raised)")
    assert "test_user_code.py:" in line


def test_reason_names_the_last_frame_of_the_users_own_code():
    with pytest.raises(np.linalg.LinAlgError, match="Singular") as caught:
        np.linalg.solve(np.zeros((2, 2)), np.zeros(2))
    assert "test_user_code.py" in reason(caught.value)
    assert reason(ValueError("never raised")) == "ValueError: never raised"


@pytest.fixture
def default_handler():
    """Have Python's own handler in charge of Ctrl-C: a shell's background jobs ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_handler")
def test_let_through_raises_what_is_no_mistake_of_the_users_code():
    for error in (TaskError("ours"), Stop(), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            user_code.let_through(error)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler), signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt):  # for SIGTERM
            user_code.let_through(KeyboardInterrupt())
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
    with interruptible():  # signals do not raise that here, so code of the user's has
        user_code.let_through(KeyboardInterrupt())
    for error in (SystemExit(), GeneratorExit(), ValueError()):
        user_code.let_through(error)


def _fail(error):
    raise error


@pytest.mark.parametrize(
    ("close", "text"),
    [
        (lambda: _fail(OSError("gone")), "closing it failed: OSError: gone .*test_user_code.py"),
        (lambda: _fail(SystemExit(3)), "closing it failed: SystemExit: 3"),
        (lambda: time.sleep(60), "closing it failed: TimeoutError: it has taken more than 0.1 s"),
    ],
)
def test_what_cannot_be_closed_is_logged_and_left(close, text, monkeypatch, caplog):
    monkeypatch.setattr(user_code, "CLOSING_SECONDS", 0.1)
    before = signal.getsignal(signal.SIGALRM)
    limit, _ = signal.getitimer(signal.ITIMER_REAL)  # of this test
    with caplog.at_level(logging.WARNING):
        user_code.close_within("it", close)
    (line,) = caplog.messages
    assert re.search(text, line)
    assert signal.getsignal(signal.SIGALRM) == before
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    assert limit - 10.0 < left <= limit


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no alarms")
@pytest.mark.parametrize("block", [0.0, 0.2])
def test_an_alarm_of_the_program_comes_though_something_is_closed_meanwhile(block: float):
    code = f"""
import signal, time
from pyes.system import user_code
signal.signal(signal.SIGALRM, lambda *_: print("alarm", flush=True))
signal.setitimer(signal.ITIMER_REAL, 0.1)
user_code.close_within("it", lambda: time.sleep({block}))
time.sleep(10.0)
time.sleep(10.0)
"""
    with running([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == "alarm\n"


def test_ctrl_c_ends_a_closing():
    with pytest.raises(Stop):
        user_code.close_within("it", lambda: _fail(Stop()))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux tells a child of its parent's end")
@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("os._exit(5)", True),
        ("os.kill(os.getpid(), signal.SIGSEGV)", True),
        ("sys.exit(5)", False),
        ("print()", False),
        ("os.fork() or os._exit(0); os.wait()", False),
        (
            "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nchild = os.fork() or os._exit(0)\nos.waitpid(child, 0)",
            False,
        ),
    ],
)
def test_a_witness_says_what_a_process_was_doing_when_it_ended_without_a_word(end, said):
    program = (
        f"import os, signal, sys\nfrom pyes.system.user_code import witnessed\nwith witnessed('while it ran'): {end}"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ("this process has ended while it ran: by os._exit, a crash or a signal" in done.stderr) == said
    assert done.stderr.count("\n") == said
