import numpy as np
import pytest

from buffers.frames import decode, encode
from buffers.merged import Merged, unique_transitions
from buffers.rows import Column, transition_schema


def make_rows(n, rng):
    return {
        "key": rng.integers(100, 110, n).astype(np.int32),
        "target": rng.normal(size=(n, 3)).astype(np.float32),
        "weight": rng.exponential(size=n).astype(np.float32),
        "priority": rng.integers(0, 2**32, n).astype(np.uint32),
    }


def gradient(prediction, key, target, weight):
    """Of sum weight * ||prediction[key] - target||^2 in the table `prediction`."""
    result = np.zeros_like(prediction)
    np.add.at(result, key, 2 * weight[:, None] * (prediction[key] - target))
    return result


def test_gradient_over_merged_rows_is_that_over_the_rows(rng):
    merged = Merged(12, 3, offset=100)  # keys 110 and 111 have no row
    rows = make_rows(500, rng)
    merged.add({name: column[:200] for name, column in rows.items()})
    merged.add({name: column[200:] for name, column in rows.items()})
    prediction = rng.normal(size=(12, 3))
    targets, weights = merged.means()
    expected = gradient(prediction, rows["key"] - 100, rows["target"].astype(float), rows["weight"].astype(float))
    np.testing.assert_allclose(gradient(prediction, np.arange(12), targets, weights), expected, rtol=1e-10)
    assert (merged.size, merged.seen, merged.capacity) == (10, 500, 12)
    assert not targets[10:].any()
    assert merged.bytes == Merged.predicted_bytes(12, 3)


def test_merged_goes_on_from_a_snapshot(rng):
    first, second = make_rows(50, rng), make_rows(50, rng)
    undisturbed, resumed = Merged(10, 3, 100), Merged(10, 3, 100)
    undisturbed.add(first)
    resumed.restore(decode(b"".join(encode(undisturbed.snapshot()))))
    for merged in (undisturbed, resumed):
        merged.add(second)
    assert resumed.version == undisturbed.version == 2
    assert [a.tobytes() for a in resumed.means()] == [a.tobytes() for a in undisturbed.means()]
    with pytest.raises(ValueError, match="offset 100"):
        Merged(10, 3, 0).restore(undisturbed.snapshot())


def test_keys_out_of_range_are_refused_before_anything_changes(rng):
    merged = Merged(9, 3, offset=100)
    with pytest.raises(ValueError, match="must lie in 100 to 108"):
        merged.add(make_rows(200, rng))
    assert merged.seen == 0
    with pytest.raises(ValueError, match="target has shape"):
        merged.add({**make_rows(2, rng), "key": np.array([100, 101]), "target": np.zeros((2, 4), np.float32)})
    with pytest.raises(ValueError, match="num_keys is 0"):
        Merged(0, 3)


def plain_merge(rows):
    """The textbook version: a dictionary."""
    merged = {}
    for history, action, reward, following, terminal in zip(*rows.values(), strict=True):
        key = (history.tobytes(), int(action), following.tobytes(), bool(terminal))
        merged.setdefault(key, []).append(float(reward))
    return {key: (pytest.approx(np.mean(rewards)), len(rewards)) for key, rewards in merged.items()}


@pytest.mark.parametrize("key", [Column("h", np.int32), Column("h", np.uint8, (2,))])
@pytest.mark.parametrize("span", [3, 2**31 - 1])  # the second does not fit one integer
def test_unique_transitions(rng, key, span):
    rows = transition_schema(key).allocate(300)
    for name in ("history", "next_history"):
        rows[name][:] = rng.choice([0, 1, min(span, np.iinfo(key.dtype).max)], size=rows[name].shape)
    rows["action"][:] = rng.integers(0, 2, 300) * (span % 30_000)
    rows["terminal"][:] = rng.random(300) < 0.5
    rows["reward"][:] = rng.normal(size=300)
    unique = unique_transitions(rows)
    columns = unique.history, unique.action, unique.next_history, unique.terminal, unique.reward, unique.count
    found = {(h.tobytes(), int(a), f.tobytes(), bool(t)): (r, c) for h, a, f, t, r, c in zip(*columns, strict=True)}
    assert len(found) == len(unique.count) < 300
    assert found == plain_merge(rows)
    assert unique.action.dtype == np.int16


def test_no_transitions_merge_to_none():
    unique = unique_transitions(transition_schema(Column("h", np.int32)).allocate(0))
    assert len(unique.history) == len(unique.reward) == len(unique.count) == 0
