"""The cluster runtime against one process: what Ray costs, what workers add, how much the driver carries.

Seconds are the wall clock's. Every case starts a Ray cluster on this machine.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from actors.strategies.strategy import TableProfile, uniform
from benchmarks.learning import regression_rows
from benchmarks.measure import Budget, Result, Target, compare
from buffers.chunks import Chunk, plan
from buffers.frames import Snapshot
from buffers.rows import Rows
from dream import config as configuration
from dream.config import RunConfig
from dream.runtime.assembly import Assembly
from dream.runtime.backend import Asked, Handle
from dream.runtime.cluster import ClusterRuntime
from dream.runtime.crew import Crew, real_clock
from dream.runtime.local import LocalRuntime
from dream.runtime.needs import needs_of
from dream.runtime.players import profile_message
from dream.runtime.ray_backend import RayBackend
from dream.runtime.runtime import Runtime
from dream.runtime.services import ChunkReport, Introduction, SamplerService
from dream.runtime.tally import Summary
from dream.training import cfr
from dream.wiring import System
from learners.networks import Parameters

_ROWS = 20_000  # of a chunk that costs nothing


def _unheard(text: str) -> None:
    """What a runtime tells, to nobody."""
    del text


class InstantWorker:
    """A worker that has its rows ready: what is measured is everything else."""

    def __init__(self, config: RunConfig) -> None:
        assembly = Assembly.of(config, on_cpu=True)
        self._assembly = assembly
        self._rows = regression_rows(assembly.game, _ROWS)  # type: ignore[arg-type]  # an enumerated game

    def introduce(self) -> Introduction:
        """As a worker does."""
        return Introduction.of(self._assembly)

    def sample(
        self, chunk: Chunk, told: tuple[int, int], profile: Snapshot, baseline: Snapshot
    ) -> tuple[ChunkReport, Rows, None, None]:
        """The same rows for every chunk."""
        return ChunkReport(Summary(_ROWS, _ROWS, 3 * _ROWS, 1.0, {}), 0.0, 0), self._rows, None, None


class InstantWorkers(RayBackend):
    """Ray with workers that cost nothing."""

    def spawn(self, name: str, make: Callable[..., Any], args: Sequence[Any], asked: Asked) -> Handle:
        """An instant worker in place of a sampler."""
        return super().spawn(name, InstantWorker if make is SamplerService else make, args, asked)


@contextmanager
def _cluster(config: RunConfig, kind: type[RayBackend] = RayBackend) -> Iterator[ClusterRuntime]:
    backend = kind.connect(None, config.runtime.workers)
    try:
        yield ClusterRuntime(Assembly.of(config), backend, _unheard)
    finally:
        backend.close()


class _Iterations:
    """Iterations of a run without a folder, one a call, by the training loop itself."""

    def __init__(self, config: RunConfig, runtime: Runtime) -> None:
        self._system = System.around(Assembly.of(config), runtime)
        self.bank = self._system.bank
        self._t = 0

    def __call__(self) -> float:
        self._t += 1
        run: Any = self
        cfr.train(run, self._system.runtime, self._system.method, cfr.ALTERNATING)
        return 1.0

    def iterations(self) -> Iterator[int]:
        """The one of this call."""
        yield self._t

    def append(self, player: int, parameters: Parameters) -> None:
        """Play the network from here on."""
        self.bank.append(player, parameters)

    def finish(self, iteration: int) -> None:
        """Nothing is kept."""
        self._system.runtime.take_metrics()


def overhead(budget: Budget) -> list[Result]:
    """Iterations on Ray against iterations in this process: Leduc at the paper's settings, and next to nothing."""
    results = []
    cases: tuple[tuple[str, str, list[str], Target | None], ...] = (
        ("leduc-dream-paper, 1 worker", "leduc-dream-paper", [], Target(ratio=1 / 1.15)),
        ("next to nothing: what the runtime itself costs", "kuhn-dream-quick", _TINY, None),
    )
    for case, preset, overrides, target in cases:
        config = configuration.load(preset, [*overrides, "runtime.workers=1", "runtime.kind=ray"])
        with _cluster(config) as runtime:
            ours, bare = _Iterations(config, runtime), _Iterations(config, LocalRuntime(Assembly.of(config)))
            targets = {"": target} if target else None
            results += compare(
                "cluster_overhead", case, "iterations", ours, {"one process": bare}, budget, targets, time.perf_counter
            )
    return results


_TINY = ["sampling.traversals=1", "advantage.steps=1", "advantage.fine_tune_steps=1", "baseline.steps=1"]


def workers(budget: Budget) -> list[Result]:
    """Flop Hold'em sampling, simulator backend: two workers against one, and against two processes without Ray.

    A phase ends when the last worker does: the fewer chunks it has, the more of it all others wait.
    """
    count = min(2, os.cpu_count() or 1)
    rows = ["advantage.buffer=reservoir", "baseline.merge=false", "sampling.chunk=5000"]
    results = []
    for traversals, target in ((200_000, Target(ratio=1.8)), (50_000, None)):
        config = configuration.load(
            "leduc-os-sd-cfr-quick", [*rows, f"sampling.traversals={traversals}", "game=fhp", "runtime.kind=ray"]
        )
        with _processes(config, count) as plain, _crews(config, (1, count)) as (one, all_of_them):
            results += compare(
                "cluster_workers",
                f"fhp, os-sd-cfr, {traversals:,} traversals, {count} workers",
                "states",
                all_of_them,
                {"1 worker": one, f"{count} processes without Ray": plain},
                budget,
                {"1 worker": target} if target else None,
                time.perf_counter,
            )
    return results


