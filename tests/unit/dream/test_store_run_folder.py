"""The run folder: what it refuses, its lock, and files that appear whole or not at all."""

import os
import subprocess
import sys

import pytest

from dream.store import RunFolder, RunFolderError, atomic


def test_a_created_run_opens_with_its_config(tmp_path):
    RunFolder.create(tmp_path / "a" / "run", "seed: 1\n")
    assert RunFolder.open(tmp_path / "a" / "run").config_text == "seed: 1\n"


def test_create_refuses_a_run_and_says_how_to_resume(tmp_path):
    RunFolder.create(tmp_path, "seed: 1\n")
    with pytest.raises(RunFolderError, match=f"dream resume {tmp_path}.*--run-dir"):
        RunFolder.create(tmp_path, "seed: 2\n")
    assert RunFolder.open(tmp_path).config_text == "seed: 1\n"


def test_create_refuses_foreign_content_by_name(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RunFolderError, match=r"thesis\.tex.*--run-dir"):
        RunFolder.create(tmp_path, "")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_create_refuses_a_file(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFolderError, match="is a file"):
        RunFolder.create(tmp_path / "file", "")
    with pytest.raises(RunFolderError, match="cannot make the folder"):
        RunFolder.create(tmp_path / "file" / "run", "")


def test_remains_of_a_killed_create_do_not_block_the_next(tmp_path):
    (tmp_path / ".config.yaml.partial").write_text("see")
    (tmp_path / "lock").write_text("1\n")
    RunFolder.create(tmp_path, "seed: 1\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "lock"]


@pytest.mark.parametrize("missing", ["folder", "config"])
def test_open_names_what_is_missing(tmp_path, missing):
    path = tmp_path / "run"
    if missing == "config":
        path.mkdir()
    with pytest.raises(RunFolderError, match="no such folder" if missing == "folder" else "config.yaml is missing"):
        RunFolder.open(path)


HOLD = """
import sys
from dream.store import RunFolder
with RunFolder.open(sys.argv[1]).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_with_the_pid_of_the_first(tmp_path):
    run = RunFolder.create(tmp_path, "seed: 1\n")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        try:
            assert holder.stdout.readline() == b"held\n"
            with pytest.raises(RunFolderError, match=f"process {holder.pid}"), run.lock():
                pass
            assert RunFolder.open(tmp_path).config_text  # readers need no lock
        finally:
            holder.kill()
            holder.wait()
    with run.lock():  # the death of its holder frees the lock
        pass


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_lock_does_not_live_on_in_a_forked_child(tmp_path):
    run = RunFolder.create(tmp_path, "seed: 1\n")
    ready_read, ready_write = os.pipe()
    end_read, end_write = os.pipe()
    with run.lock():
        child = os.fork()
        if child == 0:
            os.close(end_write)
            os.write(ready_write, b"1")
            os.read(end_read, 1)  # until the parent closes its end
            os._exit(0)
        os.read(ready_read, 1)
    try:
        with run.lock():
            pass
    finally:
        for descriptor in (end_write, end_read, ready_read, ready_write):
            os.close(descriptor)
        os.waitpid(child, 0)


def test_lock_removes_leftovers(tmp_path):
    run = RunFolder.create(tmp_path, "seed: 1\n")
    (tmp_path / ".metrics.jsonl.partial").write_text("half")
    with run.lock():
        assert not (tmp_path / ".metrics.jsonl.partial").exists()


def test_write_atomic_replaces_and_returns_the_size(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    assert atomic.write_atomic(path, [b"new", memoryview(b"er")]) == 5
    assert path.read_bytes() == b"newer"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_failing_write_leaves_the_old_file_and_no_temporary(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(descriptor, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        atomic.write_atomic(path, [b"new"])
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_short_write_is_continued(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, bytes(data)[:3]))
    atomic.write_atomic(tmp_path / "file", [b"0123456789"])
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_durability_calls_come_in_order(tmp_path, monkeypatch):
    """File content, then the name, then the folder: the other way round a power cut leaves an empty file."""
    calls = []
    real_fsync, real_rename = os.fsync, type(tmp_path).replace

    def fsync(descriptor):
        calls.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real_fsync(descriptor)

    def replace(self, target):
        calls.append("rename")
        return real_rename(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(type(tmp_path), "replace", replace)
    atomic.write_atomic(tmp_path / "file", [b"x"])
    assert calls == [str(tmp_path / ".file.partial"), "rename", str(tmp_path)]
