"""The reservoir: a uniform sample of everything ever offered, by keeping the rows of smallest priority.

Every row carries a random u4 `priority`; the `capacity` smallest stay (bottom-k sampling). Which rows those
are depends on the rows alone: not on the order in which they came, nor on how they were batched.
"""

import numpy as np
from numpy.typing import NDArray

from buffers.buffer import Delta
from buffers.frames import Snapshot
from buffers.rows import Rows, RowSchema, row_bytes, take
from buffers.slots import Slots, check_capacity, check_same_capacity, draw

_STAMP = np.dtype(np.uint32)
_HIGHEST = 2**32 - 1


class Reservoir:
    """The `capacity` rows of smallest (`priority`, bytes of the row).

    Rows are appended behind the kept ones into `slack` (default an eighth of the capacity, at least 1,024
    rows); when that is full, or at `settle()`, the worst go and survivors of the tail move into the freed
    slots, so that few slots change. Memory grows by doubling up to `capacity + slack` rows of
    `bytes_per_row + 4`: each slot has a u4 stamp, the version that wrote it, which is all that `delta` needs.
    """

    def __init__(self, schema: RowSchema, capacity: int, slack: int | None = None) -> None:
        check_capacity(capacity)
        if not any(c.name == "priority" and c.dtype == np.uint32 and not c.shape for c in schema.columns):
            raise ValueError(f"a reservoir needs a scalar u4 column 'priority'; the schema has {schema.columns}")
        self.schema = schema
        self.capacity = capacity
        self._slots = Slots(schema, capacity + _slack(capacity, slack))
        self._stamps = np.zeros(0, _STAMP)
        self._held = 0
        self._seen = 0
        self._version = 0
        self._threshold = _HIGHEST  # no row above it can be among the kept

    @staticmethod
    def predicted_bytes(schema: RowSchema, capacity: int, slack: int | None = None) -> int:
        """Bytes of a full reservoir."""
        return (capacity + _slack(capacity, slack)) * (schema.bytes_per_row + _STAMP.itemsize)

    @property
    def size(self) -> int:
        """Rows held, the slack not counted: min(seen, capacity)."""
        return min(self._held, self.capacity)

    @property
    def seen(self) -> int:
        """Rows ever offered."""
        return self._seen

    @property
    def version(self) -> int:
        """Grows with every change; 0 when nothing was ever added."""
        return self._version

    @property
    def bytes(self) -> int:
        """Bytes allocated now."""
        return self._slots.bytes + self._stamps.nbytes

    def add(self, rows: Rows) -> None:
        """Offers rows; those that cannot stay are rejected before anything is copied."""
        n = self.schema.check(rows)
        self._seen += n
        first = 0
        while first < n:
            # Read anew for each piece: settling in between lowers the threshold and frees the slack.
            room = self._slots.limit - self._held
            if not room:
                self.settle()
                continue
            piece = slice(first, min(n, first + room))
            self._append(rows, piece)
            first = piece.stop

    def settle(self) -> None:
        """Trims to the `capacity` best rows; moves survivors of the tail into the freed slots."""
        if self._held <= self.capacity:
            return
        keep = self._survivors()
        freed = np.flatnonzero(~keep[: self.capacity])
        moved = self.capacity + np.flatnonzero(keep[self.capacity :])
        self._version += 1
        self._slots.write(freed, self._slots.columns, moved)
        self._stamps[freed] = self._version
        self._held = self.capacity

    def view(self) -> Rows:
        """All rows in slot order, without a copy; valid until the next `add`. Not to be written to."""
        self.settle()
        return self._slots.view(self._held)

    def delta(self, version: int) -> Delta:
        """Slots written since `version`: one pass over the stamps, 4 bytes a row."""
        self.settle()
        since = version if version <= self._version else 0
        index = np.flatnonzero(self._stamps[: self._held] > since)
        return Delta(self._version, self._seen, index, take(self._slots.columns, index))

    def sample(self, n: int, rng: np.random.Generator) -> Rows:
        """`n` rows drawn uniformly with replacement; raises ValueError when the reservoir is empty."""
        self.settle()
        return take(self._slots.columns, draw(self._held, n, rng))

    def snapshot(self) -> Snapshot:
        """The full state, the slack included: taking it changes nothing, not even the order of slots."""
        state = {name: getattr(self, f"_{name}") for name in ("seen", "version", "threshold")}
        return {"capacity": self.capacity, **state, **self._slots.snapshot(self._held)}

    def restore(self, snapshot: Snapshot) -> None:
        """Takes over a snapshot's state; every row then counts as written at the snapshot's version."""
        check_same_capacity(snapshot, self.capacity)
        self._held = self._slots.restore(snapshot)
        self._seen, self._version = snapshot["seen"], snapshot["version"]
        self._threshold = snapshot["threshold"]
        self._stamps = np.full(self._slots.allocated, self._version, _STAMP)

    def _append(self, rows: Rows, piece: slice) -> None:
        chosen = np.flatnonzero(rows["priority"][piece] <= self._threshold)
        if not len(chosen):
            return
        everything = len(chosen) == piece.stop - piece.start
        end = self._held + len(chosen)
        self._reserve(end)
        at = slice(self._held, end)
        self._slots.write(at, rows, piece if everything else chosen + piece.start)
        self._version += 1
        self._stamps[at] = self._version
        self._held = end

    def _reserve(self, n: int) -> None:
        self._slots.reserve(n)
        if len(self._stamps) < self._slots.allocated:
            stamps = np.zeros(self._slots.allocated, _STAMP)
            stamps[: self._held] = self._stamps[: self._held]
            self._stamps = stamps

    def _survivors(self) -> NDArray[np.bool_]:
        """Mask [held] of the `capacity` best rows; lowers the threshold to the worst of them."""
        priority = self._slots.columns["priority"][: self._held]
        self._threshold = int(np.partition(priority, self.capacity - 1)[self.capacity - 1])
        keep: NDArray[np.bool_] = priority < self._threshold
        ties = np.flatnonzero(priority == self._threshold)
        places = self.capacity - int(np.count_nonzero(keep))
        if len(ties) > places:
            # By the rows' own bytes: arrival order must not matter.
            ties = ties[np.argsort(row_bytes(self._slots.columns, ties), kind="stable")[:places]]
        keep[ties] = True
        return keep


def _slack(capacity: int, slack: int | None) -> int:
    if slack is None:
        return max(1024, capacity // 8)
    if slack < 1:
        raise ValueError(f"slack is {slack}; it must be 1 or more")
    return slack
