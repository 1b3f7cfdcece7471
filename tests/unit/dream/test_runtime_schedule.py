"""Each rule of the schedule by itself, with a clock that the tests turn."""

import itertools
import sys
from collections import deque
from types import FrameType
from typing import Any

import pytest

from buffers.chunks import Chunk, ChunkId, plan
from dream.errors import DreamError
from dream.runtime import schedule as module
from dream.runtime.schedule import ChunkLostError, Limits, Schedule, WorkerTally


def chunks(count: int, iteration: int = 1, player: int = 0) -> list[Chunk]:
    return plan(iteration, player, count, 1)


def started(count: int, workers: str, **limits: Any) -> Schedule[str]:
    schedule: Schedule[str] = Schedule(chunks(count), Limits(**limits))
    for worker in workers:
        schedule.worker_joined(worker)
    return schedule


def indices(found: list[tuple[Any, Chunk]]) -> list[tuple[Any, int]]:
    return [(worker, chunk.id.index) for worker, chunk in found]


def finish(schedule: Schedule[str], worker: str, index: int, now: float) -> bool:
    return schedule.finished(worker, ChunkId(1, 0, index), f"{worker}{index}", now)


def out(schedule: Schedule[str]) -> list[str]:
    return [result for _, result in schedule.released()]


# --- handing out -------------------------------------------------------------------------------------------


def test_workers_are_served_evenly_and_hold_at_most_per_worker() -> None:
    schedule = started(10, "abc")
    assert indices(schedule.assignments(0)) == [("a", 0), ("b", 1), ("c", 2), ("a", 3), ("b", 4), ("c", 5)]
    assert schedule.assignments(0) == []
    assert finish(schedule, "b", 1, 1)
    assert indices(schedule.assignments(1)) == [("b", 6)]
    assert [chunk.id.index for chunk in schedule.holding("b")] == [4, 6]
    assert schedule.in_flight == 6


def test_the_emptiest_worker_comes_first() -> None:
    schedule = started(10, "ab")
    schedule.assignments(0)
    for index in (1, 3):
        finish(schedule, "b", index, 1)
    finish(schedule, "a", 0, 1)
    assert indices(schedule.assignments(1)) == [("b", 4), ("a", 5), ("b", 6)]


def test_a_worker_that_joins_late_is_served_and_one_that_is_gone_is_not() -> None:
    schedule = started(10, "a")
    schedule.assignments(0)
    schedule.worker_joined("b")
    assert indices(schedule.assignments(0)) == [("b", 2), ("b", 3)]
    assert schedule.worker_left("a") == chunks(10)[:2]
    assert schedule.assignments(0) == []
    assert list(schedule.workers) == ["b"]
    assert schedule.counters.lost_workers == 0


def test_nothing_is_handed_out_without_workers() -> None:
    schedule = started(3, "")
    assert schedule.assignments(0) == []
    assert schedule.next_deadline(0) is None
    assert not schedule.done
    assert schedule.holding("a") == []


def test_the_window_bounds_what_runs_ahead_of_the_first_chunk() -> None:
    schedule = started(10, "ab", window=3)
    assert indices(schedule.assignments(0)) == [("a", 0), ("b", 1), ("a", 2)]
    finish(schedule, "b", 1, 1)
    finish(schedule, "a", 2, 1)
    assert schedule.assignments(1) == []
    finish(schedule, "a", 0, 2)
    assert schedule.assignments(2) == []  # the results still wait
    assert out(schedule) == ["a0", "b1", "a2"]
    assert indices(schedule.assignments(2)) == [("b", 3), ("a", 4), ("b", 5)]


def test_the_window_follows_the_workers_by_itself() -> None:
    assert Limits().window_for(0) == 1
    assert Limits().window_for(2) == 10
    assert Limits(per_worker=1, straggler_factor=1.5).window_for(3) == 8
    assert Limits(window=4).window_for(100) == 4


# --- results -----------------------------------------------------------------------------------------------


