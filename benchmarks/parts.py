"""What benchmarks share: the command line, rows of a run in progress, free ports, steps of environments timed."""

import argparse
import socket
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pyes.run.metrics import read_rows

Episodes = dict[int, list[Any]]


def run_parts(description: str | None, parts: Mapping[str, Callable[[], None]]) -> None:
    """Run the parts that the command line names, or all; a name of no part ends the program with one line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=list(parts), metavar="PART", help="one of %(choices)s")
    for name in parser.parse_args().parts or parts:
        parts[name]()


def positive(text: str) -> int:
    """Return a number of the command line that is at least 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"got {text}, expected a number that is at least 1")
    return int(text)


def positive_float(text: str) -> float:
    """Return a number of the command line that is greater than 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"got {text}, expected a number that is greater than 0")
    return number


def rows_of(run: Path) -> list[dict[str, str]]:
    """Return the rows of a run's metrics so far."""
    path = run / "metrics.csv"
    return read_rows(path) if path.exists() else []


def free_address() -> str:
    """Return an address of this machine at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"


def record(task: Any, runner: Any, seeds: Iterable[int], limit: int) -> Episodes:
    """Return the actions of a policy in episodes of at most ``limit`` timesteps, by seed."""
    episodes: Episodes = {}
    for seed in seeds:
        actions = episodes[seed] = []
        runner.begin_episode(0, 0, 0, 0)
        observation, over = task.reset(seed), False
        while len(actions) < limit and not over:
            actions.append(runner.act(observation))
            observation, _, terminated, truncated, _ = task.step(actions[-1])
            over = terminated or truncated
    return episodes


def show_speeds(
    name: str, ways: Mapping[str, Callable[[int, list[Any]], float]], episodes: Episodes, turns: int
) -> None:
    """Play episodes in several ways, in turn; print the speed of each, and its ratio to the first."""
    rounds = [{way: sum(run(*each) for each in episodes.items()) for way, run in ways.items()} for _ in range(turns)]
    steps, first = sum(map(len, episodes.values())), next(iter(ways))
    for way in ways:
        speed = statistics.median(steps / row[way] for row in rounds)
        ratio = statistics.median(row[first] / row[way] for row in rounds)
        print(f"{name}: {way:<16} {1e6 / speed:6.1f} us a step, {speed:7,.0f} steps/s: {ratio:.2f}")


def timed(work: Callable[[], Any]) -> float:
    """Return the processor time of some work."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def timed_steps(reset: Callable[[], Any], step: Callable[[Any], Any], actions: list[Any]) -> float:
    """Return the processor time of an episode's steps, without its reset."""
    reset()
    begun = time.process_time()
    for action in actions:
        step(action)
    return time.process_time() - begun


def timed_policy(task: Any, runner: Any, seed: int, length: int) -> float:
    """Return the processor time of an episode as `pyes.episodes.rollout.Rollout` runs it, but without its reset."""
    runner.begin_episode(0, 0, 0, 0)
    observation, total = task.reset(seed), 0.0
    begun = time.process_time()
    act, step = runner.act, task.step
    for _ in range(length):
        observation, reward, terminated, truncated, _ = step(act(observation))
        total += float(reward)
        if terminated or truncated:
            break
    return time.process_time() - begun
