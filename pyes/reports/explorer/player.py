"""Rebuilds, places and plays individuals in a process of its own, since an environment may crash or hang.

Owns that process and its answers. One question is answered after the other; what was played is kept in a folder until
the end.
"""

import io
import os
import signal
import zipfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import numpy as np

from pyes.errors import ConfigError, PyesError
from pyes.node.process import prepare
from pyes.reports import replay, video
from pyes.reports.maps import Components
from pyes.reports.replay import Replay
from pyes.system.lifetime import Closing
from pyes.system.text import finite, reason

_WAITING = 16  # questions, beyond which another one is refused
_MOST_BEHAVIOURS = 2
_MOST_OPEN = 4  # runs; each has a noise table
_BEGINNING = 2**14  # bytes of a journal that tell it from that of another run
_MOST_FRAMES = 300  # of a video, so that it is there within about two seconds


class Busy(PyesError):
    """Too many questions are waiting."""


class Player(Closing):
    """A process that answers questions, started with the first one, and again after it has ended.

    Parameters
    ----------
    seconds : float
        After which the process of a question without an answer is ended.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._context = get_context("spawn")  # a fork would inherit the server's sockets
        self._process: Any = None
        self._connection: Connection | None = None
        # One thread until the end: the kernel ends the process with the thread that has started it.
        self._thread = ThreadPoolExecutor(1)
        self._waiting = 0
        self._closed = False

    def ask(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        """Return the future of what a function of this module returns in the process; a PyesError if it fails.

        Raises
        ------
        Busy
            Too many questions are waiting.
        """
        if self._waiting >= _WAITING:
            raise Busy("too many individuals are being played; try again in a moment")
        self._waiting += 1
        future = self._thread.submit(self._ask, function, *arguments)
        future.add_done_callback(self._answered)
        return future

    def _answered(self, future: "Future[Any]") -> None:
        self._waiting -= 1

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self._closed:
            raise PyesError("the explorer is ending")
        connection = self._start()
        try:
            connection.send((function, arguments))
            if not connection.poll(self._seconds):
                raise PyesError(f"the environment has not answered for {self._seconds:g} s and was ended")
            answer = connection.recv()
        except PyesError:
            self._end()
            raise
        except (EOFError, OSError) as error:
            self._end()
            raise PyesError("the process that plays individuals has died; did the environment crash?") from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _start(self) -> Connection:
        if self._connection is None:
            self._connection, theirs = self._context.Pipe()
            # A daemon may not have children, which some environments need.
            self._process = self._context.Process(target=_answer, args=(theirs, os.getpid()), daemon=False)
            with theirs:
                self._process.start()
            if self._closed:  # meanwhile, when there was no process yet to kill
                self._kill()
        return self._connection

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._kill()
            self._process.join()

    def _kill(self) -> None:
        """Kill the process and its group: an environment's programs, and the witness of its own end."""
        if self._process is not None and self._process.pid is not None and self._process.exitcode is None:
            if hasattr(os, "killpg"):
                with suppress(ProcessLookupError):  # its group is not there yet
                    os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()

    def close(self) -> None:
        """End the process; questions without an answer fail."""
        self._closed = True
        self._kill()  # the thread may wait for its answer, and now goes on
        self._thread.shutdown(cancel_futures=True)
        self._end()


# --- in the process


def _answer(connection: Connection, parent: int) -> None:
    """Answer questions until the other end is closed."""
    prepare(parent)
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # which `Player` kills
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        try:
            answer = function(*arguments)
        except PyesError as error:
            answer = PyesError(str(error))
        except Exception as error:
            answer = PyesError(f"cannot rebuild it: {reason(error)}")
        connection.send(answer)


@dataclass
class _Placed:
    """Where the individuals and centers of the first generations of a run lie in a plane."""

    plane: Components
    generations: int
    individuals: Any
    path: Any

    def grown(self, run: Replay) -> "_Placed":
        """Return the same with the generations that the run has had since."""
        individuals, path = self.plane.place(run, self.generations)
        grown = np.concatenate([self.individuals, individuals]), np.concatenate([self.path[:-1], path])
        return _Placed(self.plane, run.generations, *grown)


@dataclass
class _Opened:
    """A run that is being looked at, and what its journal was when it was opened."""

    individuals: Replay
    journal: tuple[int, bytes]  # its size, and `beginning`
    plane: Components | None = None
    placed: _Placed | None = None


_runs: dict[Path, _Opened] = {}  # the one that was asked for last is the last one


def beginning(run: Path) -> bytes:
    """Return the first bytes of a run's journal: they differ where another run was begun in its folder."""
    with suppress(FileNotFoundError), open(run / "journal.bin", "rb") as file:
        return file.read(_BEGINNING)
    return b""


def _opened(run: Path) -> _Opened:
    """Return an open run, with all that it has recorded by now; close those that were not asked for lately."""
    path = run / "journal.bin"
    journal = path.stat().st_size if path.exists() else 0, beginning(run)
    known = _runs.pop(run, None)
    if known is None:
        known = _Opened(replay.open(run), journal)
    elif known.journal != journal:
        try:
            if not known.individuals.follow():
                known.plane = known.placed = None
        except BaseException:
            known.individuals.close()
            raise
        known.journal = journal
    _runs[run] = known
    for other in list(_runs)[:-_MOST_OPEN]:
        _runs.pop(other).individuals.close()
    return known


