"""One suite over all places where a run can lie: a local disk, objects in this process, objects of an S3 server."""

import numpy as np
import pytest

from dream.store import (
    CheckpointError,
    CheckpointStore,
    MetricsError,
    MetricsLog,
    NetworkStore,
    NetworkStoreError,
    RunFolder,
    RunFolderError,
)
from dream.store.places import at, locate
from dream.store.visibility import token_in, unseen


@pytest.fixture(params=["local", "memory", "s3"])
def url(request, tmp_path):
    """Where a run may be made."""
    if request.param == "local":
        return str(tmp_path / "runs" / "one")
    return request.getfixturevalue("in_memory" if request.param == "memory" else "bucket") + "/runs/one"


@pytest.fixture
def place(url):
    path = locate(url)
    at(path).make()
    return path


def parts(iteration):
    rng = np.random.default_rng(iteration)
    return {
        "buffer": {"target": rng.normal(size=(50, 3)).astype(np.float32), "seen": iteration * 7},
        "learner": {"adam": rng.normal(size=20), "empty": np.zeros((0, 3)), "settings": {"names": ["a", "b"]}},
    }


def same(left, right):
    assert left.keys() == right.keys()
    for name, snapshot in right.items():
        for key, value in snapshot.items():
            np.testing.assert_array_equal(left[name][key], value)


def damage(path, how):
    content = at(path).read()
    if how == "missing":
        at(path).remove()
    else:
        changed = {"truncated": content[:-20], "empty": b"", "flipped": content[:90] + b"?" + content[91:]}
        at(path).write([changed[how]])


def test_a_file_is_what_was_written(place):
    file = at(place / "file")
    assert file.size() is None
    assert not file.is_file()
    with pytest.raises(FileNotFoundError):
        file.read()
    assert file.write([b"ab", memoryview(b"cde")]) == 5
    assert (file.read(), file.size(), file.is_file(), file.is_folder()) == (b"abcde", 5, True, False)
    assert b"".join(file.pieces(4)) == b"abcd"
    file.write([])
    assert (file.read(), file.size(), list(file.pieces(0))) == (b"", 0, [])
    file.remove()
    file.remove()
    assert file.size() is None


def test_a_folder_lists_what_lies_in_it(place):
    assert at(place / "nothing").names() == []
    assert not at(place / "nothing").is_folder()
    for folder, name in (("b", "x"), ("b", "y"), ("a", "x")):
        at(place / folder).make()
        at(place / folder / name).write([b"123"])
    at(place / "c").write([b"1"])
    assert at(place).names() == ["a", "b", "c"]
    assert at(place).sizes() == {"a": 3, "b": 6, "c": 1}
    assert at(place / "b").is_folder()
    assert not at(place / "b").is_file()
    at(place / "b").discard()
    at(place / "b").discard()
    assert at(place).names() == ["a", "c"]


def test_commits_come_back_and_the_newest_wins(place):
    store = CheckpointStore(place)
    assert not store.any()
    with pytest.raises(CheckpointError, match="there is none"):
        store.load_newest()
    for iteration in (10, 20, 30):
        store.commit(iteration, parts(iteration), {"states": iteration})
    store.commit(20, parts(21))
    assert store.any()
    assert store.iterations() == [10, 20, 30]
    commit = store.load_newest()
    assert (commit.iteration, commit.damaged, commit.unfinished) == (20, [], [])
    same(dict(commit.parts), parts(21))
    assert store.load_newest(before=20).iteration == 10
    assert store.verify() == []
    store.prune(2)
    assert at(place).names() == ["00000020-2", "00000030"]
    store.commit(20, parts(22))
    assert at(place).names() == ["00000020", "00000030"]


@pytest.mark.parametrize("how", ["missing", "truncated", "empty", "flipped"])
@pytest.mark.parametrize("name", ["buffer.frame", "manifest.frame"])
def test_damage_is_named_with_its_place_and_the_commit_before_is_used(place, name, how):
    store = CheckpointStore(place)
    store.commit(1, parts(1))
    folder = store.commit(2, parts(2))
    damage(folder / name, how)
    commit = store.load_newest()
    assert commit.iteration == 1
    same(dict(commit.parts), parts(1))
    said = commit.unfinished if (name, how) == ("manifest.frame", "missing") else commit.damaged
    assert len(said) == 1
    assert str(folder) in said[0]
    assert name in said[0]


def test_what_killed_commits_leave_does_not_count_and_is_cleared(place):
    store = CheckpointStore(place)
    store.commit(1, parts(1))
    at(place / "00000002").make()
    at(place / "00000002" / "buffer.frame").write([b"half"])
    commit = store.load_newest()
    assert commit.iteration == 1
    assert str(place / "00000002") in commit.unfinished[0]
    store.commit(2, {"learner": parts(2)["learner"]})
    assert at(place / "00000002").names() == ["learner.frame", "manifest.frame"]


def entry(iteration):
    return {"weight": np.full((3, 2), iteration, np.float32)}


