"""The lock of a run on a local disk: an advisory lock of the system, freed by the death of its holder."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from dream.store.errors import RunFolderError

_held: set[int] = set()  # descriptors of held locks: a forked child closes its copies


@contextlib.contextmanager
def hold(folder: Path, name: str) -> Iterator[None]:
    """Holds the file `name` in `folder` until the block ends or the process dies.

    Raises RunFolderError naming the process that holds it.
    """
    descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _seize(folder, descriptor)
        _held.add(descriptor)
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        _held.discard(descriptor)
        os.close(descriptor)


def _seize(folder: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
        raise RunFolderError(
            f"{folder} is being trained by process {holder}: wait until it ends, or stop it first"
        ) from None


def _forget_locks() -> None:
    for descriptor in _held:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_forget_locks)
