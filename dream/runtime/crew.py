"""The workers of a cluster: started without waiting, given chunks, replaced when they are lost."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from buffers.chunks import Chunk
from dream.config import RunConfig
from dream.errors import DreamError
from dream.runtime.backend import Asked, Backend, Handle, PartLostError, Reference, ResourcesError
from dream.runtime.placement import Needs, in_bytes, room_for
from dream.runtime.schedule import Schedule, WorkerId
from dream.runtime.services import ChunkReport, Introduction, SamplerService

_LOOK_SECONDS = 2.0  # between two looks at what the cluster has
_STARTS = 5  # starts that may fail one after another

Clock = Callable[[], float]


class MismatchError(DreamError):
    """A node has other versions, or another game, than the driver."""


@dataclass(frozen=True)
class _Call:
    worker: WorkerId
    chunk: Chunk
    rows: list[Reference]


@dataclass
class _Worked:
    """What all workers did, copies included: states, seconds at work, the largest process."""

    states: int = 0
    seconds: float = 0.0
    peak_bytes: int = 0

    def add(self, report: ChunkReport) -> None:
        """Enter a chunk."""
        self.states += report.summary.states
        self.seconds += report.seconds
        self.peak_bytes = max(self.peak_bytes, report.rss_bytes)


class Crew:
    """Plays chunks on as many workers as `runtime.workers` says, or as fit beside `placed` while there are chunks.

    Workers come and go while it plays. Results come back in chunk order, each once (dream/runtime/schedule.py).
    """

    def __init__(
        self,
        config: RunConfig,
        needs: Needs,
        placed: Collection[Asked],
        backend: Backend,
        mine: Introduction,
        notify: Callable[[str], None],
        clock: Clock,
    ) -> None:
        settings = config.runtime
        self._asked = needs.worker
        self._most = needs.most_workers
        self._placed = placed
        self._config = config
        self._backend = backend
        self._mine = mine
        self._notify = notify
        self._clock = clock
        self._schedule: Schedule[tuple[ChunkReport, list[Reference]]] = Schedule(
            settings.in_flight, settings.chunk_timeout_seconds
        )
        self._workers: dict[WorkerId, Handle] = {}
        self._starting: dict[Reference, tuple[str, Handle]] = {}
        self._calls: dict[Reference, _Call] = {}
        self._started = 0
        self._failed = 0
        self._worked = _Worked()
        self._looked = -_LOOK_SECONDS
        self._alone_since = clock()

    def play(
        self, chunks: Sequence[Chunk], told: Sequence[Any]
    ) -> Iterator[tuple[Chunk, ChunkReport, list[Reference]]]:
        """The chunks' reports and references to their rows, in chunk order; `told` is passed to `sample`."""
        schedule = self._schedule
        schedule.add(chunks)
        while not schedule.done:
            self._adjust()
            now = self._clock()
            for worker, chunk in schedule.assignments(now):
                self._send(worker, chunk, told)
            for worker in schedule.overdue(now):
                self._lose(worker, f"ran a chunk for more than {self._config.runtime.chunk_timeout_seconds:g} s")
            for reference in self._backend.wait([*self._calls, *self._starting], self._patience()):
                self._receive(reference)
            for chunk, (report, rows) in schedule.released():
                yield chunk, report, rows

    def start(self) -> None:
        """Starts the first workers, without waiting for them."""
        self._adjust()

    def take_metrics(self) -> dict[str, float]:
        """Scalars for telemetry: counts since the run was started, rates and peaks since the last call."""
        counters, worked = self._schedule.counters, self._worked
        self._worked = _Worked()
        return {
            "cluster/workers": float(len(self._workers)),
            "cluster/workers_lost": float(counters.lost_workers),
            "cluster/chunks_reissued": float(counters.reissued),
            "cluster/results_dropped": float(counters.duplicates),
            "cluster/results_held_most": float(counters.most_held),
            "cluster/worker_states_per_second": worked.states / max(worked.seconds, 1e-9),
            "cluster/worker_seconds": worked.seconds,
            "cluster/worker_peak_bytes": float(worked.peak_bytes),
        }

    def _patience(self) -> float:
        deadline = self._schedule.next_deadline(self._clock())
        return _LOOK_SECONDS if deadline is None else min(_LOOK_SECONDS, max(deadline, 0.001))

    # --- starting and losing ---

    def _adjust(self) -> None:
        """Start what is wanted and not there; say what is missing where nobody has worked for too long."""
        now = self._clock()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        for _ in range(self._missing()):
            self._start()
        if self._workers:
            self._alone_since = now
        elif now - self._alone_since > (limit := self._config.runtime.start_timeout_seconds):
            asked = f"{self._asked.cpus:g} CPU and {in_bytes(self._asked.bytes)} of memory"
            raise ResourcesError(
                f"no worker has started within runtime.start_timeout_seconds={limit:g}: each asks for {asked}; "
                f"the cluster has {self._backend.describe()}."
            )

    def _missing(self) -> int:
        present = len(self._workers) + len(self._starting)
        if self._config.runtime.workers:  # those that have no room yet wait for it: what adds nodes sees them
            return max(0, self._most - present)
        if self._starting:  # what they take is not yet seen in what is free
            return 0
        fit = room_for(self._asked, self._backend.nodes(), self._placed) - present
        room = min(fit, self._backend.room(self._asked))  # other runs may be there too
        return min(max(room, 0 if present else 1), self._most - present)

    def _start(self) -> None:
        self._started += 1
        name = f"worker-{self._started}"
        handle = self._backend.spawn(name, SamplerService, (self._config,), self._asked)
        self._starting[self._backend.call(handle, "introduce")] = (name, handle)

    def _lose(self, worker: WorkerId, reason: str) -> None:
        handle = self._workers.pop(worker, None)
        if handle is None:
            return
        self._backend.kill(handle)
        self._calls = {r: call for r, call in self._calls.items() if call.worker != worker}
        returned = self._schedule.worker_lost(worker, reason)
        self._looked = -_LOOK_SECONDS  # look for a replacement at once
        chunks = f"{len(returned)} chunk{'' if len(returned) == 1 else 's'}"
        self._notify(f"{worker} {reason}: {chunks} given to others, {len(self._workers)} workers left")

    # --- chunks ---

    def _send(self, worker: WorkerId, chunk: Chunk, told: Sequence[Any]) -> None:
        report, *rows = self._backend.call_for(4, self._workers[worker], "sample", chunk, *told)
        self._calls[report] = _Call(worker, chunk, rows)

    def _receive(self, reference: Reference) -> None:
        if reference in self._starting:
            self._welcome(*self._starting.pop(reference), reference)
            return
        call = self._calls.pop(reference, None)
        if call is None:  # of a worker that was lost meanwhile
            return
        try:
            (report,) = self._backend.get([reference])
        except PartLostError as error:
            if error.part != call.worker:  # what it was told is lost: no other worker can be told it either
                raise
            self._lose(call.worker, f"was lost ({error.why})")
            return
        self._worked.add(report)
        self._schedule.finished(call.worker, call.chunk.id, (report, call.rows), self._clock())

    def _welcome(self, name: str, handle: Handle, reference: Reference) -> None:
        try:
            (theirs,) = self._backend.get([reference])
        except PartLostError as error:
            self._failed += 1
            self._notify(f"{name} did not start ({error.why})")
            if self._failed >= _STARTS:
                raise
            return
        self._failed = 0
        check_same(self._mine, theirs)
        self._workers[name] = handle
        self._schedule.worker_joined(name)


def check_same(mine: Introduction, theirs: Introduction) -> None:
    """Raises MismatchError, naming node and differences, for a process that would compute something else."""
    if differences := mine.differences(theirs):
        raise MismatchError(
            f"node {theirs.host} has {', '.join(differences)}: install the driver's versions there "
            "(results depend on them), or keep the node out of the cluster."
        )


def real_clock() -> float:
    """Seconds of a clock that never goes back."""
    return time.monotonic()
