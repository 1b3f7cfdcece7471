import numpy as np
import pytest

from buffers.packing import (
    BIT,
    CONSTANT,
    HALF,
    SINGLE,
    FeatureLayout,
    FeatureStatistics,
    PackedHistoryCodec,
    PackedStateCodec,
    TableHistoryCodec,
    TableStateCodec,
    scaled,
)


def make_features(n, rng):
    """Columns: bit, constant 3, half (chips), single, always 0, bit, single above float16's range."""
    features = np.zeros((n, 7), np.float32)
    features[:, 0] = rng.integers(0, 2, n)
    features[:, 1] = 3
    features[:, 2] = rng.integers(0, 600, n) * 2
    features[:, 3] = rng.normal(size=n)
    features[:, 5] = rng.integers(0, 2, n)
    features[:, 6] = rng.normal(size=n) * 1e6
    return features


def test_layout_takes_the_smallest_kind(rng):
    layout = FeatureLayout.learn(make_features(200, rng))
    assert layout.kind.tolist() == [BIT, CONSTANT, HALF, SINGLE, CONSTANT, BIT, SINGLE]
    assert layout.num_bytes == 1 + 2 + 8
    wider = FeatureLayout.learn(make_features(200, rng), constant_bits=True)
    assert wider.kind.tolist() == [BIT, CONSTANT, HALF, SINGLE, BIT, BIT, SINGLE]


def test_statistics_merge_to_those_of_all(rng):
    features = make_features(300, rng)
    parts = [FeatureStatistics(7) for _ in range(3)]
    for part, piece in zip(parts, np.array_split(features, 3), strict=True):
        part.observe(piece[:40])
        part.observe(piece[40:])
        part.observe(piece[:0])
    total = parts[0]
    for part in parts[1:]:
        total.merge(part)
    assert total.count == 300
    for name, array in FeatureLayout.learn(features).arrays().items():
        np.testing.assert_array_equal(total.layout().arrays()[name], array)


@pytest.mark.parametrize(
    ("feature", "value", "message"),
    [
        (1, 4, "feature 1 is 4.0, .* the constant 3.0: raise the number of episodes"),
        (4, 1, "feature 4 is 1.0, .* the constant 0.0"),
        (0, 0.5, "feature 0 is 0.5, .* 0 or 1"),
        (2, 2049, "feature 2 is 2049.0, .* float16"),
        (2, 1e6, "feature 2 is 1000000.0, .* float16"),
        (5, np.nan, "feature 5 is nan"),
        (2, np.nan, "feature 2 is nan"),
    ],
)
def test_pack_refuses_what_it_cannot_give_back(rng, feature, value, message):
    features = make_features(200, rng)
    layout = FeatureLayout.learn(features)
    features[17, feature] = value
    with pytest.raises(ValueError, match=message):
        layout.pack(features)


def test_refusals_of_the_probe(rng):
    with pytest.raises(ValueError, match="no features were observed"):
        FeatureStatistics(3).layout()
    with pytest.raises(ValueError, match="feature 1 is inf"):
        FeatureStatistics(3).observe(np.array([[0, np.inf, 0]], np.float32))
    with pytest.raises(ValueError, match=r"must be \(n, 3\)"):
        FeatureStatistics(3).observe(np.zeros((2, 4), np.float32))
    with pytest.raises(ValueError, match=r"must be \(n, 7\)"):
        FeatureLayout.learn(make_features(9, rng)).pack(np.zeros((2, 4), np.float32))


def test_decoding_divides_by_the_largest_magnitude(rng):
    features = make_features(200, rng)
    codec = PackedStateCodec(FeatureLayout.learn(features), 10)
    legal = rng.random((200, 10)) < 0.5
    keys = codec.encode(features, legal)
    assert keys.shape == (200, *codec.column.shape) == (200, 11 + 2)
    decoded, decoded_legal = codec.decode(keys)
    np.testing.assert_array_equal(decoded_legal, legal)
    np.testing.assert_array_equal(decoded, scaled(features))
    np.testing.assert_array_equal(np.abs(decoded).max(axis=0), [1, 1, 1, 1, 0, 1, 1])
    assert decoded.dtype == np.float32
    assert decoded_legal.dtype == np.bool_


def test_layout_survives_as_plain_arrays(rng):
    features = make_features(20, rng)
    layout = FeatureLayout.learn(features)
    again = FeatureLayout(**layout.arrays())
    np.testing.assert_array_equal(again.unpack(layout.pack(features)), features)


def test_nothing_varies_nothing_to_store():
    features = np.full((4, 3), 2, np.float32)
    layout = FeatureLayout.learn(features)
    assert layout.pack(features).shape == (4, 0)
    np.testing.assert_array_equal(layout.unpack(layout.pack(features)), features)


def test_packed_history_hands_out_the_keys_of_the_acting_player(rng):
    features = make_features(300, rng), make_features(300, rng)[:, :6]
    layouts = [FeatureLayout.learn(f) for f in features]
    legal = rng.random((300, 5)) < 0.5
    player = rng.integers(0, 2, 300).astype(np.int8)
    codec = PackedHistoryCodec(*layouts, 5)
    keys = codec.encode(*features, legal, player)
    assert keys.shape[1:] == codec.column.shape
    decoded = codec.decode(keys)
    np.testing.assert_array_equal(decoded.features, np.concatenate([scaled(f) for f in features], axis=1))
    assert decoded.features.shape[1] == codec.num_features
    np.testing.assert_array_equal(decoded.player, player)
    np.testing.assert_array_equal(decoded.legal, legal)
    for p in (0, 1):
        states = decoded.state_keys(p)
        np.testing.assert_array_equal(states.index, np.flatnonzero(player == p))
        expected = PackedStateCodec(layouts[p], 5).encode(features[p], legal)
        np.testing.assert_array_equal(states.keys, expected[player == p])


def test_table_codecs_look_up(rng):
    features, legal = rng.random((6, 4)).astype(np.float32), rng.random((6, 3)) < 0.5
    codec = TableStateCodec(features, legal, offset=10)
    decoded, decoded_legal = codec.decode(np.array([12, 10, 15], np.int32))
    np.testing.assert_array_equal(decoded, features[[2, 0, 5]])
    np.testing.assert_array_equal(decoded_legal, legal[[2, 0, 5]])
    views = rng.random((4, 2)).astype(np.float32), rng.random((5, 3)).astype(np.float32)
    view = np.array([[0, 4], [1, 3], [3, 0]], np.int32)
    player, state = np.array([0, 1, 0], np.int8), np.array([7, 9, 8], np.int32)
    history = TableHistoryCodec(*views, view, player, state, legal[:3])
    decoded = history.decode(np.array([2, 1], np.int32))
    np.testing.assert_array_equal(decoded.features[0], [*views[0][3], *views[1][0]])
    np.testing.assert_array_equal(decoded.features[1], [*views[0][1], *views[1][3]])
    assert [s.tolist() for s in decoded.state_keys(0)] == [[0], [8]]
    assert [s.tolist() for s in decoded.state_keys(1)] == [[1], [9]]
    np.testing.assert_array_equal(decoded.legal, legal[[2, 1]])
