"""The seam between the store and what it lies on: a local disk, or the objects of a bucket.

The stores are written once, against `Place`: a file or folder of a run. `at(path)` gives the place of a local `Path`
(`LocalPlace`, over atomic.py) or of a URL (`ObjectPath`, objects.py). Both promise that a written file appears whole or
not at all, and that what was written before is there when something written later is.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from dream.config import nearest
from dream.errors import UnavailableError, UsageError
from dream.store import atomic
from dream.store.atomic import Chunk
from dream.store.flock import hold
from dream.store.objects import ObjectPath, Objects

__all__ = ["Appender", "LocalPlace", "Location", "ObjectPath", "Place", "Warn", "at", "locate"]

Location = Path | ObjectPath
"""A path on this machine, or a URL. Both have `/`, `name`, `parent` and a text."""

Warn = Callable[[str], None]

T = TypeVar("T")
R = TypeVar("R")

_PACKAGES = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}  # protocol: the extra of this distribution
_LOST_SLASH = re.compile(r"([a-z][a-z0-9+.-]*):/[^/]")


class Appender(Protocol):
    """A file that grows by whole lines; opened at its last complete one."""

    def append(self, line: bytes) -> None:
        """Adds a line. On a local disk it survives a kill of the process from here on."""

    def publish(self) -> None:
        """Shows readers all lines."""

    def sync(self) -> None:
        """Makes all lines durable."""

    def close(self) -> None:
        """Makes all lines durable and lets the file go."""


class Place(Protocol):
    """A file or folder. All methods raise OSError, with a `strerror`, where the system or the network refuses."""

    def write(self, chunks: Iterable[Chunk], in_place: bool = False) -> int:
        """Replaces the file by `chunks`, whole or not at all; returns its bytes. The folder is there.

        With `in_place` a kill may leave part of it, and only `settle` of the folder makes its name durable.
        """

    def read(self) -> bytes:
        """The file's content. Raises FileNotFoundError where there is none."""

    def pieces(self, size: int) -> Iterator[bytes]:
        """The file's first `size` bytes, in pieces that fit into memory."""

    def size(self) -> int | None:
        """Bytes of the file; None where there is none."""

    def is_file(self) -> bool:
        """Whether something is there that is no folder."""

    def is_folder(self) -> bool:
        """Whether a folder is there; on object storage, whether anything lies below."""

    def names(self) -> list[str]:
        """Sorted names in the folder, without leftovers of killed writers; empty where there is no such folder."""

    def sizes(self) -> dict[str, int]:
        """Bytes of each entry of the folder, with all below it."""

    def make(self) -> None:
        """Makes the folder and what leads to it, durably; one that exists is fine."""

    def settle(self) -> None:
        """Makes the names in the folder durable."""

    def remove(self) -> None:
        """Removes the file, durably; one that is not there is fine."""

    def discard(self) -> None:
        """Removes the folder and all below, as far as that goes."""

    def clean(self) -> None:
        """Removes what killed writers left in the folder; only its single writer may call this."""

    def free_bytes(self) -> int | None:
        """Bytes that can still be written; None where that is not known."""

    def appender(self) -> Appender:
        """Opens the file for appending; cuts off an incomplete last line."""

    def lock(self, name: str, warn: Warn) -> AbstractContextManager[None]:
        """Holds the folder for writing by the file `name` in it. Raises RunFolderError naming another holder."""

    def each(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """`function` of each item, several at once where that means waiting for a network; raises the first error."""


class LocalPlace:
    """A path on a disk of this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, chunks: Iterable[Chunk], in_place: bool = False) -> int:
        """See Place."""
        return (atomic.write_durable if in_place else atomic.write_atomic)(self.path, chunks)

    def read(self) -> bytes:
        """See Place."""
        return self.path.read_bytes()

    def pieces(self, size: int) -> Iterator[bytes]:
        """See Place."""
        with self.path.open("rb") as file:
            while size > 0 and (piece := file.read(min(size, _PIECE_BYTES))):
                size -= len(piece)
                yield piece

    def size(self) -> int | None:
        """See Place."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return None

    def is_file(self) -> bool:
        """See Place."""
        return self.path.exists() and not self.path.is_dir()

    def is_folder(self) -> bool:
        """See Place."""
        return self.path.is_dir()

    def names(self) -> list[str]:
        """See Place."""
        return atomic.names(self.path)

    def sizes(self) -> dict[str, int]:
        """See Place; leftovers count."""
        return {entry.name: _bytes_below(entry) for entry in sorted(self.path.iterdir())}

    def make(self) -> None:
        """See Place."""
        atomic.make_folder(self.path)

    def settle(self) -> None:
        """See Place."""
        atomic.sync_folder(self.path)

    def remove(self) -> None:
        """See Place."""
        atomic.remove(self.path)

    def discard(self) -> None:
        """See Place."""
        shutil.rmtree(self.path, ignore_errors=True)

    def clean(self) -> None:
        """See Place."""
        atomic.remove_leftovers(self.path)

    def free_bytes(self) -> int | None:
        """See Place; of the nearest folder that exists."""
        existing = next(parent for parent in (self.path, *self.path.parents) if parent.exists())
        return atomic.free_bytes(existing)

    def appender(self) -> Appender:
        """See Place."""
        return _LocalAppender(self.path)

    def lock(self, name: str, warn: Warn) -> AbstractContextManager[None]:
        """See Place."""
        return hold(self.path, name)

    def each(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """See Place; one after another."""
        return [function(item) for item in items]


_PIECE_BYTES = 1 << 22


class _LocalAppender:
    def __init__(self, path: Path) -> None:
        fresh = not path.exists()
        self._file: IO[bytes] = path.open("ab")
        if fresh:
            atomic.sync_folder(path.parent)
        else:
            os.truncate(self._file.fileno(), path.read_bytes().rfind(b"\n") + 1)

    def append(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()

    def publish(self) -> None:
        pass

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self.sync()
        self._file.close()


def at(path: Location) -> Place:
    """The place that a path or URL names."""
    return path if isinstance(path, ObjectPath) else LocalPlace(path)


def locate(place: str | Location) -> Location:
    """A path as it is, and a URL as what its filesystem reads. Nothing is opened yet.

    Raises UsageError for a URL that cannot name a run, UnavailableError where the filesystem's package is missing.
    """
    if isinstance(place, ObjectPath):
        return place
    text = str(place)
    if "://" not in text:
        if isinstance(place, Path) and (lost := _LOST_SLASH.match(text)) and lost[1] in _protocols():
            raise UsageError(f"{text}: a Path keeps one slash of two; give the URL as text, '{lost[1]}://...'.")
        return Path(place)
    protocol, _, key = text.partition("://")
    if "::" in text or protocol not in _protocols():
        near = nearest(protocol, _protocols())
        hint = f"; did you mean {near}://{key}?" if near else "; s3://, gs:// and paths are."
        raise UsageError(f"{text}: {protocol}:// is no storage that can hold a run{hint}")
    if protocol in ("file", "local"):
        return Path("/" + key.lstrip("/"))
    if wrong := [sign for sign in "*?[]" if sign in key]:  # filesystems take them for patterns and versions
        raise UsageError(f"{text} holds {wrong[0]!r}, which the URL of a run cannot: choose another name.")
    if not key.strip("/"):
        raise UsageError(f"{text} names no bucket: give {protocol}://bucket/folder.")
    return ObjectPath(Objects(protocol, _filesystem(protocol, text)), key.strip("/"))


def _protocols() -> list[str]:
    from fsspec import available_protocols  # only runs on shared storage need fsspec

    return sorted(available_protocols())


def _filesystem(protocol: str, url: str) -> Any:
    """The filesystem with the settings of its environment. Listings are never cached: others write, too."""
    import fsspec

    try:
        return fsspec.filesystem(protocol, use_listings_cache=False)
    except ImportError as error:
        extra = _PACKAGES.get(protocol)
        advice = f"pip install 'dream-cfr[{extra}]'" if extra else str(error)
        raise UnavailableError(f"{url}: the package for {protocol}:// is not installed: {advice}") from error


def _bytes_below(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
