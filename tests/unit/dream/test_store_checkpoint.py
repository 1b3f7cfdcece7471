"""Commits: round trip, which one wins, replacement, pruning."""

import os

import numpy as np
import pytest

from dream.store import CheckpointError, CheckpointStore


def parts(iteration):
    rng = np.random.default_rng(iteration)
    return {
        "buffer_0": {"target": rng.normal(size=(50, 3)).astype(np.float32), "seen": iteration * 7},
        "learner": {"adam": rng.normal(size=20), "settings": {"reset_every": 1, "names": ["a", "b"]}},
        "counters": {"states": 10**12 + iteration, "note": None, "done": False},
    }


def same(left, right):
    assert left.keys() == right.keys()
    for name, snapshot in right.items():
        assert left[name].keys() == snapshot.keys()
        for key, value in snapshot.items():
            if isinstance(value, np.ndarray):
                np.testing.assert_array_equal(left[name][key], value, strict=True)
            else:
                assert left[name][key] == value


@pytest.fixture
def store(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints")
    for iteration in (10, 20, 30):
        store.commit(iteration, parts(iteration), {"states": iteration * 100})
    return store


def folders(store):
    return sorted(path.name for path in store.path.iterdir())


def test_newest_commit_comes_back_whole(store):
    commit = store.load_newest()
    assert (commit.iteration, commit.meta, commit.damaged, commit.unfinished) == (
        30,
        {"states": 3000},
        [],
        [],
    )
    same(dict(commit.parts), parts(30))
    with pytest.raises(KeyError):
        commit.parts["nobody"]
    assert store.verify() == []
    assert store.iterations() == [10, 20, 30]


def test_before_is_exclusive(store):
    assert store.load_newest(before=30).iteration == 20
    assert store.load_newest(before=31).iteration == 30
    with pytest.raises(CheckpointError, match="no usable commit"):
        store.load_newest(before=10)


def test_a_run_whose_commits_are_all_damaged_is_not_one_without_commits(store):
    for path in store.path.glob("*/manifest.frame"):
        path.write_bytes(b"")
    assert store.any()
    assert store.iterations() == []
    for path in store.path.glob("*/manifest.frame"):
        path.unlink()
    assert not store.any()


def test_no_commit_at_all(tmp_path):
    with pytest.raises(CheckpointError, match="there is none"):
        CheckpointStore(tmp_path / "nothing").load_newest()


def test_the_same_iteration_again_replaces_the_old_commit(store):
    path = store.commit(30, {"only": {"n": 1}})
    assert list(store.load_newest().parts) == ["only"]
    assert folders(store) == ["00000010", "00000020", path.name]
    store.commit(30, parts(30))
    same(dict(store.load_newest().parts), parts(30))
    assert len(folders(store)) == 3


def test_replacing_never_touches_the_old_commit_before_the_new_one_is_whole(store, monkeypatch):
    from dream.store import checkpoint

    real = checkpoint.write_frame
    seen = []

    def watched(path, snapshot, in_place=False):
        commit = CheckpointStore(store.path).load_newest()
        same(dict(commit.parts), parts(30))
        seen.append(commit.iteration)
        return real(path, snapshot, in_place)

    monkeypatch.setattr(checkpoint, "write_frame", watched)
    store.commit(30, parts(31))
    assert seen == [30] * 4
    same(dict(store.load_newest().parts), parts(31))


def test_all_parts_are_durable_before_the_manifest_gets_its_name(store, monkeypatch):
    """The bytes of each part and the names in the folder first: or a power cut leaves a manifest alone."""
    events = []
    real_fsync, real_replace = os.fsync, type(store.path).replace

    def fsync(descriptor):
        events.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        real_fsync(descriptor)

    def replace(self, target):
        events.append(f"-> {target.name}")
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(type(store.path), "replace", replace)
    store.commit(40, parts(40))
    manifest = events.index("-> manifest.frame")
    files = ["buffer_0.frame", "learner.frame", "counters.frame", "00000040", ".manifest.frame.partial"]
    assert events[manifest - 5 : manifest + 2] == [*files, "-> manifest.frame", "00000040"]


def test_a_repaired_commit_does_not_win_over_one_written_after_it(store):
    path = store.path / "00000030" / "manifest.frame"
    content = path.read_bytes()
    path.write_bytes(content[:-3])
    assert store.load_newest().iteration == 20
    store.commit(25, parts(25))
    path.write_bytes(content)
    assert store.load_newest().iteration == 25


def test_a_clock_set_back_does_not_reorder_commits(store, monkeypatch):
    from dream.store import checkpoint

    monkeypatch.setattr(checkpoint.time, "time_ns", lambda: 1)
    store.commit(40, parts(40))
    assert store.load_newest().iteration == 40


def test_a_folder_without_manifest_is_no_commit(store):
    (store.path / "00000030" / "manifest.frame").unlink()
    commit = store.load_newest()
    assert commit.iteration == 20
    assert "00000030" in commit.unfinished[0]
    store.commit(30, parts(30))
    same(dict(store.load_newest().parts), parts(30))


def test_prune_keeps_the_newest(store):
    store.prune(2)
    assert folders(store) == ["00000020", "00000030"]
    store.prune(1)
    assert folders(store) == ["00000030"]
    store.prune(1)
    assert folders(store) == ["00000030"]
    with pytest.raises(ValueError, match="at least 1"):
        store.prune(0)


def test_prune_does_not_count_a_commit_that_lacks_a_part(store):
    (store.path / "00000030" / "learner.frame").unlink()
    store.prune(1)
    assert folders(store) == ["00000020", "00000030"]
    assert store.load_newest().iteration == 20


def test_prune_removes_the_manifest_first(store, monkeypatch):

    monkeypatch.setattr("shutil.rmtree", lambda folder, **kwargs: None)
    store.prune(1)
    assert store.iterations() == [30]


@pytest.mark.parametrize("name", ["manifest", "../x", "", ".hidden", "a/b"])
def test_part_names_stay_inside_the_folder(store, name):
    with pytest.raises(CheckpointError, match="name a part"):
        store.commit(40, {name: {"n": 1}})
    assert len(folders(store)) == 3


def test_a_part_that_cannot_be_stored_leaves_nothing_behind(store):
    with pytest.raises(TypeError):
        store.commit(40, {"good": {"n": 1}, "bad": {"n": object()}})
    assert folders(store) == ["00000010", "00000020", "00000030"]
