"""Runs as objects of a bucket (S3, Google Cloud Storage, ...), over fsspec.

A put of an object is atomic by itself, and durable when it returns; there are no folders, no renames, no appending.
So a folder is there as soon as something lies below it, a growing file is put again as a whole, and the lock is an
object that its holder keeps renewing (lease.py). Credentials, endpoints and regions come from the environment, as
each filesystem documents. Failed requests are repeated, a bounded number of times, by the filesystems themselves.
"""

import contextlib
import errno
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from dream.store.atomic import Chunk
from dream.store.errors import StorageError
from dream.store.lease import Lease

T = TypeVar("T")
R = TypeVar("R")

_REQUESTS = 8  # at once
_LARGE_BYTES = 64 << 20  # from here on an object is sent in parts, several at once, and alone
_PIECE_BYTES = 64 << 20
_REWRITE_SECONDS = 30.0  # of growing files, between commits
_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the machine a role",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`",
}


class Objects:
    """One filesystem of objects, as one process uses it for one run.

    While `lease` is held, nothing is written or removed that it does not cover.
    """

    def __init__(self, protocol: str, filesystem: Any) -> None:
        self.protocol = protocol
        self.filesystem = filesystem
        self.lease: Lease | None = None
        self.large = threading.Lock()

    def confirm(self) -> None:
        """Raises RunFolderError where the lock that covers all writing has been lost."""
        if self.lease is not None:
            self.lease.confirm()


class ObjectPath:
    """The URL of an object, or of all that lies below it: a `Place` (places.py), and a path as far as stores need."""

    def __init__(self, objects: Objects, key: str) -> None:
        self._objects = objects
        self._key = key

    def __str__(self) -> str:
        return f"{self._objects.protocol}://{self._key}"

    def __repr__(self) -> str:
        return f"ObjectPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        """Travels as its URL: every process has a connection of its own."""
        from dream.store.places import locate

        return locate, (str(self),)

    def __truediv__(self, name: str) -> "ObjectPath":
        return ObjectPath(self._objects, f"{self._key}/{name}")

    @property
    def name(self) -> str:
        """Behind the last slash."""
        return self._key.rsplit("/", 1)[-1]

    @property
    def parent(self) -> "ObjectPath":
        """Before the last slash; a bucket is its own parent."""
        return ObjectPath(self._objects, self._key.rsplit("/", 1)[0])

    def write(self, chunks: Iterable[Chunk], in_place: bool = False) -> int:
        """One put, which replaces the object whole or not at all. Large objects are sent one after another."""
        content = b"".join(chunks)
        self._objects.confirm()
        alone = self._objects.large if len(content) > _LARGE_BYTES else contextlib.nullcontext()
        with alone, self._asking(writing=True):
            self._filesystem.pipe_file(self._path, content)
        return len(content)

    def create(self, content: bytes) -> None:
        """A put that is refused where the object exists, as far as the storage knows such puts.

        Raises FileExistsError, or another OSError, where it is.
        """
        with self._asking(writing=True):
            try:
                self._filesystem.pipe_file(self._path, content, mode="create")
            except (NotImplementedError, ValueError, TypeError):  # unknown to this filesystem
                if self._filesystem.exists(self._path):
                    raise FileExistsError(errno.EEXIST, "exists", str(self)) from None
                self._filesystem.pipe_file(self._path, content)

    def read(self) -> bytes:
        """The object's content. Raises FileNotFoundError where there is none."""
        with self._asking():
            return bytes(self._filesystem.cat_file(self._path))

    def pieces(self, size: int) -> Iterator[bytes]:
        """See Place; one request each."""
        for start in range(0, size, _PIECE_BYTES):
            with self._asking():
                yield bytes(self._filesystem.cat_file(self._path, start=start, end=min(start + _PIECE_BYTES, size)))

    def size(self) -> int | None:
        """Bytes of the object; None where there is none."""
        try:
            with self._asking():
                about = self._filesystem.info(self._path)
        except FileNotFoundError:
            return None
        return int(about["size"]) if about["type"] == "file" else None

    def is_file(self) -> bool:
        """Whether there is an object of exactly this name."""
        return self.size() is not None

    def is_folder(self) -> bool:
        """Whether anything lies below."""
        return bool(self.names())

    def names(self) -> list[str]:
        """Sorted names directly below."""
        try:
            with self._asking():
                found = self._filesystem.ls(self._path, detail=False)
        except FileNotFoundError:
            return []
        own = str(self._path).strip("/")
        below = (str(path).strip("/") for path in found)
        return sorted({path.rsplit("/", 1)[-1] for path in below if path != own})

    def sizes(self) -> dict[str, int]:
        """Bytes by name directly below, with all below that."""
        with self._asking():
            found = self._filesystem.find(self._path, detail=True)
        start = len(str(self._path).strip("/")) + 1
        sizes: dict[str, int] = {}
        for path, about in sorted(found.items()):
            name = str(path).strip("/")[start:].split("/", 1)[0]
            sizes[name] = sizes.get(name, 0) + int(about["size"])
        return sizes

    def make(self) -> None:
        """Nothing: what lies below makes it."""

    def settle(self) -> None:
        """Nothing: a put is durable when it returns."""

    def remove(self) -> None:
        """Removes the object; one that is not there is fine."""
        self._objects.confirm()
        with contextlib.suppress(FileNotFoundError), self._asking():
            self._filesystem.rm_file(self._path)

    def discard(self) -> None:
        """Removes all below, as far as that goes."""
        self._objects.confirm()
        with contextlib.suppress(OSError), self._asking():
            self._filesystem.rm(self._path, recursive=True)

    def clean(self) -> None:
        """Nothing: a put that was cut short leaves no object."""

    def free_bytes(self) -> int | None:
        """Unknown."""
        return None

    def appender(self) -> "ObjectAppender":
        """See Place: the whole object is put at each `sync`, and about twice a minute."""
        return ObjectAppender(self)

    @contextlib.contextmanager
    def lock(self, name: str, warn: Callable[[str], None]) -> Iterator[None]:
        """Holds the run by a lease; within it every write makes sure that the lease still stands."""
        unfenced = ObjectPath(Objects(self._objects.protocol, self._filesystem), f"{self._key}/{name}")
        lease = Lease(unfenced, str(self), warn)
        with lease:
            self._objects.lease = lease
            try:
                yield
            finally:
                self._objects.lease = None

    def each(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """See Place: a few requests at once."""
        with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="storage") as pool:
            return list(pool.map(function, items))

    @property
    def _filesystem(self) -> Any:
        return self._objects.filesystem

    @property
    def _path(self) -> Any:
        return self._filesystem._strip_protocol(str(self))

    @contextlib.contextmanager
    def _asking(self, writing: bool = False) -> Iterator[None]:
        """Every failure of the filesystem becomes a StorageError of one sentence; faults of ours stay what they are."""
        try:
            yield
        except FileExistsError:
            raise
        except FileNotFoundError as error:
            if "bucket does not exist" in str(error):
                bucket = self._key.split("/", 1)[0]
                sentence = f"there is no bucket {bucket!r}: make it, or correct the URL"
                raise StorageError(errno.ENXIO, sentence, str(self)) from error
            if writing:
                sentence = f"there is no bucket or container for it ({error})"
                raise StorageError(errno.ENOENT, sentence, str(self)) from error
            raise
        except Exception as error:
            if type(error).__module__ == "builtins" and not isinstance(error, OSError | NotImplementedError):
                raise
            number = error.errno if isinstance(error, OSError) and error.errno else errno.EIO
            raise StorageError(number, _sentence(error, self._objects.protocol), str(self)) from error


