"""A mirror: the rows of a buffer in another process, kept equal to it by deltas."""

from buffers.buffer import Delta
from buffers.rows import Rows, RowSchema
from buffers.slots import Slots


class Mirror:
    """Equals the buffer's `view()`, slot by slot, once every delta was applied in order.

    Ask the buffer for its `delta(mirror.version)`: only rows that changed travel. Memory as the buffer's own,
    without its slack.
    """

    def __init__(self, schema: RowSchema, capacity: int) -> None:
        self.capacity = capacity
        self.version = 0
        self.seen = 0
        self._slots = Slots(schema, capacity)

    @property
    def size(self) -> int:
        """Rows held."""
        return min(self.seen, self.capacity)

    @property
    def bytes(self) -> int:
        """Bytes allocated now."""
        return self._slots.bytes

    def apply(self, delta: Delta) -> None:
        """Takes over the slots that changed."""
        self.version, self.seen = delta.version, delta.seen
        self._slots.reserve(self.size)
        self._slots.write(delta.index, delta.rows, slice(None))

    def view(self) -> Rows:
        """All rows in slot order, without a copy; valid until the next `apply`. Not to be written to."""
        return self._slots.view(self.size)
