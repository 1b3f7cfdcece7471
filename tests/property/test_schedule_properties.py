"""Whatever workers do, every chunk is released once and in order, within the limits; broken schedules are noticed.

The state machine is the cluster: workers that join, leave, die with or without their results, hang, are slow, answer
out of order or after they were given up. Beside it stands a plain model of who holds what since when.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from buffers.chunks import Chunk, ChunkId, plan
from dream.runtime.schedule import ChunkLostError, Limits, Schedule

TIMEOUT = 10
PICK = st.integers(0, 99)


class Cluster(RuleBasedStateMachine):
    """A cluster of simulated workers around a schedule of class `kind`."""

    def __init__(self, kind: type[Schedule[str]] = Schedule) -> None:
        super().__init__()
        self.kind = kind
        self.now = 0
        self.chunks: list[Chunk] = []
        self.position: dict[ChunkId, int] = {}
        self.issued: set[int] = set()
        self.results: dict[int, list[str]] = {}  # the first result of a chunk, and who made it
        self.released = 0
        self.at: dict[str, list[int]] = {}  # what each worker present holds: the first one runs
        self.since: dict[str, int] = {}
        self.hung: set[str] = set()
        self.late: list[tuple[str, int]] = []  # results of lost workers that may still come
        self.names = 0

    @initialize(
        count=st.integers(1, 12),
        workers=st.integers(0, 3),
        limits=st.builds(
            Limits,
            per_worker=st.integers(1, 3),
            window=st.none() | st.integers(1, 6),
            timeout_seconds=st.just(TIMEOUT),
            straggler_factor=st.integers(1, 3),
            straggler_seconds=st.integers(0, 2),
            attempts=st.just(10**6),
        ),
    )
    def start(self, count: int, workers: int, limits: Limits) -> None:
        self.limits = limits
        self.schedule = self.kind((), limits)
        self.next_phase(count)
        for _ in range(workers):
            self.join()

    # --- what happens ------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 6))
    def next_phase(self, count: int) -> None:
        iteration = self.chunks[-1].id.iteration + 1 if self.chunks else 1
        for chunk in (added := plan(iteration, 0, count, 1)):
            self.position[chunk.id] = len(self.chunks)
            self.chunks.append(chunk)
        self.schedule.add(added)

    @rule()
    def join(self) -> None:
        self.names += 1
        self.at[f"w{self.names}"] = []
        self.schedule.worker_joined(f"w{self.names}")

    @rule(seconds=st.integers(1, 6))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def assign(self) -> None:
        for worker, chunk in self.schedule.assignments(self.now):
            self.take(worker, self.position[chunk.id])
        free = [worker for worker, held in self.at.items() if len(held) < self.limits.per_worker]
        assert not (free and self.waiting()), "free workers and chunks to issue"

    def take(self, worker: str, position: int) -> None:
        """Checks one assignment and carries it out."""
        assert worker in self.at
        assert position not in self.results, "a finished chunk is issued"
        holders = self.holders(position)
        waiting = self.waiting()
        if holders:
            assert not waiting, "a copy while chunks wait"
            assert len(holders) == 1, "a copy of a copy"
            assert not self.at[worker], "a copy for a worker that has work"
        else:
            assert waiting, "ahead of the window"
            assert position == waiting[0], "not the first chunk"
            assert len(self.at[worker]) == min(map(len, self.at.values())), "not served evenly"
        assert len(self.at[worker]) < self.limits.per_worker, "more in flight than allowed"
        if not self.at[worker]:
            self.since[worker] = self.now
        self.at[worker].append(position)
        self.issued.add(position)

    @precondition(lambda self: any(self.at.values()))
    @rule(pick=PICK, which=st.sampled_from([0, 0, 0, 1]))
    def finish(self, pick: int, which: int) -> None:
        """A worker answers; now and then the driver hears of its second chunk first."""
        busy = [worker for worker, held in self.at.items() if held and worker not in self.hung]
        if busy:
            worker = busy[pick % len(busy)]
            self.answer(worker, min(which, len(self.at[worker]) - 1))

    def answer(self, worker: str, which: int = 0) -> None:
        position = self.at[worker].pop(which)
        if which == 0:
            self.since[worker] = self.now
        self.tell(worker, position)

    def tell(self, worker: str, position: int) -> None:
        first = position not in self.results
        if first:
            self.results[position] = [f"{worker} {position}", worker]
        told = self.schedule.finished(worker, self.chunks[position].id, f"{worker} {position}", self.now)
        assert told == first, "the first result counts, and no other"

    @rule(rounds=st.integers(1, 8), pick=PICK)
    def work(self, rounds: int, pick: int) -> None:
        """What a driver does, with one worker that takes its time."""
        for _ in range(rounds):
            self.assign()
            able = [worker for worker, held in self.at.items() if held and worker not in self.hung]
            for worker in [*able[: pick % 4], *able[pick % 4 + 1 :]]:
                self.answer(worker)
            self.now += 1
            self.collect()

    @precondition(lambda self: self.late)
    @rule()
    def answer_late(self) -> None:
        while self.late:
            self.tell(*self.late.pop())

    @precondition(lambda self: self.at)
    @rule(pick=PICK)
    def hang(self, pick: int) -> None:
        self.hung.add(list(self.at)[pick % len(self.at)])

    @precondition(lambda self: self.at)
    @rule(pick=PICK, results_lost=st.booleans())
    def lose(self, pick: int, results_lost: bool) -> None:
        self.end(list(self.at)[pick % len(self.at)], results_lost)

    @precondition(lambda self: self.at)
    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        worker = list(self.at)[pick % len(self.at)]
        held = self.at.pop(worker)
        back = [self.position[chunk.id] for chunk in self.schedule.worker_left(worker)]
        assert back == [p for p in sorted(held) if p not in self.results and not self.holders(p)]

    def end(self, worker: str, results_lost: bool = False) -> None:
        held = set(self.at.pop(worker))
        self.late += [] if results_lost else [(worker, position) for position in sorted(held)]
        if results_lost:
            gone = {p for p, (_, by) in self.results.items() if by == worker and p >= self.released}
            held |= gone
            self.results = {p: result for p, result in self.results.items() if p not in gone}
        returned = self.schedule.worker_lost(worker, results_lost=results_lost)
        back = [self.position[chunk.id] for chunk in returned]
        assert back == [p for p in sorted(held) if p not in self.results and not self.holders(p)]
        assert self.schedule.worker_lost(worker) == []

    @rule()
    def kill_the_overdue(self) -> None:
        running = [worker for worker, held in self.at.items() if held]
        late = {worker for worker in running if self.now - self.since[worker] >= TIMEOUT}
        assert set(self.schedule.overdue(self.now)) == late, "who is overdue"
        for worker in late:
            self.end(worker)

    @rule()
    def collect(self) -> None:
        for chunk, result in self.schedule.released():
            assert self.position[chunk.id] == self.released, "out of order"
            assert [result] == self.results.get(self.released, [])[:1], "not the first result"
            self.released += 1
        assert self.released not in self.results, "held back"
        assert self.schedule.done == (self.released == len(self.chunks))
        assert self.schedule.held == len(self.results) - self.released
        assert self.schedule.in_flight == sum(map(len, self.at.values()))

    # --- what is so --------------------------------------------------------------------------------------

    def holders(self, position: int) -> list[str]:
        return [worker for worker, held in self.at.items() if position in held]

    def waiting(self) -> list[int]:
        """The chunks that may be issued now, in order."""
        window = self.limits.window or math.ceil((self.limits.per_worker + self.limits.straggler_factor) * len(self.at))
        ahead = range(self.released, min(len(self.chunks), self.released + window))
        return [p for p in ahead if p not in self.results and not self.holders(p)]

    def teardown(self) -> None:
        """Whatever happened so far, the schedule ends while a worker that works is there; deadlines alone wake it."""
        if not self.chunks:
            return
        for _ in range(20 * (len(self.chunks) + self.names + 2)):
            self.collect()
            if self.schedule.done:
                self.answer_late()
                return
            if not set(self.at) - self.hung:
                self.join()
            self.assign()
            working = [worker for worker, held in self.at.items() if held and worker not in self.hung]
            if working:
                self.now += 1
                self.answer(working[0])
            else:
                self.now += self.wait()
            self.kill_the_overdue()
        raise AssertionError("it does not end")

    def wait(self) -> int:
        seconds = self.schedule.next_deadline(self.now)
        assert seconds is not None, "it waits for ever"
        return int(seconds)


CASES = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestCluster = Cluster.TestCase
TestCluster.settings = CASES


# --- named mutants -------------------------------------------------------------------------------------------


class ForgetsLostChunks(Schedule[str]):
    """What a lost worker held is not issued again."""

    def _queue(self, task: Any) -> bool:
        return False


class ReleasesOnArrival(Schedule[str]):
    """Results leave as they come."""

    def released(self) -> list[tuple[Chunk, str]]:
        found = [(self._tasks[chunk].chunk, result) for chunk, result in self._results.items()]
        for chunk, _ in found:
            self._line.remove(self._tasks.pop(chunk.id))
        self._results.clear()
        return found


class LastResultCounts(Schedule[str]):
    """A second result takes the first one's place."""

    def finished(self, worker: Any, chunk: ChunkId, result: str, now: float) -> bool:
        first = super().finished(worker, chunk, result, now)
        if chunk in self._results:
            self._results[chunk] = result
        return first


