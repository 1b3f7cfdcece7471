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
from dream.runtime.schedule import ChunkLostError, Schedule


def chunks(count: int, iteration: int = 1, player: int = 0) -> list[Chunk]:
    return plan(iteration, player, count, 1)


def started(count: int, workers: str, per_worker: int = 2, timeout_seconds: float = 600) -> Schedule[str]:
    schedule: Schedule[str] = Schedule(per_worker, timeout_seconds)
    schedule.add(chunks(count))
    for worker in workers:
        schedule.worker_joined(worker)
    return schedule


def indices(found: list[tuple[Any, Chunk]]) -> list[tuple[Any, int]]:
    return [(worker, chunk.id.index) for worker, chunk in found]


def finish(schedule: Schedule[str], worker: str, index: int, now: float) -> None:
    schedule.finished(worker, ChunkId(1, 0, index), f"{worker}{index}", now)


def out(schedule: Schedule[str]) -> list[str]:
    return [result for _, result in schedule.released()]


# --- handing out -------------------------------------------------------------------------------------------


def test_workers_are_served_evenly_and_hold_at_most_per_worker() -> None:
    schedule = started(10, "abc")
    assert indices(schedule.assignments(0)) == [("a", 0), ("b", 1), ("c", 2), ("a", 3), ("b", 4), ("c", 5)]
    assert schedule.assignments(0) == []
    finish(schedule, "b", 1, 1)
    assert indices(schedule.assignments(1)) == [("b", 6)]


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
    assert schedule.worker_lost("a", "died") == chunks(10)[:2]
    assert schedule.assignments(0) == []
    for index in (2, 3):
        finish(schedule, "b", index, 1)
    assert indices(schedule.assignments(1)) == [("b", 0), ("b", 1)]


def test_nothing_is_handed_out_without_workers() -> None:
    schedule = started(3, "")
    assert schedule.assignments(0) == []
    assert schedule.next_deadline(0) is None
    assert not schedule.done


def test_the_window_bounds_what_runs_ahead_of_the_first_chunk() -> None:
    """Two workers of one chunk each: what they hold, and three times as much before a slow one gets a copy."""
    schedule = started(20, "ab", per_worker=1)
    assert indices(schedule.assignments(0)) == [("a", 0), ("b", 1)]
    for index in range(1, 7):
        finish(schedule, "b", index, 0.1)
        assert indices(schedule.assignments(0.1)) == [("b", index + 1)]
    finish(schedule, "b", 7, 0.1)
    assert schedule.assignments(0.1) == []
    finish(schedule, "a", 0, 0.2)
    assert schedule.assignments(0.2) == []  # the results still wait
    assert len(out(schedule)) == 8
    assert indices(schedule.assignments(0.2)) == [("b", 8), ("a", 9)]


def test_the_window_follows_the_workers() -> None:
    schedule = started(20, "ab", per_worker=1)
    schedule.assignments(0)
    for index in range(1, 8):
        finish(schedule, "b", index, 0.1)
        schedule.assignments(0.1)
    schedule.worker_joined("c")
    assert indices(schedule.assignments(0.1)) == [("b", 8), ("c", 9)]


# --- results -----------------------------------------------------------------------------------------------


def test_results_leave_in_chunk_order() -> None:
    schedule = started(4, "ab")
    schedule.assignments(0)
    finish(schedule, "b", 3, 1)
    finish(schedule, "b", 1, 1)
    assert out(schedule) == []
    finish(schedule, "a", 0, 1)
    assert out(schedule) == ["a0", "b1"]
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
    assert [chunk.id.iteration for _, chunk in schedule.assignments(1)] == [2]


# --- losses ------------------------------------------------------------------------------------------------


def test_chunks_of_a_lost_worker_go_to_the_front_in_order() -> None:
    schedule = started(10, "abc")
    schedule.assignments(0)
    assert schedule.worker_lost("b", "died") == [chunks(10)[1], chunks(10)[4]]
    assert schedule.worker_lost("a", "died") == [chunks(10)[0], chunks(10)[3]]
    schedule.worker_joined("d")
    assert indices(schedule.assignments(1)) == [("d", 0), ("d", 1)]
    finish(schedule, "c", 2, 2)
    finish(schedule, "c", 5, 2)
    assert indices(schedule.assignments(2)) == [("c", 3), ("c", 4)]
    assert (schedule.counters.reissued, schedule.counters.lost_workers) == (4, 2)


