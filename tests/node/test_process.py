"""What the kernel says of processes."""

import signal
import subprocess
import sys

import pytest
from heads import members, until

from pyes.node.process import state_of

#: Its first thread ends; the other one sleeps.
_WITHOUT_ITS_FIRST_THREAD = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def _letter(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as line:
        return line.read().rpartition(") ")[2][0]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_lives_while_one_of_its_threads_does():
    program = [sys.executable, "-c", _WITHOUT_ITS_FIRST_THREAD]
    with subprocess.Popen(program, start_new_session=True) as process:
        try:
            until(lambda: _letter(process.pid) == "Z", "the end of its first thread")
            assert state_of(process.pid) == "R"
            assert members(process.pid) == [process.pid]
        finally:
            process.send_signal(signal.SIGKILL)
        until(lambda: state_of(process.pid) == "Z", "its end")
        assert not members(process.pid)
    assert state_of(process.pid) == ""
