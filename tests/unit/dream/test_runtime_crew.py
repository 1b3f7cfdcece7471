"""How many workers a run starts, as it says or as its nodes hold, and what it costs when one goes with its node."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from oracles.inline_backend import InlineBackend, Process, Value

from dream import config as configuration
from dream.runtime.assembly import Assembly
from dream.runtime.backend import Asked, NodeResources, PartLostError
from dream.runtime.cluster import ClusterRuntime
from dream.runtime.local import LocalRuntime
from dream.runtime.needs import WORKER, needs_of
from dream.runtime.runtime import Runtime
from dream.wiring import System

CHUNKS = 10


def assembly_of(**runtime: Any) -> Assembly:
    sampling = {"traversals": 20, "chunk": 20 // CHUNKS}
    advantage = {"network": {"hidden": (8,)}, "steps": 2, "batch": 8, "capacity": 1000}
    values = {"game": "kuhn", "algorithm": "sd-cfr", "iterations": 1, "sampling": sampling, "advantage": advantage}
    return Assembly.of(configuration.from_mapping(values | {"runtime": runtime}))


def workers(backend: InlineBackend, **runtime: Any) -> list[Process]:
    """Those that a run has started by the time that it stands."""
    ClusterRuntime(assembly_of(**runtime), backend, lambda text: None, backend.clock)
    return [process for process in backend.processes if process.name.startswith("worker")]


def parts_bytes() -> int:
    return sum(part.asked.bytes for part in needs_of(assembly_of()).parts)


@pytest.mark.parametrize("cpus", [2, 64])
def test_by_itself_a_run_starts_what_the_memory_beside_its_parts_holds_and_no_more_than_cpus(cpus: int) -> None:
    backend = InlineBackend(cpus)
    backend.memory_bytes = parts_bytes() + 4 * WORKER.bytes - 1
    started = workers(backend)
    assert len(started) == min(3, cpus)
    assert {process.asked for process in started} == {WORKER}
    assert WORKER.bytes > 0  # so that Ray, too, keeps to the memory of every node


class Lopsided(InlineBackend):
    """All CPUs on one node, all free memory on the other: together they would hold ten workers."""

    def nodes(self) -> list[NodeResources]:
        here = NodeResources("here", 10, 0, parts_bytes() + WORKER.bytes, "the one")
        return [here, NodeResources("head", 0, 0, 10 * WORKER.bytes, "the other")]


def test_memory_and_cpus_count_on_each_node_by_itself() -> None:
    assert len(workers(Lopsided(10))) == 1


class Shared(InlineBackend):
    """Another run has all CPUs but two."""

    def room(self, asked: Asked) -> int:
        return min(2, super().room(asked))


def test_what_others_have_taken_is_left_to_them() -> None:
    assert len(workers(Shared(10))) == 2


def test_a_number_of_workers_is_asked_for_whatever_there_is() -> None:
    """Those without room wait for it: what adds nodes sees them."""
    backend = InlineBackend(2)
    backend.memory_bytes = parts_bytes() + WORKER.bytes
    assert len(workers(backend, workers=4)) == 4


# --- a worker that goes with its node ----------------------------------------------------------------------


class Nodes(InlineBackend):
    """Each worker has a node of its own: what it made is lost with it."""

    def __init__(self) -> None:
        self.made: dict[str, list[Value]] = {}
        self.lost = False
        super().__init__(2, self._happens)

    def call_for(self, count: int, handle: Process, method: str, *args: Any) -> list[Value]:
        references = super().call_for(count, handle, method, *args)
        self.made.setdefault(handle.name, []).extend(references)
        return references

    def _happens(self, process: Process, method: str, number: int) -> str | None:
        """Worker 2 dies at its fourth chunk; worker 1 takes until then for its first."""
        if method != "sample" or self.lost:
            return None
        if process.name == "worker-1":
            return "hang"
        if sum(value.there for value in self.made["worker-2"]) < 1 + 3 * 4:
            return None
        self.lost = True
        for value in self.made["worker-2"]:
            value.error = PartLostError("it lay on a dead node")
        return "lose"


def fitted(assembly: Assembly, runtime: Runtime) -> Sequence[dict[str, Any]]:
    runtime.sample(1, (0, 1), System.around(assembly, runtime).bank.profile())
    return runtime.fit_advantages(1, (0, 1))


def test_results_that_waited_on_a_node_that_died_are_made_again() -> None:
    assembly, backend, told = assembly_of(), Nodes(), []
    ours = fitted(assembly, ClusterRuntime(assembly, backend, told.append, backend.clock))
    (line,) = (line for line in told if "worker-2 was lost" in line)
    assert "5 chunks given to others" in line  # three that were done, and two that it held
    for own, other in zip(ours, fitted(assembly, LocalRuntime(assembly)), strict=True):
        assert all(np.array_equal(own[name], other[name]) for name in other)
