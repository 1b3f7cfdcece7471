"""Object storage that fails or is left in the middle of a commit, and how few requests a commit takes."""

import numpy as np
import pytest

from dream.store import CheckpointError, MetricsLog, NetworkStoreError, RunFolder, StorageError, objects
from dream.store.places import at

READS = ("cat_file", "find", "info", "ls", "_strip_protocol")


class Killed(BaseException):
    """The end of the process: nothing behind it is done any more."""


class Watched:
    """A filesystem that counts what changes it; the call of that number, and all later ones, raise `error`."""

    def __init__(self, filesystem, error=None, last=0):
        self.filesystem = filesystem
        self.error = error
        self.last = last
        self.puts = []
        self.changes = 0

    def __getattr__(self, name):
        real = getattr(self.filesystem, name)
        if name == "_strip_protocol":
            return real

        def call(path, *values, **options):
            if name == "pipe_file":
                self.puts.append((path.rsplit("/", 1)[-1], len(values[0])))
            self.changes += name not in READS
            if self.error is not None and self.changes > self.last:
                raise self.error
            return real(path, *values, **options)

        return call


def parts(iteration):
    return {name: {"x": np.full(2000, iteration), "t": iteration} for name in ("a", "b", "c")}


def commit(run, t):
    for kind in ("advantage_0", "advantage_1"):
        run.networks.put_segment(kind, t, [{"w": np.full(500, t, np.float32)}])
    run.metrics.append({"iteration": t, "states": t, "seconds": 0.0})
    run.metrics.sync()
    run.checkpoints.commit(t, parts(t), {"t": t})
    run.checkpoints.prune(2)


def watch(run, **how):
    watched = Watched(run.path._objects.filesystem, **how)
    run.path._objects.filesystem = watched
    return watched


def three_commits(url):
    run = RunFolder.create(url, "")
    for t in (1, 2, 3):
        commit(run, t)
    return run


@pytest.fixture
def run(in_memory):
    return three_commits(in_memory)


def reopened(run):
    """As another process has it: with a connection of its own."""
    return RunFolder.open(str(run.path))


def check(run):
    """The newest commit is whole, and networks and metrics reach at least as far; returns its iteration."""
    found = reopened(run).checkpoints.load_newest()
    assert found.damaged == []
    for snapshot in found.parts.values():
        assert (snapshot["x"] == found.iteration).all()
    for kind in ("advantage_0", "advantage_1"):
        stacked = run.networks.stack(kind, 1, found.iteration)["w"]
        np.testing.assert_array_equal(stacked[:, 0], np.arange(1, found.iteration + 1))
    recorded = [record["iteration"] for record in MetricsLog(run.metrics.path).read()]
    assert recorded[: found.iteration] == list(range(1, found.iteration + 1))
    return found.iteration


def killed_before(run, change):
    """Whether a commit of iteration 4 was killed before its change of that number."""
    again = reopened(run)
    watch(again, error=Killed(), last=change)
    try:
        commit(again, 4)
    except Killed:
        return True
    return False


def test_a_kill_before_any_change_of_a_commit_leaves_one_that_loads(in_memory):
    """All moments, not a sample: each put, and what pruning removes."""
    reached = []
    for moment in range(100):
        run = three_commits(f"{in_memory}/{moment}")
        if not killed_before(run, moment):
            break
        newest = check(run)
        reached.append(newest)
        resumed = reopened(run)
        for kind in resumed.networks.kinds():
            resumed.networks.truncate_after(kind, newest)
        resumed.metrics.truncate_after(newest)
        for t in range(newest + 1, 6):
            commit(resumed, t)
        assert check(run) == 5
        assert resumed.checkpoints.verify() == []
        assert at(resumed.checkpoints.path).names() == ["00000004", "00000005"]
    assert reached == sorted(reached)
    assert (reached.count(3), reached.count(4)) == (8, 2), (
        "2 networks, metrics, clearing, 3 parts, manifest; 2 removals"
    )


def test_a_commit_that_trusts_an_incomplete_one_is_noticed(run, monkeypatch):
    """Named mutant: a store that writes the manifest before the parts must fail the check above."""
    from dream.store import checkpoint

    real, held = checkpoint.write_frame, []

    def manifest_first(path, snapshot, in_place=False):
        if path.name != "manifest.frame":
            held.append((path, snapshot))
            return checkpoint.Seal(*_seal_of(snapshot))
        seal = real(path, snapshot)
        for part in held:
            real(*part)
        return seal

    monkeypatch.setattr(checkpoint, "write_frame", manifest_first)
    again = reopened(run)
    watch(again, error=Killed(), last=5)
    with pytest.raises(Killed):
        commit(again, 4)
    with pytest.raises(AssertionError):
        check(run)


