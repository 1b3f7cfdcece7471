"""The few functions through which the store touches files.

A file appears whole or not at all: `write_atomic` writes a temporary beside it, makes it durable, and renames
it. A killed writer leaves at most a temporary, whose name starts with a dot and ends in `.partial`; readers
never look at such names and the next writer of the folder removes them.
"""

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

PARTIAL_SUFFIX = ".partial"

Chunk = bytes | memoryview


def write_atomic(path: Path, chunks: Iterable[Chunk]) -> int:
    """Replaces the file at `path` by the concatenated `chunks`, or leaves it untouched; returns its bytes.

    Order: temporary in the same folder, fsync of it, rename over `path`, fsync of the folder. The folder must
    exist. Raises the OSError of the failing call (no space, no permission) after removing the temporary.
    """
    temporary = path.with_name(f".{path.name}{PARTIAL_SUFFIX}")
    try:
        written = write_durable(temporary, chunks)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)
    return written


def write_durable(path: Path, chunks: Iterable[Chunk]) -> int:
    """Writes a file in place and waits until its bytes (not yet its name) are on the disk; returns them."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    written = 0
    try:
        for chunk in chunks:
            rest = memoryview(chunk).cast("B")
            while rest.nbytes:  # a single write takes at most 2 GiB
                count = os.write(descriptor, rest)
                written += count
                rest = rest[count:]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return written


def sync_folder(folder: Path) -> None:
    """Makes the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Makes `folder` and what leads to it, durably; one that exists is fine."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync_folder(made.parent)


def names(folder: Path) -> list[str]:
    """Sorted names in `folder` without leftovers of killed writers; empty where there is no such folder."""
    try:
        return sorted(name for name in os.listdir(folder) if not is_leftover(name))  # noqa: PTH208
    except FileNotFoundError:
        return []


def is_leftover(name: str) -> bool:
    """Whether `name` is the temporary of a writer."""
    return name.startswith(".") and name.endswith(PARTIAL_SUFFIX)


def remove_leftovers(folder: Path) -> None:
    """Removes what killed writers left in `folder`; only its single writer may call this."""
    if folder.is_dir():
        for entry in list(folder.iterdir()):
            if is_leftover(entry.name):
                entry.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Removes one file, durably; one that is not there is fine."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def free_bytes(folder: Path) -> int:
    """Bytes that can still be written where `folder` lies."""
    return shutil.disk_usage(folder).free
