"""Whatever workers do, every chunk is released once and in order, within the limits; broken schedules are noticed.

The state machine is the cluster: workers that join, die with what they made, hang, are slow, or answer out of order.
Beside it stands a plain model of who holds what since when.
"""

import heapq
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from buffers.chunks import Chunk, ChunkId, plan
from dream.runtime import schedule as module
from dream.runtime.schedule import ChunkLostError, Schedule

ATTEMPTS = 5
TIMEOUT = 10
PICK = st.integers(0, 99)


@pytest.fixture(autouse=True)
def killers_are_tested_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ATTEMPTS", 10**6)


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
        self.names = 0

    @initialize(
        count=st.integers(1, 12),
        workers=st.integers(0, 3),
        per_worker=st.integers(1, 3),
    )
    def start(self, count: int, workers: int, per_worker: int) -> None:
        self.per_worker = per_worker
        self.schedule = self.kind(per_worker, TIMEOUT)
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
        free = [worker for worker, held in self.at.items() if len(held) < self.per_worker]
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
        assert len(self.at[worker]) < self.per_worker, "more in flight than allowed"
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
        self.results.setdefault(position, [f"{worker} {position}", worker])
        self.schedule.finished(worker, self.chunks[position].id, f"{worker} {position}", self.now)

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

    @precondition(lambda self: self.at)
    @rule(pick=PICK)
    def hang(self, pick: int) -> None:
        self.hung.add(list(self.at)[pick % len(self.at)])

    @precondition(lambda self: self.at)
    @rule(pick=PICK)
    def lose(self, pick: int) -> None:
        self.end(list(self.at)[pick % len(self.at)])

    def end(self, worker: str) -> None:
        """It is gone, with what it made and nobody has fetched."""
        gone = {p for p, (_, by) in self.results.items() if by == worker and p >= self.released}
        held = gone | set(self.at.pop(worker))
        self.results = {p: result for p, result in self.results.items() if p not in gone}
        back = [self.position[chunk.id] for chunk in self.schedule.worker_lost(worker, "died")]
        assert back == [p for p in sorted(held) if p not in self.results and not self.holders(p)]

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

    # --- what is so --------------------------------------------------------------------------------------

    def holders(self, position: int) -> list[str]:
        return [worker for worker, held in self.at.items() if position in held]

    def waiting(self) -> list[int]:
        """The chunks that may be issued now, in order."""
        ahead = range(self.released, min(len(self.chunks), self.released + (self.per_worker + 3) * len(self.at)))
        return [p for p in ahead if p not in self.results and not self.holders(p)]

    def teardown(self) -> None:
        """Whatever happened so far, the schedule ends while a worker that works is there; deadlines alone wake it."""
        if not self.chunks:
            return
        for _ in range(20 * (len(self.chunks) + self.names + 2)):
            self.collect()
            if self.schedule.done:
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

    def worker_lost(self, worker: str, reason: str) -> list[Chunk]:
        before = list(self._waiting)
        returned = super().worker_lost(worker, reason)
        self._waiting = before
        return returned


class ReleasesOnArrival(Schedule[str]):
    """Results leave as they come."""

    def released(self) -> list[tuple[Chunk, str]]:
        found = [(task.chunk, result) for task, result in self._results.items()]
        for task in self._results:
            self._line.remove(task)
        self._results.clear()
        return found


class LastResultCounts(Schedule[str]):
    """A second result takes the first one's place."""

    def finished(self, worker: str, chunk: ChunkId, result: str, now: float) -> None:
        task = self._workers[worker].tasks[chunk]
        super().finished(worker, chunk, result, now)
        if task in self._results:
            self._results[task] = result


class KeepsResultsOfALostWorker(Schedule[str]):
    """Releases results that lay on a node that is gone."""

    def worker_lost(self, worker: str, reason: str) -> list[Chunk]:
        for task in self._results:
            task.finished_by = "nobody that can be lost"
        return super().worker_lost(worker, reason)


