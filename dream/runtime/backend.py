"""What a cluster offers: processes that hold a part each, calls to them, and objects that travel between them.

`ray_backend.py` is the one implementation on a cluster; tests have one in this process that loses what it is told to.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dream.errors import DreamError

Handle = Any  # a process that holds a part
Reference = Any  # a value that may not be there yet


class PartLostError(DreamError):
    """A process died, or its node, or something that it made was lost with it.

    `why` is what is known; `part` the name of the process, None where what is lost is a value.
    """

    def __init__(self, why: str, part: str | None = None) -> None:
        super().__init__(f"{part} was lost ({why})" if part else why)
        self.why = why
        self.part = part


class ResourcesError(DreamError):
    """The cluster does not have what the run asks for; the message shows asked and available."""


@dataclass(frozen=True)
class NodeResources:
    """What a node has. `name` is what people know it by."""

    id: str
    cpus: float
    gpus: float
    memory_bytes: int
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Asked:
    """Resources that a process takes from its node, which is the one named where one is."""

    cpus: float = 0.0
    gpus: float = 0.0
    bytes: int = 0
    node: str | None = None


class Backend(Protocol):
    """Spawns, calls, waits. Calls from here to one process are carried out one after another, in their order."""

    def spawn(self, name: str, make: Callable[..., Any], args: Sequence[Any], asked: Asked) -> Handle:
        """Starts a process that holds `make(*args)`; returns at once, whether or not there is room for it yet."""
        ...

    def call(self, handle: Handle, method: str, *args: Any) -> Reference:
        """Calls a method of the part; returns at once. References among `args` arrive as their values."""
        ...

    def call_for(self, count: int, handle: Handle, method: str, *args: Any) -> list[Reference]:
        """The same for a method that returns a tuple of `count` values: a reference to each."""
        ...

    def put(self, value: Any) -> Reference:
        """Publishes a value once, for any number of calls."""
        ...

    def get(self, references: Sequence[Reference]) -> list[Any]:
        """Their values. Raises PartLostError where one is lost or does not come, or what the called method raised."""
        ...

    def wait(self, references: Sequence[Reference], seconds: float) -> list[Reference]:
        """Those that are there (or failed), as soon as there is at least one; empty after `seconds`."""
        ...

    def kill(self, handle: Handle) -> None:
        """Ends a process at once; one that is dead already is fine."""
        ...

    def nodes(self) -> list[NodeResources]:
        """The living nodes, with all that they have."""
        ...

    def ask(self, parts: Sequence[Asked]) -> None:
        """Tells what adds nodes to the cluster, where there is something, that these have no room; none: not any more.

        Processes that were spawned and wait for room need not be told.
        """
        ...

    def room(self, asked: Asked) -> int:
        """How many such processes hold what nobody has taken of CPUs and memory, all nodes together."""
        ...

    def describe(self) -> str:
        """The cluster in a few words: nodes, CPUs, GPUs, memory."""
        ...

    def usage(self) -> dict[str, float]:
        """Scalars for telemetry, by slash names."""
        ...

    def close(self) -> None:
        """Ends every process of this run."""
        ...