def prepare_map(run: Path) -> None:
    """Place the individuals of a run, so that the first question for them is answered sooner."""
    opened = _opened(run)
    if opened.individuals.generations:
        _place(opened, opened)


def prepare_playing(run: Path) -> None:
    """Open a run, so that the first individual is played sooner."""
    individuals = _opened(run).individuals
    if individuals.generations:
        individuals.theta(0)


def points(run: Path, of: Path, first: int, fit: int) -> tuple[dict[str, Any], bytes]:
    """Return where individuals lie in the plane of a run, and what they came to.

    Parameters
    ----------
    run : Path
        The run whose individuals are placed.
    of : Path
        The run whose plane it is, if it has as many parameters; otherwise the run's own. A plane is found anew when its
        run has grown to twice its generations.
    first : int
        Generation to begin with.
    fit : int
        Number of the plane that the caller knows; with another one ``first`` is 0.

    Returns
    -------
    tuple
        A description: ``columns`` with the number of values of each, ``first``, ``generations``, ``fit``, ``shares``;
        and the columns, one after the other: float64 for returns, float32 for the others.
    """
    opened, owner = _opened(run), _opened(of)
    if not owner.individuals.generations or owner.individuals.dim != opened.individuals.dim:
        owner = opened
    if not owner.individuals.generations:
        raise ConfigError("no generation yet: the map begins with the first one")
    placed, individuals = _place(opened, owner), opened.individuals
    plane = placed.plane
    generations = range(min(first, individuals.generations) if fit == plane.number else 0, placed.generations)
    counts = [individuals.population_size(each) for each in generations]
    new = placed.individuals[len(placed.individuals) - sum(counts) :]
    columns = {
        "x": new[:, 0],
        "y": new[:, 1],
        "path_x": placed.path[generations.start :, 0],
        "path_y": placed.path[generations.start :, 1],
        "generation": np.repeat(np.array(generations, np.float32), counts),
        "return": _joined([individuals.returns(each) for each in generations]),
        "length": _joined([individuals.lengths(each) for each in generations]),
        **_behaviours(individuals, generations),
    }
    described = {
        "columns": {name: len(values) for name, values in columns.items()},
        "first": generations.start,
        "generations": individuals.generations,
        "fit": plane.number,
        "shares": plane.shares.tolist(),
    }
    data = (values.astype("<f8" if name == "return" else "<f4").tobytes() for name, values in columns.items())
    return described, b"".join(data)


def _place(opened: _Opened, owner: _Opened) -> _Placed:
    """Return where the individuals of a run lie in the plane of another one, found anew when that has doubled."""
    if owner.plane is None or owner.individuals.generations >= 2 * owner.plane.generations:
        owner.plane = Components(owner.individuals)
    if opened.placed is None or opened.placed.plane is not owner.plane:
        opened.placed = _Placed(owner.plane, 0, np.empty((0, 2)), np.empty((1, 2)))
    opened.placed = opened.placed.grown(opened.individuals)
    return opened.placed


def _joined(parts: list[Any]) -> Any:
    return np.concatenate([np.empty(0, np.float32), *parts])


def _behaviours(individuals: Replay, generations: range) -> dict[str, Any]:
    """Return the first numbers of the behaviours, one column each, if the run has behaviours; NaN before it had any."""
    ends = {0, individuals.generations - 1}  # a run that went on with another configuration may have them in parts
    known = {each: individuals.behaviours(each) for each in ends.union(generations)}
    width = min(max(0 if each is None else each.shape[1] for each in known.values()), _MOST_BEHAVIOURS)
    every = np.full((sum(map(individuals.population_size, generations)), width), np.nan, np.float32)
    begin = 0
    for generation in generations:
        end = begin + individuals.population_size(generation)
        behaviours = known[generation]
        if behaviours is not None:
            every[begin:end, : behaviours.shape[1]] = behaviours[:, :width]
        begin = end
    return {f"behaviour {index}": every[:, index] for index in range(width)}


def film(run: Path, generation: int, member: int, output: Path) -> dict[str, Any]:
    """Play an individual again and record it; return what came of it. Without a picture of the task, only play it."""
    individuals = _opened(run).individuals
    individuals.check_member(generation, member)
    try:
        playback = video.record_opened(individuals, output, generation, member, most_frames=_MOST_FRAMES)
        filmed, why = True, ""
    except PyesError as error:
        playback, filmed, why = individuals.play(generation, member), False, str(error)
    said = {
        **playback.to_dict(),
        "exact": playback.exact,
        "recorded_return": playback.recorded_return,
        "recorded_length": playback.recorded_length,
        "video": filmed,
        "why": why,
    }
    return cast(dict[str, Any], finite(said))


def policy(run: Path, generation: int, member: int, folder: Path) -> bytes:
    """Return the policy of an individual: a .zip with the two files that `pyes.load` reads."""
    name = f"generation-{generation}-member-{member}"
    _opened(run).individuals.member_policy(generation, member).save_as(folder / f"{name}.safetensors")
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for suffix in (".safetensors", ".json"):
            archive.write(folder / f"{name}{suffix}", f"{name}{suffix}")
    return data.getvalue()
