import hashlib
import io

import msgpack
import numpy as np
import pytest

from buffers.frames import _PREFIX, ALIGNMENT, FORMAT_VERSION, MAGIC, FrameError, decode, encode, write

SNAPSHOT = {
    "rows": np.arange(12, dtype=np.float32).reshape(3, 4),
    "mask": np.array([True, False, True]),
    "scalar": np.array(2.5),
    "empty": np.zeros((0, 7), np.int16),
    "transposed": np.arange(6).reshape(2, 3).T,
    "big_endian": np.arange(4, dtype=">i8"),
    "seen": 12,
    "lr": 1e-3,
    "name": "réservoir",
    "on": True,
    "nothing": None,
    "rng": {"state": {"state": 2**127 + 5, "inc": -(2**90)}, "list": [1, [2.5, "x", None]]},
}


def same(a, b):
    return a.keys() == b.keys() and all(
        np.array_equal(a[k], b[k]) and a[k].shape == b[k].shape and a[k].dtype == b[k].dtype
        if isinstance(b[k], np.ndarray)
        else a[k] == b[k] and type(a[k]) is type(b[k])
        for k in b
    )


def test_gives_back_what_it_took():
    frame = b"".join(encode(SNAPSHOT))
    decoded = decode(frame)
    assert same(decoded, {**SNAPSHOT, "big_endian": np.arange(4)})
    assert all(v.flags.writeable for v in decoded.values() if isinstance(v, np.ndarray))
    views = decode(frame, copy=False)
    assert same(views, decoded)
    assert not views["rows"].flags.writeable


def test_large_arrays_are_aligned_and_not_copied():
    array = np.arange(1000, dtype=np.int64)
    parts = encode({"a": np.zeros(3, np.uint8), "array": array})
    assert any(np.shares_memory(np.frombuffer(part, np.uint8), array) for part in parts if len(part) == 8000)
    frame = b"".join(parts)
    assert frame.index(array.tobytes()) % ALIGNMENT == 0
    file = io.BytesIO()
    assert write(file, {"a": np.zeros(3, np.uint8), "array": array}) == len(frame)
    assert file.getvalue() == frame


def test_a_generator_state_survives():
    rng = np.random.default_rng(3)
    state = decode(b"".join(encode({"rng": rng.bit_generator.state})))["rng"]
    again = np.random.default_rng(0)
    again.bit_generator.state = state
    assert again.random() == rng.random()


@pytest.mark.parametrize(
    "value",
    [
        np.array([object()]),
        np.zeros(2, complex),
        np.zeros(2, "M8[s]"),
        object(),
        {1: 2},
        [{"a": np.zeros(2)}],
        b"x",
    ],
)
def test_refuses_values_that_are_not_plain(value):
    with pytest.raises(TypeError, match="'thing"):
        encode({"thing": value})


def sealed(header, version=FORMAT_VERSION, body=b""):
    """A frame with a valid checksum around any header."""
    start = -(-(_PREFIX.size + len(header)) // ALIGNMENT) * ALIGNMENT
    total = start + len(body) + 16
    frame = (_PREFIX.pack(MAGIC, version, 0, len(header), total) + header).ljust(start, b"\0") + body
    return frame + hashlib.blake2b(frame, digest_size=16).digest()


def test_the_tests_own_frames_are_read():
    header = msgpack.packb([{"x": 1}, [["a", "<i4", [2], 0]]])
    assert decode(sealed(header, body=bytes(8)))["a"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (msgpack.packb([{}, [["a", "<f8", [2**40], 0]]]), "lies outside"),
        (msgpack.packb([{}, [["a", "<f8", [2**61, 2**61], 0]]]), "lies outside"),
        (msgpack.packb([{}, [["a", "<f8", [1], 2**61]]]), "lies outside"),
        (msgpack.packb([{}, [["a", "<f8", [-1], 0]]]), "shape"),
        (msgpack.packb([{}, [["a", "<f8", [True], 0]]]), "shape"),
        (msgpack.packb([{}, [["a", "|O", [1], 0]]]), "dtype"),
        (msgpack.packb([{}, [["a", "<f8", [1]]]]), "describes no array"),
        (msgpack.packb([{}, [["a", "<f8", [1] * 40, 0]]]), "lies outside"),
        (msgpack.packb([{"a": 1}, [["a", "<f8", [0], 0]]]), "occurs twice"),
        (msgpack.packb([{"a": b"x"}, []]), "holds a bytes"),
        (msgpack.packb([{"a": msgpack.ExtType(9, b"x")}, []]), "extension"),
        (msgpack.packb([{"a": msgpack.Timestamp(1)}, []]), "Timestamp"),
        (msgpack.packb([{"a": {b"k": 1}}, []]), "no string"),
        (msgpack.packb([1, 2, 3]), "no pair"),
        (b"\xc1", "damaged header"),
        (b"\xdd\xff\xff\xff\xff", "damaged header"),
        (b"\x91" * 5000, "damaged header"),
    ],
)
def test_a_lying_header_is_refused_even_under_a_valid_checksum(header, message):
    with pytest.raises(FrameError, match=f"^x.frame: .*{message}"):
        decode(sealed(header, body=bytes(16)), "x.frame")


def test_errors_say_what_is_wrong():
    frame = b"".join(encode(SNAPSHOT))
    for bad, message in [
        (b"", "truncated"),
        (b"PK\x03\x04 some other file" * 9, "not a frame"),
        (frame[:-1], "truncated, it has"),
        (frame + b"x", "too long"),
        (frame[:200] + b"\xff\xff" + frame[202:], "checksum"),
        (sealed(b"\x92\x80\x90", version=FORMAT_VERSION + 1), "format version 2.*upgrade"),
    ]:
        with pytest.raises(FrameError, match=f"runs/1.frame: .*{message}"):
            decode(bad, "runs/1.frame")
