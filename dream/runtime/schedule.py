"""Who has which chunk: hands chunks to workers, takes back what is lost, lets results out in order.

Pure: no threads, no clock (`now` is seconds of any clock that never goes back), no remote calls. A driver asks for
`assignments`, makes the calls, tells what became of them (`finished`, `worker_lost`) and passes `released` results on.

The fault model, in rules:

- *Results leave in chunk order*, whoever made them and whenever they came. A chunk's rows follow from its identity, so
  what the shards apply is the same bits with any number of workers, any losses and any copies.
- *A chunk counts once.* Its first result is kept; that of a copy is dropped.
- *A lost worker costs only its chunks*: those that it holds go back to the front of the line, in chunk order, unless
  another worker holds a copy, and so do those whose results have not left: rows may have gone with the worker's node.
- *A hung worker is a lost worker*: `overdue` names those whose running chunk takes longer than the timeout. Workers run
  their chunks one after the other, so the oldest chunk held is the running one; one that waits behind it has not begun.
- *A slow worker holds nobody up*: when no chunk may be issued, idle workers get copies of what runs (or waits) on a
  worker that takes much longer than the median.
- *A chunk that kills its workers ends the run*: after five losses it raises, instead of eating the cluster.
- *Memory is bounded*: chunks are issued no further ahead of the first one not released than what all workers hold, and
  what they finish before a slow chunk gets a copy.

What is not here: a lost shard, learner or driver. The run goes back to its last commit then, with a new schedule.
"""

import heapq
import math
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Generic, TypeVar

from buffers.chunks import Chunk, ChunkId
from dream.errors import DreamError

R = TypeVar("R")
WorkerId = str

_ATTEMPTS: Final = 5  # workers that may be lost while they run one chunk, the last of them raising
_STRAGGLER_FACTOR: Final = 3  # a chunk is slow from this multiple of the median running time on,
_STRAGGLER_SECONDS: Final = 1.0  # but not before
_RECENT: Final = 255  # running times that the median is taken of
_FEWEST: Final = 3  # below that many, a median says little


class ChunkLostError(DreamError):
    """A chunk was lost with as many workers as are allowed."""

    def __init__(self, chunk: ChunkId, losses: list[str]) -> None:
        super().__init__(
            f"chunk {chunk.index} of iteration {chunk.iteration}, player {chunk.player}, was lost with {len(losses)} "
            f"workers, as many as are allowed: {', '.join(losses)}; it probably kills them, and their logs say why."
        )


@dataclass
class Counters:
    """What happened since the schedule was made, for telemetry."""

    reissued: int = 0  # chunks handed out again, after a loss or beside a slow worker
    duplicates: int = 0  # results dropped, another having come first
    lost_workers: int = 0
    most_held: int = 0  # largest number of results that waited for their turn


@dataclass(eq=False, slots=True)
class _Task:
    """A chunk that is not released, and how it fares."""

    position: int
    chunk: Chunk
    holders: int = 0
    finished_by: WorkerId | None = None
    losses: list[str] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return self.finished_by is not None


@dataclass(eq=False, slots=True)
class _Worker:
    """A worker present; `tasks` are what it holds, in the order of issue: the first one runs."""

    id: WorkerId
    tasks: dict[ChunkId, _Task] = field(default_factory=dict)


