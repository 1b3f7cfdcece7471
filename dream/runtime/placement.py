"""What goes where: shards, learners and workers on the nodes of a cluster, before any of them is started.

Pure: from what the nodes have and what the run needs to a `Plan`, or to a `PlacementError` that shows both. So a run
that cannot fit is refused at launch, not killed for memory after a day, and never waits for a resource that does not
come: whoever waits for nodes to join plans again as they do, until a deadline, and then shows the error.

- A learner and the shards that feed it make a *group*, on one node where they fit together: rows stay in that node's
  memory. Where they do not, the learner and each of its shards are placed by themselves.
- Shards and learners hold the state of the run and cannot be lost singly (a lost one sends the run back to its last
  commit); so they are placed first, and the most demanding first. Groups are spread over the nodes, or packed, or
  taken apart, where only that makes room.
- Workers hold nothing and may be lost at any time; they fill what is left. `workers_wanted` follows the cluster between
  iterations, as nodes join and leave.
- Learners and workers take turns when players are updated alternately, so on CPUs alone learners and shards ask for no
  CPU of their own (`learner_share`), and workers fill all: two cores run two workers.
- The driver keeps what it asks for on its node. A lost driver starts again from the last commit, and plans afresh.

CPUs and GPUs are counted in ten-thousandths, as Ray does. A fraction of a GPU lies on one GPU; more than one GPU is a
whole number of them.
"""

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Self

from dream.errors import DreamError

Role = Literal["shard", "learner"]
Auto = Literal["auto"]

_UNIT: Final = 10_000  # of a CPU or GPU
_BYTES: Final = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


class PlacementError(DreamError):
    """The run does not fit on the nodes; one sentence with what is asked and what is there."""


@dataclass(frozen=True)
class NodeResources:
    """What a node has, or has left. `name` is what people know it by; the id, where it has none."""

    id: str
    cpus: float
    gpus: float = 0.0
    memory_bytes: int = 0
    object_store_bytes: int = 0
    name: str = ""

    def __str__(self) -> str:
        return self.name or self.id


@dataclass(frozen=True)
class Part:
    """A shard or learner: a process with memory of its own that stays where it was placed.

    `bytes` is its memory at most, `object_store_bytes` what it keeps in the object store; `feeds` is the learner that a
    shard belongs to; `detail` says in an error where the bytes come from ("500,000,000 rows of 24 bytes").
    ValueError when a number is negative, or when gpus is above 1 and not whole.
    """

    name: str
    role: Role
    bytes: int
    cpus: float = 0.0
    gpus: float = 0.0
    object_store_bytes: int = 0
    feeds: str | None = None
    detail: str = ""

    def __post_init__(self) -> None:
        for name in ("bytes", "cpus", "gpus", "object_store_bytes"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} of {self.name} is {getattr(self, name)}; it must be 0 or more")
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise ValueError(f"gpus of {self.name} is {self.gpus}; allowed are fractions up to 1 and whole numbers")


@dataclass(frozen=True)
class Needs:
    """What a run needs.

    `workers` is their number, or "auto" for as many as fit; `most_workers` is how many find work (the chunks of a
    sampling phase): auto stops there. `worker_object_bytes` is what one worker's results take in the object store until
    they are released. `driver_cpus` and `driver_bytes` are kept free on the driver's node, `driver_node` or the first
    one: of its CPUs as many as it has, since a head that offers none has nothing to keep free.

    ValueError when a number is too small, two parts have one name, or a part feeds what is no learner.
    """

    parts: tuple[Part, ...] = ()
    workers: int | Auto = "auto"
    worker_cpus: float = 1.0
    worker_bytes: int = 0
    worker_object_bytes: int = 0
    most_workers: int | None = None
    driver_cpus: float = 0.0
    driver_bytes: int = 0
    driver_node: str | None = None

    def __post_init__(self) -> None:
        if self.workers != "auto" and self.workers < 1:
            raise ValueError(f"workers is {self.workers}; it must be auto, or 1 or more")
        if self.most_workers is not None and self.most_workers < 1:
            raise ValueError(f"most_workers is {self.most_workers}; it must be 1 or more")
        if not _count(self.worker_cpus) > 0:
            raise ValueError(f"worker_cpus is {self.worker_cpus}; it must be {1 / _UNIT:g} or more")
        names = [part.name for part in self.parts]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two parts are called {twice}; names must differ")
        learners = [part.name for part in self.parts if part.role == "learner"]
        for part in self.parts:
            if part.feeds is not None and (part.role == "learner" or part.feeds not in learners):
                known = ", ".join(learners) or "none"
                raise ValueError(f"{part.name} feeds {part.feeds}; only shards feed, and only learners: {known}")


