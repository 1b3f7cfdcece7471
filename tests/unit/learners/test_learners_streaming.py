"""Rows that stay in host memory, and rows mirrored on the device: the minibatches are those of the plain path."""

import gc
import threading
import weakref

import numpy as np
import pytest
import torch
from oracles import rank_cases
from oracles.rank_cases import ACTIONS, BATCHES, CPU, ROWS, in_threads, own_shards, state_rows

import learners.device_mirror
import learners.feed
from buffers.circular import Circular
from buffers.packing import FeatureLayout, PackedStateCodec
from buffers.reservoir import Reservoir
from buffers.rows import Column, regression_schema, take
from learners.device_mirror import DeviceMirror
from learners.feed import UniformFeed
from learners.inputs import state_inputs
from learners.ranks import ALONE
from learners.streaming import Resident, Streamed, column_bytes, free_bytes

KINDS = ["rows", "merged minibatches"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of few minibatches, so that every test crosses from one to the next."""
    monkeypatch.setattr(learners.feed, "_STREAMED_AT_ONCE", 200)
    monkeypatch.setattr(learners.feed, "_AT_ONCE", 300)


def feed(ranks, kind, layout, resident_bytes):
    codec, rows = state_rows()
    shards, numbers = own_shards(rows, layout, ranks)
    inputs = state_inputs(codec, CPU)
    return UniformFeed(shards, inputs, BATCHES[kind], 2.0, CPU, ranks, numbers, resident_bytes)


def minibatches(feed, count=40):
    generator = torch.Generator().manual_seed(6)
    return [feed.draw(generator) for _ in range(count)]


def check_same(first, second):
    """The same bits in every minibatch."""
    for one, other in zip(first, second, strict=True):
        for name, value in vars(one).items():
            found = getattr(other, name)
            assert found.dtype == value.dtype
            assert torch.equal(found, value)


@pytest.mark.parametrize("layout", ["one shard", "all shards"])
@pytest.mark.parametrize("kind", KINDS)
def test_streamed_minibatches_are_the_plain_ones(kind, layout):
    plain, streamed = (feed(ALONE, kind, layout, limit) for limit in (None, 0))
    assert isinstance(plain._minibatches.source, Resident)
    assert isinstance(streamed._minibatches.source, Streamed)
    check_same(minibatches(plain), minibatches(streamed))


@pytest.mark.parametrize("layout", ["one shard", "own shards", "overlapping"])
@pytest.mark.parametrize("kind", KINDS)
def test_ranks_may_stream(kind, layout):
    """Both, or one of them alone: then they draw different numbers of minibatches at once."""
    plain, *streamed = (
        in_threads(2, lambda ranks, limits=limits: minibatches(feed(ranks, kind, layout, limits[ranks.rank])))
        for limits in ((None, None), (0, 0), (0, None))
    )
    for found in streamed:
        for first, second in zip(plain, found, strict=True):
            check_same(first, second)


def test_packed_keys_may_stream():
    rng = np.random.default_rng(1)
    features = rng.integers(2, size=(ROWS, 20)).astype(np.float32)
    codec = PackedStateCodec(FeatureLayout.learn(features), ACTIONS)
    rows = state_rows()[1] | {"key": codec.encode(features, np.ones((ROWS, ACTIONS), np.bool_))}
    inputs = state_inputs(codec, CPU)
    made = [UniformFeed([(rows, ROWS)], inputs, 50, 1.0, CPU, resident_bytes=limit) for limit in (None, 0)]
    check_same(*(minibatches(one) for one in made))


def test_a_row_aside_is_rejected(monkeypatch):
    """Named mutant: a block's rows are those behind the ones drawn."""
    send = Streamed._send
    monkeypatch.setattr(Streamed, "_send", lambda self, index, counts: send(self, (index + 1) % ROWS, counts))
    with pytest.raises(AssertionError):
        check_same(*(minibatches(feed(ALONE, "rows", "all shards", limit)) for limit in (None, 0)))


def test_another_generator_starts_anew():
    """Also in the middle of a block: nothing is left over of what was drawn ahead."""
    plain, streamed = (feed(ALONE, "rows", "one shard", limit) for limit in (None, 0))
    for count in (3, 40, 11):
        check_same(minibatches(plain, count), minibatches(streamed, count))


def test_rows_stay_where_they_are():
    """Rows that do not fit the device must not be held twice on the host either."""
    _, rows = state_rows()
    shards, _ = own_shards(rows, "all shards", ALONE)
    source = Streamed([rows for rows, _ in shards], CPU)
    for (own, _), held in zip(shards, source._shards, strict=True):
        assert {name: tensor.data_ptr() for name, tensor in held.items() if len(tensor)} == {
            name: own[name].ctypes.data for name in held if len(own[name])
        }


def test_the_limit_counts_what_a_fit_reads():
    codec, rows = state_rows()
    needed = column_bytes([rows])
    assert needed == ROWS * (4 + 4 * ACTIONS + 4)  # the priority stays behind
    for limit, kind in ((needed, Resident), (needed - 1, Streamed)):
        made = UniformFeed([(rows, ROWS)], state_inputs(codec, CPU), 29, 1.0, CPU, resident_bytes=limit)
        assert type(made._minibatches.source) is kind
    assert free_bytes(CPU, 10) is None


def test_the_next_block_is_gathered_meanwhile(monkeypatch):
    """By another thread, and no further ahead than one block: memory is bounded."""
    threads, send = [], Streamed._send

    def noting(self, index, counts):
        threads.append(threading.get_ident())
        return send(self, index, counts)

    monkeypatch.setattr(Streamed, "_send", noting)
    one, generator = feed(ALONE, "rows", "one shard", 0), torch.Generator()
    per_block = 200 // BATCHES["rows"]
    for number in range(3 * per_block):
        one.draw(generator)
        assert len(threads) <= number // per_block + 2
    assert len(threads) >= 3
    assert threading.get_ident() not in threads


def test_errors_of_the_thread_are_raised(monkeypatch):
    def failing(self, index, counts):
        raise MemoryError("no pinned memory")

    monkeypatch.setattr(Streamed, "_send", failing)
    with pytest.raises(MemoryError, match="no pinned memory"):
        feed(ALONE, "rows", "one shard", 0).draw(torch.Generator())


@pytest.mark.parametrize("limit", [None, 0])
def test_a_feed_that_is_dropped_leaves_nothing(limit):
    """Its rows may be most of a device's memory: they must not wait for the garbage collector, nor its thread."""
    one, before = feed(ALONE, "rows", "one shard", limit), threading.active_count()
    one.draw(torch.Generator())
    assert (threading.active_count() > before) == (limit == 0)
    source = weakref.ref(one._minibatches.source)
    gc.disable()
    try:
        del one
        assert source() is None
    finally:
        gc.enable()
    assert threading.active_count() == before


# --- mirrors -----------------------------------------------------------------------------------------------

SCHEMA = regression_schema(Column("key", np.int32), ACTIONS)
CAPACITY = 150


def random_rows(rng, count):
    return {
        "key": rng.integers(100, size=count).astype(np.int32),
        "target": rng.standard_normal((count, ACTIONS)).astype(np.float32),
        "weight": rng.uniform(1, 9, count).astype(np.float32),
        "priority": rng.integers(2**32, size=count, dtype=np.uint32),
    }


def check_mirrors(mirror, buffer):
    assert (mirror.size, mirror.seen, mirror.version) == (buffer.size, buffer.seen, buffer.version)
    view = mirror.view()
    assert set(view) == {"key", "target", "weight"}
    for name, tensor in view.items():
        np.testing.assert_array_equal(tensor, buffer.view()[name])


def follow(kind, mirror, check=check_mirrors, sizes=(0, 7, 40, 30, 1, 200, 0, 90, 500)):
    buffer, rng = kind(SCHEMA, CAPACITY), np.random.default_rng(2)
    for count in sizes:
        buffer.add(random_rows(rng, count))
        delta = buffer.delta(mirror.version)
        for column in delta.rows.values():
            column.flags.writeable = False  # as shared memory is
        mirror.apply(delta)
        check(mirror, buffer)
    return buffer


@pytest.mark.parametrize("at_once", [11, 1 << 18])
@pytest.mark.parametrize("kind", [Reservoir, Circular])
def test_a_device_mirror_equals_its_buffer(kind, at_once, monkeypatch):
    monkeypatch.setattr(learners.device_mirror, "_AT_ONCE", at_once)
    mirror = DeviceMirror(CAPACITY, CPU)
    follow(kind, mirror)
    assert mirror.bytes == CAPACITY * (4 + 4 * ACTIONS + 4)


def test_memory_grows_by_doubling():
    sizes = []
    follow(Circular, DeviceMirror(CAPACITY, CPU), lambda m, _: sizes.append(m.bytes // 20), (10, 1, 8, 1, 30, 60, 60))
    assert sizes == [10, 20, 20, 20, 50, 110, 150]


@pytest.mark.parametrize("mutant", ["appended", "first delta only"])
def test_faulty_mirrors_are_rejected(mutant):
    """Named mutants: changed rows are put behind the others; later deltas are taken for known."""

    class Faulty(DeviceMirror):
        def apply(self, delta):
            if mutant == "appended" and self.size:
                delta = delta._replace(index=np.arange(len(delta.index)) + max(0, delta.seen - len(delta.index)) % 50)
            elif mutant == "first delta only" and self.size:
                delta = delta._replace(index=delta.index[:0], rows=take(delta.rows, slice(0, 0)))
            super().apply(delta)

    with pytest.raises(AssertionError):
        follow(Reservoir, Faulty(CAPACITY, CPU))


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_feeds_of_mirrors_give_the_buffers_minibatches(kind, shards):
    codec, _ = state_rows()
    inputs, rng = state_inputs(codec, CPU), np.random.default_rng(5)
    buffers = [Reservoir(SCHEMA, 80 + n) for n in range(shards)]
    mirrors = [DeviceMirror(buffer.capacity, CPU) for buffer in buffers]
    for count in (30, 100, 400):
        for buffer, mirror in zip(buffers, mirrors, strict=True):
            rows = random_rows(rng, count)
            buffer.add(rows | {"key": (rows["key"] % rank_cases.STATES + rank_cases.OFFSET).astype(np.int32)})
            mirror.apply(buffer.delta(mirror.version))
    made = [
        UniformFeed([(one.view(), one.seen) for one in rows], inputs, BATCHES[kind], 2.0, CPU, resident_bytes=limit)
        for rows, limit in ((buffers, None), (mirrors, 0))
    ]
    check_same(*(minibatches(one) for one in made))


def test_a_mirror_is_used_where_it_lies():
    mirror = DeviceMirror(CAPACITY, CPU)
    follow(Reservoir, mirror)
    source = Resident([mirror.view()], CPU)
    assert source.target.data_ptr() == mirror.view()["target"].data_ptr()
