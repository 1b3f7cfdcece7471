"""The circular buffer: the newest rows."""

import numpy as np

from buffers.buffer import Delta
from buffers.frames import Snapshot
from buffers.rows import Rows, RowSchema, take
from buffers.slots import Slots, check_capacity, check_same_capacity, draw


class Circular:
    """The newest `capacity` rows. Row number r (from 0) stands in slot r modulo `capacity`.

    The version is the number of rows seen, so a delta costs nothing to find and no bytes to remember. Memory
    grows by doubling up to `capacity` rows.
    """

    def __init__(self, schema: RowSchema, capacity: int) -> None:
        check_capacity(capacity)
        self.schema = schema
        self.capacity = capacity
        self._slots = Slots(schema, capacity)
        self._seen = 0

    @staticmethod
    def predicted_bytes(schema: RowSchema, capacity: int) -> int:
        """Bytes of a full buffer."""
        return capacity * schema.bytes_per_row

    @property
    def size(self) -> int:
        """Rows held: min(seen, capacity)."""
        return min(self._seen, self.capacity)

    @property
    def seen(self) -> int:
        """Rows ever offered."""
        return self._seen

    @property
    def version(self) -> int:
        """Equals `seen`."""
        return self._seen

    @property
    def bytes(self) -> int:
        """Bytes allocated now."""
        return self._slots.bytes

    def add(self, rows: Rows) -> None:
        """Takes rows in, in order, over the oldest ones."""
        n = self.schema.check(rows)
        skipped = max(0, n - self.capacity)
        start = (self._seen + skipped) % self.capacity
        self._seen += n
        self._slots.reserve(self.size)
        split = min(n, skipped + self.capacity - start)
        self._slots.write(slice(start, start + split - skipped), rows, slice(skipped, split))
        if split < n:
            self._slots.write(slice(0, n - split), rows, slice(split, n))

    def settle(self) -> None:
        """Nothing to do: the buffer never holds more than its capacity."""

    def view(self) -> Rows:
        """All rows in slot order, without a copy; valid until the next `add`. Not to be written to."""
        return self._slots.view(self.size)

    def delta(self, version: int) -> Delta:
        """Slots written since `version`; 0, or a version from the future, asks for all of them."""
        since = version if version <= self._seen else 0
        numbers = np.arange(max(since, self._seen - self.capacity), self._seen, dtype=np.int64)
        index = np.sort(numbers % self.capacity)
        return Delta(self._seen, self._seen, index, take(self._slots.columns, index))

    def sample(self, n: int, rng: np.random.Generator) -> Rows:
        """`n` rows drawn uniformly with replacement; raises ValueError when the buffer is empty."""
        return take(self._slots.columns, draw(self.size, n, rng))

    def snapshot(self) -> Snapshot:
        """The full state (views)."""
        return {"capacity": self.capacity, "seen": self._seen, **self._slots.snapshot(self.size)}

    def restore(self, snapshot: Snapshot) -> None:
        """Takes over a snapshot's state."""
        check_same_capacity(snapshot, self.capacity)
        self._slots.restore(snapshot)
        self._seen = snapshot["seen"]