class OneMoreInFlight(Schedule[str]):
    """Hands a worker one chunk too many."""

    def __init__(self, per_worker: int, timeout_seconds: float) -> None:
        super().__init__(per_worker + 1, timeout_seconds)


class NoWindow(Schedule[str]):
    """Lets results pile up."""

    def __init__(self, per_worker: int, timeout_seconds: float) -> None:
        super().__init__(per_worker, timeout_seconds)
        self._ahead = 10**6


class LostChunksLast(Schedule[str]):
    """Lost chunks wait until all new ones are out."""

    def worker_lost(self, worker: str, reason: str) -> list[Chunk]:
        before = [task for _, task in self._waiting]
        returned = super().worker_lost(worker, reason)
        last = max([task.position for task in before], default=0)
        self._waiting = [(task.position + (0 if task in before else last), task) for _, task in self._waiting]
        heapq.heapify(self._waiting)
        return returned


class FirstWorkerFirst(Schedule[str]):
    """Fills one worker before the next."""

    def _least_loaded(self) -> Any:
        free = (worker for workers in self._by_load[-2::-1] for worker in workers.values())
        return next(free, None)


class WaitingIsRunning(Schedule[str]):
    """The time of a waiting chunk counts from its issue."""

    def _put_down(self, worker: Any, chunk: ChunkId, now: float) -> Any:
        since = self._running[worker.id]
        task = super()._put_down(worker, chunk, now)
        if worker.tasks:
            self._running[worker.id] = since
        return task


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
    KeepsResultsOfALostWorker,
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


def lives(kind: type[Schedule[str]], count: int, killer: int, per_worker: int, workers: int) -> int:
    """Workers that die of chunk `killer` before the schedule raises; dead ones are replaced."""
    schedule = kind(per_worker, 1e9)
    schedule.add(plan(1, 0, count, 1))
    held: dict[str, list[ChunkId]] = {}
    for worker in range(workers):
        held[f"{worker}"] = []
        schedule.worker_joined(f"{worker}")
    deaths = 0
    for step in range(1000):
        for worker, chunk in schedule.assignments(0):  # time stands still: nobody is slow
            held[worker].append(chunk.id)
        schedule.released()
        busy = [worker for worker, chunks in held.items() if chunks]
        worker = busy[step % len(busy)]
        if held[worker][0].index != killer:
            schedule.finished(worker, held[worker].pop(0), "", 0)
            continue
        deaths += 1
        del held[worker]
        held[f"{workers + step}"] = []
        schedule.worker_joined(f"{workers + step}")
        try:
            schedule.worker_lost(worker, "died")
        except ChunkLostError as error:
            return deaths if str(error).startswith(f"chunk {killer} of") else -1
    raise AssertionError("it goes round for ever")


class BlamesWhatWaited(Schedule[str]):
    """Named mutant: a loss is held against the newest chunk that the worker held."""

    def worker_lost(self, worker: str, reason: str) -> list[Chunk]:
        tasks = self._workers[worker].tasks
        self._workers[worker].tasks = dict(reversed(tasks.items()))
        return super().worker_lost(worker, reason)


KILLERS = given(
    count=st.integers(1, 20),
    pick=PICK,
    per_worker=st.integers(1, 3),
    workers=st.integers(1, 4),
)


def check_killers(kind: type[Schedule[str]], phases: list[Phase]) -> None:
    @KILLERS
    @settings(max_examples=100, deadline=None, phases=phases, derandomize=True, report_multiple_bugs=False)
    def check(count: int, pick: int, per_worker: int, workers: int) -> None:
        assert lives(kind, count, pick % count, per_worker, workers) == ATTEMPTS

    check()


def test_a_chunk_kills_as_many_workers_as_allowed_and_is_the_one_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ATTEMPTS", ATTEMPTS)
    check_killers(Schedule, list(Phase))


def test_blaming_the_wrong_chunk_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ATTEMPTS", ATTEMPTS)
    with pytest.raises(AssertionError):
        check_killers(BlamesWhatWaited, [Phase.generate])