def test_results_leave_in_chunk_order() -> None:
    schedule = started(4, "ab")
    schedule.assignments(0)
    finish(schedule, "b", 3, 1)
    finish(schedule, "b", 1, 1)
    assert (out(schedule), schedule.held) == ([], 2)
    finish(schedule, "a", 0, 1)
    assert (out(schedule), schedule.held) == (["a0", "b1"], 1)
    finish(schedule, "a", 2, 1)
    assert not schedule.done
    assert schedule.released() == [(chunks(4)[2], "a2"), (chunks(4)[3], "b3")]
    assert schedule.done
    assert schedule.counters.most_held == 3


def test_phases_follow_each_other_in_one_schedule() -> None:
    schedule = started(1, "a")
    schedule.add(chunks(1, player=1))
    assert [chunk.id.player for _, chunk in schedule.assignments(0)] == [0, 1]
    schedule.finished("a", ChunkId(1, 1, 0), "second", 1)
    schedule.finished("a", ChunkId(1, 0, 0), "first", 1)
    assert out(schedule) == ["first", "second"]
    schedule.add(chunks(1, iteration=2))
    assert not schedule.done
    with pytest.raises(ValueError, match=r"ChunkId\(iteration=2, player=0, index=0\) is in the schedule already"):
        schedule.add(chunks(1, iteration=2))


def test_a_result_that_nobody_was_asked_for_is_refused() -> None:
    schedule = started(10, "a")
    schedule.assignments(0)
    with pytest.raises(ValueError, match=r"index=5\) was never issued, so worker 'a' cannot have finished it"):
        finish(schedule, "a", 5, 1)


# --- losses ------------------------------------------------------------------------------------------------


def test_chunks_of_a_lost_worker_go_to_the_front_in_order() -> None:
    schedule = started(10, "abc")
    schedule.assignments(0)
    assert schedule.worker_lost("b") == [chunks(10)[1], chunks(10)[4]]
    assert schedule.worker_lost("a") == [chunks(10)[0], chunks(10)[3]]
    schedule.worker_joined("d")
    assert indices(schedule.assignments(1)) == [("d", 0), ("d", 1)]
    finish(schedule, "c", 2, 2)
    finish(schedule, "c", 5, 2)
    assert indices(schedule.assignments(2)) == [("c", 3), ("c", 4)]
    assert (schedule.counters.reissued, schedule.counters.lost_workers, schedule.counters.issued) == (4, 2, 10)


def test_a_loss_told_twice_counts_once() -> None:
    schedule = started(2, "a")
    schedule.assignments(0)
    assert len(schedule.worker_lost("a")) == 2
    assert schedule.worker_lost("a") == []
    assert schedule.counters.lost_workers == 1


def test_the_late_result_of_a_lost_worker_counts_while_it_is_the_first() -> None:
    schedule = started(3, "ab", per_worker=1)
    schedule.assignments(0)
    schedule.worker_lost("a", "hung")
    assert finish(schedule, "a", 0, 1)  # before it is issued again
    finish(schedule, "b", 1, 1)
    assert indices(schedule.assignments(1)) == [("b", 2)]  # and so it is not
    assert out(schedule) == ["a0", "b1"]


def test_the_late_result_of_a_lost_worker_is_dropped_after_another() -> None:
    schedule = started(1, "ab")
    schedule.assignments(0)
    schedule.worker_lost("a")
    assert indices(schedule.assignments(0)) == [("b", 0)]
    assert finish(schedule, "b", 0, 1)
    assert not finish(schedule, "a", 0, 2)
    assert out(schedule) == ["b0"]
    assert not finish(schedule, "a", 0, 3)
    assert out(schedule) == []
    assert schedule.counters.duplicates == 2


def test_results_that_lay_on_a_lost_node_are_made_again() -> None:
    schedule = started(4, "ab")
    schedule.assignments(0)
    for index in (1, 3):
        finish(schedule, "b", index, 1)
    assert schedule.worker_lost("b", "node lost", results_lost=True) == [chunks(4)[1], chunks(4)[3]]
    finish(schedule, "a", 0, 2)
    assert out(schedule) == ["a0"]
    assert indices(schedule.assignments(2)) == [("a", 1)]
    finish(schedule, "a", 2, 3)
    schedule.assignments(3)
    for index in (1, 3):
        finish(schedule, "a", index, 4)
    assert out(schedule) == ["a1", "a2", "a3"]
    assert schedule.counters.finished == 4


