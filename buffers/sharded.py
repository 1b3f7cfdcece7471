"""Many shards, one sample."""

from collections.abc import Sequence

import numpy as np

from buffers.buffer import RowBuffer, Store
from buffers.chunks import ChunkId
from buffers.frames import Snapshot
from buffers.merged import Merged
from buffers.rows import Rows, concatenate, take
from buffers.shard import Shard


class Sharded:
    """Shards seen as one buffer.

    A row that shard s holds was kept with probability size_s / seen_s. Drawing the shard in proportion to
    seen_s and a row in it uniformly gives every row ever offered the same chance, however unevenly the shards
    were fed; drawing in proportion to size_s would favour the rows of shards that saw few.
    """

    def __init__(self, shards: Sequence[Shard[RowBuffer]]) -> None:
        if not shards:
            raise ValueError("at least one shard is needed")
        self.shards = list(shards)

    def add(self, chunk: ChunkId, rows: Rows) -> bool:
        """Adds a chunk to the shard of its index; whether it was new."""
        return self.shards[chunk.index % len(self.shards)].add(chunk, rows)

    def sample(self, n: int, rng: np.random.Generator) -> Rows:
        """`n` rows, uniform over all rows ever offered, in exchangeable order; ValueError when empty."""
        seen = np.array([shard.seen for shard in self.shards], np.float64)
        if not seen.any():
            raise ValueError("cannot sample from empty shards: add rows first")
        shard_of = rng.choice(len(seen), size=n, p=seen / seen.sum())
        counts = np.bincount(shard_of, minlength=len(seen))
        drawn = [shard.sample(int(k), rng) for shard, k in zip(self.shards, counts, strict=True) if shard.seen]
        # `drawn` is ordered by shard: put every row where its shard was drawn.
        place = np.empty(n, np.int64)
        place[np.argsort(shard_of, kind="stable")] = np.arange(n)
        return take(concatenate(drawn), place)

    @property
    def size(self) -> int:
        """Rows held."""
        return sum(shard.size for shard in self.shards)

    @property
    def seen(self) -> int:
        """Rows ever offered."""
        return sum(shard.seen for shard in self.shards)

    @property
    def capacity(self) -> int:
        """Rows held at most."""
        return sum(shard.capacity for shard in self.shards)

    @property
    def bytes(self) -> int:
        """Bytes allocated now."""
        return sum(shard.bytes for shard in self.shards)

    def info(self) -> dict[str, int]:
        """Numbers for telemetry."""
        totals = {name: int(getattr(self, name)) for name in ("size", "seen", "capacity", "bytes")}
        return {"shards": len(self.shards), **totals}

    def snapshot(self) -> Snapshot:
        """The state of all shards."""
        return join_snapshots([shard.snapshot() for shard in self.shards])

    def restore(self, snapshot: Snapshot) -> None:
        """Takes over a snapshot's state; raises ValueError when it has another number of shards."""
        for shard, part in zip(self.shards, split_snapshot(snapshot, len(self.shards)), strict=True):
            shard.restore(part)


def join_snapshots(parts: Sequence[Snapshot]) -> Snapshot:
    """The snapshot of a store, from those of its shards; a single shard's is the store's."""
    if len(parts) == 1:
        return parts[0]
    return {f"shard{i}.{name}": value for i, part in enumerate(parts) for name, value in part.items()}


def split_snapshot(snapshot: Snapshot, shards: int) -> list[Snapshot]:
    """The snapshots of a store's shards; ValueError when it was made of another number of shards."""
    parts: dict[str, Snapshot] = {}
    for name, value in snapshot.items():
        shard, dot, entry = name.partition(".")
        inner = dot and shard.startswith("shard") and shard[5:].isdigit()
        parts.setdefault(shard if inner else "shard0", {})[entry if inner else name] = value
    if len(parts) != shards:
        raise ValueError(f"the snapshot has {len(parts)} shards; there are {shards} here")
    return [parts[f"shard{i}"] for i in range(shards)]


def buffers_of(store: Store) -> list[RowBuffer | Merged]:
    """The buffers behind a store: one, or one for each shard."""
    shards = store.shards if isinstance(store, Sharded) else [store]
    return [shard.buffer for shard in shards if isinstance(shard, Shard)]


def split_capacity(capacity: int, shards: int) -> list[int]:
    """The capacity of each shard: equal to within one row, summing to `capacity`; ValueError below 1."""
    if not 1 <= shards <= capacity:
        raise ValueError(f"{shards} shards cannot share a capacity of {capacity}; allowed are 1 to {capacity}")
    return [capacity // shards + (i < capacity % shards) for i in range(shards)]
