"""Every iteration's networks: segments, stacks across them, cutting back, damage."""

import numpy as np
import pytest

from dream.store import NetworkStore, NetworkStoreError


def entry(iteration, dtype=np.float32):
    return {"0.weight": np.full((3, 2), iteration, dtype), "0.bias": np.arange(3, dtype=dtype) * iteration}


@pytest.fixture
def store(tmp_path):
    store = NetworkStore(tmp_path / "iterations")
    for first, last in ((1, 4), (5, 5), (6, 10)):
        store.put_segment("advantage_0", first, [entry(t) for t in range(first, last + 1)])
    return store


def files(store):
    return sorted(path.name for path in (store.path / "advantage_0").iterdir())


@pytest.mark.parametrize("iteration", range(1, 11))
def test_get_returns_each_iteration(store, iteration):
    got = store.get("advantage_0", iteration)
    assert list(got) == list(entry(iteration))
    for name, expected in entry(iteration).items():
        assert got[name].dtype == expected.dtype
        np.testing.assert_array_equal(got[name], expected)


@pytest.mark.parametrize(("first", "last"), [(1, 10), (2, 9), (4, 6), (5, 5), (7, 8)])
def test_stack_crosses_segments(store, first, last):
    got = store.stack("advantage_0", first, last)
    assert got["0.weight"].shape == (last - first + 1, 3, 2)
    np.testing.assert_array_equal(got["0.weight"][:, 0, 0], np.arange(first, last + 1))


@pytest.mark.parametrize(("first", "last"), [(0, 3), (9, 11), (11, 11), (5, 4)])
def test_iterations_that_are_not_there_are_refused(store, first, last):
    with pytest.raises(NetworkStoreError, match="does not hold iteration"):
        store.stack("advantage_0", first, last)


def test_newest_and_kinds(store):
    assert store.newest("advantage_0") == 10
    assert store.newest("baseline") is None
    store.put_segment("baseline", 1, [entry(1)])
    assert store.kinds() == ["advantage_0", "baseline"]


@pytest.mark.parametrize("first", [1, 10, 12])
def test_a_segment_must_follow_the_newest(store, first):
    with pytest.raises(NetworkStoreError, match="begins at 11"):
        store.put_segment("advantage_0", first, [entry(first)])
    assert store.newest("advantage_0") == 10


def test_entries_must_agree(store):
    with pytest.raises(NetworkStoreError, match="entry 1"):
        store.put_segment("advantage_0", 11, [entry(11), entry(12, np.float64)])
    with pytest.raises(NetworkStoreError, match="at least one"):
        store.put_segment("advantage_0", 11, [])
    with pytest.raises(NetworkStoreError, match="kind"):
        store.put_segment("../x", 1, [entry(1)])


@pytest.mark.parametrize("iteration", range(12))
def test_truncation_at_every_iteration(store, iteration):
    store.truncate_after("advantage_0", iteration)
    kept = min(iteration, 10)
    assert store.newest("advantage_0") == (kept or None)
    store.put_segment("advantage_0", kept + 1, [entry(-1)])
    if kept:
        np.testing.assert_array_equal(store.stack("advantage_0", 1, kept)["0.weight"][:, 0, 0], np.arange(1, kept + 1))
    np.testing.assert_array_equal(store.get("advantage_0", kept + 1)["0.weight"], entry(-1)["0.weight"])


@pytest.mark.parametrize("survived", range(1, 4))
def test_a_truncation_killed_between_its_steps_is_completed_by_the_next(store, survived, monkeypatch):
    class Killed(BaseException):
        pass

    from dream.store import atomic

    calls = 0
    real = atomic.remove

    def remove(path):
        nonlocal calls
        calls += 1
        if calls == survived:
            raise Killed
        real(path)

    monkeypatch.setattr(atomic, "remove", remove)
    with pytest.raises(Killed):
        store.truncate_after("advantage_0", 2)
    monkeypatch.undo()
    newest = store.newest("advantage_0")
    assert newest is not None
    assert newest >= 2
    np.testing.assert_array_equal(store.stack("advantage_0", 1, newest)["0.weight"][:, 0, 0], np.arange(1, newest + 1))
    assert store.verify() == []
    store.truncate_after("advantage_0", 2)
    assert files(store) == ["00000001-00000002.frame"]


def test_leftovers_are_ignored_and_cleaned(store):
    leftover = store.path / "advantage_0" / ".00000011-00000020.frame.partial"
    leftover.write_bytes(b"half")
    assert store.newest("advantage_0") == 10
    store.put_segment("advantage_0", 11, [entry(11)])
    assert not leftover.exists()


@pytest.mark.parametrize("how", ["flip", "cut", "foreign", "renamed"])
def test_damage_is_named(store, how):
    path = store.path / "advantage_0" / "00000005-00000005.frame"
    content = path.read_bytes()
    if how == "flip":
        path.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
    elif how == "cut":
        path.write_bytes(content[:-1])
    elif how == "foreign":
        path.write_bytes(b"hello")
    else:
        path.write_bytes((path.parent / "00000001-00000004.frame").read_bytes())
    with pytest.raises(NetworkStoreError, match=r"00000005-00000005\.frame.*restore"):
        store.stack("advantage_0", 1, 10)
    assert len(store.verify()) == 1
    assert store.get("advantage_0", 6)["0.bias"][1] == 6


def test_a_lost_segment_is_a_gap(store):
    (store.path / "advantage_0" / "00000005-00000005.frame").unlink()
    with pytest.raises(NetworkStoreError, match="does not hold iteration 5"):
        store.stack("advantage_0", 4, 6)
    assert "5 to 5" in store.verify()[0]
