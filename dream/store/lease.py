"""The lock of a run on object storage: an object that its holder keeps renewing.

The object names its holder (host, process, a random token) and counts its heartbeats. It is made by a put that is
refused where one exists. Who finds one asks whether its holder lives: a process of the same machine is looked up; of
another machine the heartbeat is watched, by the watcher's own clock. One that moves means refusal. One that has stood
still for STALE_SECONDS, or is older than any two clocks differ, is taken over: put, then, after a moment for others who
do the same, read back. The holder in turn makes sure before every write that its lease was confirmed not long ago, so
one that was suspended and taken over stops before it writes.

Limits: where the storage ignores conditional puts, or a put takes longer than the wait after a take-over, two
processes that start in the same moment may both believe to hold the run.
"""

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from dream.store.atomic import Chunk
from dream.store.errors import RunFolderError

BEAT_SECONDS = 10.0
"""Between two heartbeats."""
STALE_SECONDS = 60.0
"""A heartbeat that stands still for so long is a dead process's."""
SETTLE_SECONDS = 1.0
"""From the put of a take-over until its object is read back."""
_CLOCKS_DIFFER_SECONDS = 600.0


class LockObject(Protocol):
    """What a lease needs of its object (objects.ObjectPath)."""

    def create(self, content: bytes) -> None:
        """A put that is refused where the object exists."""

    def write(self, chunks: list[Chunk]) -> int:
        """A put."""

    def read(self) -> bytes:
        """Its content."""

    def remove(self) -> None:
        """Removes it."""


@dataclass(frozen=True)
class Holder:
    """Who holds a lease. `machine` tells machines (and containers) apart, `began` processes of one number."""

    host: str
    pid: int
    machine: str
    began: str
    token: str
    beat: int
    time: float

    @classmethod
    def new(cls) -> Self:
        """The present process, with a fresh token."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, _machine(), _began(pid), secrets.token_hex(8), 0, time.time())

    @classmethod
    def parse(cls, content: bytes) -> Self | None:
        """What a lock object says; None for one that says nothing."""
        try:
            holder = cls(**json.loads(content))
            return holder if isinstance(holder.time, int | float) and isinstance(holder.pid, int) else None
        except (ValueError, TypeError):
            return None

    @property
    def content(self) -> bytes:
        """As the lock object holds it."""
        return (json.dumps(asdict(self)) + "\n").encode()

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Lease:
    """Holds `place` while entered. Raises RunFolderError, on entry, where another process holds it."""

    def __init__(self, place: LockObject, folder: str, warn: Callable[[str], None]) -> None:
        self._place = place
        self._folder = folder
        self._warn = warn
        self._own = Holder.new()
        self._lost: str | None = None
        self._confirmed = _now()
        self._renewing = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)

    def __enter__(self) -> Self:
        self._acquire()
        self._confirmed = _now()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(OSError):  # what stays is found to be a dead process's
            found = self._read()
            if found is not None and found.token == self._own.token:
                self._place.remove()

    def confirm(self) -> None:
        """Before each write: raises RunFolderError where the lease was lost, OSError where that cannot be told."""
        if self._lost is None and _now() - self._confirmed > STALE_SECONDS / 2:
            self._renew()
        if self._lost is not None:
            raise RunFolderError(self._lost)

    def _acquire(self) -> None:
        for _ in range(5):
            try:
                self._place.create(self._own.content)
            except OSError as error:
                found = self._read()
                if found is None and not isinstance(error, FileExistsError):
                    raise
                if found is None:  # let go just now, or unreadable
                    self._remove_unreadable()
                    continue
                if found.token != self._own.token and not self._take_over(found):
                    continue
            found = self._read()
            if found is not None and found.token == self._own.token:
                return
            raise self._refusal(found)
        raise self._refusal(self._read())

    def _remove_unreadable(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            if Holder.parse(self._place.read()) is None:
                self._warn(f"{self._folder}: its lock names no holder and is taken over")
                self._place.remove()

    def _take_over(self, found: Holder) -> bool:
        """Whether the lock of a dead process is now ours; False where it was let go meanwhile. Raises if it lives."""
        if found.machine == self._own.machine:
            if _began(found.pid) == found.began:
                raise self._refusal(found)
        elif abs(time.time() - found.time) < _CLOCKS_DIFFER_SECONDS and not self._watch(found):
            return False
        self._warn(f"{self._folder}: {found} held this run and is gone; its lock is taken over")
        self._place.write([self._own.content])
        time.sleep(SETTLE_SECONDS)
        return True

    def _watch(self, found: Holder) -> bool:
        """Whether the heartbeat stands still; False where the lock was let go. Raises where it moves."""
        self._warn(f"{self._folder} is held by {found}: waiting up to {STALE_SECONDS:.0f} s for a sign of life")
        began = _now()
        while _now() - began < STALE_SECONDS:
            time.sleep(min(BEAT_SECONDS / 4, STALE_SECONDS / 4))
            now = self._read()
            if now is None:
                return False
            if now != found:
                raise self._refusal(now)
        return True

    def _refusal(self, found: Holder | None) -> RunFolderError:
        who = "another process" if found is None else str(found)
        return RunFolderError(f"{self._folder} is being trained by {who}: wait until it ends, or stop it first")

    def _read(self) -> Holder | None:
        try:
            return Holder.parse(self._place.read())
        except FileNotFoundError:
            return None

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS) and self._lost is None:
            with contextlib.suppress(OSError):  # tried again at the next beat, and by `confirm`
                self._renew()

    def _renew(self) -> None:
        with self._renewing:
            found = self._read()
            if found is None or found.token != self._own.token:
                taken = "was removed" if found is None else f"was taken over by {found}"
                self._lost = f"the lock of {self._folder} {taken}: this process has stopped writing; resume the run"
                return
            self._own = replace(self._own, beat=self._own.beat + 1, time=time.time())
            self._place.write([self._own.content])
            self._confirmed = _now()


def _now() -> float:
    """Seconds that go on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _machine() -> str:
    """The same for processes that see each other's numbers, and no others."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def _began(pid: int) -> str:
    """When a process of this machine began, in the system's ticks; empty where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        state, *fields = stat.rsplit(")", 1)[-1].split()
        return "" if state in "ZX" else fields[18]  # killed, but not yet waited for
    except OSError:
        pass
    if Path("/proc/self/stat").exists():
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "unknown"
