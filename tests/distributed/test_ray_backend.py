"""What Ray's backend makes of losses and errors: who was lost, and what a part raised, as it raised it."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from oracles.ray_nodes import Nodes, until

from dream.runtime.backend import Asked, PartLostError
from dream.runtime.ray_backend import RayBackend

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def backend(nodes: Nodes) -> Iterator[RayBackend]:
    joined = RayBackend.connect(nodes.address, 1)
    yield joined
    joined.close()


def test_a_call_gives_what_the_part_gives_in_the_order_of_the_calls(backend: RayBackend) -> None:
    part = backend.spawn("a list", list, ((),), Asked())
    for number in range(20):
        backend.call(part, "append", number)
    assert backend.get([backend.call(part, "copy")]) == [list(range(20))]
    first, second = backend.call_for(2, backend.spawn("a pair", tuple, ((1, 2),), Asked()), "__add__", ())
    assert backend.get([second, first]) == [2, 1]
    assert backend.get([backend.call(part, "extend", backend.put([20, 21])), backend.call(part, "__len__")])[1] == 22


def test_what_a_part_raises_is_raised(backend: RayBackend) -> None:
    with pytest.raises(ValueError, match="seven"):  # while it is made
        backend.get([backend.call(backend.spawn("a number", int, ("seven",), Asked()), "bit_length")])
    with pytest.raises(IndexError, match="empty list"):
        backend.get([backend.call(backend.spawn("a list", list, ((),), Asked()), "pop")])


def test_a_killed_process_is_named_also_where_its_value_was_wanted(nodes: Nodes, backend: RayBackend) -> None:
    lost, other = (backend.spawn(name, list, ((),), Asked()) for name in ("the lost one", "the other"))
    backend.get([backend.call(lost, "__len__"), backend.call(other, "__len__")])
    os.kill(nodes.actors()["the lost one"][0], signal.SIGKILL)

    def want_its_value() -> None:
        backend.get([backend.call(other, "append", backend.call(lost, "copy"))])

    with pytest.raises(PartLostError, match=r"^the lost one was lost \(.*\)$") as caught:
        want_its_value()
    assert caught.value.part == "the lost one"
    until(lambda: "the lost one" not in nodes.actors(), 60)
    with pytest.raises(PartLostError, match=r"^the lost one was lost \(.*its worker process has died\)$"):
        want_its_value()
    assert backend.get([backend.call(other, "__len__")]) == [0]


def on(node: str, nodes: Nodes, backend: RayBackend) -> Any:
    """A part on a new node, of which the others hear with a delay."""

    def there() -> Any:
        part = backend.spawn("a block", bytes, (10**6,), Asked(node=node))
        backend.get([backend.call(part, "__len__")])
        return part if nodes.actors()["a block"][1] == node else backend.kill(part)

    return until(there, 60)


def test_a_value_that_its_node_took_along_is_nobodys_loss(nodes: Nodes, backend: RayBackend) -> None:
    node = nodes.add(1)
    value = backend.call(on(node, nodes, backend), "__add__", b"")
    assert backend.wait([value], 60) == [value]
    nodes.remove(node)
    with pytest.raises(PartLostError, match=r"^ObjectReconstructionFailedError|^ObjectLostError") as caught:
        backend.get([value])
    assert caught.value.part is None


def test_after_closing_a_dead_node_is_known_to_be_dead(nodes: Nodes, backend: RayBackend) -> None:
    """What comes next is not put there; Ray itself takes ten seconds here, and three times as long by default."""
    other = RayBackend.connect(nodes.address, 1)
    node = nodes.add(1)
    part = on(node, nodes, other)
    assert node in [each.id for each in backend.nodes()]
    nodes.remove(node)
    with pytest.raises(PartLostError, match=r"^a block was lost"):
        until(lambda: not other.get([other.call(part, "__len__")]), 60)  # processes outlive the node by a moment
    other.close()
    assert node not in [each.id for each in backend.nodes()]


def test_waiting(backend: RayBackend) -> None:
    began = time.monotonic()
    assert backend.wait([], 0.3) == []
    assert time.monotonic() - began >= 0.3
    never = backend.call(backend.spawn("too large", list, ((),), Asked(cpus=1000)), "copy")
    assert backend.wait([never], 0.3) == []
    now = backend.put(1)
    assert backend.wait([never, now], 60) == [now]


def test_a_part_that_gives_no_answer_is_taken_for_lost(nodes: Nodes, backend: RayBackend) -> None:
    impatient = RayBackend.connect(nodes.address, 1, silence_seconds=2.0)
    part = impatient.spawn("the silent one", list, ((),), Asked())
    backend.get([backend.call(part, "__len__")])
    process = nodes.actors()["the silent one"][0]
    os.kill(process, signal.SIGSTOP)
    try:
        with pytest.raises(PartLostError, match=r"no answer for runtime\.silence_timeout_seconds=2"):
            impatient.get([impatient.call(part, "__len__")])
    finally:
        os.kill(process, signal.SIGCONT)
        impatient.kill(part)


def test_room_is_what_nobody_has_taken_of_cpus_and_of_memory(backend: RayBackend) -> None:
    asked = Asked(cpus=1, bytes=2**20)
    free = until(lambda: backend.room(asked), 60)
    assert backend.room(Asked(cpus=1, bytes=2**50)) == 0
    part = backend.spawn("a list", list, ((),), asked)
    backend.get([backend.call(part, "__len__")])
    until(lambda: backend.room(asked) == free - 1, 60)
    backend.kill(part)
    until(lambda: backend.room(asked) == free, 60)
