"""What all buffers have in common, and what readers of rows get."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from buffers.chunks import ChunkId
from buffers.frames import Snapshot
from buffers.rows import Rows


class Delta(NamedTuple):
    """Slots written since an earlier version: `rows[k]` (copies) now stand in slot `index[k]` i8, ascending.

    `version` is what to ask with next time, `seen` the number of rows ever offered. A mirror (buffers/mirror.py) that
    applies every delta equals `view()`.
    """

    version: int
    seen: int
    index: NDArray[np.int64]  # type: ignore[assignment]  # hides a method of tuple that nobody needs
    rows: Rows


class Kept(Protocol):
    """Rows somewhere, in one buffer or in many: says how many there are, and can be put on disk."""

    @property
    def size(self) -> int:
        """Rows held."""

    @property
    def seen(self) -> int:
        """Rows ever offered."""

    @property
    def capacity(self) -> int:
        """Rows held at most."""

    @property
    def bytes(self) -> int:
        """Bytes allocated now."""

    def snapshot(self) -> Snapshot:
        """The full state. Arrays are views: encode or copy them before the next `add`."""

    def restore(self, snapshot: Snapshot) -> None:
        """Replaces the state by that of a snapshot of an equally configured buffer."""


class Buffer(Kept, Protocol):
    """Takes rows in."""

    @property
    def version(self) -> int:
        """Grows with every change; 0 when nothing was ever added."""

    def add(self, rows: Rows) -> None:
        """Offers rows, in order; they are copied."""


class Store(Kept, Protocol):
    """Takes chunks in, each once: a shard, or several as one."""

    def add(self, chunk: ChunkId, rows: Rows) -> bool:
        """Adds the rows of a chunk unless they are in already; whether they were added."""


class Readable(Protocol):
    """Single rows to read: a buffer's own, or a mirror's."""

    @property
    def seen(self) -> int:
        """Rows ever offered."""

    def view(self) -> Rows:
        """All rows in slot order, without a copy; valid until the next change. Not to be written to."""


class RowBuffer(Buffer, Readable, Protocol):
    """A buffer that keeps single rows in numbered slots 0 to size - 1."""

    def settle(self) -> None:
        """Brings the buffer to exactly min(seen, capacity) rows."""

    def delta(self, version: int) -> Delta:
        """Slots written since `version`: 0, or a version from the future, asks for all of them."""

    def sample(self, n: int, rng: np.random.Generator) -> Rows:
        """`n` rows drawn uniformly with replacement; raises ValueError when the buffer is empty."""
