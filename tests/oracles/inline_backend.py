"""A cluster in this process, which loses what it is told to: calls are carried out when somebody waits for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dream.runtime.backend import Asked, NodeResources, PartLostError


@dataclass(eq=False)
class Process:
    """A spawned part: its calls in order, alive until it is killed."""

    name: str
    asked: Asked
    part: Any = None
    alive: bool = True
    queue: list["Call"] = field(default_factory=list)


@dataclass(eq=False)
class Value:
    """A reference: to a value, to an error, or to nothing yet."""

    process: Process | None = None
    call: "Call | None" = None
    value: Any = None
    error: BaseException | None = None
    there: bool = False


@dataclass(eq=False)
class Call:
    """A call that is carried out later."""

    method: str
    args: tuple[Any, ...]
    results: list[Value]


class InlineBackend:
    """`before(process, method, number)` is asked before each call: "lose" kills the process, "hang" delays for ever."""

    def __init__(
        self, cpus: int = 2, before: Callable[[Process, str, int], str | None] = lambda process, method, number: None
    ) -> None:
        self.processes: list[Process] = []
        self.memory_bytes = 2**40
        self.asked: list[Asked] | None = None
        self.cpus = cpus
        self.closed = False
        self.calls = 0
        self.seconds = 0.0
        self._before = before

    def clock(self) -> float:
        self.seconds += 0.001
        return self.seconds

    def spawn(self, name: str, make: Any, args: Sequence[Any], asked: Asked) -> Process:
        process = Process(name, asked)
        self.processes.append(process)
        process.part = make(*args)
        return process

    def call(self, handle: Process, method: str, *args: Any) -> Value:
        return self.call_for(1, handle, method, *args)[0]

    def call_for(self, count: int, handle: Process, method: str, *args: Any) -> list[Value]:
        results = [Value(handle) for _ in range(count)]
        call = Call(method, args, results)
        for result in results:
            result.call = call
        handle.queue.append(call)
        return results

    def put(self, value: Any) -> Value:
        return Value(value=value, there=True)

    def get(self, references: Sequence[Value]) -> list[Any]:
        for reference in references:
            while not reference.there:
                assert reference.process is not None
                if not self._step(reference.process):
                    raise PartLostError("no answer", reference.process.name)
        for reference in references:
            if reference.error is not None:
                raise reference.error
        return [reference.value for reference in references]

    def wait(self, references: Sequence[Value], seconds: float) -> list[Value]:
        moved = False
        for process in [p for p in self.processes if p.queue]:
            moved = self._step(process) or moved
        there = [reference for reference in references if reference.there]
        if not there and not moved:
            self.seconds += seconds
        return there

    def kill(self, handle: Process) -> None:
        handle.alive = False
        for call in handle.queue:
            self._settle(call, PartLostError("it was killed", handle.name))
        handle.queue.clear()

    def nodes(self) -> list[NodeResources]:
        return [NodeResources("here", self.cpus, 0, self.memory_bytes, "this node")]

    def ask(self, parts: Sequence[Asked]) -> None:
        self.asked = list(parts)

    def room(self, asked: Asked) -> int:
        taken = [process.asked for process in self.processes if process.alive]
        cpus, memory = self.cpus - sum(a.cpus for a in taken), self.memory_bytes - sum(a.bytes for a in taken)
        return min(int(cpus // asked.cpus), memory // asked.bytes)

    def describe(self) -> str:
        return f"1 node with {self.cpus} CPUs"

    def usage(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        self.closed = True

    def _step(self, process: Process) -> bool:
        """Carry out the oldest call of a process; whether there was one that could be."""
        if not process.queue and process.alive:
            return False
        if not process.alive:
            self.kill(process)
            return True
        call = process.queue[0]
        self.calls += 1
        wish = self._before(process, call.method, self.calls)
        if wish == "hang":
            return False
        if wish == "lose":
            self.kill(process)
            return True
        process.queue.pop(0)
        try:
            args = [self.get([arg])[0] if isinstance(arg, Value) else arg for arg in call.args]
            result = getattr(process.part, call.method)(*args)
        except Exception as error:  # noqa: BLE001 - what a remote call raises is raised by get
            self._settle(call, error)
        else:
            values = (result,) if len(call.results) == 1 else result
            for reference, value in zip(call.results, values, strict=True):
                reference.value, reference.there = value, True
        return True

    def _settle(self, call: Call, error: BaseException) -> None:
        for reference in call.results:
            reference.error, reference.there = error, True
