"""Frames: a snapshot as bytes, to travel and to rest. Reading one never runs code and trusts no size in it.

Layout, little-endian: prefix (magic 8s, format version u2, zero u2, header length u4, frame length u8);
header (msgpack: plain values, and name, dtype, shape, offset of each array); arrays, raw, each aligned to 64
bytes from the start of the frame; blake2b checksum (16 bytes) over everything before it.
"""

import hashlib
import math
import struct
from collections.abc import Sequence
from typing import Any, Protocol

import msgpack
import numpy as np
from numpy.typing import NDArray

Snapshot = dict[str, Any]
"""By name: NDArray (bool, integers, floats), or int, float, str, bool, None, or lists and dicts of these."""

MAGIC = b"\x89dream\r\n"
FORMAT_VERSION = 1
ALIGNMENT = 64
_PREFIX = struct.Struct("<8sHHIQ")
_CHECKSUM_BYTES = 16
_BIG_INTEGER = 1  # msgpack extension type: integers over 64 bits, such as the state of a random generator
_DTYPES = frozenset(["|b1", "|i1", "|u1", *(f"<{k}{s}" for k in "iu" for s in (2, 4, 8)), "<f2", "<f4", "<f8"])


class FrameError(ValueError):
    """The bytes are no intact frame of a known version. The message names the frame and what is wrong."""


class Writable(Protocol):
    """What `write` needs of a file."""

    def write(self, data: Any, /) -> Any:
        """Appends bytes."""


def encode(snapshot: Snapshot) -> list[bytes | memoryview]:
    """The frame in parts, to be written one after another. Contiguous arrays are not copied.

    Raises TypeError, naming the entry, for values that a frame cannot hold.
    """
    values: dict[str, Any] = {}
    entries: list[tuple[str, str, tuple[int, ...], int]] = []
    arrays: list[NDArray[Any]] = []
    end = 0
    for name, value in snapshot.items():
        if not isinstance(name, str):
            raise TypeError(f"a snapshot's names are strings, not {name!r}")
        if not isinstance(value, np.ndarray):
            values[name] = _packable(value, name)
            continue
        array = _little_endian(value, name)
        offset = _aligned(end)
        entries.append((name, array.dtype.str, array.shape, offset))
        arrays.append(array)
        end = offset + array.nbytes
    return _assemble(msgpack.packb([values, entries]), entries, arrays, end)


def write(file: Writable, snapshot: Snapshot) -> int:
    """Writes the frame to a binary file without copying large arrays; the number of bytes written."""
    parts = encode(snapshot)
    for part in parts:
        file.write(part)
    return sum(len(part) for part in parts)


def decode(buffer: bytes | bytearray | memoryview, name: str = "frame", copy: bool = True) -> Snapshot:
    """The snapshot in a frame. `name` (a file name) is used in errors.

    With copy=False the arrays are read-only views of `buffer`. Raises FrameError for anything but an intact
    frame of a known version.
    """
    view = memoryview(buffer).cast("B")
    header_bytes = _checked_header_length(view, name)
    start = _aligned(_PREFIX.size + header_bytes)
    values, entries = _parse_header(view[_PREFIX.size : _PREFIX.size + header_bytes], name)
    body = view[start : len(view) - _CHECKSUM_BYTES]
    snapshot: Snapshot = values
    for entry in entries:
        key, array = _array(entry, body, name)
        if key in snapshot:
            raise FrameError(f"{name}: damaged header, {key!r} occurs twice")
        snapshot[key] = array.copy() if copy else array
    return snapshot


def _assemble(
    header: bytes,
    entries: Sequence[tuple[str, str, tuple[int, ...], int]],
    arrays: Sequence[NDArray[Any]],
    end: int,
) -> list[bytes | memoryview]:
    start = _aligned(_PREFIX.size + len(header))
    total = start + end + _CHECKSUM_BYTES
    prefix = _PREFIX.pack(MAGIC, FORMAT_VERSION, 0, len(header), total)
    head = (prefix + header).ljust(start, b"\0")
    parts: list[bytes | memoryview] = [head]
    position = 0
    for (_, _, _, offset), array in zip(entries, arrays, strict=True):
        if array.nbytes:
            parts += [bytes(offset - position), array.reshape(-1).view(np.uint8).data]
        else:
            parts.append(bytes(offset - position))
        position = offset + array.nbytes
    return [*parts, _checksum(parts)]


