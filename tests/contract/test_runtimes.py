"""One suite over both runtimes: the same configuration gives the same bits in one process and on a cluster."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from oracles.inline_backend import InlineBackend, Process

from dream import config as configuration
from dream.runtime.assembly import Assembly
from dream.runtime.backend import PartLostError, ResourcesError
from dream.runtime.cluster import ClusterRuntime
from dream.runtime.local import LocalRuntime
from dream.runtime.placement import PlacementError
from dream.runtime.runtime import Runtime
from dream.runtime.schedule import ChunkLostError
from dream.training import cfr
from dream.wiring import System

ITERATIONS = 3
Before = Callable[[Process, str, int], str | None]


class Bench:
    """A run without a folder."""

    def __init__(self, system: System, updates: Any = cfr.ALTERNATING, first: int = 1, last: int = ITERATIONS) -> None:
        self.system, self.bank, self.networks = system, system.bank, []
        self._span = range(first, last + 1)
        self.metrics: list[dict[str, float]] = []
        run: Any = self
        cfr.train(run, system.runtime, system.method, updates)

    def iterations(self) -> Any:
        yield from self._span

    def append(self, player: int, parameters: Any) -> None:
        self.networks.append(parameters)
        self.bank.append(player, parameters)

    def finish(self, iteration: int) -> None:
        if self.system.method.average == "network":
            self.networks += self.system.runtime.begin_averages(iteration)()[0]
        self.metrics.append(self.system.runtime.take_metrics())


def config_of(algorithm: str, buffer: str = "reservoir", **changes: Any) -> configuration.RunConfig:
    values: dict[str, Any] = {
        "game": "kuhn",
        "algorithm": algorithm,
        "iterations": ITERATIONS,
        "sampling": {"traversals": 100, "chunk": 30},
        "advantage": {"network": {"hidden": (8,)}, "steps": 3, "batch": 64, "buffer": buffer, "capacity": 300},
        "baseline": {"network": {"hidden": (8,)}, "steps": 3, "batch": 64, "capacity": 500},
        "average": {"network": {"hidden": (8,)}, "steps": 3, "batch": 64, "buffer": buffer, "capacity": 300},
        "runtime": {"device": "cpu", "threads": 1, "chunk_timeout_seconds": 5, "start_timeout_seconds": 50},
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        if name:
            values[section][name] = value
        else:
            values[section] = value
    return configuration.from_mapping(values)


def local(config: configuration.RunConfig) -> System:
    return System.build(config)


def cluster(
    config: configuration.RunConfig, before: Before = lambda process, method, number: None, cpus: int = 2
) -> tuple[System, InlineBackend, list[str]]:
    assembly, backend, told = Assembly.of(config), InlineBackend(cpus, before), []
    runtime: Runtime = ClusterRuntime(assembly, backend, told.append, backend.clock)
    return System.around(assembly, runtime), backend, told


def check_same(mine: Bench, theirs: Bench) -> None:
    assert len(mine.networks) == len(theirs.networks) > 0
    for own, other in zip(mine.networks, theirs.networks, strict=True):
        assert own.keys() == other.keys()
        assert all(np.array_equal(own[name], other[name]) for name in own)
    assert mine.system.runtime.states == theirs.system.runtime.states
    parts, others = mine.system.runtime.begin_snapshot()(), theirs.system.runtime.begin_snapshot()()
    assert parts.keys() == others.keys()
    for name, part in parts.items():
        assert part.keys() == others[name].keys(), name
        for key, value in part.items():
            assert np.array_equal(value, others[name][key]), f"{name}: {key}"
    for own, other in zip(mine.metrics, theirs.metrics, strict=True):
        clock = ("seconds", "_per_second")
        lasting = {name for name in own if not name.endswith(clock) and not name.startswith("cluster/")}
        assert lasting == {name for name in other if not name.endswith(clock) and not name.startswith("cluster/")}
        assert all(own[name] == other[name] for name in lasting)


CASES = {
    "dream, reservoir": config_of("dream"),
    "dream, merged": config_of("dream", "merged", baseline__merge=True),
    "dream, exact fits": config_of("dream", advantage__learner="table", baseline__learner="table"),
    "dream, simulator": config_of("dream", sampling__backend="simulator"),
    "dream-avg, two shards": config_of("dream-avg", runtime__shards=2),
    "deep-cfr, merged": config_of("deep-cfr", "merged"),
    "sd-cfr, simulator": config_of("sd-cfr", sampling__backend="simulator"),
    "os-sd-cfr, three shards": config_of("os-sd-cfr", runtime__shards=3),
}


@pytest.mark.parametrize("name", CASES)
def test_a_cluster_gives_the_bits_of_one_process(name: str) -> None:
    check_same(Bench(cluster(CASES[name])[0]), Bench(local(CASES[name])))


def test_another_seed_gives_other_bits() -> None:
    with pytest.raises(AssertionError):
        check_same(Bench(cluster(config_of("dream", seed=2))[0]), Bench(local(config_of("dream"))))


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers_gives_the_same_bits(workers: int) -> None:
    config = config_of("dream", runtime__workers=workers)
    system, backend, _ = cluster(config, cpus=4)
    check_same(Bench(system), Bench(local(config)))
    assert sum(process.name.startswith("worker") for process in backend.processes) == workers


def test_simultaneous_updates_give_the_same_bits() -> None:
    config = config_of("dream")
    check_same(Bench(cluster(config)[0], cfr.SIMULTANEOUS), Bench(local(config), cfr.SIMULTANEOUS))


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 10))])
def test_lost_and_hung_workers_cost_nothing_but_time(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def before(process: Process, method: str, number: int) -> str | None:
        if method != "sample" or rng.random() > 0.1:
            return None
        return "hang" if rng.random() < 0.2 else "lose"

    config = config_of("dream-avg", runtime__shards=2, sampling__chunk=10)
    system, _, told = cluster(config, before)
    check_same(Bench(system), Bench(local(config)))
    assert told  # each loss is said


def test_a_part_that_cannot_be_replaced_is_told_as_lost() -> None:
    for lost, method, how in (
        ("advantage_rows_0-0", "add", "lose"),
        ("advantage_1", "fit", "lose"),
        ("transitions-0", "delta", "lose"),
        ("advantage_rows_1-0", "add", "hang"),
        ("advantage_0", "fit", "hang"),
    ):

        def before(process: Process, called: str, number: int, at: Any = (lost, method), how: str = how) -> str | None:
            return how if (process.name, called) == at else None

        with pytest.raises(PartLostError, match=lost):
            Bench(cluster(config_of("dream"), before)[0])


@pytest.mark.parametrize("algorithm", ["dream", "deep-cfr"])
@pytest.mark.parametrize("there", ["cluster", "local"])
def test_each_goes_on_from_the_others_commit(algorithm: str, there: str) -> None:
    config = config_of(algorithm, runtime__shards=2)
    make: dict[str, Callable[[], System]] = {"local": lambda: local(config), "cluster": lambda: cluster(config)[0]}
    back = {"local": "cluster", "cluster": "local"}[there]
    first = Bench(make[there](), last=2)
    second = make[back]()
    second.runtime.restore({name: dict(part) for name, part in first.system.runtime.begin_snapshot()().items()})
    second.bank.restore(first.bank.snapshot(), first.networks[-2:])
    resumed, whole = Bench(second, first=3), Bench(local(config))
    check_same_end(resumed, whole)


def check_same_end(resumed: Bench, whole: Bench) -> None:
    for own, other in zip(resumed.networks, whole.networks[-len(resumed.networks) :], strict=True):
        assert all(np.array_equal(own[name], other[name]) for name in own)
    assert resumed.system.runtime.states == whole.system.runtime.states


def test_a_chunk_that_kills_every_worker_ends_the_run() -> None:
    def before(process: Process, method: str, number: int) -> str | None:
        return "lose" if method == "sample" else None

    with pytest.raises(ChunkLostError, match="iteration 1, player 0"):
        Bench(cluster(config_of("sd-cfr"), before)[0])


def test_no_worker_at_all_is_an_error_that_says_what_there_is() -> None:
    def before(process: Process, method: str, number: int) -> str | None:
        return "hang" if process.name.startswith("worker") else None

    with pytest.raises(ResourcesError, match=r"no worker has .* 1 CPU and .* of memory; the cluster has 1 node"):
        Bench(cluster(config_of("sd-cfr"), before)[0])


def test_parts_that_do_not_fit_are_refused_with_both_sizes() -> None:
    backend = InlineBackend()
    backend.memory_bytes = 600 * 2**20
    with pytest.raises(PlacementError, match=r"advantage_0 asks for 400\.0 MiB .*300 rows|has .* left"):
        ClusterRuntime(Assembly.of(config_of("sd-cfr")), backend, lambda text: None, backend.clock)
    assert backend.processes == []
    assert backend.asked is not None  # what adds nodes was told
    assert sorted(part.bytes >> 20 for part in backend.asked) == [150, 150, 400, 400, 400]


def test_nobody_starts_more_workers_than_there_are_chunks() -> None:
    _, backend, _ = cluster(config_of("sd-cfr"), cpus=64)
    assert sum(process.name.startswith("worker") for process in backend.processes) == 4  # of 30 traversals, 100 in all


def test_what_a_worker_raises_reaches_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    system, backend, _ = cluster(config_of("sd-cfr"))

    def raising(*_: Any) -> None:
        raise ZeroDivisionError("in the game")

    for process in backend.processes:
        if process.name.startswith("worker"):
            monkeypatch.setattr(process.part, "sample", raising)
    with pytest.raises(ZeroDivisionError, match="in the game"):
        Bench(system)


def test_what_a_worker_was_told_being_lost_is_not_held_against_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the baseline lay on a node that died: the run goes back at once, and no worker is ended."""
    system, backend, told = cluster(config_of("dream"))

    def lacking(*_: Any) -> None:
        raise PartLostError("it lay there", "baseline")

    workers = [process for process in backend.processes if process.name.startswith("worker")]
    for process in workers:
        monkeypatch.setattr(process.part, "sample", lacking)
    with pytest.raises(PartLostError, match=r"^baseline was lost \(it lay there\)$"):
        Bench(system)
    assert not [line for line in told if "worker" in line and "lost" in line]
    assert all(process.alive for process in workers)


def test_local_runtime_is_closed_like_any_other() -> None:
    system = local(config_of("sd-cfr"))
    assert isinstance(system.runtime, LocalRuntime)
    system.runtime.close()
    other, backend, _ = cluster(config_of("sd-cfr"))
    other.runtime.close()
    assert backend.closed
