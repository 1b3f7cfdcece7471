"""Rows: named columns of equal length, and the schemas that say what a row holds and what it costs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Rows = dict[str, NDArray[Any]]
"""Columns by name, all with the same leading length."""


class Column:
    """One column: its name, its dtype and the shape of one entry (`()` for a scalar)."""

    __slots__ = ("dtype", "name", "shape")

    def __init__(self, name: str, dtype: DTypeLike, shape: Sequence[int] = ()) -> None:
        self.name = name
        self.dtype: np.dtype[Any] = np.dtype(dtype).newbyteorder("<")
        self.shape: tuple[int, ...] = tuple(int(size) for size in shape)
        if self.dtype.kind not in "biuf":
            raise TypeError(f"column {name!r} has dtype {self.dtype}; allowed are bool, integers and floats")

    def __repr__(self) -> str:
        return f"Column({self.name!r}, {self.dtype.str!r}, {self.shape})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Column) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[str, str, tuple[int, ...]]:
        return self.name, self.dtype.str, self.shape

    @property
    def bytes_per_row(self) -> int:
        """Bytes of one entry."""
        return self.dtype.itemsize * math.prod(self.shape)

    def renamed(self, name: str) -> "Column":
        """The same column under another name."""
        return Column(name, self.dtype, self.shape)


@dataclass(frozen=True)
class RowSchema:
    """The columns of a row, in order."""

    columns: tuple[Column, ...]

    def __init__(self, columns: Sequence[Column]) -> None:
        names = [column.name for column in columns]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"a schema needs one or more columns of different names, not {names}")
        object.__setattr__(self, "columns", tuple(columns))

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(column.name for column in self.columns)

    @property
    def bytes_per_row(self) -> int:
        """Bytes of one row over all columns."""
        return sum(column.bytes_per_row for column in self.columns)

    def allocate(self, n: int) -> Rows:
        """New zeroed rows of length `n` (the system hands out the pages when they are first written)."""
        return {column.name: np.zeros((n, *column.shape), column.dtype) for column in self.columns}

    def check(self, rows: Rows) -> int:
        """The length of `rows`; raises ValueError naming the first column that does not fit the schema."""
        if rows.keys() != set(self.names):
            raise ValueError(f"rows have the columns {sorted(rows)}; the schema has {sorted(self.names)}")
        length = len(rows[self.columns[0].name])
        for column in self.columns:
            array = rows[column.name]
            if array.dtype != column.dtype:
                raise ValueError(f"column {column.name!r} has dtype {array.dtype}; it must be {column.dtype}")
            if array.shape != (length, *column.shape):
                expected = (length, *column.shape)
                raise ValueError(f"column {column.name!r} has shape {array.shape}; it must be {expected}")
        return length


def regression_schema(key: Column, num_actions: int) -> RowSchema:
    """Advantage and strategy rows: `key`, `target` f4[A], `weight` f4, `priority` u4 (uniform random)."""
    return RowSchema(
        [
            key.renamed("key"),
            Column("target", np.float32, (num_actions,)),
            Column("weight", np.float32),
            Column("priority", np.uint32),
        ]
    )


def transition_schema(history_key: Column) -> RowSchema:
    """Baseline rows: `history`, `action` i2, `reward` f4 (player 0's), `next_history`, `terminal` bool."""
    return RowSchema(
        [
            history_key.renamed("history"),
            Column("action", np.int16),
            Column("reward", np.float32),
            history_key.renamed("next_history"),
            Column("terminal", np.bool_),
        ]
    )


def length(rows: Rows) -> int:
    """The number of rows; 0 when there are no columns."""
    return len(next(iter(rows.values()))) if rows else 0


def take(rows: Rows, index: NDArray[Any] | slice) -> Rows:
    """Rows selected by an index array, a mask or a slice (a slice gives views)."""
    return {name: column[index] for name, column in rows.items()}


def concatenate(parts: Sequence[Rows]) -> Rows:
    """Rows of all parts one after another; raises ValueError when there are none."""
    if not parts:
        raise ValueError("nothing to concatenate: at least one set of rows is needed")
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def row_bytes(rows: Rows, index: NDArray[Any] | slice = slice(None)) -> NDArray[np.bytes_]:
    """The selected rows as fixed-width byte strings [n], columns in order: comparable and sortable."""
    columns = [np.ascontiguousarray(column[index]) for column in rows.values()]
    widths = [column.itemsize * math.prod(column.shape[1:]) for column in columns]
    parts = [c.reshape(-1).view(np.uint8).reshape(len(c), w) for c, w in zip(columns, widths, strict=True)]
    return np.concatenate(parts, axis=1).view(f"S{sum(widths)}").reshape(len(columns[0]))
