import numpy as np
import pytest

from buffers.chunks import ChunkId, plan
from buffers.rows import Column, RowSchema, concatenate, regression_schema, take, transition_schema


def test_leduc_advantage_row_is_small():
    schema = regression_schema(Column("state", np.int32), 3)
    assert schema.bytes_per_row == 4 + 12 + 4 + 4
    assert schema.names == ("key", "target", "weight", "priority")


def test_packed_keys_count_in_full():
    schema = transition_schema(Column("history", np.uint8, (30,)))
    assert schema.bytes_per_row == 30 + 2 + 4 + 30 + 1
    rows = schema.allocate(5)
    assert schema.check(rows) == 5
    assert sum(column.nbytes for column in rows.values()) == 5 * schema.bytes_per_row


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": None}, "columns"),
        ({"extra": np.zeros(4)}, "extra"),
        ({"weight": np.zeros(4)}, "'weight' has dtype float64; it must be float32"),
        ({"weight": np.zeros(3, np.float32)}, r"'weight' has shape \(3,\); it must be \(4,\)"),
        ({"target": np.zeros((4, 2), np.float32)}, r"'target' has shape \(4, 2\); it must be \(4, 3\)"),
    ],
)
def test_check_names_what_is_wrong(change, message):
    schema = regression_schema(Column("state", np.int32), 3)
    rows = {name: column for name, column in {**schema.allocate(4), **change}.items() if column is not None}
    with pytest.raises(ValueError, match=message):
        schema.check(rows)


def test_object_columns_and_double_names_are_refused():
    with pytest.raises(TypeError, match="object"):
        Column("key", object)
    with pytest.raises(ValueError, match="different names"):
        RowSchema([Column("a", "i4"), Column("a", "f4")])


def test_columns_compare_by_value():
    assert Column("a", "i4") == Column("a", np.int32) != Column("a", "i4", (1,))
    assert len({Column("a", "i4"), Column("a", np.int32)}) == 1


def test_take_and_concatenate():
    rows = {"a": np.arange(6), "b": np.arange(12).reshape(6, 2)}
    parts = [take(rows, slice(0, 2)), take(rows, np.array([2])), take(rows, np.arange(6) > 2)]
    for name, column in concatenate(parts).items():
        np.testing.assert_array_equal(column, rows[name])


def test_plan_covers_every_traversal_once():
    chunks = plan(3, 1, 10, 4)
    assert [chunk.id for chunk in chunks] == [ChunkId(3, 1, i) for i in range(3)]
    assert [t for chunk in chunks for t in range(chunk.first, chunk.first + chunk.count)] == list(range(10))
    with pytest.raises(ValueError, match="chunk is 0"):
        plan(1, 0, 10, 0)
