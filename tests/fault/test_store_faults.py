"""Faults on disk: damaged files, a full disk, and SIGKILL at random points while commits are written."""

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dream.store import CheckpointError, CheckpointStore, NetworkStore, RunFolder

FILES = ["buffer.frame", "learner.frame", "manifest.frame"]


def parts(iteration):
    return {
        "buffer": {"target": np.full((40, 3), iteration, np.float32), "seen": iteration},
        "learner": {"adam": np.arange(100.0) * iteration, "note": "x" * 50},
    }


@pytest.fixture
def store(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints")
    for iteration in (1, 2):
        store.commit(iteration, parts(iteration))
    return store


def content(store):
    return {path: path.read_bytes() for path in sorted(store.path.rglob("*")) if path.is_file()}


def check_falls_back(store, path):
    before = content(store)
    commit = store.load_newest()
    assert commit.iteration == 1
    np.testing.assert_array_equal(commit.parts["buffer"]["target"], parts(1)["buffer"]["target"])
    assert len(commit.damaged) == 1
    assert str(path) in commit.damaged[0]
    assert "restore it" in commit.damaged[0]
    assert store.verify() == commit.damaged
    assert content(store) == before, "nothing is deleted or changed"


@pytest.mark.parametrize("name", FILES)
def test_every_bit_flip_is_noticed(store, name):
    path = store.path / "00000002" / name
    whole = path.read_bytes()
    rng = random.Random(name)
    positions = [0, 9, 12, 20, len(whole) - 1, *rng.sample(range(len(whole)), 40)]
    for position in positions:
        damaged = bytearray(whole)
        damaged[position] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        check_falls_back(store, path)
    path.write_bytes(whole)
    assert store.load_newest().iteration == 2


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("keep", [0, 1, 23, 100, -16, -1])
def test_every_truncation_is_noticed(store, name, keep):
    path = store.path / "00000002" / name
    path.write_bytes(path.read_bytes()[:keep])
    check_falls_back(store, path)


@pytest.mark.parametrize("name", FILES)
def test_foreign_files_are_noticed(store, name):
    path = store.path / "00000002" / name
    other = "learner.frame" if name == "manifest.frame" else "manifest.frame"
    for foreign in (
        b"PK\x03\x04 a zip archive",
        (path.parent / other).read_bytes(),  # a sound frame of another kind
        (store.path / "00000001" / name).read_bytes(),  # the same kind and size from another commit
    ):
        path.write_bytes(foreign)
        check_falls_back(store, path)


@pytest.mark.parametrize("name", ["buffer.frame", "learner.frame"])
def test_a_missing_part_is_noticed(store, name):
    path = store.path / "00000002" / name
    path.unlink()
    check_falls_back(store, path)


def test_a_file_that_is_a_folder_is_noticed(store):
    path = store.path / "00000002" / "buffer.frame"
    path.unlink()
    path.mkdir()
    commit = store.load_newest()
    assert commit.iteration == 1
    assert str(path) in commit.damaged[0]


def test_when_none_is_usable_all_problems_are_listed(store):
    for iteration in (1, 2):
        (store.path / f"0000000{iteration}" / "learner.frame").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"00000002/learner\.frame.*00000001/learner\.frame"):
        store.load_newest()


def test_the_checks_do_find_an_unchecked_loader(store, monkeypatch):
    """Named mutant: a loader that trusts file sizes must fail the bit-flip check above."""
    from dream.store import checkpoint

    monkeypatch.setattr(
        checkpoint,
        "damage",
        lambda path, seal: None if path.stat().st_size == seal.bytes else "has another size",
    )
    with pytest.raises(AssertionError):
        test_every_bit_flip_is_noticed(store, "buffer.frame")


def full_after(monkeypatch, allowed):
    """Every byte behind the first `allowed` meets a full disk."""
    real = os.write
    left = allowed

    def write(descriptor, data):
        nonlocal left
        if left <= 0:
            raise OSError(28, "No space left on device")
        count = real(descriptor, bytes(data)[:left])
        left -= count
        return count

    monkeypatch.setattr(os, "write", write)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.5, 0.6, 0.9, 0.999])
def test_a_full_disk_leaves_the_last_commit(store, monkeypatch, share):
    before = content(store)
    commit_bytes = sum(path.stat().st_size for path in before if path.parent.name == "00000002")
    full_after(monkeypatch, int(share * commit_bytes))
    with pytest.raises(CheckpointError, match=r"00000003: No space .* [\d,]+ bytes are needed, [\d,]+ are free"):
        store.commit(3, parts(3))
    monkeypatch.undo()
    assert content(store) == before
    assert sorted(os.listdir(store.path)) == ["00000001", "00000002"]
    assert store.load_newest().iteration == 2
    store.commit(3, parts(3))
    assert store.load_newest().iteration == 3


def test_a_full_disk_while_replacing_leaves_the_old_commit(store, monkeypatch):
    full_after(monkeypatch, 900)
    with pytest.raises(CheckpointError):
        store.commit(2, parts(7))
    monkeypatch.undo()
    np.testing.assert_array_equal(store.load_newest().parts["buffer"]["target"], parts(2)["buffer"]["target"])


LIMITED = """
import resource, sys
import numpy as np
from pathlib import Path
from dream.store import CheckpointError, CheckpointStore
store = CheckpointStore(Path(sys.argv[1]))
store.commit(1, {"buffer": {"x": np.zeros(100)}})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    store.commit(2, {"small": {"x": np.zeros(100)}, "buffer": {"x": np.zeros(100_000)}})
except CheckpointError as error:
    sys.exit(str(error))
"""


