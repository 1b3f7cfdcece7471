"""Who has which chunk: hands chunks to workers, takes back what is lost, lets results out in order.

Pure: no threads, no clock (`now` is seconds of any clock that never goes back), no remote calls. A driver asks for
`assignments`, makes the calls, tells what became of them (`finished`, `worker_lost`) and passes `released` results on.

The fault model, in rules:

- *Results leave in chunk order*, whoever made them and whenever they came. A chunk's rows follow from its identity, so
  what the shards apply is the same bits with any number of workers, any losses and any copies.
- *A chunk counts once.* Its first result is kept; later ones (of a copy, of a worker thought lost) are dropped.
- *A lost worker costs only its chunks*: they go back to the front of the line, in chunk order, unless another worker
  holds a copy. Workers join and leave at any time.
- *A hung worker is a lost worker*: `overdue` names those whose running chunk takes longer than the timeout. Workers run
  their chunks one after the other, so the oldest chunk held is the running one; one that waits behind it has not begun.
- *A slow worker holds nobody up*: when no chunk may be issued, idle workers get copies of what runs (or waits) on a
  worker that takes much longer than the median.
- *A chunk that kills its workers ends the run*: after `attempts` losses it raises, instead of eating the cluster.
- *Memory is bounded*: chunks are issued at most `window` ahead of the first one not released.

What is not here: a lost shard, learner or driver. The run goes back to its last commit then, with a new schedule.
"""

import heapq
import math
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Generic, TypeVar

from buffers.chunks import Chunk, ChunkId
from dream.errors import DreamError

R = TypeVar("R")
WorkerId = str | int

_RECENT: Final = 255  # running times that the median is taken of
_FEWEST: Final = 3  # below that many, a median says little


class ChunkLostError(DreamError):
    """A chunk was lost with as many workers as `Limits.attempts` allows."""

    def __init__(self, chunk: ChunkId, losses: list[str]) -> None:
        workers = "1 worker" if len(losses) == 1 else f"{len(losses)} workers"
        super().__init__(
            f"chunk {chunk.index} of iteration {chunk.iteration}, player {chunk.player}, was lost with {workers}, as "
            f"many as are allowed: {', '.join(losses)}; it probably kills them, and their logs say why."
        )
        self.chunk = chunk


@dataclass(frozen=True)
class Limits:
    """What a schedule keeps to; ValueError where a value would stop it.

    `per_worker`: chunks a worker holds at most, the running one included: 2 lets the next one wait at the worker.
    `window`: how far chunks are issued ahead of the first one not released. None is (per_worker + straggler_factor)
    times the number of workers: what all hold, and what they finish before a slow chunk gets a copy.
    `timeout_seconds`: a chunk that runs as long as that is hung; infinity is never.
    `straggler_factor`, `straggler_seconds`: a chunk is slow from this multiple of the median running time on, but not
    before so many seconds; straggler_seconds=infinity makes no copies.
    `attempts`: workers that may be lost while they run one chunk, the last of them raising `ChunkLostError`.
    """

    per_worker: int = 2
    window: int | None = None
    timeout_seconds: float = 600.0
    straggler_factor: float = 3.0
    straggler_seconds: float = 1.0
    attempts: int = 5

    def __post_init__(self) -> None:
        for name, value, least in (
            ("per_worker", self.per_worker, 1),
            ("window", 1 if self.window is None else self.window, 1),
            ("straggler_factor", self.straggler_factor, 1),
            ("straggler_seconds", self.straggler_seconds, 0),
            ("attempts", self.attempts, 1),
        ):
            if not value >= least:
                raise ValueError(f"{name} is {value}; it must be {least} or more")
        if not self.timeout_seconds > 0:
            raise ValueError(f"timeout_seconds is {self.timeout_seconds}; it must be more than 0")
        if not math.isfinite(self.straggler_factor):
            raise ValueError("straggler_factor is infinite; straggler_seconds=infinity makes no copies")

    def window_for(self, workers: int) -> int:
        """How far chunks are issued ahead, with that many workers."""
        if self.window is not None:
            return self.window
        return max(1, math.ceil((self.per_worker + self.straggler_factor) * workers))


@dataclass
class Counters:
    """What happened since the schedule was made, for telemetry."""

    issued: int = 0  # chunks handed to workers, in all
    reissued: int = 0  # of these, after a loss
    copies: int = 0  # of these, beside a slow worker
    duplicates: int = 0  # results dropped, another having come first
    finished: int = 0  # results kept
    lost_workers: int = 0
    most_held: int = 0  # largest number of results that waited for their turn
    busy_seconds: float = 0.0  # running time of all chunks that were finished, dropped results included


@dataclass
class WorkerTally:
    """One worker's work so far: chunks finished (dropped results included) and the seconds that they ran."""

    finished: int = 0
    busy_seconds: float = 0.0


