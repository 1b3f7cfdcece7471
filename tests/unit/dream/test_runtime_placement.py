"""What goes where, the exact words when it does not fit, and never more than a node has."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dream.errors import DreamError
from dream.runtime import placement
from dream.runtime.placement import (
    Needs,
    NodeResources,
    Part,
    PlacementError,
    Plan,
    in_bytes,
    learner_share,
    plan,
    workers_wanted,
)

GIB = 1 << 30
LAPTOP = NodeResources("laptop", 2, 0, 8 * GIB, 2 * GIB)


def node(name: str, cpus: float = 8, gpus: float = 0, gib: float = 32, store_gib: float = 8) -> NodeResources:
    return NodeResources(name, cpus, gpus, int(gib * GIB), int(store_gib * GIB))


def learner(name: str, gib: float = 1, **rest: Any) -> Part:
    return Part(name, "learner", int(gib * GIB), **rest)


def shard(name: str, feeds: str | None = None, gib: float = 1, **rest: Any) -> Part:
    return Part(name, "shard", int(gib * GIB), feeds=feeds, **rest)


def message(nodes: Sequence[NodeResources], needs: Needs) -> str:
    with pytest.raises(PlacementError) as caught:
        plan(nodes, needs)
    assert isinstance(caught.value, DreamError)
    return str(caught.value)


# --- where things go -----------------------------------------------------------------------------------------


def test_a_laptop_of_two_cores_runs_two_workers_beside_everything_else() -> None:
    cpus, gpus = learner_share([LAPTOP], 3)
    learners = [learner(f"l{i}", 0.5, cpus=cpus, gpus=gpus) for i in range(3)]
    shards = [shard(f"s{i}", f"l{i}", 0.25) for i in range(3)]
    found = plan([LAPTOP], Needs((*learners, *shards), worker_bytes=GIB // 2, worker_object_bytes=GIB // 4))
    assert found.workers == 2
    assert [[part.name for part in group.parts] for group in found.groups] == [["l0", "s0"], ["l1", "s1"], ["l2", "s2"]]
    (load,) = found.nodes
    assert (load.parts, load.workers) == (("l0", "s0", "l1", "s1", "l2", "s2"), 2)
    assert (load.memory_bytes, load.object_store_bytes) == (int(3.25 * GIB), GIB // 2)
    assert str(load) == (
        "laptop: l0, s0, l1, s1, l2, s2, 2 workers; memory 3.2 GiB of 8.0 GiB, object store 512.0 MiB of 2.0 GiB"
    )


def test_groups_are_spread_over_the_nodes() -> None:
    needs = Needs((learner("l0"), learner("l1"), shard("s0", "l0"), shard("s1", "l1")))
    found = plan([node("a"), node("b")], needs)
    assert [found.node_of(name) for name in ("l0", "s0", "l1", "s1")] == ["a", "a", "b", "b"]
    with pytest.raises(KeyError):
        found.node_of("l2")


def test_groups_are_packed_where_only_that_makes_room() -> None:
    """Spread, 12 and 11 GiB leave 20 on no node."""
    parts = [learner(f"l{i}", gib) for i, gib in enumerate((12, 11, 20))]
    found = plan([node("a", gib=23), node("b", gib=20)], Needs((*parts[:2], parts[2]), worker_cpus=1))
    assert [found.node_of(f"l{i}") for i in range(3)] == ["a", "a", "b"]


def test_a_group_that_fits_on_no_node_is_taken_apart() -> None:
    needs = Needs((learner("l", 4), shard("s0", "l", 6), shard("s1", "l", 6)))
    found = plan([node("a", gib=10), node("b", gib=6)], needs)
    assert [(group.node, [part.name for part in group.parts]) for group in found.groups] == [
        ("a", ["l"]),
        ("a", ["s0"]),
        ("b", ["s1"]),
    ]


def test_groups_are_taken_apart_where_only_that_makes_room() -> None:
    parts = [learner(f"l{i}", 2) for i in range(3)] + [shard(f"s{i}", f"l{i}", 4) for i in range(3)]
    found = plan([node("a", gib=10), node("b", gib=8)], Needs(tuple(parts)))
    assert sum(load.memory_bytes for load in found.nodes) == 18 * GIB


def test_learners_go_where_the_gpus_are() -> None:
    needs = Needs((learner("cpu", 20), learner("gpu", 2, gpus=1)))
    found = plan([node("a"), node("b", gpus=1, gib=16)], needs)
    assert (found.node_of("gpu"), found.node_of("cpu")) == ("b", "a")


def test_a_fraction_lies_on_one_gpu() -> None:
    """Two GPUs hold two parts of 0.6, not three."""
    parts = tuple(learner(f"l{i}", 0.1, gpus=0.6) for i in range(3))
    assert plan([node("a", gpus=2)], Needs(parts[:2])).workers == 8
    assert message([node("a", gpus=2)], Needs(parts)) == (
        "the learner l2 asks for 0.6 GPUs and 102.4 MiB of memory, and no node has that left: the emptiest, a, has "
        "0.8 GPUs and 31.8 GiB of memory left; all shards, learners and the driver ask for 1.8 GPUs and 307.2 MiB of "
        "memory, the cluster has 2 GPUs and 32.0 GiB of memory."
    )


def test_fractions_share_a_gpu_so_that_others_stay_whole() -> None:
    parts = (learner("half", gpus=0.5), learner("whole", gpus=1), learner("other_half", gpus=0.5))
    assert len(plan([node("a", gpus=2)], Needs(parts)).groups) == 3


def test_a_bundle_says_what_a_group_takes() -> None:
    needs = Needs((learner("l", 2, cpus=0.1, gpus=0.5), shard("s", "l", 1, cpus=0.2), shard("alone", None, 1)))
    found = plan([node("a", gpus=1)], needs)
    assert [group.bundle for group in found.groups] == [
        {"CPU": 0.3, "GPU": 0.5, "memory": 3.0 * GIB},
        {"memory": 1.0 * GIB},
    ]


@pytest.mark.parametrize(
    ("nodes", "learners", "share"),
    [
        ([node("a")], 3, (0, 0)),
        ([node("a", gpus=1)], 1, (0, 1)),
        ([node("a", gpus=8)], 3, (0, 1)),
        ([node("a", gpus=1), node("b", gpus=1)], 3, (0, 0.5)),
        ([node("a", gpus=1)], 3, (0, 0.3333)),
        ([node("a", gpus=0.5)], 1, (0, 0)),
    ],
)
def test_a_learner_asks_for_no_cpu_and_its_share_of_the_gpus(
    nodes: list[NodeResources], learners: int, share: tuple[float, float]
) -> None:
    assert learner_share(nodes, learners) == share
    cpus, gpus = share
    plan(nodes, Needs(tuple(learner(f"l{i}", cpus=cpus, gpus=gpus) for i in range(learners))))


# --- workers -------------------------------------------------------------------------------------------------


def test_auto_fills_what_is_free() -> None:
    found = plan([node("a", cpus=4), node("b", cpus=64, gib=10)], Needs((learner("l", 2),), worker_bytes=GIB // 2))
    assert [load.workers for load in found.nodes] == [4, 20]
    assert found.workers == 24


def test_auto_stops_where_no_more_find_work() -> None:
    found = plan([node("a"), node("b", cpus=4)], Needs(most_workers=6))
    assert (found.workers, [load.workers for load in found.nodes]) == (6, [5, 1])


def test_a_number_of_workers_is_kept() -> None:
    found = plan([node("a"), node("b")], Needs(workers=3, worker_cpus=2, most_workers=2))
    assert (found.workers, [load.workers for load in found.nodes]) == (3, [2, 1])


def test_the_object_store_bounds_workers_too() -> None:
    assert plan([node("a", store_gib=2)], Needs(worker_object_bytes=GIB)).workers == 2


def test_fractions_of_cpus_are_exact() -> None:
    assert plan([node("a", cpus=0.3)], Needs(worker_cpus=0.1)).workers == 3


def test_the_driver_keeps_its_cpus_where_its_node_has_some() -> None:
    nodes = [node("head", cpus=0), node("a", cpus=4)]
    assert plan(nodes, Needs(driver_cpus=1)).workers == 4
    assert plan(nodes, Needs(driver_cpus=1, driver_node="a")).workers == 3
    found = plan(nodes, Needs(driver_bytes=GIB, driver_node="head"))
    assert found.nodes[0].memory_bytes == GIB


def test_workers_grow_with_the_cluster() -> None:
    needs = Needs(worker_bytes=GIB)
    joined = [node("a", cpus=0, gib=16), node("b", cpus=4), node("c", cpus=8, gib=2)]
    assert workers_wanted(joined, needs, {"a": 8}) == {"a": 8, "b": 4, "c": 2}
    assert workers_wanted(joined, Needs(workers=10, worker_bytes=GIB), {"a": 8}) == {"a": 8, "b": 2, "c": 0}
    assert workers_wanted(joined, Needs(most_workers=9), {"a": 8, "gone": 4}) == {"a": 8, "b": 0, "c": 1}


def test_workers_shrink_where_memory_is_short() -> None:
    short = [node("a", cpus=0, gib=-1.5), node("b", cpus=0, gib=4)]
    assert workers_wanted(short, Needs(worker_bytes=GIB), {"a": 4, "b": 4}) == {"a": 2, "b": 4}
    assert workers_wanted(short, Needs(worker_bytes=GIB), {"a": 1, "b": 4}) == {"a": 0, "b": 4}


def test_workers_shrink_to_the_number_wanted() -> None:
    full = [node("a", cpus=0), node("b", cpus=0)]
    assert workers_wanted(full, Needs(workers=4), {"a": 6, "b": 3}) == {"a": 4, "b": 0}


def test_the_last_worker_stays() -> None:
    short = [node("a", cpus=0, gib=-9), node("b", cpus=0, gib=-9)]
    assert workers_wanted(short, Needs(worker_bytes=GIB), {"a": 1, "b": 2}) == {"a": 0, "b": 1}
    assert workers_wanted(short, Needs(worker_bytes=GIB), {}) == {"a": 0, "b": 0}
    assert workers_wanted([], Needs(), {"a": 1}) == {}


def test_growing_leaves_the_driver_its_cpus() -> None:
    assert workers_wanted([node("a", cpus=4)], Needs(driver_cpus=1), {"a": 2}) == {"a": 5}
    assert workers_wanted([node("a", cpus=0.5)], Needs(driver_cpus=1), {"a": 2}) == {"a": 2}


# --- what does not fit ---------------------------------------------------------------------------------------


def test_a_shard_too_large_for_any_node() -> None:
    big = shard("advantage_0.shard_1", None, 12, detail="536,870,912 rows of 24 bytes")
    assert message([node("a", gib=4), node("b", gib=8)], Needs((big,))) == (
        "the shard advantage_0.shard_1 asks for 12.0 GiB of memory (536,870,912 rows of 24 bytes), and no node has "
        "that: the biggest, b, has 8.0 GiB of memory; use more shards or a smaller capacity, or add a larger node."
    )


def test_a_learner_that_no_node_can_serve_in_everything() -> None:
    greedy = learner("baseline", 10, gpus=1, cpus=1)
    assert message([node("a", gpus=1, gib=4), node("b", gib=64)], Needs((greedy,))) == (
        "the learner baseline asks for 1 CPU, 1 GPU and 10.0 GiB of memory, and no node has that: the biggest, a, has "
        "8 CPUs, 1 GPU and 4.0 GiB of memory; let it ask for less, or add a larger node."
    )


def test_parts_that_fit_singly_but_not_together() -> None:
    needs = Needs((learner("l0", 5), learner("l1", 5, object_store_bytes=GIB)), driver_bytes=GIB, driver_cpus=1)
    assert message([node("a", gib=8)], needs) == (
        "the learner l1 asks for 5.0 GiB of memory and 1.0 GiB of object store, and no node has that left: the "
        "emptiest, a, has 2.0 GiB of memory and 8.0 GiB of object store left; all shards, learners and the driver ask "
        "for 1 CPU, 11.0 GiB of memory and 1.0 GiB of object store, the cluster has 8 CPUs, 8.0 GiB of memory "
        "and 8.0 GiB of object store."
    )


def test_not_one_worker() -> None:
    assert message([node("a", cpus=0), node("b", cpus=0.5)], Needs(worker_bytes=GIB // 2)) == (
        "not one worker fits: it asks for 1 CPU and 512.0 MiB of memory, and beside shards, learners and the driver "
        "0.5 CPUs and 64.0 GiB of memory are left on 2 nodes."
    )


def test_more_workers_than_fit() -> None:
    assert message([node("a", cpus=5)], Needs((learner("l", cpus=1),), workers=8)) == (
        "8 workers ask for 1 CPU each, and 4 fit: beside shards, learners and the driver 4 CPUs are left on 1 node; "
        "ask for fewer, or for auto, or add nodes."
    )


def test_a_driver_too_large_for_its_node() -> None:
    assert message([node("head", gib=2), node("a")], Needs(driver_bytes=3 * GIB)) == (
        "the driver asks for 3.0 GiB of memory, and its node head has 2.0 GiB: start it on a larger node."
    )


def test_no_node_at_all() -> None:
    assert message([], Needs()) == (
        "the cluster has no node, so nothing can be placed: start one, or wait for one to join."
    )


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Needs(workers=0), "workers is 0; it must be auto, or 1 or more"),
        (lambda: Needs(most_workers=0), "most_workers is 0; it must be 1 or more"),
        (lambda: Needs(worker_cpus=0), "worker_cpus is 0; it must be 0.0001 or more"),
        (lambda: Needs((learner("l"), shard("l"))), "two parts are called l; names must differ"),
        (lambda: Needs((learner("l"), shard("s", "x"))), "s feeds x; only shards feed, and only learners: l"),
        (lambda: Needs((shard("s", "s"),)), "s feeds s; only shards feed, and only learners: none"),
        (lambda: Needs((learner("l", feeds="l"),)), "l feeds l; only shards feed, and only learners: l"),
        (lambda: learner("l", -1), "bytes of l is -1073741824; it must be 0 or more"),
        (lambda: learner("l", gpus=1.5), "gpus of l is 1.5; allowed are fractions up to 1 and whole numbers"),
        (lambda: learner_share([LAPTOP], 0), "learners is 0; it must be 1 or more"),
        (lambda: plan([LAPTOP], Needs(driver_node="x")), "the driver's node x is not in the cluster; nodes: laptop"),
    ],
)
def test_requests_that_make_no_sense(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        make()


def test_bytes_in_words() -> None:
    counts = (0, 1023, 1024, 1536 * 1024, 12 * GIB, 5 << 40, 3 << 60)
    texts = ["0 bytes", "1,023 bytes", "1.0 KiB", "1.5 MiB", "12.0 GiB", "5.0 TiB", "3072.0 PiB"]
    assert [in_bytes(count) for count in counts] == texts


# --- never more than there is --------------------------------------------------------------------------------

NODES = st.lists(
    st.builds(
        NodeResources,
        st.just(""),
        cpus=st.integers(0, 8) | st.sampled_from([0.5, 0.3]),
        gpus=st.sampled_from([0, 1, 2, 2, 1.5]),
        memory_bytes=st.integers(0, 60),
        object_store_bytes=st.integers(0, 20),
    ),
    min_size=1,
    max_size=4,
).map(lambda nodes: [NodeResources(f"n{i}", *list(vars(node).values())[1:]) for i, node in enumerate(nodes)])


@st.composite
def needs_of_runs(draw: st.DrawFn) -> Needs:
    parts = []
    for index in range(draw(st.integers(0, 3))):
        amounts = {"cpus": draw(st.sampled_from([0, 0.1, 1])), "object_store_bytes": draw(st.integers(0, 3))}
        gpus = draw(st.sampled_from([0, 0.3, 0.6, 0.6, 1, 2]))
        parts.append(Part(f"l{index}", "learner", draw(st.integers(0, 8)), gpus=gpus, **amounts))
        sizes = draw(st.lists(st.integers(0, 8), max_size=3))
        parts += [Part(f"s{index}.{k}", "shard", size, feeds=f"l{index}") for k, size in enumerate(sizes)]
    return Needs(
        tuple(draw(st.permutations(parts))),
        workers=draw(st.just("auto") | st.integers(1, 6)),
        worker_cpus=draw(st.sampled_from([0.1, 1, 2])),
        worker_bytes=draw(st.integers(0, 4)),
        worker_object_bytes=draw(st.integers(0, 3)),
        most_workers=draw(st.none() | st.integers(1, 9)),
        driver_cpus=draw(st.sampled_from([0, 0.5, 1])),
        driver_bytes=draw(st.integers(0, 4)),
    )


def units(amount: float) -> int:
    return round(amount * 10_000)


def left_over(nodes: Sequence[NodeResources], needs: Needs, found: Plan) -> list[tuple[int, int, int]]:
    """CPUs (in ten-thousandths), memory and object store that the plan leaves on every node."""
    left = []
    for index, (each, load) in enumerate(zip(nodes, found.nodes, strict=True)):
        parts = [part for group in found.groups if group.node == each.id for part in group.parts]
        assert sorted(load.parts) == sorted(part.name for part in parts)
        first = index == 0
        kept = min(units(each.cpus), units(needs.driver_cpus)) if first else 0
        cpus = units(each.cpus) - kept - sum(units(part.cpus) for part in parts)
        cpus -= load.workers * units(needs.worker_cpus)
        memory = sum(part.bytes for part in parts) + load.workers * needs.worker_bytes + first * needs.driver_bytes
        store = sum(part.object_store_bytes for part in parts) + load.workers * needs.worker_object_bytes
        assert (load.memory_bytes, load.object_store_bytes) == (memory, store), "what is predicted"
        assert gpus_fit(each.gpus, [part.gpus for part in parts]), "GPUs"
        left.append((cpus, each.memory_bytes - memory, each.object_store_bytes - store))
    return left


def gpus_fit(there: float, asked: Sequence[float]) -> bool:
    """Whether some way of laying fractions and whole GPUs on those there fits (tried in all ways)."""
    sizes = [10_000] * int(there) + [units(there % 1)]
    single = [units(min(gpus, 1)) for gpus in asked for _ in range(max(1, int(gpus))) if gpus]
    for places in product(range(len(sizes)), repeat=len(single)):
        used = [sum(size for size, at in zip(single, places, strict=True) if at == k) for k in range(len(sizes))]
        if all(use <= size for use, size in zip(used, sizes, strict=True)):
            return True
    return False


def check(phases: Sequence[Phase]) -> None:
    @given(NODES, needs_of_runs())
    @settings(max_examples=200, deadline=None, derandomize=True, phases=phases, report_multiple_bugs=False)
    def holds(nodes: list[NodeResources], needs: Needs) -> None:
        try:
            found = plan(nodes, needs)
        except PlacementError:
            return
        assert sorted(part.name for group in found.groups for part in group.parts) == sorted(
            part.name for part in needs.parts
        ), "every part once"
        left = left_over(nodes, needs, found)
        assert all(amount >= 0 for each in left for amount in each), "more than there is"
        assert found.workers == sum(load.workers for load in found.nodes) >= 1
        if needs.workers != "auto":
            assert found.workers == needs.workers
        elif needs.most_workers is None or found.workers < needs.most_workers:
            worker = (units(needs.worker_cpus), needs.worker_bytes, needs.worker_object_bytes)
            assert not [each for each in left if all(a >= b for a, b in zip(each, worker, strict=True))], "not filled"
        else:
            assert found.workers == needs.most_workers

    holds()


def test_no_node_gives_more_than_it_has() -> None:
    check(list(Phase))


def memory_for_nothing(room: Any, asked: Any) -> bool:
    before = room.memory
    fits = TAKE(room, placement._Amounts(asked.cpus, asked.gpus, 0, asked.store))
    room.memory = before - asked.memory
    return fits


def one_gpu_is_as_good_as_another(room: Any, asked: int) -> bool:
    if asked > sum(room.gpus):
        return False
    for index, free in enumerate(room.gpus):
        room.gpus[index] -= min(free, asked)
        asked -= min(free, asked)
    return True


def one_slot_less(room: Any, worker: Any) -> int:
    return max(0, SLOTS(room, worker) - 1)


def nothing_kept(rooms: Any, needs: Any) -> None:
    """The driver's CPUs are given away."""


