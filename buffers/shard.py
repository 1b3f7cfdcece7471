"""A shard: a buffer that applies every chunk of rows once, however often it is sent."""

from typing import Generic, TypeVar

import numpy as np

from buffers.buffer import Buffer, Delta, RowBuffer
from buffers.chunks import ChunkId
from buffers.frames import Snapshot
from buffers.merged import Merged
from buffers.rows import Rows

B_co = TypeVar("B_co", bound=Buffer, covariant=True)
_PREFIX = "buffer."
_IDS = "chunk_ids"


class Shard(Generic[B_co]):
    """Idempotent `add`; everything else is the buffer's (`shard.buffer` for what only that one can do).

    Remembers the chunks of the newest iteration seen and of the one before. A chunk of an older iteration is
    refused as already applied: an iteration starts only when all chunks of the last were acknowledged.
    """

    def __init__(self, buffer: B_co) -> None:
        self.buffer = buffer
        self._applied: set[ChunkId] = set()
        self._newest = 0

    def add(self, chunk: ChunkId, rows: Rows) -> bool:
        """Adds the rows of a chunk unless they are in already; whether they were added."""
        if chunk in self._applied or chunk.iteration < self._newest - 1:
            return False
        self.buffer.add(rows)
        self._applied.add(chunk)
        if chunk.iteration > self._newest:
            self._newest = chunk.iteration
            self._applied = {c for c in self._applied if c.iteration >= self._newest - 1}
        return True

    @property
    def size(self) -> int:
        """Rows held."""
        return self.buffer.size

    @property
    def seen(self) -> int:
        """Rows ever offered, each chunk counted once."""
        return self.buffer.seen

    @property
    def capacity(self) -> int:
        """Rows held at most."""
        return self.buffer.capacity

    @property
    def version(self) -> int:
        """The buffer's version."""
        return self.buffer.version

    @property
    def bytes(self) -> int:
        """Bytes allocated now."""
        return self.buffer.bytes

    def settle(self: "Shard[RowBuffer]") -> None:
        """See `RowBuffer.settle`."""
        self.buffer.settle()

    def view(self: "Shard[RowBuffer]") -> Rows:
        """See `RowBuffer.view`."""
        return self.buffer.view()

    def delta(self: "Shard[RowBuffer | Merged]", version: int) -> Delta | Snapshot:
        """What a mirror that stands at `version` lacks: see `RowBuffer.delta` and `Merged.delta`."""
        return self.buffer.delta(version)

    def sample(self: "Shard[RowBuffer]", n: int, rng: np.random.Generator) -> Rows:
        """See `RowBuffer.sample`."""
        return self.buffer.sample(n, rng)

    def info(self) -> dict[str, int]:
        """Numbers for telemetry."""
        return {name: getattr(self, name) for name in ("size", "seen", "capacity", "version", "bytes")}

    def snapshot(self) -> Snapshot:
        """The buffer's state and the chunks applied."""
        ids = np.array(sorted(self._applied), np.int64).reshape(-1, 3)
        return {_IDS: ids, **{_PREFIX + name: value for name, value in self.buffer.snapshot().items()}}

    def restore(self, snapshot: Snapshot) -> None:
        """Takes over a snapshot's state."""
        inner = {k.removeprefix(_PREFIX): v for k, v in snapshot.items() if k.startswith(_PREFIX)}
        self.buffer.restore(inner)
        self._applied = {ChunkId(*(int(part) for part in chunk)) for chunk in snapshot[_IDS]}
        self._newest = max((chunk.iteration for chunk in self._applied), default=0)
