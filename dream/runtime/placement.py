"""What goes where: shards and learners on the nodes of a cluster, before any of them is started.

Pure: from what the nodes have and what the run needs to a `Plan`, or to a `PlacementError` that shows both. So a run
that cannot fit is refused at launch, not killed for memory after a day. Whoever waits for nodes to join plans again.

- A learner and the shards that feed it go to one node where they fit together: rows stay in that node's memory. Where
  they do not, each goes by itself.
- The most demanding come first, each to the node with the most memory left. Where that leaves one without a place,
  all are placed singly, each where the least memory is left that is enough. Further ways are not searched.
- A node that offers no CPU is taken last: a head that is to keep the cluster together, and runs the driver.
- Shards and learners ask for no CPU: learners and workers take turns where players are updated alternately, so that
  two cores run two workers. Workers take what CPUs and memory are left.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from dream.errors import DreamError
from dream.runtime.backend import Asked, NodeResources

_BYTES: Final = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


class PlacementError(DreamError):
    """The run does not fit on the nodes; one sentence with what is asked and what is there."""


@dataclass(frozen=True)
class Part:
    """A shard or learner, and what it asks for when it is full.

    `feeds` is the learner that a shard belongs to, None where the part is a learner; `detail` says in an error where
    the bytes come from ("500,000,000 rows of 24 bytes").
    """

    name: str
    asked: Asked
    feeds: str | None = None
    detail: str = ""


@dataclass(frozen=True)
class Needs:
    """What a run needs: its parts, and for each worker; `most_workers` is how many it wants at most."""

    parts: tuple[Part, ...]
    worker: Asked
    most_workers: int


@dataclass(frozen=True)
class Plan:
    """What every part asks for, and on which node, by its name; what every node is to carry, in words."""

    places: dict[str, Asked]
    nodes: tuple[str, ...]


def plan(nodes: Sequence[NodeResources], needs: Needs) -> Plan:
    """A place for every part on `nodes`, which leaves room for one worker; PlacementError where there is none."""
    if not nodes:
        raise PlacementError("the cluster has no node, so nothing can be placed: start one, or wait for one to join.")
    try:
        return _placed(nodes, needs, together=True)
    except PlacementError as error:
        try:
            return _placed(nodes, needs, together=False)
        except PlacementError:
            raise error from None


def room_for(worker: Asked, nodes: Iterable[NodeResources], placed: Iterable[Asked]) -> int:
    """How many such workers `nodes` hold beside what is placed there, by the CPUs and the memory of each node."""
    taken: Counter[str | None] = Counter()
    for each in placed:
        taken[each.node] += each.bytes
    return sum(_slots(worker, node, node.memory_bytes - taken[node.id]) for node in nodes)


def in_bytes(count: float) -> str:
    """A number of bytes in the largest unit that leaves 1 or more: 12.0 GiB."""
    size, unit = float(count), 0
    while abs(size) >= 1024 and unit < len(_BYTES) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_BYTES[unit]}" if unit else f"{count:,.0f} bytes"


# --- placing -------------------------------------------------------------------------------------------------


@dataclass
class _Room:
    """What is left of a node, of each of its GPUs too, and the parts that are there."""

    node: NodeResources
    memory: int
    gpus: list[float]
    parts: list[Part] = field(default_factory=list)

    @classmethod
    def of(cls, node: NodeResources) -> "_Room":
        rest = round(node.gpus % 1, 4)
        return cls(node, node.memory_bytes, [1.0] * int(node.gpus) + [rest] * (rest > 0))

    def take(self, parts: Sequence[Part]) -> bool:
        """Takes all of `parts`, or none where they do not fit together."""
        memory, gpus = self.memory - sum(part.asked.bytes for part in parts), self.gpus
        for part in parts:
            left = _without(gpus, part.asked.gpus)
            if left is None:
                return False
            gpus = left
        if memory < 0:
            return False
        self.memory, self.gpus = memory, gpus
        self.parts += parts
        return True

    def words(self, worker: Asked) -> str:
        parts = ", ".join(f"{part.name} {in_bytes(part.asked.bytes)}" for part in self.parts) or "no shard or learner"
        taken, has = self.node.memory_bytes - self.memory, self.node.memory_bytes
        slots = _slots(worker, self.node, self.memory)
        return (
            f"{self.node}: {parts}; {in_bytes(taken)} of {in_bytes(has)} of memory; "
            f"room for {slots} worker{'' if slots == 1 else 's'} of {in_bytes(worker.bytes)}"
        )


def _without(gpus: list[float], asked: float) -> list[float] | None:
    """What is left of each GPU, None where there is too little. Counted in ten-thousandths, as Ray does.

    A fraction lies on one GPU, the fullest that has it, so that others stay whole; more than one is a whole number.
    """
    share, count = min(asked, 1.0), math.ceil(asked)
    chosen = sorted((free, index) for index, free in enumerate(gpus) if free >= share)[:count]
    left = list(gpus)
    for free, index in chosen:
        left[index] = round(free - share, 4)
    return left if len(chosen) == count else None


def _placed(nodes: Sequence[NodeResources], needs: Needs, *, together: bool) -> Plan:
    """One attempt: learners with their shards to the emptiest nodes, or each part by itself to the fullest."""
    rooms = [_Room.of(node) for node in nodes]
    for group in _groups(needs.parts, together):
        if _put(group, rooms, emptiest=together):
            continue
        for part in group:
            if not _put([part], rooms, emptiest=together):
                raise PlacementError(_lacking(part, rooms, needs))
    if not any(_slots(needs.worker, room.node, room.memory) for room in rooms):
        raise PlacementError(_no_worker(rooms, needs.worker))
    places = {part.name: replace(part.asked, node=room.node.id) for room in rooms for part in room.parts}
    return Plan(places, tuple(room.words(needs.worker) for room in rooms))


def _groups(parts: Sequence[Part], together: bool) -> list[list[Part]]:
    """Every learner with the shards that feed it, or each part by itself; the most demanding first."""
    if together:
        groups = [[part, *(s for s in parts if s.feeds == part.name)] for part in parts if part.feeds is None]
    else:
        groups = [[part] for part in parts]
    return sorted(groups, key=_total, reverse=True)


def _total(parts: Iterable[Part]) -> tuple[float, int]:
    """GPUs and bytes of all together."""
    asked = [part.asked for part in parts]
    return sum(each.gpus for each in asked), sum(each.bytes for each in asked)


def _put(parts: Sequence[Part], rooms: Sequence[_Room], *, emptiest: bool) -> bool:
    """Puts `parts` together where they fit, by memory; nodes without CPUs come last."""
    sign = 1 if emptiest else -1
    by_choice = sorted(rooms, key=lambda room: (room.node.cpus > 0, sign * room.memory), reverse=True)
    return any(room.take(parts) for room in by_choice)


def _slots(worker: Asked, node: NodeResources, memory: int) -> int:
    """How many workers the node's CPUs and so much of its memory hold."""
    return min(int(node.cpus // worker.cpus), memory // worker.bytes)


# --- errors --------------------------------------------------------------------------------------------------


def _lacking(part: Part, rooms: Sequence[_Room], needs: Needs) -> str:
    gpus, size = part.asked.gpus, part.asked.bytes
    room = max(rooms, key=lambda room: (sum(room.gpus) >= gpus, room.memory))
    all_gpus, all_bytes = _total(needs.parts)
    has_gpus, has_bytes = sum(room.node.gpus for room in rooms), sum(room.node.memory_bytes for room in rooms)
    what, remedy = (
        ("learner", "lower the capacity or runtime.learner_gpus")
        if part.feeds is None
        else ("shard", "raise runtime.shards or lower the capacity")
    )
    detail = f" ({part.detail})" if part.detail else ""
    return (
        f"the {what} {part.name} asks for {_words(gpus, gpus, size)}{detail}, and no node has that left: the emptiest, "
        f"{room.node}, has {_words(gpus, sum(room.gpus), room.memory)} left; all shards and learners ask for "
        f"{_words(all_gpus, all_gpus, all_bytes)}, the cluster has {_words(all_gpus, has_gpus, has_bytes)}; "
        f"{remedy}, or add a larger node."
    )


def _words(asked: float, gpus: float, size: int) -> str:
    """GPUs, where any are asked, and bytes."""
    memory = f"{in_bytes(size)} of memory"
    return f"{gpus:g} GPU{'' if gpus == 1 else 's'} and {memory}" if asked else memory


def _no_worker(rooms: Sequence[_Room], worker: Asked) -> str:
    room = max(rooms, key=lambda room: (min(room.node.cpus, worker.cpus), room.memory))
    asked = f"{worker.cpus:g} CPU and {in_bytes(worker.bytes)} of memory"
    left = f"{room.node.cpus:g} CPUs and {in_bytes(room.memory)} left"
    return (
        f"not one worker fits: it asks for {asked}, and the node that comes nearest, {room.node}, has {left} beside "
        "shards and learners."
    )
