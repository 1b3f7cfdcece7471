"""Slots: columns that are allocated as they fill, doubling up to a limit."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from buffers.frames import Snapshot
from buffers.rows import Rows, RowSchema, take

_FIRST_ROWS = 1024
_PREFIX = "rows."


class Slots:
    """Up to `limit` rows of a schema in preallocated columns. Which of them count is the owner's business."""

    def __init__(self, schema: RowSchema, limit: int) -> None:
        self.schema = schema
        self.limit = limit
        self.columns: Rows = schema.allocate(0)
        self.allocated = 0

    @property
    def bytes(self) -> int:
        """Bytes allocated now."""
        return self.allocated * self.schema.bytes_per_row

    def reserve(self, n: int) -> None:
        """Makes room for `n` rows, keeping what is there."""
        if n <= self.allocated:
            return
        size = min(self.limit, max(n, 2 * self.allocated, _FIRST_ROWS))
        grown = self.schema.allocate(size)
        for name, column in grown.items():
            column[: self.allocated] = self.columns[name]
        self.columns, self.allocated = grown, size

    def write(self, at: NDArray[Any] | slice, rows: Rows, source: NDArray[Any] | slice) -> None:
        """Copies `rows[source]` into the slots `at`."""
        for name, column in self.columns.items():
            column[at] = rows[name][source]

    def view(self, size: int) -> Rows:
        """The first `size` rows, without a copy."""
        return take(self.columns, slice(0, size))

    def snapshot(self, size: int) -> Snapshot:
        """The first `size` rows as entries of a snapshot (views)."""
        return {_PREFIX + name: column for name, column in self.view(size).items()}

    def restore(self, snapshot: Snapshot) -> int:
        """Replaces the contents by a snapshot's rows; their number. Raises ValueError if they do not fit."""
        rows = {name.removeprefix(_PREFIX): v for name, v in snapshot.items() if name.startswith(_PREFIX)}
        n = self.schema.check(rows)
        if n > self.limit:
            raise ValueError(f"the snapshot holds {n} rows; there is room for {self.limit}")
        self.columns, self.allocated = self.schema.allocate(0), 0
        self.reserve(n)
        self.write(slice(0, n), rows, slice(0, n))
        return n


def check_capacity(capacity: int) -> None:
    """Raises ValueError unless a buffer can have this capacity."""
    if capacity < 1:
        raise ValueError(f"capacity is {capacity}; it must be 1 or more")


def check_same_capacity(snapshot: Snapshot, capacity: int) -> None:
    """Raises ValueError when a snapshot comes from a buffer of another capacity."""
    if snapshot["capacity"] != capacity:
        raise ValueError(f"the snapshot's buffer has capacity {snapshot['capacity']}; this one has {capacity}")


def draw(size: int, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """`n` slots out of `size`, uniformly with replacement; raises ValueError when there are none."""
    if size < 1:
        raise ValueError("cannot sample from an empty buffer: add rows first")
    return rng.integers(size, size=n)
