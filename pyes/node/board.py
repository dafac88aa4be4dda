"""The board: a block of shared memory in which a node's processes exchange members and results.

The owner writes a batch and opens it; workers claim members by index, write each result into the member's own place and
mark it done. There are no locks, so a process may be killed between any two instructions: the supervisor frees the
members that it had claimed, and another worker evaluates them with the same result.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyes import _core
from pyes.algorithms.population import Population
from pyes.episodes.batch import Batch, Plan, Results, Status
from pyes.system import memory
from pyes.system.text import counted

_ERROR_BYTES = 1024

# Places in the header (int64).
_TICKET, _COUNT, _GENERATION, _EPISODES, _LIMIT, _STRIDE, _NORMALIZED, _EVALUATION, _FATAL, _BEAT, _SCALED = range(11)


class Board:
    """Views of the shared block.

    Parameters
    ----------
    plan : Plan
        Sizes of the arrays.
    workers : int
        Worker processes of this node.
    handle : Handle or None
        Handle of the block if another process owns it.
    """

    def __init__(self, plan: Plan, workers: int, handle: memory.Handle | None = None) -> None:
        self._plan = plan
        fields = _fields(plan, workers)
        places, size = _layout(fields)
        if handle is None:
            smaller = "a smaller population or network, or fewer episodes (task.episodes, evaluation.episodes)"
            self._block = memory.SharedBlock(size, what="a board of members and their results", smaller=smaller)
        else:
            self._block = memory.SharedBlock.attach(handle, writable=True)
        view = {name: self._block.array(dtype, shape, places[name]) for name, dtype, shape in fields}
        self._header: NDArray[np.int64] = view["header"]
        self._reward_min: NDArray[np.float64] = view["reward_min"]
        self._cursor: NDArray[np.int64] = view["cursor"]
        self._states: NDArray[np.int32] = view["states"]
        self._offsets: NDArray[np.int64] = view["offsets"]
        self._scales: NDArray[np.float32] = view["scales"]
        self._seeds: NDArray[np.int64] = view["seeds"]
        self._bases: NDArray[np.float32] = view["bases"]
        self._rows: NDArray[np.int64] = view["rows"]
        self._deviation: NDArray[np.float32] = view["deviation"]
        self._mean: NDArray[np.float32] = view["mean"]
        self._inverse_std: NDArray[np.float32] = view["inverse_std"]
        self._returns: NDArray[np.float64] = view["returns"]
        self._lengths: NDArray[np.int64] = view["lengths"]
        self._status: NDArray[np.uint8] = view["status"]
        self._sums: NDArray[np.float64] = view["sums"]
        self._errors: NDArray[np.uint8] = view["errors"]
        #: Mean behaviour of each member of the open batch; NaN until it is known.
        self.behaviours: NDArray[np.float32] = view["behaviours"]
        #: Mean return of each half of a member's episodes; NaN until it is known.
        self.halves: NDArray[np.float64] = view["halves"]
        #: Process id of each worker; 0 before it can claim members, and after its death has been handled.
        self.pids: NDArray[np.int64] = view["pids"]
        #: Times (monotonic seconds) at which each worker began its current episode; 0 between episodes.
        self.started: NDArray[np.float64] = view["started"]
        #: Seconds each worker has spent on the open batch.
        self.busy: NDArray[np.float64] = view["busy"]
        #: How often each member of the open batch has killed or hung its worker.
        self.attempts: NDArray[np.int32] = view["attempts"]
        #: Members of the open batch to evaluate alone, because a worker died while it held several.
        self.alone: NDArray[np.bool_] = view["alone"]
        self._unwanted: NDArray[np.int64] = view["unwanted"]  # for each worker, ticket of a batch in which to end it
        if handle is None:
            self._states[:] = -1  # nothing can be claimed before a batch is open

    @property
    def handle(self) -> memory.Handle:
        """What another process of this machine needs to attach."""
        return self._block.handle

    # --- the owner's side

    def open(self, batch: Batch, *, offered: bool = True) -> None:
        """Open a batch. No member of the previous one may be held.

        Parameters
        ----------
        batch : Batch
        offered : bool
            Whether all members can be claimed now, or only after `offer`.
        """
        population, header = batch.population, self._header
        count = len(population)
        self._bases[: len(population.bases)] = population.bases
        self._rows[:count] = population.rows
        self._offsets[:count] = population.offsets
        self._scales[:count] = population.scales
        if population.deviation is not None:
            self._deviation[:] = population.deviation
        self._seeds[:count, : batch.seeds.shape[1]] = batch.seeds
        if batch.mean is not None and batch.inverse_std is not None:
            self._mean[:], self._inverse_std[:] = batch.mean, batch.inverse_std
        self.behaviours[:count] = self.halves[:count] = np.nan
        self.attempts[:count] = 0
        self.alone[:count] = False
        self._errors[:] = 0
        self.busy[:] = 0.0
        header[_COUNT], header[_GENERATION], header[_EPISODES] = count, batch.generation, batch.seeds.shape[1]
        header[_SCALED] = population.deviation is not None
        header[_LIMIT], header[_STRIDE] = batch.limit, batch.statistics_stride
        header[_NORMALIZED], header[_EVALUATION] = batch.mean is not None, batch.evaluation
        self._reward_min[0] = batch.reward_min
        header[_TICKET] += 1
        _core.board_withhold(self._states, count)
        if offered:
            self.offer(0, count)

    def set_bases(self, rows: NDArray[np.int64], bases: NDArray[np.float32]) -> None:
        """Write rows of the open batch's bases, before their members are offered."""
        self._bases[rows] = bases

    def offer(self, begin: int, end: int) -> None:
        """Allow workers to claim members begin .. end-1."""
        _core.board_offer(self._cursor, self._states, begin, end)

    def withdraw(self, begin: int, end: int) -> None:
        """Withdraw the unclaimed ones of members begin .. end-1."""
        _core.board_withdraw(self._states, begin, end)

    def end_holders(self) -> None:
        """Ask the supervisor to end the workers that hold members of the open batch."""
        for worker in range(len(self._unwanted)):
            if self.held(worker):
                self._unwanted[worker] = self.ticket

    def collect(self) -> Results:
        """Return the results of the members finished since the last call, in member order."""
        members = _core.board_collect(self._states, int(self._header[_COUNT]))
        stride = int(self._header[_STRIDE])
        lengths, status = self._lengths[members], self._status[members]
        summed = members % stride == 0 if stride else np.zeros(len(members), np.bool_)
        return Results(
            members=members,
            returns=self._returns[members],
            lengths=lengths,
            status=status,
            sums=self._sums[members[summed] // max(1, stride)],
            sum_lengths=np.where(status == Status.OK, lengths, 0)[summed],
            behaviours=self.behaviours[members],
            halves=self.halves[members],
            busy_seconds=float(self.busy.sum()),
            errors=self.errors(),
        )

    def remaining(self) -> int:
        """Return the number of members of the open batch that can be claimed or are held."""
        return _core.board_remaining(self._states, int(self._header[_COUNT]))

    def running(self) -> NDArray[np.int64]:
        """Return the members of the open batch that workers hold."""
        return np.flatnonzero(self._states[: int(self._header[_COUNT])] > 0)

    # --- the workers' side

    @property
    def ticket(self) -> int:
        """Number of the open batch."""
        return int(self._header[_TICKET])

    def batch(self) -> Batch:
        """Return the open batch; its arrays are views, which do not change while a member is claimed."""
        header = self._header
        count, normalized = int(header[_COUNT]), bool(header[_NORMALIZED])
        population = Population(
            int(header[_GENERATION]),
            self._bases,
            self._rows[:count],
            self._offsets[:count],
            self._scales[:count],
            self._deviation if header[_SCALED] else None,
        )
        return Batch(
            population,
            seeds=self._seeds[:count, : int(header[_EPISODES])],
            limit=int(header[_LIMIT]),
            mean=self._mean if normalized else None,
            inverse_std=self._inverse_std if normalized else None,
            statistics_stride=int(header[_STRIDE]),
            evaluation=bool(header[_EVALUATION]),
            reward_min=float(self._reward_min[0]),
        )

    def claim(self, worker: int) -> int:
        """Claim a member for this worker; return -1 if none is free."""
        return _core.board_claim(self._cursor, self._states, int(self._header[_COUNT]), worker)

    def wave(self, most: int) -> int:
        """Return how many members, at most ``most``, a worker claims at once for waves of equal size."""
        share = -(-int(self._header[_COUNT]) // len(self.pids))
        return -(-share // -(-share // most)) if share else 0

    def sums_of(self, member: int) -> NDArray[np.float64] | None:
        """Return the zeroed array for this member's observation sums; None if they are not wanted."""
        stride = int(self._header[_STRIDE])
        if not stride or member % stride:
            return None
        row: NDArray[np.float64] = self._sums[member // stride]
        row[:] = 0.0
        return row

    def finish(self, worker: int, member: int, result: tuple[float, int, Status]) -> None:
        """Write a member's (return, length, status) and mark it done."""
        self._returns[member], self._lengths[member], self._status[member] = result
        _core.board_finish(self._states, member, worker)

    def report(self, worker: int, text: str) -> None:
        """Store this worker's latest error, one line, for the owner."""
        data = text.encode(errors="backslashreplace")[:_ERROR_BYTES]
        self._errors[worker, : len(data)] = np.frombuffer(data, np.uint8)
        self._errors[worker, len(data) :] = 0

    # --- the supervisor's side

    def is_unwanted(self, worker: int) -> bool:
        """Whether to end a worker because the results of its members are not wanted."""
        return int(self._unwanted[worker]) == self.ticket and bool(self.held(worker))

    def held(self, worker: int) -> list[int]:
        """Return the members that a worker has claimed and not finished, in order."""
        members: list[int] = np.flatnonzero(self._states[: self._header[_COUNT]] == worker + 1).tolist()
        return members

    def recover(self, worker: int, attempts: int = 0, blame: str = "") -> list[int]:
        """Handle the members that a dead worker had claimed; return them.

        They become free for other workers. A member that was evaluated alone is recorded as failed after ``attempts``
        dead workers. If there were several, any may be the cause, so each will be evaluated alone. Members whose
        results are not wanted count as failed.

        Parameters
        ----------
        worker : int
        attempts : int
            Number of dead workers after which a member has failed.
        blame : str
            How the worker died, if a member may be the cause; otherwise empty.
        """
        self.pids[worker], self.started[worker] = 0, 0.0
        members = self.held(worker)
        if self.is_unwanted(worker):
            for member in members:
                self.finish(worker, member, (np.nan, 0, Status.KILLED))
        elif blame and len(members) > 1:
            self.alone[members] = True
        elif blame and members:
            self.attempts[members[0]] += 1
            if self.attempts[members[0]] >= attempts:
                self._give_up(worker, members[0], blame)
        _core.board_release(self._states, int(self._header[_COUNT]), worker)
        return members

    def _give_up(self, worker: int, member: int, blame: str) -> None:
        """Record a member as failed."""
        where = f"generation {self._header[_GENERATION]}, member {member}"
        self.report(worker, f"{blame} ({where}, which has cost {counted(self.attempts[member], 'worker')})")
        self.forget(member)
        self.finish(worker, member, (np.nan, 0, Status.KILLED))

    def forget(self, member: int) -> None:
        """Clear what was written of a member that has failed, perhaps by a worker that was killed before its end."""
        self.sums_of(member)
        self.behaviours[member] = self.halves[member] = np.nan

    @property
    def fatal(self) -> bool:
        """Whether workers cannot be kept alive."""
        return bool(self._header[_FATAL])

    @fatal.setter
    def fatal(self, value: bool) -> None:
        self._header[_FATAL] = value

    @property
    def beat(self) -> int:
        """Number of times that the supervisor has checked the workers."""
        return int(self._header[_BEAT])

    def count_beat(self) -> None:
        """Show the owner that the supervisor is running."""
        self._header[_BEAT] += 1

    def errors(self) -> list[str]:
        """Return the workers' latest errors."""
        return [text for text in map(_read_text, self._errors) if text]

    def close(self) -> None:
        """Release the block (its owner) or detach from it."""
        for name in [name for name, value in vars(self).items() if isinstance(value, np.ndarray)]:
            delattr(self, name)
        self._block.close()


def _fields(plan: Plan, workers: int) -> list[tuple[str, Any, tuple[int, ...]]]:
    members, observations = plan.capacity, plan.observation_size
    return [
        ("header", np.int64, (16,)),
        ("reward_min", np.float64, (1,)),
        ("cursor", np.int64, (1,)),
        ("states", np.int32, (members,)),
        ("attempts", np.int32, (members,)),
        ("alone", np.bool_, (members,)),
        ("offsets", np.int64, (members,)),
        ("scales", np.float32, (members,)),
        ("seeds", np.int64, (members, plan.episodes)),
        ("bases", np.float32, (plan.bases, plan.dim)),
        ("rows", np.int64, (members,)),
        ("deviation", np.float32, (plan.dim if plan.scaled else 0,)),
        ("mean", np.float32, (observations,)),
        ("inverse_std", np.float32, (observations,)),
        ("returns", np.float64, (members,)),
        ("lengths", np.int64, (members,)),
        ("status", np.uint8, (members,)),
        ("sums", np.float64, (plan.statistics_rows, 2, observations)),
        ("behaviours", np.float32, (members, plan.behaviour_size)),
        ("halves", np.float64, (members, 2 if plan.halves else 0)),
        ("pids", np.int64, (workers,)),
        ("started", np.float64, (workers,)),
        ("busy", np.float64, (workers,)),
        ("unwanted", np.int64, (workers,)),
        ("errors", np.uint8, (workers, _ERROR_BYTES)),
    ]


def _layout(fields: list[tuple[str, Any, tuple[int, ...]]]) -> tuple[dict[str, int], int]:
    """Align each field to a cache line; return the offsets and the total size in bytes."""
    places, size = {}, 0
    for name, dtype, shape in fields:
        places[name] = size
        size += -(-np.dtype(dtype).itemsize * int(np.prod(shape)) // 64) * 64
    return places, size


def _read_text(row: NDArray[np.uint8]) -> str:
    return row.tobytes().rstrip(b"\0").decode(errors="replace")