class CountsEveryResult(Schedule[str]):
    """A chunk that is done is taken for new when it comes again."""

    def finished(self, worker: Any, chunk: ChunkId, result: str, now: float) -> bool:
        super().finished(worker, chunk, result, now)
        return True


class DropsLateResults(Schedule[str]):
    """Who was given up is not heard any more, even by a chunk that nobody else has."""

    def finished(self, worker: Any, chunk: ChunkId, result: str, now: float) -> bool:
        return worker in self._workers and super().finished(worker, chunk, result, now)


class KeepsResultsOfALostNode(Schedule[str]):
    """Releases results that lay on a node that is gone."""

    def _forget_results(self, worker: Any) -> list[Chunk]:
        return []


class OneMoreInFlight(Schedule[str]):
    """Hands a worker one chunk too many."""

    def __init__(self, chunks: Any, limits: Limits) -> None:
        super().__init__(chunks, replace(limits, per_worker=limits.per_worker + 1))


class NoWindow(Schedule[str]):
    """Lets results pile up."""

    def __init__(self, chunks: Any, limits: Limits) -> None:
        super().__init__(chunks, replace(limits, window=10**6))


class LostChunksLast(Schedule[str]):
    """Lost chunks wait until all new ones are out."""

    def _next(self) -> Any:
        returned, self._returned = self._returned, [] if self._fresh else self._returned
        try:
            return super()._next()
        finally:
            self._returned = returned