@dataclass(frozen=True)
class Group:
    """Parts that sit on one node: a bundle of a placement group."""

    node: str
    parts: tuple[Part, ...]

    @property
    def bundle(self) -> dict[str, float]:
        """What the parts take together, by Ray's names; without those that are 0."""
        cpus, gpus = (sum(_count(getattr(part, name)) for part in self.parts) / _UNIT for name in ("cpus", "gpus"))
        memory = float(sum(part.bytes for part in self.parts))
        return {name: amount for name, amount in (("CPU", cpus), ("GPU", gpus), ("memory", memory)) if amount}


@dataclass(frozen=True)
class NodePlan:
    """What a node is to carry: parts and workers by number, and the bytes predicted against those it has."""

    node: NodeResources
    parts: tuple[str, ...]
    workers: int
    memory_bytes: int
    object_store_bytes: int

    def __str__(self) -> str:
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        return (
            f"{self.node}: {', '.join((*self.parts, workers))}; "
            f"memory {in_bytes(self.memory_bytes)} of {in_bytes(self.node.memory_bytes)}, "
            f"object store {in_bytes(self.object_store_bytes)} of {in_bytes(self.node.object_store_bytes)}"
        )


@dataclass(frozen=True)
class Plan:
    """Where everything goes: the number of workers, the groups in the order of the parts, every node's load."""

    workers: int
    groups: tuple[Group, ...]
    nodes: tuple[NodePlan, ...]

    def node_of(self, part: str) -> str:
        """The id of the node of the part of that name; KeyError when there is none."""
        return {each.name: group.node for group in self.groups for each in group.parts}[part]


def plan(nodes: Sequence[NodeResources], needs: Needs) -> Plan:
    """Places the parts, then the workers, on `nodes`: all that each has for this run.

    Takes the first of three quick ways that works (groups spread, packed, taken apart) and searches no further: where
    every byte counts it may miss what just fits. PlacementError when they do not fit; ValueError when the driver's node
    is not among `nodes`.
    """
    if not nodes:
        raise PlacementError("the cluster has no node, so nothing can be placed: start one, or wait for one to join.")
    for part in needs.parts:
        _refuse_giant(part, nodes)
    failure: PlacementError | None = None
    for together, spread in ((True, True), (True, False), (False, False)):
        try:
            return _place(nodes, needs, together=together, spread=spread)
        except PlacementError as error:
            failure = failure or error
    assert failure is not None
    raise failure


def workers_wanted(free: Sequence[NodeResources], needs: Needs, present: Mapping[str, int]) -> dict[str, int]:
    """How many workers every node should have, with `present` running and `free` left beside all that runs.

    Asked between iterations. Grows where there is room; shrinks where a node has given more than it has (what is left
    of it is negative then) and where more run than are wanted; moves none. The last worker stays. The sum is 0 only
    when none is present and none fits: the caller waits for nodes, until a deadline.
    """
    rooms = [_Room.of(node) for node in free]
    _keep_for_driver(rooms, needs)
    worker, most = _of_worker(needs), _most(needs)
    running = [present.get(room.node.id, 0) for room in rooms]
    limits = [max(0, have + room.slots(worker)) for have, room in zip(running, rooms, strict=True)]
    if any(running) and not any(limits):
        limits[running.index(max(running))] = 1
    stay = [min(pair) for pair in zip(running, limits, strict=True)]
    counts = _filled(stay, limits, most) if sum(stay) <= most else _filled([0] * len(stay), stay, most)
    return {room.node.id: count for room, count in zip(rooms, counts, strict=True)}


