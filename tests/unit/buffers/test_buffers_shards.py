import numpy as np
import pytest

from buffers.chunks import ChunkId
from buffers.circular import Circular
from buffers.frames import decode, encode
from buffers.merged import Merged
from buffers.reservoir import Reservoir
from buffers.rows import Column, regression_schema
from buffers.shard import Shard
from buffers.sharded import Sharded, split_capacity

SCHEMA = regression_schema(Column("state", np.int32), 2)


def make_rows(n, rng):
    rows = SCHEMA.allocate(n)
    rows["key"][:] = rng.integers(0, 50, n)
    rows["priority"][:] = rng.integers(0, 2**32, n, dtype=np.uint64).astype(np.uint32)
    return rows


@pytest.mark.parametrize("buffer", [lambda: Reservoir(SCHEMA, 10), lambda: Circular(SCHEMA, 10), lambda: Merged(50, 2)])
def test_a_chunk_counts_once(rng, buffer):
    shard = Shard(buffer())
    rows = make_rows(7, rng)
    ids = [ChunkId(t, p, i) for t in (1, 2, 3) for p in (0, 1) for i in (0, 1)]
    assert all(shard.add(chunk, rows) for chunk in ids)
    state = {k: v.tobytes() for k, v in shard.snapshot().items() if isinstance(v, np.ndarray)}
    assert not any(shard.add(chunk, rows) for chunk in reversed(ids))
    assert {k: v.tobytes() for k, v in shard.snapshot().items() if isinstance(v, np.ndarray)} == state
    assert shard.seen == shard.info()["seen"] == 7 * len(ids)
    assert not shard.add(ChunkId(1, 0, 99), rows)  # long acknowledged
    assert shard.add(ChunkId(2, 0, 99), rows)  # late, but of the last iteration


def test_rows_that_are_refused_do_not_use_up_the_chunk(rng):
    shard = Shard(Reservoir(SCHEMA, 10))
    with pytest.raises(ValueError, match="columns"):
        shard.add(ChunkId(1, 0, 0), {})
    assert shard.add(ChunkId(1, 0, 0), make_rows(2, rng))


def test_memory_of_chunks_survives_a_commit(rng):
    shard = Shard(Reservoir(SCHEMA, 10))
    for t in (1, 2, 3):
        shard.add(ChunkId(t, 1, 4), make_rows(9, rng))
    again = Shard(Reservoir(SCHEMA, 10))
    again.restore(decode(b"".join(encode(shard.snapshot()))))
    assert not any(again.add(ChunkId(t, 1, 4), make_rows(9, rng)) for t in (1, 2, 3))
    assert again.add(ChunkId(3, 1, 5), make_rows(9, rng))
    fresh = Shard(Reservoir(SCHEMA, 10))
    fresh.restore(decode(b"".join(encode(Shard(Reservoir(SCHEMA, 10)).snapshot()))))
    assert fresh.seen == 0


def test_sharded_routes_counts_and_resumes(rng):
    sharded = Sharded([Shard(Reservoir(SCHEMA, c)) for c in split_capacity(25, 3)])
    for i in range(7):
        assert sharded.add(ChunkId(1, 0, i), make_rows(5, rng))
        assert not sharded.add(ChunkId(1, 0, i), make_rows(5, rng))
    assert [shard.seen for shard in sharded.shards] == [15, 10, 10]
    assert (sharded.size, sharded.seen, sharded.capacity) == (9 + 8 + 8, 35, 25)
    assert sharded.info()["bytes"] == sharded.bytes > 0
    again = Sharded([Shard(Reservoir(SCHEMA, c)) for c in split_capacity(25, 3)])
    again.restore(decode(b"".join(encode(sharded.snapshot()))))
    for ours, theirs in zip(again.shards, sharded.shards, strict=True):
        for name, column in theirs.view().items():
            np.testing.assert_array_equal(ours.view()[name], column)
    with pytest.raises(ValueError, match="3 shards; there are 1"):
        Sharded(again.shards[:1]).restore(sharded.snapshot())


def test_sharded_samples_whole_rows(rng):
    sharded = Sharded([Shard(Reservoir(SCHEMA, 20)) for _ in range(3)])
    with pytest.raises(ValueError, match="empty"):
        sharded.sample(3, rng)
    rows = make_rows(30, rng)
    rows["target"][:, 0] = rows["key"]
    for i in range(2):  # the third shard stays empty
        sharded.add(ChunkId(1, 0, i), {name: column[i::2] for name, column in rows.items()})
    assert SCHEMA.check(sharded.sample(0, rng)) == 0
    sample = sharded.sample(100, rng)
    assert SCHEMA.check(sample) == 100
    np.testing.assert_array_equal(sample["target"][:, 0], sample["key"])


def test_split_capacity():
    assert split_capacity(10, 3) == [4, 3, 3]
    with pytest.raises(ValueError, match="allowed are 1 to 2"):
        split_capacity(2, 3)
    with pytest.raises(ValueError, match="at least one shard"):
        Sharded([])