def test_results_on_a_lost_node_count_when_the_worker_was_lost_before() -> None:
    schedule = started(4, "ab")
    schedule.assignments(0)
    finish(schedule, "b", 1, 1)
    assert schedule.worker_lost("b") == [chunks(4)[3]]
    assert schedule.worker_lost("b", results_lost=True) == [chunks(4)[1]]
    assert schedule.counters.lost_workers == 1


def test_a_chunk_that_kills_its_workers_raises() -> None:
    schedule = started(4, "ab", attempts=3)
    for worker, reason in (("a", "died"), ("c", "no result in 600 s")):
        if worker not in schedule.workers:
            schedule.worker_joined(worker)
        assert schedule.assignments(0)[0] == (worker, chunks(4)[0])
        schedule.worker_lost(worker, reason)
    schedule.worker_joined("d")
    assert schedule.assignments(0)[0] == ("d", chunks(4)[0])
    with pytest.raises(ChunkLostError) as caught:
        schedule.worker_lost("d", "killed: out of memory")
    assert isinstance(caught.value, DreamError)
    assert caught.value.chunk == ChunkId(1, 0, 0)
    assert str(caught.value) == (
        "chunk 0 of iteration 1, player 0, was lost with 3 workers, as many as are allowed: a (died), "
        "c (no result in 600 s), d (killed: out of memory); it probably kills them, and their logs say why."
    )
    assert list(schedule.workers) == ["b"]
    for index in (1, 3):  # the schedule is sound
        finish(schedule, "b", index, 1)
    assert indices(schedule.assignments(1)) == [("b", 0), ("b", 2)]


def test_a_single_attempt_reads_well() -> None:
    schedule = started(1, "a", attempts=1)
    schedule.assignments(0)
    with pytest.raises(ChunkLostError, match=r"was lost with 1 worker, as many as are allowed: a \(died\);"):
        schedule.worker_lost("a")


def test_a_chunk_that_only_waited_is_not_blamed() -> None:
    schedule = started(2, "", attempts=2)
    for worker in "abcd":
        schedule.worker_joined(worker)
        schedule.assignments(0)
        if worker in "ac":
            finish(schedule, worker, 0, 1)
            schedule.worker_left(worker)
        elif worker == "b":
            schedule.worker_lost(worker)  # ran chunk 1 for the first time
        else:
            with pytest.raises(ChunkLostError, match="chunk 1 of iteration 1"):
                schedule.worker_lost(worker)
    assert out(schedule) == ["a0"]


def test_a_worker_that_leaves_is_not_held_against_its_chunk() -> None:
    schedule = started(1, "a", attempts=1)
    schedule.assignments(0)
    assert schedule.worker_left("a") == chunks(1)


# --- the clock ---------------------------------------------------------------------------------------------


def test_only_the_running_chunk_can_be_overdue() -> None:
    schedule = started(4, "ab", timeout_seconds=10)
    schedule.assignments(0)
    assert schedule.next_deadline(0) == 10
    finish(schedule, "a", 0, 9)  # its second chunk runs from now on
    assert schedule.next_deadline(9) == 1
    assert schedule.overdue(9.5) == []
    assert schedule.overdue(10) == ["b"]
    assert schedule.next_deadline(12) == 0
    schedule.worker_lost("b", "hung")
    assert schedule.overdue(18) == []
    assert schedule.next_deadline(18) == 1
    assert schedule.overdue(19) == ["a"]


def test_results_told_out_of_order_leave_the_running_chunk_its_clock() -> None:
    schedule = started(2, "a", timeout_seconds=10)
    schedule.assignments(0)
    finish(schedule, "a", 1, 4)
    assert schedule.overdue(10) == ["a"]
    finish(schedule, "a", 0, 10)
    assert schedule.overdue(100) == []
    assert schedule.workers["a"] == WorkerTally(2, 10.0)
    assert schedule.counters.busy_seconds == 10.0


def test_no_timeout_is_no_deadline() -> None:
    schedule = started(2, "a", timeout_seconds=float("inf"))
    schedule.assignments(0)
    assert schedule.next_deadline(0) is None
    assert schedule.overdue(1e9) == []