def test_results_of_a_lost_worker_that_have_not_left_are_made_again() -> None:
    """They may have lain on a node that went with it."""
    schedule = started(4, "ab")
    schedule.assignments(0)
    for index in (1, 3):
        finish(schedule, "b", index, 1)
    assert schedule.worker_lost("b", "its node died") == [chunks(4)[1], chunks(4)[3]]
    finish(schedule, "a", 0, 2)
    assert out(schedule) == ["a0"]
    assert indices(schedule.assignments(2)) == [("a", 1)]
    finish(schedule, "a", 2, 3)
    schedule.assignments(3)
    for index in (1, 3):
        finish(schedule, "a", index, 4)
    assert out(schedule) == ["a1", "a2", "a3"]
    assert schedule.counters.reissued == 2


def test_results_that_have_left_stay_with_whoever_took_them() -> None:
    schedule = started(4, "ab")
    schedule.assignments(0)
    for worker, index in (("b", 1), ("a", 0)):
        finish(schedule, worker, index, 1)
    assert out(schedule) == ["a0", "b1"]
    assert schedule.worker_lost("b", "died") == [chunks(4)[3]]


def test_a_chunk_that_kills_its_workers_raises() -> None:
    schedule = started(4, "ab")
    schedule.assignments(0)
    schedule.worker_lost("a", "died")
    for worker in "cdef":
        schedule.worker_joined(worker)
        assert schedule.assignments(0)[0] == (worker, chunks(4)[0])
        if worker != "f":
            schedule.worker_lost(worker, "no result in 600 s")
    with pytest.raises(ChunkLostError) as caught:
        schedule.worker_lost("f", "killed: out of memory")
    assert isinstance(caught.value, DreamError)
    hung = ", ".join(f"{worker} (no result in 600 s)" for worker in "cde")
    assert str(caught.value) == (
        "chunk 0 of iteration 1, player 0, was lost with 5 workers, as many as are allowed: a (died), "
        f"{hung}, f (killed: out of memory); it probably kills them, and their logs say why."
    )


def test_a_chunk_that_only_waited_is_not_blamed() -> None:
    """Chunk 1 waits behind chunk 0, which kills five."""
    schedule = started(2, "")
    for worker in "abcd":
        schedule.worker_joined(worker)
        assert indices(schedule.assignments(0)) == [(worker, 0), (worker, 1)]
        schedule.worker_lost(worker, "died")
    schedule.worker_joined("e")
    schedule.assignments(0)
    finish(schedule, "e", 0, 1)
    assert out(schedule) == ["e0"]
    assert schedule.worker_lost("e", "died") == [chunks(2)[1]]  # ran chunk 1, for the first time


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
    assert schedule.next_deadline(100) is None


def slow_worker(second: float = 1) -> Schedule[str]:
    """At 2 s all chunks are out; a has run chunk 0 since 0, the others took 1 s each, b runs chunk 5, c is idle."""
    schedule = started(6, "abc", per_worker=1)
    schedule.assignments(0)
    for now, worker, index in ((1, "b", 1), (1, "c", 2), (2, "b", 3), (2, "c", 4)):
        finish(schedule, worker, index, now * second)
        schedule.assignments(now * second)
    return schedule


def test_an_idle_worker_gets_a_copy_of_a_slow_chunk() -> None:
    schedule = slow_worker()
    assert schedule.next_deadline(2) == 1
    assert schedule.assignments(2.9) == []
    assert indices(schedule.assignments(3)) == [("c", 0)]
    finish(schedule, "b", 5, 3)
    assert schedule.assignments(9) == []  # one copy is enough
    assert schedule.next_deadline(9) == 591
    finish(schedule, "c", 0, 9)
    finish(schedule, "a", 0, 10)
    assert out(schedule) == ["c0", "b1", "c2", "b3", "c4", "b5"]
    assert (schedule.counters.reissued, schedule.counters.duplicates) == (1, 1)