TAKE, SLOTS = placement._Room.take, placement._Room.slots


@pytest.mark.parametrize(
    ("owner", "name", "mutant"),
    [
        (placement._Room, "take", memory_for_nothing),
        (placement._Room, "_take_gpus", one_gpu_is_as_good_as_another),
        (placement._Room, "slots", one_slot_less),
        (placement, "_keep_for_driver", nothing_kept),
    ],
)
def test_broken_planners_are_noticed(owner: Any, name: str, mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named mutants: memory without bounds; a fraction over two GPUs; room left free; the driver's CPUs given away."""
    monkeypatch.setattr(owner, name, mutant)
    with pytest.raises(AssertionError):
        check([Phase.generate])


@given(NODES, needs_of_runs())
@settings(max_examples=100, deadline=None)
def test_what_fits_on_one_node_is_never_refused(nodes: list[NodeResources], needs: Needs) -> None:
    """A node with room for everything together is enough, whatever the others are like."""
    parts = needs.parts
    enough = NodeResources(
        "enough",
        sum(part.cpus for part in parts) + 6 * needs.worker_cpus,
        sum(max(1, part.gpus) for part in parts),
        sum(part.bytes for part in parts) + 6 * needs.worker_bytes,
        sum(part.object_store_bytes for part in parts) + 6 * needs.worker_object_bytes,
    )
    assert plan([NodeResources("driver", 0, 0, needs.driver_bytes), *nodes, enough], needs).workers >= 1