def _checksum(parts: Sequence[bytes | memoryview]) -> bytes:
    digest = hashlib.blake2b(digest_size=_CHECKSUM_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT


def _little_endian(array: NDArray[Any], name: str) -> NDArray[Any]:
    dtype = array.dtype.newbyteorder("<")
    if dtype.str not in _DTYPES:
        raise TypeError(f"{name!r} has dtype {array.dtype}; a frame holds bool, integers and floats to 64 bits")
    # ascontiguousarray turns a scalar array into a vector: the shape is put back.
    return np.ascontiguousarray(array.astype(dtype, copy=False)).reshape(array.shape)


def _packable(value: Any, name: str) -> Any:
    """A plain value as msgpack takes it; numpy scalars become Python's."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | float | str):
        return value
    if isinstance(value, int):
        if -(2**63) <= value < 2**64:
            return value
        size = value.bit_length() // 8 + 1
        return msgpack.ExtType(_BIG_INTEGER, value.to_bytes(size, "little", signed=True))
    if isinstance(value, list | tuple):
        return [_packable(item, f"{name}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _packable(item, f"{name}.{key}") for key, item in value.items()}
    raise TypeError(
        f"{name!r} is a {type(value).__name__}; a frame holds arrays, int, float, str, bool, None, "
        "and lists and string-keyed dicts of these plain values"
    )


def _checked_header_length(view: memoryview, name: str) -> int:
    """Checks everything outside the header, cheapest first."""
    if len(view) >= len(MAGIC) and bytes(view[: len(MAGIC)]) != MAGIC:
        raise FrameError(f"{name}: not a frame, its first bytes are {bytes(view[: len(MAGIC)])!r}, not {MAGIC!r}")
    if len(view) < _PREFIX.size + _CHECKSUM_BYTES:
        raise FrameError(f"{name}: truncated, {len(view)} bytes are too few for a frame")
    _, version, zero, header_bytes, total = _PREFIX.unpack(view[: _PREFIX.size])
    if not 1 <= version <= FORMAT_VERSION or zero:
        raise FrameError(
            f"{name}: has format version {version}; this installation reads 1 to {FORMAT_VERSION}: "
            "upgrade it, or the file is damaged"
        )
    if len(view) != total:
        what = "truncated" if len(view) < total else "too long"
        raise FrameError(f"{name}: {what}, it has {len(view)} bytes and should have {total}")
    if _aligned(_PREFIX.size + header_bytes) + _CHECKSUM_BYTES > total:
        raise FrameError(f"{name}: damaged, a header of {header_bytes} bytes does not fit into {total}")
    if _checksum([view[:-_CHECKSUM_BYTES]]) != bytes(view[-_CHECKSUM_BYTES:]):
        raise FrameError(f"{name}: damaged, its checksum does not match its contents")
    return int(header_bytes)


def _parse_header(header: memoryview, name: str) -> tuple[dict[str, Any], list[Any]]:
    try:
        content = msgpack.unpackb(header, ext_hook=_extension)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise FrameError(f"{name}: damaged header, {error}") from error
    match content:
        case [dict() as values, list() as entries]:
            _check_plain(values, name)
            return values, entries
    raise FrameError(f"{name}: damaged header, it is no pair of values and arrays")


def _extension(code: int, data: bytes) -> int:
    if code != _BIG_INTEGER:
        raise ValueError(f"unknown extension type {code}")
    return int.from_bytes(data, "little", signed=True)


def _check_plain(value: Any, name: str) -> None:
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise FrameError(f"{name}: damaged header, a name is no string")
        for item in value.values():
            _check_plain(item, name)
    elif isinstance(value, list):
        for item in value:
            _check_plain(item, name)
    elif not (value is None or isinstance(value, bool | int | float | str)):
        raise FrameError(f"{name}: damaged header, it holds a {type(value).__name__}")


def _array(entry: Any, body: memoryview, name: str) -> tuple[str, NDArray[Any]]:
    """The array that a header entry describes, after its size was held against the bytes that are there."""
    match entry:
        case [str() as key, str() as dtype, list() as shape, int() as offset]:
            sizes = [*shape, offset]
            if dtype not in _DTYPES or not all(type(size) is int and 0 <= size < 2**62 for size in sizes):
                raise FrameError(f"{name}: damaged header, array {key!r} has dtype {dtype!r}, shape {shape}")
        case _:
            raise FrameError(f"{name}: damaged header, {entry!r} describes no array")
    count = math.prod(shape)
    if len(shape) > 32 or offset + count * np.dtype(dtype).itemsize > len(body):
        raise FrameError(f"{name}: damaged header, array {key!r} of shape {shape} lies outside of the frame")
    if not count:
        return key, np.zeros(shape, dtype)
    return key, np.frombuffer(body, dtype, count, offset).reshape(shape)