def learner_share(nodes: Iterable[NodeResources], learners: int) -> tuple[float, float]:
    """CPUs and GPUs that each of so many learners should ask for by default; ValueError below 1 learner.

    No CPU: without GPUs learners and workers take turns, and beside a GPU a learner's share of the cores is small. Of
    the GPUs one each, or, where there are too few, the even fraction that lets all be placed; (0, 0) without GPUs.
    """
    if learners < 1:
        raise ValueError(f"learners is {learners}; it must be 1 or more")
    gpus = sum(int(node.gpus) for node in nodes)
    if not gpus:
        return 0.0, 0.0
    return 0.0, _UNIT // math.ceil(learners / gpus) / _UNIT


def in_bytes(count: float) -> str:
    """A number of bytes in the largest unit that leaves 1 or more: 12.0 GiB."""
    size, unit = float(count), 0
    while abs(size) >= 1024 and unit < len(_BYTES) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_BYTES[unit]}" if unit else f"{count:,.0f} bytes"


# --- amounts -------------------------------------------------------------------------------------------------


def _count(amount: float) -> int:
    """CPUs or GPUs in ten-thousandths."""
    return round(amount * _UNIT)


@dataclass(frozen=True)
class _Amounts:
    """So much of everything: CPUs and GPUs in ten-thousandths, memory and object store in bytes."""

    cpus: int = 0
    gpus: int = 0
    memory: int = 0
    store: int = 0

    def __add__(self, other: "_Amounts") -> "_Amounts":
        return _Amounts(*(a + b for a, b in zip(self.values, other.values, strict=True)))

    @property
    def values(self) -> tuple[int, int, int, int]:
        return self.cpus, self.gpus, self.memory, self.store

    def within(self, other: "_Amounts") -> int:
        """How many of the four are not more than the other's."""
        return sum(a <= b for a, b in zip(self.values, other.values, strict=True))

    def words(self, like: "_Amounts | None" = None) -> str:
        """Those that are not 0 in `like` (itself by default), as a list in words."""
        shown = [text for text, asked in zip(self._texts(), (like or self).values, strict=True) if asked]
        return " and ".join([", ".join(shown[:-1]), shown[-1]] if shown[1:] else shown) or "nothing"

    def _texts(self) -> Iterator[str]:
        for amount, name in ((self.cpus, "CPU"), (self.gpus, "GPU")):
            yield f"{amount / _UNIT:g} {name}{'' if amount == _UNIT else 's'}"
        for amount, name in ((self.memory, "memory"), (self.store, "object store")):
            yield f"{in_bytes(amount)} of {name}"


def _of_part(part: Part) -> _Amounts:
    return _Amounts(_count(part.cpus), _count(part.gpus), part.bytes, part.object_store_bytes)


def _of_worker(needs: Needs) -> _Amounts:
    return _Amounts(_count(needs.worker_cpus), 0, needs.worker_bytes, needs.worker_object_bytes)


def _of_node(node: NodeResources) -> _Amounts:
    return _Amounts(_count(node.cpus), _count(node.gpus), node.memory_bytes, node.object_store_bytes)


def _most(needs: Needs) -> float:
    """Workers that are wanted at most."""
    if needs.workers != "auto":
        return needs.workers
    return math.inf if needs.most_workers is None else needs.most_workers


# --- placing -------------------------------------------------------------------------------------------------