class FirstWorkerFirst(Schedule[str]):
    """Fills one worker before the next."""

    def _least_loaded(self) -> Any:
        free = (worker for workers in self._by_load[-2::-1] for worker in workers.values())
        return next(free, None)


class WaitingIsRunning(Schedule[str]):
    """The time of a waiting chunk counts from its issue."""

    def _put_down(self, worker: Any, chunk: ChunkId, now: float) -> None:
        since = self._running[worker.id]
        super()._put_down(worker, chunk, now)
        if worker.tasks:
            self._running[worker.id] = since


class CopiesWithoutEnd(Schedule[str]):
    """Copies what has a copy."""

    def _copyable(self, worker: Any) -> Iterator[Any]:
        return (task for task in self._workers[worker].tasks.values() if not task.finished)


class NoDeadline(Schedule[str]):
    """Lets the driver wait for a hung worker."""

    def next_deadline(self, now: float) -> float | None:
        return None


MUTANTS = [
    ForgetsLostChunks,
    ReleasesOnArrival,
    LastResultCounts,
    CountsEveryResult,
    DropsLateResults,
    KeepsResultsOfALostNode,
    OneMoreInFlight,
    NoWindow,
    LostChunksLast,
    FirstWorkerFirst,
    WaitingIsRunning,
    CopiesWithoutEnd,
    NoDeadline,
]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_broken_schedules_are_noticed(mutant: type[Schedule[str]]) -> None:
    found = settings(CASES, max_examples=1000, phases=[Phase.generate], derandomize=True, report_multiple_bugs=False)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(lambda: Cluster(mutant), settings=found)


# --- chunks that kill ----------------------------------------------------------------------------------------


def lives(kind: type[Schedule[str]], count: int, killer: int, attempts: int, per_worker: int, workers: int) -> int:
    """Workers that die of chunk `killer` before the schedule raises; dead ones are replaced."""
    schedule = kind(plan(1, 0, count, 1), Limits(per_worker=per_worker, attempts=attempts, straggler_seconds=math.inf))
    for worker in range(workers):
        schedule.worker_joined(worker)
    deaths = 0
    for step in range(1000):
        schedule.assignments(step)
        schedule.released()
        busy = [worker for worker in schedule.workers if schedule.holding(worker)]
        worker = busy[step % len(busy)]
        chunk = schedule.holding(worker)[0].id
        if chunk.index != killer:
            schedule.finished(worker, chunk, "", step)
            continue
        deaths += 1
        schedule.worker_joined(workers + step)
        try:
            schedule.worker_lost(worker)
        except ChunkLostError as error:
            return deaths if error.chunk.index == killer else -1
    raise AssertionError("it goes round for ever")


class BlamesWhatWaited(Schedule[str]):
    """Named mutant: a loss is held against the newest chunk that the worker held."""

    def worker_lost(self, worker: Any, reason: str = "died", *, results_lost: bool = False) -> list[Chunk]:
        tasks = self._workers[worker].tasks
        self._workers[worker].tasks = dict(reversed(tasks.items()))
        return super().worker_lost(worker, reason, results_lost=results_lost)


KILLERS = given(
    count=st.integers(1, 20),
    pick=PICK,
    attempts=st.integers(1, 6),
    per_worker=st.integers(1, 3),
    workers=st.integers(1, 4),
)


def check_killers(kind: type[Schedule[str]], phases: list[Phase]) -> None:
    @KILLERS
    @settings(max_examples=100, deadline=None, phases=phases, derandomize=True, report_multiple_bugs=False)
    def check(count: int, pick: int, attempts: int, per_worker: int, workers: int) -> None:
        assert lives(kind, count, pick % count, attempts, per_worker, workers) == attempts

    check()


def test_a_chunk_kills_as_many_workers_as_allowed_and_is_the_one_named() -> None:
    check_killers(Schedule, list(Phase))


def test_blaming_the_wrong_chunk_is_noticed() -> None:
    with pytest.raises(AssertionError):
        check_killers(BlamesWhatWaited, [Phase.generate])
