import numpy as np
import pytest

from buffers.circular import Circular
from buffers.reservoir import Reservoir
from buffers.rows import Column, RowSchema, concatenate, regression_schema, row_bytes, take

SCHEMA = regression_schema(Column("state", np.int32), 3)


def make_rows(n, rng, priorities=2**32):
    rows = SCHEMA.allocate(n)
    rows["key"][:] = rng.integers(0, 1000, n)
    rows["target"][:] = rng.normal(size=(n, 3))
    rows["weight"][:] = rng.random(n)
    rows["priority"][:] = rng.integers(0, priorities, n, dtype=np.uint64).astype(np.uint32)
    return rows


def in_pieces(rows, rng):
    n = len(rows["key"])
    cuts = np.sort(rng.integers(0, n + 1, 20))
    return [take(rows, slice(a, b)) for a, b in zip([0, *cuts], [*cuts, n], strict=True)]


def as_set(rows):
    return sorted(row_bytes(rows).tolist())


@pytest.mark.parametrize("priorities", [2**32, 50, 1])  # 50 and 1: ties at the threshold
@pytest.mark.parametrize("slack", [1, 7, 1000])
def test_keeps_the_smallest_whatever_the_order(rng, priorities, slack):
    rows = make_rows(700, rng, priorities)
    order = row_bytes({"first": rows["priority"].astype(">u4"), **rows})
    expected = as_set(take(rows, np.argsort(order)[:100]))
    for _ in range(3):
        reservoir = Reservoir(SCHEMA, 100, slack)
        for piece in in_pieces(take(rows, rng.permutation(700)), rng):
            reservoir.add(piece)
        assert as_set(reservoir.view()) == expected
        assert (reservoir.size, reservoir.seen) == (100, 700)


def test_keeps_everything_in_order_until_full(rng):
    reservoir = Reservoir(SCHEMA, 100, 10)
    rows = make_rows(100, rng)
    for piece in in_pieces(rows, rng):
        reservoir.add(piece)
    for name, column in reservoir.view().items():
        np.testing.assert_array_equal(column, rows[name])


@pytest.mark.parametrize("kind", [lambda: Reservoir(SCHEMA, 64, 16), lambda: Circular(SCHEMA, 64)])
def test_a_mirror_fed_by_deltas_equals_the_view(rng, kind):
    buffer, mirror, version = kind(), SCHEMA.allocate(64), 0
    for n in [0, 10, 40, 14, 1, 0, 200, 3, 64, 500]:
        buffer.add(make_rows(n, rng))
        delta = buffer.delta(version)
        assert np.all(np.diff(delta.index) > 0)
        for name, column in mirror.items():
            column[delta.index] = delta.rows[name]
            np.testing.assert_array_equal(column[: buffer.size], buffer.view()[name])
        version = delta.version
        assert len(buffer.delta(version).index) == 0
    assert len(buffer.delta(0).index) == len(buffer.delta(version + 1).index) == 64


def test_late_deltas_are_small(rng):
    reservoir = Reservoir(SCHEMA, 1000)
    reservoir.add(make_rows(100_000, rng))
    version = reservoir.delta(0).version
    reservoir.add(make_rows(1000, rng))
    assert 0 < len(reservoir.delta(version).index) < 40  # 10 expected


@pytest.mark.parametrize("kind", [lambda: Reservoir(SCHEMA, 64, 16), lambda: Circular(SCHEMA, 64)])
def test_goes_on_from_a_snapshot_as_if_never_stopped(rng, kind):
    pieces = [make_rows(n, rng) for n in (50, 25, 70, 3, 90, 11)]
    undisturbed, stopped = kind(), kind()
    for i, piece in enumerate(pieces):
        undisturbed.add(piece)
        stopped.add(piece)
        if i % 2 == 0:  # unsettled slack included
            snapshot = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in stopped.snapshot().items()}
            stopped = kind()
            stopped.restore(snapshot)
    assert (stopped.seen, stopped.version) == (undisturbed.seen, undisturbed.version)
    for name, column in undisturbed.view().items():
        np.testing.assert_array_equal(stopped.view()[name], column)
    ours, theirs = (b.sample(30, np.random.default_rng(1)) for b in (stopped, undisturbed))
    assert row_bytes(ours).tolist() == row_bytes(theirs).tolist()


@pytest.mark.parametrize("kind", [Reservoir, Circular])
def test_memory_grows_with_the_rows_to_the_predicted_bytes(rng, kind):
    buffer = kind(SCHEMA, 2_000_000)
    assert buffer.bytes == 0
    buffer.add(make_rows(1000, rng))
    assert buffer.bytes < 100_000
    small = kind(SCHEMA, 5000)
    for _ in range(20):
        small.add(make_rows(2000, rng))
        assert small.bytes <= kind.predicted_bytes(SCHEMA, 5000)
    assert small.bytes == kind.predicted_bytes(SCHEMA, 5000)


def test_circular_keeps_the_newest(rng):
    rows = make_rows(1000, rng)
    circular = Circular(SCHEMA, 64)
    for piece in in_pieces(rows, rng):
        circular.add(piece)
    assert circular.seen == 1000
    assert as_set(circular.view()) == as_set(take(rows, slice(936, 1000)))
    assert circular.view()["key"][999 % 64] == rows["key"][999]


@pytest.mark.parametrize("kind", [Reservoir, Circular])
def test_refusals(rng, kind):
    buffer = kind(SCHEMA, 10)
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1, rng)
    with pytest.raises(ValueError, match="capacity is 0"):
        kind(SCHEMA, 0)
    with pytest.raises(ValueError, match="capacity 10; this one has 11"):
        kind(SCHEMA, 11).restore(buffer.snapshot())
    with pytest.raises(ValueError, match="dtype float64"):
        buffer.add({**make_rows(3, rng), "weight": np.zeros(3)})


def test_a_reservoir_needs_priorities():
    with pytest.raises(ValueError, match="priority"):
        Reservoir(RowSchema([Column("key", np.int32)]), 10)
    with pytest.raises(ValueError, match="slack is 0"):
        Reservoir(SCHEMA, 10, 0)


def test_added_rows_are_copied(rng):
    for buffer in (Reservoir(SCHEMA, 10), Circular(SCHEMA, 10)):
        rows = make_rows(5, rng)
        kept = concatenate([take(rows, np.arange(5))])
        buffer.add(rows)
        rows["key"][:] = -1
        np.testing.assert_array_equal(buffer.view()["key"], kept["key"])