class ObjectAppender:
    """Lines that are put again as one object."""

    def __init__(self, path: ObjectPath) -> None:
        self._path = path
        try:
            content = path.read()
        except FileNotFoundError:
            content = b""
        self._content = bytearray(content[: content.rfind(b"\n") + 1])
        self._changed = False
        self._put_at = time.monotonic()

    def append(self, line: bytes) -> None:
        """Adds a line; it is in memory until the next put."""
        self._content += line
        self._changed = True
        if time.monotonic() - self._put_at >= _REWRITE_SECONDS:
            self.publish()

    def publish(self) -> None:
        """Puts the object if it has changed."""
        if self._changed:
            self._path.write([bytes(self._content)])
            self._changed = False
            self._put_at = time.monotonic()

    def sync(self) -> None:
        """The same."""
        self.publish()

    def close(self) -> None:
        """The same."""
        self.publish()


def _sentence(error: Exception, protocol: str) -> str:
    text = " ".join(str(error.strerror if isinstance(error, OSError) and error.strerror else error).split())
    text = text or type(error).__name__
    if isinstance(error, PermissionError):
        return f"no permission ({text}): check the credentials and their rights"
    if "credential" in f"{type(error).__name__} {text}".lower():
        advice = _CREDENTIALS.get(protocol, "set those of this storage in the environment")
        return f"no credentials ({text}): {advice}"
    if isinstance(error, NotImplementedError):
        return f"{protocol}:// cannot be written to"
    return text
