"""pyes inside programs of others, which have signal handlers, children, files, threads and logs of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals, forks and /proc")

SEARCH = 'pyes.maximize(f, np.ones(2), "openai_es", generations=2, population_size=8'
LONG_SEARCH = SEARCH.replace("generations=2", "generations=20")


def _run(program: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a program that has NumPy and pyes; what hangs is ended."""
    text = f"import os, signal, sys, threading, time\nimport numpy as np\nimport pyes\n{program}"
    command = [sys.executable, "-c", text]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "before",
    [
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        """
def reap(*_):
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
signal.signal(signal.SIGCHLD, reap)
""",
    ],
    ids=["ignores", "waits"],
)
def test_a_program_that_has_its_children_forgotten_loses_no_worker_and_no_result(before, tmp_path):
    done = _run(
        f"""
{before}
def f(theta):
    if not os.path.exists("died"):
        open("died", "w").close()
        os._exit(3)
    return 1.0
print({SEARCH}, workers=2).value)
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "1.0\n"), done.stderr


@pytest.mark.slow
def test_a_program_that_ignores_its_children_keeps_nothing_of_them(tmp_path):
    done = _run(
        f"""
import gc, multiprocessing
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
def f(theta):
    return 1.0
def held():
    gc.collect()
    return len(os.listdir("/proc/self/fd")), multiprocessing.active_children()
{SEARCH}, workers=2)
before = held()
{SEARCH}, workers=2)
print(before == held(), before[1])
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "True []\n"), done.stderr


@pytest.mark.slow
def test_a_parent_of_workers_is_replaced_though_its_death_is_not_told_and_a_helper_lives(tmp_path):
    done = _run(
        f"""
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
def f(theta):
    if not os.path.exists("killed"):
        open("killed", "w").close()
        helper = os.fork()
        if helper == 0:
            time.sleep(200)
            os._exit(0)
        with open("helper", "w") as file:
            file.write(str(helper))
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    return 1.0
print({SEARCH}, workers=2).value)
os.kill(int(open("helper").read()), signal.SIGKILL)
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "1.0\n"), done.stderr


def test_a_worker_whose_function_closes_its_files_lives(tmp_path):
    done = _run(
        f"""
def f(theta):
    if not os.path.exists("closed"):
        open("closed", "w").close()
        os.closerange(3, 500)
        time.sleep(1)
        open("lived", "w").close()
    return 1.0
print({SEARCH}, workers=2).value)
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "1.0\n"), done.stderr
    assert (tmp_path / "lived").exists()


@pytest.mark.slow
def test_a_ctrl_c_on_the_terminal_is_one_for_an_event_loop(tmp_path):
    done = _run(
        f"""
import asyncio
os.setpgid(0, 0)
heard = []
def f(theta):
    open(f"begun-{{os.getpid()}}", "w").close()
    time.sleep(0.05)
    return 1.0
async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: heard.append(1))
    work = asyncio.create_task(asyncio.to_thread(lambda: {LONG_SEARCH}, workers=2)))
    while len([name for name in os.listdir() if name.startswith("begun")]) < 2 and not work.done():
        await asyncio.sleep(0.01)
    os.killpg(0, signal.SIGINT)
    await work
    await asyncio.sleep(0.1)
    print(len(heard))
asyncio.run(main())
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


@pytest.mark.slow
def test_a_program_that_ignored_its_children_has_started_this_one(tmp_path):
    settings = ("task=native", "task.env_id=CartPole-v1", "generations=1", "noise.entries=10000", "cluster.workers=2")
    code = f"""
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
command = [sys.executable, "-m", "pyes", "train", *{settings}, "run_dir=run"]
os.execv(sys.executable, command)
"""
    done = _run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "policy.safetensors").exists()


@pytest.mark.slow
def test_a_process_that_the_function_forks_can_be_ended_by_it(tmp_path):
    done = _run(
        f"""
from multiprocessing import get_context
def f(theta):
    helper = get_context("fork").Process(target=time.sleep, args=(30,))
    helper.start()
    helper.terminate()
    helper.join(20)
    return float(helper.exitcode or 0)
print({SEARCH}, workers=2).value)
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, f"{-15.0}\n"), done.stderr