class _RecentTimes:
    """The median of the newest running times."""

    def __init__(self) -> None:
        self._order: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, seconds: float) -> None:
        if len(self._order) == _RECENT:
            del self._sorted[bisect_left(self._sorted, self._order.popleft())]
        self._order.append(seconds)
        insort(self._sorted, seconds)

    def median(self) -> float | None:
        return self._sorted[len(self._sorted) // 2] if len(self._sorted) >= _FEWEST else None


class Schedule(Generic[R]):
    """Hands out chunks and releases their results of type R in the order in which the chunks were given.

    `per_worker`: chunks a worker holds at most, the running one included: 2 lets the next one wait at the worker.
    `timeout_seconds`: a chunk that runs as long as that is hung.

    One schedule serves a whole run: `add` puts the next phase's chunks behind those there, and workers, their
    unfinished copies and the median running time stay known. Ids are used once: a chunk's in a schedule's life, and a
    worker's for one start of it. An event costs a constant number of steps, and the logarithm of a heap, for each chunk
    that changes hands.
    """

    def __init__(self, per_worker: int, timeout_seconds: float) -> None:
        self.counters = Counters()
        self._timeout_seconds = timeout_seconds
        self._ahead = per_worker + _STRAGGLER_FACTOR
        self._count = 0  # chunks ever added
        self._line: deque[_Task] = deque()  # not released, in order
        self._waiting: list[tuple[int, _Task]] = []  # with nobody and without a result: a heap by position
        self._results: dict[_Task, R] = {}  # not released
        self._workers: dict[WorkerId, _Worker] = {}
        self._by_load: list[OrderedDict[WorkerId, _Worker]] = [OrderedDict() for _ in range(per_worker + 1)]
        self._running: OrderedDict[WorkerId, float] = OrderedDict()  # since when; the longest first
        self._times = _RecentTimes()

    @property
    def done(self) -> bool:
        """Whether every chunk was released; copies that became superfluous may still run."""
        return not self._line

    # --- what comes in -------------------------------------------------------------------------------------

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Puts `chunks` behind those there."""
        for chunk in chunks:
            task = _Task(self._count, chunk)
            self._count += 1
            self._line.append(task)
            heapq.heappush(self._waiting, (task.position, task))

    def worker_joined(self, worker: WorkerId) -> None:
        """A worker is there and idle."""
        self._workers[worker] = self._by_load[0][worker] = _Worker(worker)

    def worker_lost(self, worker: WorkerId, reason: str) -> list[Chunk]:
        """A worker is gone; returns the chunks that go back to the front of the line, in order.

        Raises `ChunkLostError` when its running chunk was lost too often. KeyError when it is not present.
        """
        gone = self._workers.pop(worker)
        del self._by_load[len(gone.tasks)][worker]
        self._running.pop(worker, None)
        self.counters.lost_workers += 1
        for task in gone.tasks.values():
            task.holders -= 1
        unreleased = [task for task in self._results if task.finished_by == worker]
        for task in unreleased:
            task.finished_by = None
            del self._results[task]
        back = [task for task in (*gone.tasks.values(), *unreleased) if not (task.holders or task.finished)]
        for task in back:
            heapq.heappush(self._waiting, (task.position, task))
        self.counters.reissued += len(back)
        _blame(next(iter(gone.tasks.values()), None), f"{worker} ({reason})")
        return [task.chunk for task in sorted(back, key=lambda task: task.position)]

    def finished(self, worker: WorkerId, chunk: ChunkId, result: R, now: float) -> None:
        """A worker's result of a chunk; it counts when it is the first. KeyError when the worker does not hold it."""
        task = self._put_down(self._workers[worker], chunk, now)
        if task.finished:
            self.counters.duplicates += 1
            return
        task.finished_by = worker
        self._results[task] = result
        self.counters.most_held = max(self.counters.most_held, len(self._results))

    # --- what goes out -------------------------------------------------------------------------------------

    def assignments(self, now: float) -> list[tuple[WorkerId, Chunk]]:
        """The chunks to send, and to whom: the first chunks to the workers that hold the fewest.

        Returned chunks come before new ones. When none may be issued, idle workers get copies of slow ones.
        """
        handed: list[tuple[WorkerId, Chunk]] = []
        while (task := self._next()) and (worker := self._least_loaded()):
            heapq.heappop(self._waiting)
            self._hand(task, worker, now)
            handed.append((worker.id, task.chunk))
        if task is None:
            for late in list(islice(self._slow(now), len(self._by_load[0]))):
                worker = self._least_loaded()
                assert worker is not None
                self.counters.reissued += 1
                self._hand(late, worker, now)
                handed.append((worker.id, late.chunk))
        return handed

    def released(self) -> list[tuple[Chunk, R]]:
        """The results whose turn it is, in chunk order, each exactly once.

        Room in the window comes from here: a driver that stops taking results gets no more assignments.
        """
        out: list[tuple[Chunk, R]] = []
        while self._line and self._line[0].finished:
            task = self._line.popleft()
            out.append((task.chunk, self._results.pop(task)))
        return out

    def overdue(self, now: float) -> list[WorkerId]:
        """The workers whose running chunk is hung; the driver ends them and tells their loss."""
        late: list[WorkerId] = []
        for worker, since in self._running.items():
            if now - since < self._timeout_seconds:
                break
            late.append(worker)
        return late

    def next_deadline(self, now: float) -> float | None:
        """Seconds after which `overdue` or `assignments` may say more without any event; None is never.

        To be asked after both: 0 means that they have something to say now.
        """
        if not self._running:
            return None
        deadline = next(iter(self._running.values())) + self._timeout_seconds
        threshold = self._slow_seconds()
        if self._by_load[0] and self._next() is None and threshold is not None:
            uncopied = (since for worker, since in self._running.items() if any(self._copyable(worker)))
            deadline = min(deadline, next(uncopied, math.inf) + threshold)
        return max(0.0, deadline - now)

    # --- inside --------------------------------------------------------------------------------------------

    def _next(self) -> _Task | None:
        """The first task to issue, or None when there is none within the window."""
        if not self._waiting:
            return None
        position, task = self._waiting[0]
        edge = self._line[0].position + self._ahead * len(self._workers)
        return task if position < edge else None

    def _least_loaded(self) -> _Worker | None:
        """The worker with the fewest chunks, among equals the one that has waited longest; None when all are full."""
        for workers in self._by_load[:-1]:
            if workers:
                return next(iter(workers.values()))
        return None

    def _hand(self, task: _Task, worker: _Worker, now: float) -> None:
        if not worker.tasks:
            self._running[worker.id] = now
        self._move(worker, 1)
        worker.tasks[task.chunk.id] = task
        task.holders += 1

    def _put_down(self, worker: _Worker, chunk: ChunkId, now: float) -> _Task:
        """The worker no longer holds the chunk; if it was the running one, the next one runs from now on."""
        was_running = next(iter(worker.tasks)) == chunk
        self._move(worker, -1)
        task = worker.tasks.pop(chunk)
        task.holders -= 1
        if was_running:  # else told out of order: its time is in that of the one before it
            self._times.add(now - self._running.pop(worker.id))
            if worker.tasks:
                self._running[worker.id] = now
        return task

    def _move(self, worker: _Worker, step: int) -> None:
        load = len(worker.tasks)
        del self._by_load[load][worker.id]
        self._by_load[load + step][worker.id] = worker

    def _slow_seconds(self) -> float | None:
        """From how long on a chunk is slow; None while too few have finished."""
        median = self._times.median()
        if median is None:
            return None
        return max(_STRAGGLER_SECONDS, _STRAGGLER_FACTOR * median)

    def _slow(self, now: float) -> Iterator[_Task]:
        """The tasks that deserve a copy, those of the slowest worker first."""
        threshold = self._slow_seconds()
        if threshold is None:
            return
        for worker, since in self._running.items():
            if now - since < threshold:
                return
            yield from self._copyable(worker)

    def _copyable(self, worker: WorkerId) -> Iterator[_Task]:
        """What the worker holds without a result and without another holder: those behind a slow one wait as long."""
        return (task for task in self._workers[worker].tasks.values() if task.holders == 1 and not task.finished)


def _blame(running: _Task | None, loss: str) -> None:
    """Holds the loss of a worker against the chunk that it ran, unless another has done that."""
    if running is None or running.finished:
        return
    running.losses.append(loss)
    if len(running.losses) >= _ATTEMPTS:
        raise ChunkLostError(running.chunk.id, running.losses)
