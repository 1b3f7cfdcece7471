"""Snapshots as files: one frame (buffers/frames.py) per file, told from any other by its checksum."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from buffers.frames import FrameError, Snapshot, decode, encode
from dream.store import atomic

__all__ = ["FrameError", "Seal", "Snapshot", "damage", "read_frame", "write_frame"]

_READ_BYTES = 1 << 22
_CHECKSUM_BYTES = 16  # a frame ends in the BLAKE2b digest of all before


@dataclass(frozen=True)
class Seal:
    """What tells a frame file from any other: its length and its checksum (hexadecimal)."""

    bytes: int
    checksum: str


def write_frame(path: Path, snapshot: Snapshot, in_place: bool = False) -> Seal:
    """Writes one snapshot atomically. Raises OSError where the file cannot be written.

    With in_place=True a kill may leave part of the file, and its name is not durable yet: for files that do not
    count before another one is there. That saves two waits for the disk.
    """
    chunks = encode(snapshot)
    write = atomic.write_durable if in_place else atomic.write_atomic
    return Seal(write(path, chunks), bytes(chunks[-1]).hex())


def read_frame(path: Path, copy: bool = True) -> Snapshot:
    """The snapshot in a file; with copy=False its arrays are read-only.

    Raises FrameError for a file that is not a sound frame, OSError where there is none.
    """
    return decode(path.read_bytes(), path.name, copy=copy)


def damage(path: Path, seal: Seal) -> str | None:
    """What is wrong with a file that should carry `seal`, in a few words; None where nothing is.

    The whole file is read, in pieces, without decoding it.
    """
    digest = hashlib.blake2b(digest_size=_CHECKSUM_BYTES)
    try:
        size = path.stat().st_size
        if size != seal.bytes:
            return f"holds {size} bytes instead of {seal.bytes}"
        left = size - _CHECKSUM_BYTES
        with path.open("rb") as file:
            while left > 0 and (chunk := file.read(min(left, _READ_BYTES))):
                digest.update(chunk)
                left -= len(chunk)
            stored = file.read()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None if digest.hexdigest() == stored.hex() == seal.checksum else "holds other bytes than were written"