def test_a_copy_that_was_not_needed_ends_first_or_last_without_harm() -> None:
    schedule = slow_worker()
    schedule.assignments(3)
    finish(schedule, "a", 0, 4)
    finish(schedule, "b", 5, 4)
    assert len(schedule.released()) == 6
    assert schedule.done
    schedule.add(chunks(4, iteration=2))  # c is still at its copy
    assert [worker for worker, _ in schedule.assignments(5)] == ["a", "b"]
    finish(schedule, "c", 0, 6)
    assert [worker for worker, _ in schedule.assignments(6)] == ["c"]
    assert schedule.released() == []


def test_a_lost_worker_whose_chunk_has_a_copy_gives_nothing_back() -> None:
    schedule = slow_worker()
    schedule.assignments(3)
    assert schedule.worker_lost("a", "died") == []
    assert schedule.worker_lost("c", "died")[0] == chunks(6)[0]


def test_a_lost_copy_is_made_again() -> None:
    schedule = slow_worker()
    schedule.assignments(3)
    assert schedule.worker_lost("c", "died") == [chunks(6)[2], chunks(6)[4]]  # its results, not the copy
    schedule.worker_joined("d")
    for index in (2, 4):
        assert indices(schedule.assignments(3)) == [("d", index)]
        finish(schedule, "d", index, 4)
    assert indices(schedule.assignments(4)) == [("d", 0)]


def test_a_result_that_is_lost_while_its_copy_runs_comes_from_the_copy() -> None:
    schedule = slow_worker()
    schedule.assignments(3)
    finish(schedule, "c", 0, 4)
    assert chunks(6)[0] not in schedule.worker_lost("c", "died")
    finish(schedule, "a", 0, 5)
    assert out(schedule) == ["a0", "b1"]


def test_chunks_of_moments_are_not_slow_before_a_second() -> None:
    schedule = slow_worker(0.01)
    assert schedule.assignments(0.99) == []
    assert indices(schedule.assignments(1)) == [("c", 0)]


def test_chunks_that_wait_behind_a_slow_one_are_copied_too() -> None:
    schedule = started(6, "ab")
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
    schedule = started(100, "ab", per_worker=1)
    schedule.assignments(0)
    for now, index in enumerate(range(1, 8), start=1):
        finish(schedule, "b", index, now)
        assert indices(schedule.assignments(now)) == ([("b", index + 1)] if index < 7 else [("b", 0)])


def test_few_running_times_make_no_copies() -> None:
    schedule = started(3, "ab", per_worker=1)
    schedule.assignments(0)
    for now, index in enumerate((1, 2), start=1):
        finish(schedule, "b", index, now)
        schedule.assignments(now)
    assert schedule.assignments(500) == []
    assert schedule.next_deadline(500) == 100


def test_the_median_is_of_recent_chunks() -> None:
    """After 300 chunks of 1 s and 255 of 8 s, 23 s is not slow."""
    schedule = started(556, "a", per_worker=1)
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


# --- cost --------------------------------------------------------------------------------------------------


class ScansItsWorkers(Schedule[str]):
    """Named mutant: looks at all workers to find the emptiest one."""

    def _least_loaded(self) -> Any:
        emptiest = None
        for worker in self._workers.values():
            if len(worker.tasks) < len(self._by_load) - 1 and (
                emptiest is None or len(worker.tasks) < len(emptiest.tasks)
            ):
                emptiest = worker
        return emptiest


def lines_per_chunk(kind: type[Schedule[str]], count: int, workers: int) -> float:
    """Lines of the schedule that are executed for each of `count` chunks; every 50th result costs a worker."""
    schedule = kind(2, 600)
    schedule.add(chunks(count))
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
            schedule.worker_joined(str(worker))
        at_work = deque(schedule.assignments(0))
        for now in itertools.count(1):
            if schedule.done:
                break
            worker, chunk = at_work.popleft()
            if worker in schedule._workers:
                schedule.finished(worker, chunk.id, "", now)
                schedule.released()
                if now % 50 == 0:
                    schedule.worker_lost(worker, "died")
                    schedule.worker_joined(str(workers + now))
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