@contextmanager
def _crews(config: RunConfig, sizes: Sequence[int]) -> Iterator[list[Callable[[], float]]]:
    """Phases of sampling by a crew of each size; all of them stand, and one plays."""
    backend = RayBackend.connect(None, sum(sizes))
    try:
        asked = [configuration.with_overrides(config, [f"runtime.workers={size}"]) for size in sizes]
        yield [_sampling(Assembly.of(each), backend) for each in asked]
    finally:
        backend.close()


def _sampling(assembly: Assembly, backend: RayBackend) -> Callable[[], float]:
    """A phase of sampling by a crew of its own; rows stay where they are."""
    crew = Crew(assembly.config, needs_of(assembly), (), backend, Introduction.of(assembly), _unheard, real_clock)
    system = System.around(assembly, LocalRuntime(assembly))
    told: list[Any] = [(1, 0), backend.put(profile_message(system.bank.profile())), {}]
    iteration = iter(range(1, 10**9))

    def work() -> float:
        chunks = plan(next(iteration), 0, assembly.traversals, assembly.config.sampling.chunk)
        return float(sum(report.summary.states for _, report, _ in crew.play(chunks, told)))

    return work


@contextmanager
def _processes(config: RunConfig, count: int) -> Iterator[Callable[[], float]]:
    """The same phases by processes that share nothing and keep their rows: what the machine gives."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for number in range(count):
        mine, theirs = context.Pipe()
        processes.append(context.Process(target=_play_alone, args=(config, number, count, theirs), daemon=True))
        processes[-1].start()
        pipes.append(mine)
    iteration = iter(range(1, 10**9))

    def work() -> float:
        t = next(iteration)
        for pipe in pipes:
            pipe.send(t)
        return float(sum(pipe.recv() for pipe in pipes))

    try:
        yield work
    finally:
        for process in processes:
            process.kill()
            process.join()


def _play_alone(config: RunConfig, number: int, count: int, pipe: Any) -> None:
    """Plays every `count`-th chunk of the iterations that it is told, and answers with the states visited."""
    assembly = Assembly.of(config, on_cpu=True)
    worker = assembly.worker()
    profile = System.around(assembly, LocalRuntime(assembly)).bank.profile()
    while True:
        chunks = plan(pipe.recv(), 0, assembly.traversals, config.sampling.chunk)
        pipe.send(sum(worker.traverse(chunk, profile, None).states for chunk in chunks[number::count]))


def scale(budget: Budget) -> list[Result]:
    """Workers that cost nothing: chunks that the driver hands out, and rows that shards take in, per second."""
    results = []
    chunks = 200
    for shards in (1, 2):
        overrides = [f"sampling.traversals={chunks}", "sampling.chunk=1", f"runtime.shards={shards}"]
        config = configuration.load(
            "leduc-sd-cfr-paper", [*overrides, "runtime.workers=2", "runtime.kind=ray", "advantage.steps=1"]
        )
        with _cluster(config, InstantWorkers) as runtime:
            work = _phases(runtime, chunks)
            case = f"instant workers, {shards} shard{'s' * (shards > 1)}, chunks of {_ROWS:,} rows"
            results += compare("cluster_scale", case, "chunks", work, {}, budget, clock=time.perf_counter)
    return [*results, _driver_alone()]


def _phases(runtime: ClusterRuntime, chunks: int) -> Callable[[], float]:
    """A sampling phase and a fit of one step a call; `chunks` of each."""
    profile = TableProfile(uniform(np.ones((936, 3), bool)))
    iteration = iter(range(1, 10**9))

    def work() -> float:
        t = next(iteration)
        runtime.sample(t, (0,), profile)
        runtime.fit_advantages(t, (0,))
        return float(chunks)

    return work


class _Immediate:
    """A backend whose calls cost nothing: what is left is the driver's own work."""

    def __init__(self) -> None:
        self._number = 0

    def call(self, handle: Handle, method: str, *args: Any) -> int:
        self._number += 1
        return self._number

    def call_for(self, count: int, handle: Handle, method: str, *args: Any) -> list[int]:
        return [self.call(handle, method) for _ in range(count)]

    def spawn(self, name: str, make: Callable[..., Any], args: Sequence[Any], asked: Asked) -> str:
        return name

    def wait(self, references: Sequence[int], seconds: float) -> list[int]:
        return list(references[:64])


def _driver_alone(workers: int = 1000, chunks: int = 20_000) -> Result:
    """Crew and schedule with a thousand workers that answer at once."""
    config = configuration.load("leduc-sd-cfr-paper", [f"runtime.workers={workers}", "runtime.kind=ray"])
    assembly = Assembly.of(config)
    mine = Introduction.of(assembly)
    report = ChunkReport(Summary(1, 1, 3, 1.0, {}), 0.0, 0)

    class Answers(_Immediate):
        def get(self, references: Sequence[int]) -> list[Any]:
            return [mine if number <= workers else report for number in references]

    backend: Any = Answers()
    crew = Crew(config, needs_of(assembly), (), backend, mine, _unheard, real_clock)
    rates = []
    for t in range(1, 4):
        work = plan(t, 0, chunks, 1)
        began = time.perf_counter()
        for _ in crew.play(work, ((1, 0), None, None)):
            pass
        rates.append(chunks / (time.perf_counter() - began))
    case = f"driver alone, {workers:,} workers that answer at once"
    return Result("cluster_scale", case, "chunks", statistics.median(rates), "", 0.0, float("nan"))