def test_a_write_refused_by_the_system_leaves_the_last_commit(tmp_path):
    done = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "00000002: File too large" in done.stderr
    assert "800,800 bytes are needed" in done.stderr
    assert os.listdir(tmp_path) == ["00000001"]
    assert CheckpointStore(tmp_path).load_newest().iteration == 1


COMMIT_LOOP = """
import sys
import numpy as np
from dream.store import RunFolder

run = RunFolder.open(sys.argv[1])
with run.lock():
    start = run.checkpoints.load_newest(before=run.networks.newest("net") + 1).iteration
    run.networks.truncate_after("net", start)
    kept = run.metrics.truncate_after(start)
    assert [record["iteration"] for record in kept] == list(range(1, start + 1)), (start, kept)
    print("ready", flush=True)
    for t in range(start + 1, 100_000):
        run.networks.put_segment("net", t, [{"w": np.full(500, t, np.float32)}])
        run.metrics.append({"iteration": t, "states": t, "seconds": 0.0})
        if t % 3 == 0:
            run.metrics.sync()
            parts = {name: {"x": np.full(20_000, t), "t": t} for name in ("a", "b", "c")}
            run.checkpoints.commit(t, parts, {"t": t})
            run.checkpoints.prune(2)
"""


def kill_at_random(run, rng):
    loop = subprocess.Popen([sys.executable, "-c", COMMIT_LOOP, str(run.path)], stdout=subprocess.PIPE)
    try:
        assert loop.stdout.readline() == b"ready\n"
        time.sleep(rng.uniform(0.0, 0.15))
        assert loop.poll() is None, "the loop ended by itself"
    finally:
        loop.kill()
        loop.wait()
        loop.stdout.close()


def check_consistent(run):
    """The newest commit loads, and networks and metrics reach at least as far."""
    commit = run.checkpoints.load_newest()
    assert commit.damaged == []
    assert commit.iteration % 3 == 0
    for snapshot in commit.parts.values():
        assert snapshot["t"] == commit.iteration
        assert (snapshot["x"] == commit.iteration).all()
    networks = run.networks.stack("net", 1, commit.iteration)["w"]
    np.testing.assert_array_equal(networks[:, 0], np.arange(1, commit.iteration + 1))
    assert run.networks.verify() == []
    recorded = [record["iteration"] for record in run.metrics.read()]
    assert recorded[: commit.iteration] == list(range(1, commit.iteration + 1))
    return commit.iteration


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_sigkill_at_random_points_always_leaves_a_commit(tmp_path, seed):
    rng = random.Random(seed)
    run = RunFolder.create(tmp_path / "run", "")
    with run.lock():
        run.networks.put_segment("net", 1, [{"w": np.full(500, t, np.float32)} for t in (1, 2, 3)])
        for t in (1, 2, 3):
            run.metrics.append({"iteration": t, "states": t, "seconds": 0.0})
        run.metrics.close()
        run.checkpoints.commit(3, {name: {"x": np.full(20_000, 3), "t": 3} for name in ("a", "b", "c")})
    reached = 3
    for _ in range(4):
        kill_at_random(run, rng)
        newest = check_consistent(RunFolder.open(run.path))
        assert newest >= reached, "a commit that was there is never lost"
        reached = newest


def states_of(folder, commit):
    """Yields a copy of `folder` as it is at each file-system call that `commit` makes."""
    audit = []
    active = True

    def hook(event, args):
        if active and event in ("open", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "os.mkdir"):
            name = str(args[0])
            if name.startswith(str(folder)):
                copy = Path(f"{folder}-at-{len(audit)}")
                audit.append(copy)
                hook_off()
                shutil.copytree(folder, copy)
                hook_on()

    def hook_off():
        nonlocal active
        active = False

    def hook_on():
        nonlocal active
        active = True

    sys.addaudithook(hook)
    try:
        commit()
    finally:
        hook_off()
    return audit


def test_every_state_in_the_middle_of_a_commit_loads(tmp_path):
    """Enumerates, rather than samples, the moments of a kill: before each call that touches a file."""
    store = CheckpointStore(tmp_path / "checkpoints")
    store.commit(1, parts(1))
    store.commit(2, parts(2))

    def replace_and_prune():
        store.commit(2, parts(5))
        store.prune(1)

    states = states_of(store.path, replace_and_prune)
    assert len(states) > 20
    seen = set()
    for state in states:
        commit = CheckpointStore(state).load_newest()
        value = int(commit.parts["buffer"]["target"][0, 0])
        assert commit.damaged == []
        assert value in (2, 5)
        np.testing.assert_array_equal(commit.parts["learner"]["adam"], parts(value)["learner"]["adam"])
        seen.add(value)
    assert seen == {2, 5}


def test_networks_ahead_of_a_damaged_commit_can_be_cut_back(tmp_path):
    networks = NetworkStore(tmp_path)
    networks.put_segment("net", 1, [{"w": np.full(2, t)} for t in range(1, 10)])
    networks.truncate_after("net", 4)
    networks.put_segment("net", 5, [{"w": np.full(2, 50)}])
    np.testing.assert_array_equal(networks.stack("net", 1, 5)["w"][:, 0], [1, 2, 3, 4, 50])