def slow_worker(**limits: Any) -> Schedule[str]:
    """At 2 s all chunks are out; a has run chunk 0 since 0, the others took 1 s each, b runs chunk 5, c is idle."""
    schedule = started(6, "abc", per_worker=1, window=100, **{"straggler_seconds": 0, **limits})
    schedule.assignments(0)
    for now, worker, index in ((1, "b", 1), (1, "c", 2), (2, "b", 3), (2, "c", 4)):
        finish(schedule, worker, index, now)
        schedule.assignments(now)
    assert [len(schedule.holding(worker)) for worker in "abc"] == [1, 1, 0]
    return schedule


def test_an_idle_worker_gets_a_copy_of_a_slow_chunk() -> None:
    schedule = slow_worker()
    assert schedule.next_deadline(2) == 1
    assert schedule.assignments(2.9) == []
    assert indices(schedule.assignments(3)) == [("c", 0)]
    finish(schedule, "b", 5, 3)
    assert schedule.assignments(9) == []  # one copy is enough
    assert schedule.next_deadline(9) == 591
    assert finish(schedule, "c", 0, 9)
    assert not finish(schedule, "a", 0, 10)
    assert out(schedule) == ["c0", "b1", "c2", "b3", "c4", "b5"]
    assert (schedule.counters.copies, schedule.counters.duplicates, schedule.in_flight) == (1, 1, 0)


def test_a_copy_that_was_not_needed_ends_first_or_last_without_harm() -> None:
    schedule = slow_worker()
    schedule.assignments(3)
    assert finish(schedule, "a", 0, 4)
    finish(schedule, "b", 5, 4)
    assert len(schedule.released()) == 6
    assert schedule.done
    schedule.add(chunks(4, iteration=2))  # c is still at its copy
    assert [worker for worker, _ in schedule.assignments(5)] == ["a", "b"]
    assert not finish(schedule, "c", 0, 6)
    assert [worker for worker, _ in schedule.assignments(6)] == ["c"]


def test_a_lost_worker_whose_chunk_has_a_copy_gives_nothing_back() -> None:
    schedule = slow_worker()
    schedule.assignments(3)
    assert schedule.worker_lost("a") == []
    assert schedule.worker_lost("c") == [chunks(6)[0]]


def test_a_lost_copy_is_made_again() -> None:
    schedule = slow_worker()
    schedule.assignments(3)
    assert schedule.worker_lost("c") == []
    schedule.worker_joined("d")
    assert indices(schedule.assignments(4)) == [("d", 0)]


@pytest.mark.parametrize(("limits", "seconds"), [({"straggler_seconds": 5}, 5), ({"straggler_factor": 4}, 4)])
def test_what_is_slow_is_a_setting(limits: dict[str, float], seconds: float) -> None:
    schedule = slow_worker(**limits)
    assert schedule.assignments(seconds - 0.1) == []
    assert indices(schedule.assignments(seconds)) == [("c", 0)]


def test_copies_can_be_turned_off() -> None:
    schedule = slow_worker(straggler_seconds=float("inf"))
    assert schedule.assignments(500) == []
    assert schedule.next_deadline(500) == 100


def test_chunks_that_wait_behind_a_slow_one_are_copied_too() -> None:
    schedule = started(6, "ab", straggler_seconds=0)
    schedule.assignments(0)
    for now, index in enumerate((1, 3, 4, 5), start=1):
        finish(schedule, "b", index, now)
        found = schedule.assignments(now)
        assert indices(found) == {1: [("b", 4)], 2: [("b", 5)], 3: [], 4: [("b", 0)]}[now]
    finish(schedule, "b", 0, 5)
    assert indices(schedule.assignments(5)) == [("b", 2)]
    finish(schedule, "b", 2, 6)
    assert len(schedule.released()) == 6


def test_a_full_window_makes_copies_as_an_empty_line_does() -> None:
    schedule = started(100, "ab", per_worker=1, window=4, straggler_seconds=0)
    schedule.assignments(0)
    for now, index in enumerate((1, 2, 3), start=1):
        finish(schedule, "b", index, now)
        assert indices(schedule.assignments(now)) == ([("b", index + 1)] if index < 3 else [("b", 0)])


def test_few_running_times_make_no_copies() -> None:
    schedule = started(3, "ab", per_worker=1, straggler_seconds=0)
    schedule.assignments(0)
    for now, index in enumerate((1, 2), start=1):
        finish(schedule, "b", index, now)
        schedule.assignments(now)
    assert schedule.assignments(500) == []
    assert schedule.next_deadline(500) == 100


