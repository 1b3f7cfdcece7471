"""Finished seeds on disk: one file per setting, one line per seed, so that none is ever run twice.

A setting's file is named by a digest of everything that decides its results: a changed setting is another file.
A line counts once its newline is on disk; a last line cut by a kill is dropped by readers and overwritten by the
next writer. Lines are durable (fsync) before the seed counts as finished.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dream.store import atomic
from dream.store.errors import StoreError

__all__ = ["SeedStore", "digest"]

Record = dict[str, Any]

_FORMAT = 1


def digest(identity: Mapping[str, Any]) -> str:
    """12 hexadecimal digits that name `identity` (plain JSON values), whatever the order of its keys."""
    text = json.dumps(identity, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class SeedStore:
    """The finished seeds of one setting, in `folder`. Readers need no lock; writing happens inside `writing()`.

    The file is found by the digest of `identity` alone; `label` names it where it is new.
    """

    def __init__(self, folder: Path, label: str, identity: Mapping[str, Any]) -> None:
        self.identity = dict(identity)
        slug = re.sub(r"[^A-Za-z0-9]+", "-", label).strip("-").lower()[:60]
        name = f"{digest(identity)}.jsonl"
        self.path = next(folder.glob(f"*-{name}"), folder / f"{slug}-{name}")
        self._descriptor: int | None = None

    def read(self) -> dict[int, Record]:
        """The result of every finished seed. Raises StoreError for a damaged line or another setting's file."""
        try:
            lines = self.path.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return {}
        if not lines:
            return {}
        records = [self._parse(number, line) for number, line in enumerate(lines, start=1)]
        self._check_header(records[0])
        return {int(record["seed"]): record["result"] for record in records[1:]}

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Holds the file for appending, until the block ends or the process dies.

        Cuts a line that a kill left unfinished. Raises StoreError where another process holds the file.
        """
        atomic.make_folder(self.path.parent)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            self._seize(descriptor)
            self._mend(descriptor)
            self._descriptor = descriptor
            yield
        finally:
            self._descriptor = None
            os.close(descriptor)

    def append(self, seed: int, result: Record) -> None:
        """Keeps the result of a finished seed, durably. Raises ValueError for NaN; OSError where it cannot."""
        if self._descriptor is None:
            raise RuntimeError("seeds are appended inside writing()")
        _append(self._descriptor, {"seed": seed, "result": result})

    def _seize(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(
                f"{self.path} is being written by another process that runs the same setting: wait until it ends"
            ) from None

    def _mend(self, descriptor: int) -> None:
        content = self.path.read_bytes()
        sound = content.rfind(b"\n") + 1
        if sound < len(content):
            os.ftruncate(descriptor, sound)
        if not sound:
            _append(descriptor, {"format": _FORMAT, "setting": self.identity})
            atomic.sync_folder(self.path.parent)

    def _parse(self, number: int, line: bytes) -> Record:
        try:
            record = json.loads(line)
            sound = isinstance(record, dict) and (
                "setting" in record if number == 1 else {"seed", "result"} <= record.keys()
            )
        except ValueError:
            sound = False
        if not sound:
            raise StoreError(f"{self.path}: line {number} is damaged; delete the line, or the file, and run again")
        return dict(record)

    def _check_header(self, header: Record) -> None:
        if header.get("format") != _FORMAT:
            raise StoreError(f"{self.path} has format {header.get('format')!r}; this version reads format {_FORMAT}")
        if header["setting"] != self.identity:
            raise StoreError(f"{self.path} holds the seeds of another setting: move it away and run again")


def _append(descriptor: int, record: Mapping[str, Any]) -> None:
    """One line, whole: a write that falls short (a full disk) is taken back."""
    line = (json.dumps(record, allow_nan=False) + "\n").encode()
    before = os.fstat(descriptor).st_size
    try:
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, before)
        raise