@pytest.mark.slow
def test_a_process_that_an_environment_forks_during_a_run_can_be_ended_by_it(tmp_path):
    (tmp_path / "mine.py").write_text(
        """
import time
from multiprocessing import get_context
import gymnasium

class Env(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    def reset(self, *, seed=None, options=None):
        return self.observation_space.low, {}
    def step(self, action):
        helper = get_context("fork").Process(target=time.sleep, args=(30,))
        helper.start()
        helper.terminate()
        helper.join(20)
        return self.observation_space.low, float(helper.exitcode or 0), True, False, {}
"""
    )
    done = _run(
        """
import subprocess
sys.path.insert(0, "")
settings = {"task": {"name": "python", "factory": "mine:Env", "max_timesteps": 1}, "cluster": {"name": "inline"},
            "algorithm": {"name": "openai_es", "population_size": 2}, "noise": {"entries": 10000}, "run_dir": "run"}
print(pyes.train(settings | {"generations": 1, "evaluation": {"episodes": 1}}, display=False).objective, flush=True)
subprocess.run([sys.executable, "-m", "pyes", "replay", "run", "--generation", "0", "--member", "0"], check=True)
""",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first == "-15.0"
    assert "return -15," in last


@pytest.mark.slow
def test_a_handler_of_sigterm_ends_the_program(tmp_path):
    done = _run(
        f"""
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
calls = []
def f(theta):
    calls.append(1)
    if len(calls) == 5:
        signal.raise_signal(signal.SIGTERM)
    return 1.0
print({SEARCH}).value)
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (7, ""), done.stderr


@pytest.mark.slow
def test_a_second_ctrl_c_ends_a_search_in_asyncio(tmp_path):
    """The first one asks the task to end when it next waits."""
    done = _run(
        f"""
import asyncio
calls = []
def f(theta):
    calls.append(1)
    if len(calls) in (5, 6):
        signal.raise_signal(signal.SIGINT)
    return 1.0
async def main():
    {SEARCH})
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print(len(calls))
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "6\n"), done.stderr


@pytest.mark.slow
def test_files_of_the_program_are_held_open_by_nobody_else(tmp_path):
    done = _run(
        f"""
import subprocess
cat = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
def f(theta):
    cat.stdin.close()
    return float(cat.wait(20))
print({SEARCH}).value)
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "0.0\n"), done.stderr


@pytest.mark.slow
def test_signals_to_the_group_and_threads_that_a_program_ends_with_are_not_taken_for_its_death(tmp_path):
    done = _run(
        f"""
os.setpgid(0, 0)
signal.signal(signal.SIGUSR1, lambda *_: print("heard", flush=True))
calls = []
def f(theta):
    calls.append(1)
    if len(calls) == 1:
        os.killpg(0, signal.SIGUSR1)
    time.sleep(0.02)
    return 1.0
{SEARCH})
threading.Thread(target=lambda: {SEARCH.replace("generations=2", "generations=10**6")}), daemon=True).start()
while len(calls) < 30:
    time.sleep(0.01)
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "heard\n", "")


@pytest.mark.slow
def test_threads_that_silence_standard_output_give_it_back(tmp_path):
    done = _run(
        """
from pyes.tasks.bullet_output import silenced
def silent():
    for _ in range(300):
        with silenced(1):
            os.write(1, b"not to be seen")
threads = [threading.Thread(target=silent) for _ in range(3)]
sys.setswitchinterval(1e-5)
for each in threads:
    each.start()
for each in threads:
    each.join()
print("seen")
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "seen\n"), done.stderr
