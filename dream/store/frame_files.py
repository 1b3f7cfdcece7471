"""Snapshots as files: one frame (buffers/frames.py) per file, told from any other by its checksum."""

import hashlib
from dataclasses import dataclass

from buffers.frames import FrameError, Snapshot, decode, encode
from dream.store.errors import StorageError
from dream.store.places import Location, at

__all__ = ["FrameError", "Seal", "Snapshot", "damage", "read_frame", "write_frame"]

_CHECKSUM_BYTES = 16  # a frame ends in the BLAKE2b digest of all before


@dataclass(frozen=True)
class Seal:
    """What tells a frame file from any other: its length and its checksum (hexadecimal)."""

    bytes: int
    checksum: str


def write_frame(path: Location, snapshot: Snapshot, in_place: bool = False) -> Seal:
    """Writes one snapshot atomically. Raises OSError where the file cannot be written.

    With in_place=True a kill may leave part of the file, and its name is not durable yet: for files that do not
    count before another one is there. That saves two waits for the disk.
    """
    chunks = encode(snapshot)
    return Seal(at(path).write(chunks, in_place), bytes(chunks[-1]).hex())


def read_frame(path: Location, copy: bool = True) -> Snapshot:
    """The snapshot in a file; with copy=False its arrays are read-only.

    Raises FrameError for a file that is not a sound frame, OSError where there is none.
    """
    return decode(at(path).read(), path.name, copy=copy)


def damage(path: Location, seal: Seal) -> str | None:
    """What is wrong with a file that should carry `seal`, in a few words; None where nothing is.

    The whole file is read, in pieces, without decoding it.
    """
    digest = hashlib.blake2b(digest_size=_CHECKSUM_BYTES)
    stored = b""
    try:
        size = at(path).size()
        if size is None:
            return "is missing"
        if size != seal.bytes:
            return f"holds {size} bytes instead of {seal.bytes}"
        left = size - _CHECKSUM_BYTES
        for piece in at(path).pieces(size):
            body = max(0, min(left, len(piece)))
            digest.update(memoryview(piece)[:body])
            stored += piece[body:]
            left -= body
    except FileNotFoundError:
        return "is missing"
    except StorageError:  # says nothing about the file
        raise
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None if digest.hexdigest() == stored.hex() == seal.checksum else "holds other bytes than were written"
