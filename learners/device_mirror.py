"""A mirror on the learner's device: the rows that a fit reads stay there, only changes are copied."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from buffers.buffer import Delta
from learners.streaming import COLUMNS, DeviceRows

_AT_ONCE = 1 << 18  # rows that are copied at once: what they take besides is bounded


class DeviceMirror:
    """As buffers/mirror.py's `Mirror`, for advantage and strategy rows, in tensors on `device`.

    A feed takes its `view()` in place of a buffer's, and copies nothing. Memory grows by doubling, for which the
    old and the new tensor of a column are there at once, and holds `capacity` rows at most.
    """

    def __init__(self, capacity: int, device: torch.device) -> None:
        self.capacity = capacity
        self.version = 0
        self.seen = 0
        self._device = device
        self._columns: DeviceRows = {}

    @property
    def size(self) -> int:
        """Rows held."""
        return min(self.seen, self.capacity)

    @property
    def bytes(self) -> int:
        """Bytes allocated on the device."""
        return sum(column.nbytes for column in self._columns.values())

    def apply(self, delta: Delta) -> None:
        """Takes over the slots that changed."""
        self.version, self.seen = delta.version, delta.seen
        for name in COLUMNS:
            column = self._columns[name] = self._grown(self._columns.get(name), delta.rows[name])
            for first in range(0, len(delta.index), _AT_ONCE):
                part = slice(first, first + _AT_ONCE)
                column.index_copy_(0, self._sent(delta.index[part]), self._sent(delta.rows[name][part]))

    def view(self) -> DeviceRows:
        """All rows in slot order, without a copy; valid until the next `apply`. Not to be written to."""
        return {name: column[: self.size] for name, column in self._columns.items()}

    def _grown(self, column: Tensor | None, rows: NDArray[Any]) -> Tensor:
        held = 0 if column is None else len(column)
        if column is not None and self.size <= held:
            return column
        like = torch.from_numpy(np.empty(0, rows.dtype))
        shape = (min(self.capacity, max(self.size, 2 * held)), *rows.shape[1:])
        grown = torch.zeros(shape, dtype=like.dtype, device=self._device)
        if column is not None:
            grown[:held] = column
        return grown

    def _sent(self, array: NDArray[Any]) -> Tensor:
        # What came by shared memory cannot be written to, of which torch would warn.
        return torch.from_numpy(array if array.flags.writeable else array.copy()).to(self._device)