@dataclass(eq=False, slots=True)
class _Task:
    """A chunk that is not released, and how it fares."""

    position: int
    chunk: Chunk
    holders: int = 0
    queued: bool = False  # lies in the heap of returned tasks
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
    tally: WorkerTally = field(default_factory=WorkerTally)


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

    One schedule may serve a whole run: `add` puts the next phase's chunks behind those there, and workers, their
    unfinished copies and the median running time stay known.

    Ids are used once: a chunk's in a schedule's life, and a worker's for one start of it (a late result of its former
    life must not be taken for the new one's). An event costs a constant number of steps for each chunk that changes
    hands; chunks that come back cost a heap's logarithm.
    """

    def __init__(self, chunks: Iterable[Chunk] = (), limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.counters = Counters()
        self._count = 0  # chunks ever added
        self._tasks: dict[ChunkId, _Task] = {}  # not released
        self._line: deque[_Task] = deque()  # the same in order
        self._fresh: deque[_Task] = deque()  # never issued
        self._returned: list[tuple[int, _Task]] = []  # heap by position
        self._results: dict[ChunkId, R] = {}  # finished, not released
        self._workers: dict[WorkerId, _Worker] = {}
        self._by_load: list[OrderedDict[WorkerId, _Worker]] = [OrderedDict() for _ in range(self.limits.per_worker + 1)]
        self._running: OrderedDict[WorkerId, float] = OrderedDict()  # since when; the longest first
        self._times = _RecentTimes()
        self.add(chunks)

    # --- what there is -------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether every chunk was released; copies that became superfluous may still run."""
        return not self._line

    @property
    def held(self) -> int:
        """Results that wait to be released."""
        return len(self._results)

    @property
    def in_flight(self) -> int:
        """Chunks at workers, waiting ones and copies included."""
        return sum(load * len(workers) for load, workers in enumerate(self._by_load))

    @property
    def workers(self) -> Mapping[WorkerId, WorkerTally]:
        """The workers present, in the order in which they joined, with their work so far."""
        return {worker.id: worker.tally for worker in self._workers.values()}

    def holding(self, worker: WorkerId) -> list[Chunk]:
        """The chunks at `worker`, the running one first; empty when it is not present."""
        present = self._workers.get(worker)
        return [task.chunk for task in present.tasks.values()] if present else []

    # --- what comes in -------------------------------------------------------------------------------------

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Puts `chunks` behind those there; ValueError when one is there already."""
        for chunk in chunks:
            if chunk.id in self._tasks:
                raise ValueError(f"{chunk.id} is in the schedule already")
            task = _Task(self._count, chunk)
            self._count += 1
            self._tasks[chunk.id] = task
            self._line.append(task)
            self._fresh.append(task)

    def worker_joined(self, worker: WorkerId) -> None:
        """A worker is there and idle; ValueError when it was present already."""
        if worker in self._workers:
            raise ValueError(f"worker {worker!r} is present already")
        self._workers[worker] = self._by_load[0][worker] = _Worker(worker)

    def worker_left(self, worker: WorkerId) -> list[Chunk]:
        """A worker was asked to go; its unfinished chunks, back in line, in order. Nothing is held against them."""
        return self._remove(worker)

    def worker_lost(self, worker: WorkerId, reason: str = "died", *, results_lost: bool = False) -> list[Chunk]:
        """A worker is gone; returns the chunks that go back to the front of the line, in order.

        `results_lost` says that its results not yet released are gone too (they lay on its node): they are made again.
        Losing a worker that is not present (its loss was told before) changes nothing else. Raises `ChunkLostError`
        when its running chunk had been lost with `attempts` workers; the schedule is sound even then.
        """
        running = None
        if present := self._workers.get(worker):
            self.counters.lost_workers += 1
            running = next(iter(present.tasks.values()), None)
        returned = self._remove(worker)
        if results_lost:
            returned = sorted(returned + self._forget_results(worker), key=lambda chunk: self._tasks[chunk.id].position)
        if running and not running.finished:
            running.losses.append(f"{worker} ({reason})")
            if len(running.losses) >= self.limits.attempts:
                raise ChunkLostError(running.chunk.id, running.losses)
        return returned

    def finished(self, worker: WorkerId, chunk: ChunkId, result: R, now: float) -> bool:
        """A worker's result of a chunk; whether it counts (it was the first).

        It counts too when the worker was thought lost. ValueError when the chunk was never issued.
        """
        task = self._tasks.get(chunk)
        if task and not (task.holders or task.queued or task.finished):
            raise ValueError(f"{chunk} was never issued, so worker {worker!r} cannot have finished it")
        if (present := self._workers.get(worker)) and chunk in present.tasks:
            self._put_down(present, chunk, now)
        if task is None or task.finished:
            self.counters.duplicates += 1
            return False
        task.finished_by = worker
        self._results[chunk] = result
        self.counters.finished += 1
        self.counters.most_held = max(self.counters.most_held, len(self._results))
        return True

    # --- what goes out -------------------------------------------------------------------------------------

    def assignments(self, now: float) -> list[tuple[WorkerId, Chunk]]:
        """The chunks to send, and to whom: the first chunks to the workers that hold the fewest.

        Returned chunks come before new ones. When none may be issued, idle workers get copies of slow ones.
        """
        handed: list[tuple[WorkerId, Chunk]] = []
        while (task := self._next()) and (worker := self._least_loaded()):
            self.counters.reissued += task.queued
            self._take_out(task)
            self._hand(task, worker, now)
            handed.append((worker.id, task.chunk))
        if task is None:
            for late in list(islice(self._slow(now), len(self._by_load[0]))):
                worker = self._least_loaded()
                assert worker is not None
                self.counters.copies += 1
                self._hand(late, worker, now)
                handed.append((worker.id, late.chunk))
        return handed

    def released(self) -> list[tuple[Chunk, R]]:
        """The results whose turn it is, in chunk order, each exactly once.

        Room in the window comes from here: a driver that stops taking results gets no more assignments.
        """
        out: list[tuple[Chunk, R]] = []
        while self._line and self._line[0].finished:
            chunk = self._line.popleft().chunk
            del self._tasks[chunk.id]
            out.append((chunk, self._results.pop(chunk.id)))
        return out

    def overdue(self, now: float) -> list[WorkerId]:
        """The workers whose running chunk has run for `timeout_seconds`; the driver ends them and tells their loss."""
        late: list[WorkerId] = []
        for worker, since in self._running.items():
            if now - since < self.limits.timeout_seconds:
                break
            late.append(worker)
        return late

    def next_deadline(self, now: float) -> float | None:
        """Seconds after which `overdue` or `assignments` may say more without any event; None is never.

        To be asked after both: 0 means that they have something to say now.
        """
        if not self._running:
            return None
        deadline = next(iter(self._running.values())) + self.limits.timeout_seconds
        threshold = self._slow_seconds()
        if self._by_load[0] and self._next() is None and threshold is not None:
            uncopied = (since for worker, since in self._running.items() if any(self._copyable(worker)))
            deadline = min(deadline, next(uncopied, math.inf) + threshold)
        return max(0.0, deadline - now) if math.isfinite(deadline) else None

    # --- inside --------------------------------------------------------------------------------------------

    def _next(self) -> _Task | None:
        """The first task to issue, or None when there is none within the window."""
        while self._returned and self._returned[0][1].finished:  # by a worker thought lost
            heapq.heappop(self._returned)[1].queued = False
        if not (self._returned or self._fresh):
            return None
        task = self._returned[0][1] if self._returned else self._fresh[0]
        edge = self._line[0].position + self.limits.window_for(len(self._workers))
        return task if task.position < edge else None

    def _take_out(self, task: _Task) -> None:
        if task.queued:
            heapq.heappop(self._returned)
            task.queued = False
        else:
            self._fresh.popleft()

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
        self.counters.issued += 1

    def _put_down(self, worker: _Worker, chunk: ChunkId, now: float) -> None:
        """The worker no longer holds the chunk; if it was the running one, the next one runs from now on."""
        was_running = next(iter(worker.tasks)) == chunk
        self._move(worker, -1)
        worker.tasks.pop(chunk).holders -= 1
        worker.tally.finished += 1
        if not was_running:  # told out of order: its time is in that of the one before it
            return
        seconds = now - self._running.pop(worker.id)
        if worker.tasks:
            self._running[worker.id] = now
        self._times.add(seconds)
        worker.tally.busy_seconds += seconds
        self.counters.busy_seconds += seconds

    def _move(self, worker: _Worker, step: int) -> None:
        load = len(worker.tasks)
        del self._by_load[load][worker.id]
        self._by_load[load + step][worker.id] = worker

    def _remove(self, worker: WorkerId) -> list[Chunk]:
        gone = self._workers.pop(worker, None)
        if gone is None:
            return []
        del self._by_load[len(gone.tasks)][worker]
        self._running.pop(worker, None)
        returned = [task for task in gone.tasks.values() if self._give_back(task)]
        return [task.chunk for task in sorted(returned, key=lambda task: task.position)]

    def _give_back(self, task: _Task) -> bool:
        """One holder less; whether the task is back in line."""
        task.holders -= 1
        return self._queue(task)

    def _queue(self, task: _Task) -> bool:
        """Whether the task, which nobody works on and which has no result, is put back in line."""
        if task.holders or task.finished:
            return False
        if not task.queued:
            heapq.heappush(self._returned, (task.position, task))
            task.queued = True
        return True

    def _forget_results(self, worker: WorkerId) -> list[Chunk]:
        """The results that `worker` made and that are not released; the chunks that are back in line."""
        tasks = [task for task in map(self._tasks.__getitem__, self._results) if task.finished_by == worker]
        for task in tasks:
            del self._results[task.chunk.id]
            task.finished_by = None
            self.counters.finished -= 1
        return [task.chunk for task in tasks if self._queue(task)]

    def _slow_seconds(self) -> float | None:
        """From how long on a chunk is slow; None while too few have finished."""
        median = self._times.median()
        if median is None:
            return None
        return max(self.limits.straggler_seconds, self.limits.straggler_factor * median)

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