def test_the_median_is_of_recent_chunks() -> None:
    """After 300 chunks of 1 s and 255 of 8 s, 23 s is not slow."""
    schedule = started(556, "a", per_worker=1, straggler_seconds=0)
    now = 0.0
    for index in range(555):
        ((worker, chunk),) = schedule.assignments(now)
        now += 1 if index < 300 else 8
        schedule.finished(worker, chunk.id, "", now)
        schedule.released()
    schedule.assignments(now)
    schedule.worker_joined("b")
    assert schedule.assignments(now + 23.9) == []
    assert indices(schedule.assignments(now + 24)) == [("b", 555)]


# --- telemetry, limits and cost ----------------------------------------------------------------------------


def test_counters_and_tallies() -> None:
    schedule = slow_worker()
    schedule.assignments(3)
    assert schedule.workers == {"a": WorkerTally(), "b": WorkerTally(2, 2.0), "c": WorkerTally(2, 2.0)}
    counters = schedule.counters
    assert (counters.issued, counters.finished, counters.copies, counters.most_held) == (7, 4, 1, 4)
    assert counters.busy_seconds == 4.0
    assert (schedule.held, schedule.in_flight) == (4, 3)


def test_a_worker_present_cannot_join() -> None:
    schedule = started(1, "a")
    with pytest.raises(ValueError, match="worker 'a' is present already"):
        schedule.worker_joined("a")


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"per_worker": 0}, "per_worker is 0; it must be 1 or more"),
        ({"window": 0}, "window is 0; it must be 1 or more"),
        ({"attempts": 0}, "attempts is 0; it must be 1 or more"),
        ({"straggler_factor": 0.5}, "straggler_factor is 0.5; it must be 1 or more"),
        (
            {"straggler_factor": float("inf")},
            "straggler_factor is infinite; straggler_seconds=infinity makes no copies",
        ),
        ({"straggler_seconds": float("nan")}, "straggler_seconds is nan; it must be 0 or more"),
        ({"timeout_seconds": 0}, "timeout_seconds is 0; it must be more than 0"),
    ],
)
def test_limits_that_would_stop_it_are_refused(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        Limits(**limits)


class ScansItsWorkers(Schedule[str]):
    """Named mutant: looks at all workers to find the emptiest one."""

    def _least_loaded(self) -> Any:
        emptiest = None
        for worker in self._workers.values():
            if len(worker.tasks) < self.limits.per_worker and (
                emptiest is None or len(worker.tasks) < len(emptiest.tasks)
            ):
                emptiest = worker
        return emptiest


def lines_per_chunk(kind: type[Schedule[str]], count: int, workers: int) -> float:
    """Lines of the schedule that are executed for each of `count` chunks; every 50th result costs a worker."""
    schedule = kind(chunks(count))
    lines = 0

    def local(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return local

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        return local if code.co_filename == module.__file__ or code.co_qualname.startswith(kind.__name__) else None

    def serve() -> None:
        for worker in range(workers):
            schedule.worker_joined(worker)
        at_work = deque(schedule.assignments(0))
        for now in itertools.count(1):
            if schedule.done:
                break
            worker, chunk = at_work.popleft()
            if worker in schedule._workers:
                schedule.finished(worker, chunk.id, "", now)
                schedule.released()
                if now % 50 == 0:
                    schedule.worker_lost(worker)
                    schedule.worker_joined(workers + now)
                assert schedule.overdue(now) == []
                at_work += schedule.assignments(now)
                assert schedule.done or schedule.next_deadline(now)

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        serve()
    finally:
        sys.settrace(before)
    return lines / count


def test_an_event_costs_the_same_in_a_large_run() -> None:
    """Ten times the chunks and ten times the workers: the same lines for each chunk."""
    small, large = lines_per_chunk(Schedule, 500, 20), lines_per_chunk(Schedule, 5000, 200)
    assert large < 1.2 * small


def test_a_schedule_that_scans_is_noticed() -> None:
    small, large = lines_per_chunk(ScansItsWorkers, 500, 20), lines_per_chunk(ScansItsWorkers, 2000, 200)
    assert large > 3 * small
