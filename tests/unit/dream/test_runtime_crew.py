"""How many workers a run starts: as many as it says, or as the memory and the CPUs of its nodes hold."""

from typing import Any

import pytest
from oracles.inline_backend import InlineBackend, Process

from dream import config as configuration
from dream.runtime.assembly import Assembly
from dream.runtime.backend import Asked, NodeResources
from dream.runtime.cluster import ClusterRuntime
from dream.runtime.needs import WORKER, needs_of

CHUNKS = 10


def assembly_of(**runtime: Any) -> Assembly:
    sampling = {"traversals": 20, "chunk": 20 // CHUNKS}
    values = {"game": "kuhn", "algorithm": "sd-cfr", "iterations": 1, "sampling": sampling, "runtime": runtime}
    return Assembly.of(configuration.from_mapping(values))


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
    assert len(workers(backend, workers=7)) == 7
