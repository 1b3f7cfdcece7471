"""The lock of a run on object storage: who gets it, who is refused, and who must stop writing."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from dream.store import RunFolder, RunFolderError, lease
from dream.store.lease import Holder, Lease
from dream.store.places import at, locate


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    for name, seconds in {"BEAT_SECONDS": 0.02, "STALE_SECONDS": 0.3, "SETTLE_SECONDS": 0.01}.items():
        monkeypatch.setattr(lease, name, seconds)


class Object:
    """A lock object in this process; `conditional` False is storage that ignores conditions."""

    def __init__(self, conditional=True):
        self.content = None
        self.conditional = conditional
        self.puts = 0
        self.after_write = None

    def create(self, content):
        if self.conditional and self.content is not None:
            raise FileExistsError(17, "exists")
        self.content = content

    def write(self, chunks):
        self.content = b"".join(chunks)
        self.puts += 1
        if self.after_write:
            self.after_write()

    def read(self):
        if self.content is None:
            raise FileNotFoundError(2, "none")
        return self.content

    def remove(self):
        self.content = None


@pytest.fixture
def place():
    return Object()


@pytest.fixture
def said():
    return []


def elsewhere(**changes):
    """Somebody on another machine, heard of just now."""
    return replace(Holder.new(), **{"host": "node7", "machine": "another", "pid": 77} | changes)


def hold(place, said):
    return Lease(place, "s3://b/run", said.append)


def test_the_object_names_its_holder_beats_and_goes(place, said):
    with hold(place, said) as held:
        first = json.loads(place.content)
        assert (first["host"], first["pid"]) == (socket.gethostname(), os.getpid())
        limit = time.monotonic() + 20
        while json.loads(place.content)["beat"] < 3:
            assert time.monotonic() < limit
            time.sleep(0.01)
        assert json.loads(place.content)["token"] == first["token"]
        held.confirm()
    assert (place.content, said) == (None, [])


def test_a_process_of_this_machine_that_lives_is_not_waited_for(place, said):
    refused = pytest.raises(RunFolderError, match=f"trained by process {os.getpid()} on")
    with hold(place, said), refused, hold(place, said):
        pass
    assert said == []


def test_a_process_of_this_machine_that_died_is_followed_at_once(place, said, monkeypatch):
    monkeypatch.setattr(lease, "STALE_SECONDS", 1e9)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    place.content = replace(Holder.new(), pid=ended.pid).content
    with hold(place, said):
        assert Holder.parse(place.content).pid == os.getpid()
    assert len(said) == 1
    assert f"process {ended.pid}" in said[0]
    assert "taken over" in said[0]


def test_a_number_that_another_process_has_now_is_not_the_holder(place, said, monkeypatch):
    monkeypatch.setattr(lease, "STALE_SECONDS", 1e9)
    place.content = replace(Holder.new(), began="1").content
    with hold(place, said):
        assert Holder.parse(place.content).began != "1"


def test_a_heartbeat_elsewhere_means_refusal(place, said):
    other = elsewhere()
    place.content = other.content
    stop = threading.Event()

    def beat():
        beats = 0
        while not stop.wait(0.02):
            beats += 1
            place.content = replace(other, beat=beats).content

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with pytest.raises(RunFolderError, match="process 77 on node7: wait until it ends"), hold(place, said):
            pass
    finally:
        stop.set()
        thread.join()
    assert Holder.parse(place.content).token == other.token
    assert "waiting up to" in said[0]


def test_a_heartbeat_elsewhere_that_stands_still_is_followed(place, said):
    """By the watcher's clock: the other's may be wrong."""
    place.content = elsewhere(time=time.time() + 300).content
    began = time.monotonic()
    with hold(place, said):
        assert time.monotonic() - began >= lease.STALE_SECONDS
    assert ["waiting" in said[0], "taken over" in said[1], len(said)] == [True, True, 2]
    assert place.content is None


def test_a_heartbeat_of_yesterday_is_not_waited_for(place, said, monkeypatch):
    monkeypatch.setattr(lease, "STALE_SECONDS", 1e9)
    place.content = elsewhere(time=time.time() - 86_400).content
    with hold(place, said):
        pass
    assert len(said) == 1


def test_a_lock_that_is_let_go_while_waited_for_is_taken(place, said):
    place.content = elsewhere().content
    timer = threading.Timer(0.1, place.remove)
    timer.start()
    with hold(place, said):
        assert Holder.parse(place.content).pid == os.getpid()
    timer.join()
    assert "taken over" not in " ".join(said)


@pytest.mark.parametrize("content", [b"", b"half a", b"[]", b'{"host": "x"}'])
def test_a_lock_without_a_holder_is_taken_over(place, said, content):
    place.content = content
    with hold(place, said):
        pass
    assert "names no holder" in said[0]


def test_of_two_that_take_over_at_once_the_last_put_wins(place, said):
    place.content = elsewhere(time=0.0).content
    rival = elsewhere(host="node8")

    def overwrite():
        place.content = rival.content

    place.after_write = overwrite
    with pytest.raises(RunFolderError, match="node8"), hold(place, said):
        pass
    assert Holder.parse(place.content) == rival, "the loser removes nothing"


def test_where_conditions_are_ignored_the_first_notices_and_stops(said):
    place = Object(conditional=False)
    with hold(place, said) as first, hold(place, said):
        first._thread.join(20)  # its heartbeat finds another's name and ends
        with pytest.raises(RunFolderError, match="was taken over by process"):
            first.confirm()


def test_storage_that_fails_for_a_while_does_not_end_the_lease(place, said):
    with hold(place, said) as held:
        real, failures = place.read, []

        def read():
            failures.append(1)
            raise OSError(5, "reset")

        place.read = read
        limit = time.monotonic() + 20
        while len(failures) < 3:
            assert time.monotonic() < limit
            time.sleep(0.01)
        place.read = real
        time.sleep(lease.STALE_SECONDS)
        held.confirm()


@pytest.fixture
def suspended(in_memory, monkeypatch):
    """A run that is held, and a function that lets time pass without a heartbeat."""
    monkeypatch.setattr(lease, "BEAT_SECONDS", 1e9)
    run = RunFolder.create(in_memory, "before")
    skipped = [0.0]
    real = lease._now
    monkeypatch.setattr(lease, "_now", lambda: real() + skipped[0])

    def pass_time(seconds):
        skipped[0] += seconds

    with run.lock():
        yield run, pass_time


def test_a_holder_that_slept_and_was_followed_writes_and_removes_nothing(suspended):
    run, pass_time = suspended
    run.checkpoints.commit(1, {"part": {"x": 1}})
    pass_time(lease.STALE_SECONDS)
    at(locate(f"{run.path}/lock")).write([elsewhere().content])
    there = run.sizes()
    for write in (
        lambda: run.write_config("after"),
        lambda: run.checkpoints.commit(2, {"part": {"x": 1}}),
        lambda: run.networks.truncate_after("net", 0) or run.networks.put_segment("net", 1, [{}]),
    ):
        with pytest.raises(RunFolderError, match=r"lock .* was taken over by process 77 on node7: .*resume the run"):
            write()
    run.checkpoints.prune(1)
    assert run.sizes() == there


def test_a_holder_that_slept_and_was_not_followed_goes_on(suspended):
    run, pass_time = suspended
    for _ in range(3):
        pass_time(lease.STALE_SECONDS)
        run.write_config("after")
    assert run.config_text == "after"


@pytest.mark.parametrize("unknown", [TypeError("mode"), NotImplementedError(), ValueError("mode x")])
def test_storage_that_knows_no_exclusive_puts_has_a_lock_all_the_same(in_memory, unknown):
    run = RunFolder.create(in_memory, "")
    real = run.path._objects.filesystem

    class Plain:
        def __getattr__(self, name):
            return getattr(real, name)

        def pipe_file(self, path, content, **options):
            if options:
                raise unknown
            real.pipe_file(path, content)

    run.path._objects.filesystem = Plain()
    with run.lock(), pytest.raises(RunFolderError, match="is being trained by process"), run.lock():
        pass
    with run.lock():
        pass


def test_a_new_run_tells_of_a_lock_that_a_kill_left(in_memory, said):
    at(locate(f"{in_memory}/lock")).write([elsewhere().content])
    RunFolder.create(in_memory, "x", said.append)
    assert "taken over" in said[-1]


HOLD = """
import sys
from dream.store import RunFolder
with RunFolder.open(sys.argv[1]).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_killed_holder_on_s3_is_followed_and_a_living_one_is_not(bucket, said):
    run = RunFolder.create(f"{bucket}/run", "")
    command = [sys.executable, "-c", HOLD, str(run.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout.readline() == b"held\n"
            with pytest.raises(RunFolderError, match=f"process {holder.pid} on"), run.lock():
                pass
            assert RunFolder.open(run.path).config_text == "", "readers need no lock"
        finally:
            holder.kill()
            holder.wait()
    with run.lock(said.append):
        pass
    assert f"process {holder.pid}" in said[0]
    assert run.sizes() == {"config.yaml": 0, "total": 0}