@dataclass
class _Room:
    """What is left of a node; of each of its GPUs, in ten-thousandths."""

    node: NodeResources
    cpus: int
    gpus: list[int]
    memory: int
    store: int
    parts: list[str] = field(default_factory=list)
    workers: int = 0

    @classmethod
    def of(cls, node: NodeResources) -> Self:
        whole, rest = divmod(max(_count(node.gpus), 0), _UNIT)
        gpus = [_UNIT] * whole + [rest] * (rest > 0)
        return cls(node, _count(node.cpus), gpus, node.memory_bytes, node.object_store_bytes)

    @property
    def left(self) -> _Amounts:
        return _Amounts(self.cpus, sum(self.gpus), self.memory, self.store)

    def fits(self, amounts: Sequence[_Amounts]) -> bool:
        """Whether all of them fit here together."""
        trial = _Room(self.node, self.cpus, list(self.gpus), self.memory, self.store)
        return all(trial.take(each) for each in amounts)

    def take(self, asked: _Amounts) -> bool:
        """Takes what is asked, if it is there."""
        if asked.cpus > self.cpus or asked.memory > self.memory or asked.store > self.store:
            return False
        if not self._take_gpus(asked.gpus):
            return False
        self.cpus -= asked.cpus
        self.memory -= asked.memory
        self.store -= asked.store
        return True

    def _take_gpus(self, asked: int) -> bool:
        """A fraction comes from the fullest GPU that has it, so that others stay whole."""
        share = min(asked, _UNIT)
        chosen = sorted((free, index) for index, free in enumerate(self.gpus) if free >= share > 0)
        count = math.ceil(asked / _UNIT)
        if len(chosen) < count:
            return False
        for _, index in chosen[:count]:
            self.gpus[index] -= share
        return True

    def slots(self, worker: _Amounts) -> int:
        """How many workers fit in what is left; negative where more was given than there is."""
        pairs = ((self.cpus, worker.cpus), (self.memory, worker.memory), (self.store, worker.store))
        return min(has // asked for has, asked in pairs if asked)

    def planned(self) -> NodePlan:
        memory, store = self.node.memory_bytes - self.memory, self.node.object_store_bytes - self.store
        return NodePlan(self.node, tuple(self.parts), self.workers, memory, store)


def _place(nodes: Sequence[NodeResources], needs: Needs, *, together: bool, spread: bool) -> Plan:
    """One attempt: groups (`together`), or each part by itself; on the nodes with the most memory left (`spread`), or
    with the least that is enough.
    """
    rooms = [_Room.of(node) for node in nodes]
    _reserve_driver(rooms, needs)
    groups: list[Group] = []
    for group in _groups(needs.parts) if together else _by_demand([(part,) for part in needs.parts]):
        for parts in [group] if _best(rooms, group, spread) else [(part,) for part in group]:
            room = _best(rooms, parts, spread)
            if room is None:
                raise PlacementError(_nothing_left(parts[0], rooms, needs))
            for part in parts:
                room.take(_of_part(part))
                room.parts.append(part.name)
            groups.append(Group(room.node.id, parts))
    workers = _place_workers(rooms, needs)
    order = {part.name: index for index, part in enumerate(needs.parts)}
    groups.sort(key=lambda group: order[group.parts[0].name])
    return Plan(workers, tuple(groups), tuple(room.planned() for room in rooms))


def _groups(parts: Sequence[Part]) -> list[tuple[Part, ...]]:
    """Every learner with the shards that feed it, and the shards that feed none."""
    return _by_demand(
        [(part, *(shard for shard in parts if shard.feeds == part.name)) for part in parts if part.feeds is None]
    )


def _by_demand(groups: list[tuple[Part, ...]]) -> list[tuple[Part, ...]]:
    """The most demanding first."""

    def demand(group: tuple[Part, ...]) -> tuple[int, int, int]:
        total = sum(map(_of_part, group), _Amounts())
        return total.gpus, total.memory, total.cpus

    return sorted(groups, key=demand, reverse=True)


def _best(rooms: Sequence[_Room], parts: Sequence[Part], spread: bool) -> _Room | None:
    """The room where `parts` fit together, with the most (or the least) memory; None when there is none."""
    able = [room for room in rooms if room.fits([_of_part(part) for part in parts])]
    choose = max if spread else min
    return choose(able, key=lambda room: room.memory, default=None)


def _place_workers(rooms: Sequence[_Room], needs: Needs) -> int:
    """Workers where most of them fit; their number."""
    worker = _of_worker(needs)
    slots = [room.slots(worker) for room in rooms]
    if sum(slots) < (1 if needs.workers == "auto" else needs.workers):
        raise PlacementError(_no_room_for_workers(sum(slots), rooms, needs))
    for room, count in zip(rooms, _filled([0] * len(rooms), slots, _most(needs)), strict=True):
        room.workers = count
        for _ in range(count):
            room.take(worker)
    return sum(room.workers for room in rooms)


def _filled(counts: Sequence[int], limits: Sequence[int], most: float) -> list[int]:
    """`counts` raised one by one where most is missing to `limits`, to a sum of `most` or as far as there is room."""
    filled = list(counts)
    missing = [(have - limit, index) for index, (have, limit) in enumerate(zip(counts, limits, strict=True))]
    heapq.heapify(missing)
    for _ in range(int(min(most, sum(limits))) - sum(counts)):
        below, index = missing[0]
        heapq.heapreplace(missing, (below + 1, index))
        filled[index] += 1
    return filled


def _driver_room(rooms: Sequence[_Room], needs: Needs) -> _Room | None:
    """The driver's room: that of `driver_node`, or the first one."""
    if needs.driver_node is None:
        return rooms[0] if rooms else None
    return next((room for room in rooms if room.node.id == needs.driver_node), None)


def _keep_for_driver(rooms: Sequence[_Room], needs: Needs) -> None:
    """Takes the driver's CPUs off its room, as far as they are there."""
    if room := _driver_room(rooms, needs):
        room.cpus -= max(0, min(room.cpus, _count(needs.driver_cpus)))


def _reserve_driver(rooms: Sequence[_Room], needs: Needs) -> None:
    """Takes the driver's CPUs and memory off its room."""
    room = _driver_room(rooms, needs)
    if room is None:
        ids = ", ".join(room.node.id for room in rooms)
        raise ValueError(f"the driver's node {needs.driver_node} is not in the cluster; nodes: {ids}")
    _keep_for_driver(rooms, needs)
    if not room.take(_Amounts(memory=needs.driver_bytes)):
        raise PlacementError(
            f"the driver asks for {in_bytes(needs.driver_bytes)} of memory, and its node {room.node} has "
            f"{in_bytes(room.memory)}: start it on a larger node."
        )


# --- errors --------------------------------------------------------------------------------------------------

_REMEDY: Final[dict[Role, str]] = {
    "shard": "use more shards or a smaller capacity, or add a larger node",
    "learner": "let it ask for less, or add a larger node",
}


def _nearest(asked: _Amounts, rooms: Sequence[_Room]) -> _Room:
    """The room that has most of what is asked; of equals the biggest."""

    def near(room: _Room) -> tuple[int, int, int, int]:
        left = room.left
        return asked.within(left), left.gpus if asked.gpus else 0, left.memory, left.cpus

    return max(rooms, key=near)


def _asks(part: Part) -> str:
    detail = f" ({part.detail})" if part.detail else ""
    return f"the {part.role} {part.name} asks for {_of_part(part).words()}{detail}"


def _refuse_giant(part: Part, nodes: Sequence[NodeResources]) -> None:
    """PlacementError when no node could hold the part even alone."""
    asked = _of_part(part)
    rooms = [_Room.of(node) for node in nodes]
    if any(room.fits([asked]) for room in rooms):
        return
    biggest = _nearest(asked, rooms)
    raise PlacementError(
        f"{_asks(part)}, and no node has that: the biggest, {biggest.node}, has {biggest.left.words(asked)}; "
        f"{_REMEDY[part.role]}."
    )


def _nothing_left(part: Part, rooms: Sequence[_Room], needs: Needs) -> str:
    asked = _of_part(part)
    room = _nearest(asked, rooms)
    total = sum(map(_of_part, needs.parts), _Amounts(_count(needs.driver_cpus), 0, needs.driver_bytes, 0))
    there = sum((_of_node(room.node) for room in rooms), _Amounts())
    return (
        f"{_asks(part)}, and no node has that left: the emptiest, {room.node}, has {room.left.words(asked)} left; "
        f"all shards, learners and the driver ask for {total.words()}, the cluster has {there.words(total)}."
    )


def _no_room_for_workers(fit: int, rooms: Sequence[_Room], needs: Needs) -> str:
    worker = _of_worker(needs)
    left = sum((room.left for room in rooms), _Amounts())
    nodes = "1 node" if len(rooms) == 1 else f"{len(rooms)} nodes"
    beside = f"beside shards, learners and the driver {left.words(worker)} are left on {nodes}"
    if needs.workers == "auto":
        return f"not one worker fits: it asks for {worker.words()}, and {beside}."
    return (
        f"{needs.workers} workers ask for {worker.words()} each, and {fit} fit: {beside}; "
        "ask for fewer, or for auto, or add nodes."
    )