def _seal_of(snapshot):
    from buffers.frames import encode

    chunks = encode(snapshot)
    return sum(map(len, chunks)), bytes(chunks[-1]).hex()


@pytest.mark.parametrize("last", range(3, 8))
def test_a_put_that_fails_in_a_commit_is_an_error_and_the_last_commit_stays(run, last):
    again = reopened(run)
    real = again.path._objects.filesystem
    watch(again, error=OSError(5, "connection reset"), last=last)
    with pytest.raises(CheckpointError, match=r"cannot write a commit to memory://.*connection reset.*are intact"):
        commit(again, 4)
    assert check(run) == 3
    again.path._objects.filesystem = real
    again.checkpoints.commit(4, parts(4))
    assert check(again) == 4


class Silent(Watched):
    """Objects whose URL ends in `error` cannot be asked for."""

    def __getattr__(self, name):
        real = getattr(self.filesystem, name)

        def call(path, *values, **options):
            if name in ("cat_file", "info") and path.endswith(self.error):
                raise TimeoutError("no answer")
            return real(path, *values, **options)

        return call


@pytest.mark.parametrize("name", ["00000003/manifest.frame", "00000003/b.frame"])
def test_a_commit_that_cannot_be_asked_for_is_not_taken_for_a_damaged_one(run, name):
    """A resume from the one before would cut back what is sound."""
    again = reopened(run)
    again.path._objects.filesystem = Silent(run.path._objects.filesystem, error=name)
    with pytest.raises(StorageError, match=f"memory://.*{name}: no answer"):
        again.checkpoints.load_newest()
    again.path._objects.filesystem = Silent(run.path._objects.filesystem, error="00000002-00000002.frame")
    with pytest.raises(StorageError, match="no answer"):
        again.networks.stack("advantage_0", 1, 3)


def test_a_put_of_networks_that_fails_is_named(run):
    again = reopened(run)
    watch(again, error=PermissionError(13, "Access Denied"))
    with pytest.raises(NetworkStoreError, match=r"cannot write memory://.*advantage_0.*no permission"):
        commit(again, 4)


def test_a_commit_takes_one_put_for_each_file_and_no_more(run):
    watched = watch(run)
    commit(run, 4)
    names = [name for name, _ in watched.puts]
    assert sorted(names[:2]) == ["00000004-00000004.frame"] * 2
    assert names[2] == "metrics.jsonl"
    assert sorted(names[3:6]) == ["a.frame", "b.frame", "c.frame"]
    assert names[6:] == ["manifest.frame"]


def test_metrics_are_put_at_commits_and_about_twice_a_minute(run, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(objects.time, "monotonic", lambda: now[0])
    log = MetricsLog(run.metrics.path)
    watched = watch(run)
    log = MetricsLog(run.path / "metrics.jsonl")
    for t in range(4, 104):
        log.append({"iteration": t, "states": t, "seconds": 0.0})
        now[0] += 1.0
    assert len(watched.puts) == 3
    log.sync()
    log.sync()
    log.close()
    assert len(watched.puts) == 4
    assert len(MetricsLog(log.path).read()) == 103


def test_event_files_that_have_not_grown_are_not_put_again(run):
    watched = watch(run)
    run.board_folder.joinpath("iterations").mkdir()
    file = run.board_folder / "iterations" / "events.1"
    for content, puts in (("a", 1), ("a", 1), ("ab", 2)):
        file.write_text(content)
        run.events.publish()
        assert len(watched.puts) == puts
    run.events.close()
    assert not file.exists()
    assert len(watched.puts) == 2


def test_a_large_object_is_put_in_parts_and_read_in_pieces(bucket, monkeypatch):
    """Whole afterwards, and absent while only parts of it are there."""
    run = RunFolder.create(f"{bucket}/run", "")
    monkeypatch.setattr(objects, "_LARGE_BYTES", 1 << 20)
    monkeypatch.setattr(objects, "_PIECE_BYTES", (6 << 20) + 1)
    filesystem = run.path._objects.filesystem

    class InParts(Watched):
        def __getattr__(self, name):
            real = getattr(filesystem, name)
            if name != "pipe_file":
                return real
            return lambda path, content, **_: real(path, content, chunksize=5 << 20)

    run.path._objects.filesystem = InParts(filesystem)
    x = np.random.default_rng(1).integers(0, 255, 16 << 20, np.uint8)
    run.checkpoints.commit(1, {"large": {"x": x}})
    found = run.checkpoints.load_newest()
    np.testing.assert_array_equal(found.parts["large"]["x"], x)
    about = filesystem.info(filesystem._strip_protocol(str(found.path / "large.frame")))
    assert about["ETag"].strip('"').endswith("-4"), "it was sent in parts"
