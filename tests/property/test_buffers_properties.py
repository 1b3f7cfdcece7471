"""Frames survive anything and notice any damage; packing is lossless."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from buffers.frames import MAGIC, FrameError, decode, encode
from buffers.merged import Merged
from buffers.packing import FeatureLayout

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
DTYPES = st.sampled_from(["?", "i1", "u1", "<i2", "<u4", "<i8", "<f2", "<f4", "<f8"])
ARRAYS = npst.arrays(DTYPES, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
FRAME = b"".join(encode({"rows": np.arange(5, dtype=np.int32), "seen": 7, "state": {"a": [1, 2.5]}}))


@given(st.dictionaries(st.text(max_size=8), PLAIN | ARRAYS, max_size=5))
@settings(max_examples=100)
def test_frames_round_trip(snapshot):
    decoded = decode(b"".join(encode(snapshot)))
    assert decoded.keys() == snapshot.keys()
    for name, value in snapshot.items():
        if isinstance(value, np.ndarray):
            assert (decoded[name].shape, decoded[name].dtype) == (value.shape, value.dtype)
            assert decoded[name].tobytes() == value.tobytes()
        else:
            assert decoded[name] == value


def test_every_flipped_bit_and_every_truncation_is_noticed():
    for position in range(len(FRAME)):
        for bit in range(8):
            damaged = bytearray(FRAME)
            damaged[position] ^= 1 << bit
            with pytest.raises(FrameError, match=r"^1\.frame: "):
                decode(damaged, "1.frame")
        with pytest.raises(FrameError, match=r"^1\.frame: "):
            decode(FRAME[:position], "1.frame")


@given(st.binary(max_size=200), st.booleans())
@settings(max_examples=300)
def test_random_bytes_are_refused(noise, magic):
    with pytest.raises(FrameError):
        decode(MAGIC + b"\x01\0\0\0" + noise if magic else noise)


@given(st.data())
@settings(max_examples=100)
def test_packing_is_lossless(data):
    n, width = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 20))
    floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
    numbers = st.sampled_from([0.0, 1.0]) | st.integers(-3000, 3000).map(float) | floats
    columns = []
    for _ in range(width):
        pool = data.draw(st.lists(numbers, min_size=1, max_size=3))
        columns.append(data.draw(st.lists(st.sampled_from(pool), min_size=n, max_size=n)))
    features = np.array(columns, np.float32).T.copy()
    layout = FeatureLayout.learn(features, data.draw(st.booleans()))
    packed = layout.pack(features)
    assert packed.shape == (n, layout.num_bytes)
    np.testing.assert_array_equal(layout.unpack(packed), features)


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 60), max_size=6))
@settings(max_examples=50)
def test_merged_sums_do_not_depend_on_batching_in_any_bit(seed, cuts):
    rng = np.random.default_rng(seed)
    rows = {
        "key": rng.integers(4, 9, 60).astype(np.int32),
        "target": rng.normal(size=(60, 3)).astype(np.float32),
        "weight": rng.exponential(size=60).astype(np.float32),
    }
    whole, pieces = Merged(5, 3, offset=4), Merged(5, 3, offset=4)
    whole.add(rows)
    bounds = [0, *sorted(cuts), 60]
    for a, b in pairwise(bounds):
        pieces.add({name: column[a:b] for name, column in rows.items()})
    for ours, theirs in zip(pieces.means(), whole.means(), strict=True):
        assert ours.tobytes() == theirs.tobytes()
