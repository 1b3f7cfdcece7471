"""Merged rows: in an enumerated game the sums over each information state say all that a fit can use."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from buffers.frames import Snapshot
from buffers.rows import Rows, row_bytes

_STATE = ("sums", "weights", "counts")
_IDENTITY = ("history", "action", "next_history", "terminal")


class Merged:
    """Sums of ALL rows by key: of weight * target f8[N, A], of weight f8[N], and the number of rows i8[N].

    The gradient of sum_rows weight * ||D(key) - target||^2 in D(key) is 2 * (weights * D - sums): the same as
    that of one row per key with the mean target and the summed weight. Rows are added one after another in
    order, so that no bit of the sums depends on how the rows were batched. `offset` is the first key.
    """

    def __init__(self, num_keys: int, num_actions: int, offset: int = 0) -> None:
        if num_keys < 1 or num_actions < 1:
            raise ValueError(f"num_keys is {num_keys} and num_actions is {num_actions}; both must be 1 or more")
        self.capacity = num_keys
        self.num_actions = num_actions
        self.offset = offset
        self.sums = np.zeros((num_keys, num_actions))
        self.weights = np.zeros(num_keys)
        self.counts = np.zeros(num_keys, np.int64)
        self._version = 0

    @staticmethod
    def predicted_bytes(num_keys: int, num_actions: int) -> int:
        """Bytes allocated, from the start on."""
        return num_keys * 8 * (num_actions + 2)

    @property
    def size(self) -> int:
        """Keys with at least one row."""
        return int(np.count_nonzero(self.counts))

    @property
    def seen(self) -> int:
        """Rows ever offered."""
        return int(self.counts.sum())

    @property
    def version(self) -> int:
        """Grows with every change; 0 when nothing was ever added."""
        return self._version

    @property
    def bytes(self) -> int:
        """Bytes allocated now."""
        return self.sums.nbytes + self.weights.nbytes + self.counts.nbytes

    def add(self, rows: Rows) -> None:
        """Adds rows with `key`, `target` [n, A] and `weight`; raises ValueError for a key out of range."""
        index = self._index(rows["key"])
        if not len(index):
            return
        if rows["target"].shape != (len(index), self.num_actions):
            shape = rows["target"].shape
            raise ValueError(f"target has shape {shape}; it must be {(len(index), self.num_actions)}")
        weight = rows["weight"].astype(np.float64)
        cells = index[:, None] * self.num_actions + np.arange(self.num_actions)
        np.add.at(self.sums.reshape(-1), cells.reshape(-1), (weight[:, None] * rows["target"]).reshape(-1))
        np.add.at(self.weights, index, weight)
        np.add.at(self.counts, index, 1)
        self._version += 1

    def settle(self) -> None:
        """Nothing to do: nothing is ever dropped."""

    def means(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Weighted mean targets f8[N, A] (0 where there is no weight) and summed weights f8[N]; copies."""
        weights = self.weights.copy()
        return self.sums / np.where(weights > 0, weights, 1.0)[:, None], weights

    def delta(self, version: int) -> Snapshot:
        """What makes another `Merged` equal to this one, by `apply`: its full state (views)."""
        return self.snapshot()

    def apply(self, delta: Snapshot) -> None:
        """Takes over another buffer's state."""
        self.restore(delta)

    def snapshot(self) -> Snapshot:
        """The full state (views)."""
        arrays = {name: getattr(self, name) for name in _STATE}
        return {"offset": self.offset, "version": self._version, **arrays}

    def restore(self, snapshot: Snapshot) -> None:
        """Takes over a snapshot's state; raises ValueError when its keys or actions are others."""
        shape = snapshot["sums"].shape
        if shape != self.sums.shape or snapshot["offset"] != self.offset:
            raise ValueError(
                f"the snapshot has shape {shape} and offset {snapshot['offset']}; "
                f"this buffer has {self.sums.shape} and {self.offset}"
            )
        for name in _STATE:
            getattr(self, name)[...] = snapshot[name]
        self._version = snapshot["version"]

    def _index(self, keys: NDArray[Any]) -> NDArray[np.int64]:
        index = keys.astype(np.int64) - self.offset
        if len(index) and not (index.min() >= 0 and index.max() < self.capacity):
            raise ValueError(
                f"keys run from {keys.min()} to {keys.max()}; "
                f"they must lie in {self.offset} to {self.offset + self.capacity - 1}"
            )
        return index


class UniqueTransitions(NamedTuple):
    """Transitions merged by (history, action, next history, terminal), in a fixed order.

    `reward` f8 is the mean over `count` i8 rows, `first` i8 the number of the first of them; the other
    columns have the dtypes of the rows.
    """

    history: NDArray[Any]
    action: NDArray[np.int16]
    next_history: NDArray[Any]
    terminal: NDArray[np.bool_]
    reward: NDArray[np.float64]
    count: NDArray[np.int64]  # type: ignore[assignment]  # hides a method of tuple that nobody needs
    first: NDArray[np.int64]


def unique_transitions(rows: Rows) -> UniqueTransitions:
    """Merges equal transitions: a fit on them, weighted by count, has the same gradient in the prediction."""
    _, first, inverse = np.unique(_codes(rows), return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    count = np.bincount(inverse, minlength=len(first))
    reward = np.bincount(inverse, rows["reward"], minlength=len(first)) / np.maximum(count, 1)
    history, action, next_history, terminal = (rows[name][first] for name in _IDENTITY)
    return UniqueTransitions(history, action, next_history, terminal, reward, count, first)


def _codes(rows: Rows) -> NDArray[Any]:
    """One sortable value [n] per row that tells different transitions apart: an integer where that fits."""
    columns = {name: rows[name] for name in _IDENTITY}
    if len(rows["action"]) and all(column.ndim == 1 for column in columns.values()):
        code = np.zeros(len(rows["action"]), np.int64)
        span = 1
        for column in columns.values():
            low = int(column.min())
            width = int(column.max()) - low + 1
            span *= width
            if span >= 2**63:
                break
            code = code * width + (column.astype(np.int64) - low)
        else:
            return code
    return row_bytes(columns)