def test_networks_are_stored_read_across_segments_and_cut_back(place):
    store = NetworkStore(place)
    assert (store.newest("advantage_0"), store.kinds()) == (None, [])
    for first, last in ((1, 4), (5, 5), (6, 10)):
        store.put_segment("advantage_0", first, [entry(t) for t in range(first, last + 1)])
    np.testing.assert_array_equal(store.stack("advantage_0", 2, 9)["weight"][:, 0, 0], np.arange(2, 10))
    with pytest.raises(NetworkStoreError, match="does not hold iteration 11"):
        store.stack("advantage_0", 9, 11)
    with pytest.raises(NetworkStoreError, match="begins at 11"):
        store.put_segment("advantage_0", 12, [entry(12)])
    assert (store.kinds(), store.segments("advantage_0"), store.verify()) == (["advantage_0"], 3, [])
    store.truncate_after("advantage_0", 3)
    assert at(place / "advantage_0").names() == ["00000001-00000003.frame"]
    store.put_segment("advantage_0", 4, [entry(40)])
    np.testing.assert_array_equal(store.stack("advantage_0", 1, 4)["weight"][:, 0, 0], [1, 2, 3, 40])


def test_a_damaged_or_lost_segment_is_named_with_its_place(place):
    store = NetworkStore(place)
    for t in (1, 2, 3):
        store.put_segment("net", t, [entry(t)])
    broken = place / "net" / "00000002-00000002.frame"
    damage(broken, "truncated")
    with pytest.raises(NetworkStoreError, match="restore it") as caught:
        store.stack("net", 1, 3)
    assert str(broken) in str(caught.value)
    at(broken).remove()
    assert store.gaps("net", 3) == [(2, 2)]


def record(iteration):
    return {"iteration": iteration, "states": 10 * iteration, "seconds": 0.5}


def test_metrics_are_appended_read_and_cut_back(place):
    path = place / "metrics.jsonl"
    with MetricsLog(path) as log:
        assert log.read() == []
        assert log.truncate_after(3) == []
        for t in range(1, 5):
            log.append(record(t))
        log.sync()
        assert MetricsLog(path).read() == [record(t) for t in range(1, 5)]
        log.append(record(5))
        assert log.read()[-1] == record(5)
    assert log.truncate_after(2) == [record(1), record(2)]
    at(path).write([at(path).read(), b'{"iteration": 3, "sta'])
    assert log.read() == [record(1), record(2)], "a last line without its newline does not count"
    with log:
        log.append(record(3))
    assert MetricsLog(path).read() == [record(1), record(2), record(3)]
    at(path).write([b"[]\n"])
    with pytest.raises(MetricsError, match=r"metrics\.jsonl line 1"):
        log.read()


def test_a_run_is_created_opened_and_not_made_twice(url):
    with pytest.raises(RunFolderError, match="no such folder"):
        RunFolder.open(url)
    run = RunFolder.create(url, "seed: 1\n")
    assert (RunFolder.open(url).config_text, run.name, str(run.path)) == ("seed: 1\n", "one", url)
    with pytest.raises(RunFolderError, match="already holds a run") as caught:
        RunFolder.create(url, "seed: 2\n")
    assert f"dream resume {url}" in str(caught.value)
    with pytest.raises(RunFolderError, match="is a file"):
        RunFolder.create(f"{url}/config.yaml", "")
    run.write_config("seed: 3\n")
    assert RunFolder.open(url).config_text == "seed: 3\n"
    assert RunFolder.open(url).sizes()["config.yaml"] == 8
    at(run.path / "config.yaml").remove()
    at(run.path / "thesis.tex").write([b"x"])
    with pytest.raises(RunFolderError, match=r"config\.yaml is missing"):
        RunFolder.open(url)
    with pytest.raises(RunFolderError, match=r"not empty .*thesis\.tex"):
        RunFolder.create(url, "")


def test_one_holds_a_run_and_the_next_is_refused(url):
    run = RunFolder.create(url, "")
    with run.lock():
        with pytest.raises(RunFolderError, match="is being trained by process"), RunFolder.open(url).lock():
            pass
        run.write_config("held")
    with RunFolder.open(url).lock():
        pass


def test_event_files_reach_the_run(url):
    run = RunFolder.create(url, "")
    for text in ("one", "one, two"):
        (run.board_folder / "iterations").mkdir(parents=True, exist_ok=True)
        (run.board_folder / "iterations" / "events.1").write_text(text)
        run.events.publish()
        assert at(run.path / "tensorboard" / "iterations" / "events.1").read() == text.encode()
    assert RunFolder.open(url).events.names() == ["events.1"]
    run.events.close()
    assert RunFolder.open(url).events.names() == ["events.1"]


def test_a_token_is_seen_where_the_run_is_and_nowhere_else(url, tmp_path):
    run = RunFolder.create(url, "")
    with token_in(run) as token:
        assert unseen(url, token) is None
        assert "does not see" in unseen(url, "another")
        assert "storage that all nodes share" in unseen(str(tmp_path), token)
    assert "does not see" in unseen(url, token)
    assert [name for name in at(run.path).names() if name != "lock"] == ["config.yaml"]
