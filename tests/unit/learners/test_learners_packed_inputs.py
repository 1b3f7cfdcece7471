"""Packed keys decoded by a device: the bits that the codec decodes, for every mixture of kinds of features."""

import numpy as np
import pytest
import torch

import learners.inputs
from buffers.packing import FeatureLayout, PackedHistoryCodec, PackedStateCodec
from learners.inputs import PackedHistoryInputs, PackedStateInputs

CPU = torch.device("cpu")
ROWS, ACTIONS = 40, 3
MAKERS = {
    "b": lambda rng: rng.integers(2, size=ROWS),
    "h": lambda rng: rng.integers(-300, 300, size=ROWS),
    "s": lambda rng: rng.standard_normal(ROWS),
    "c": lambda rng: np.full(ROWS, 3.0),
}
MIXTURES = ["b", "bbbbbbbb", "b" * 19, "h", "s", "c", "hs", "bh", "bbs", "shb", "cbshbcsbhh", "hb" * 9 + "s", "bcb"]


def features(mixture, rng):
    return np.stack([MAKERS[kind](rng) for kind in mixture], axis=1).astype(np.float32)


def legal(rng):
    return rng.random((ROWS, ACTIONS)) < 0.6


def check_states(mixture, count, rng):
    values, mask = features(mixture, rng), legal(rng)
    codec = PackedStateCodec(FeatureLayout.learn(values), ACTIONS)
    keys = codec.encode(values, mask)[:count]
    inputs = PackedStateInputs(codec, CPU)
    assert inputs.width == len(mixture)
    for given in (keys, torch.from_numpy(keys)):
        read, allowed = inputs.read(given)
        assert read.dtype == allowed.dtype == torch.float32
        np.testing.assert_array_equal(read, codec.decode(keys)[0])
        np.testing.assert_array_equal(allowed, mask[:count])


@pytest.mark.parametrize("count", [0, 1, ROWS])
@pytest.mark.parametrize("mixture", MIXTURES)
def test_states_are_what_the_codec_decodes(mixture, count, rng):
    check_states(mixture, count, rng)


@pytest.mark.parametrize("count", [0, 1, ROWS])
@pytest.mark.parametrize("mixtures", [("bbb", "hb"), ("c", "bs"), ("sbh", "bbbbbbbbb"), ("h", "c")])
def test_histories_are_what_the_codec_decodes(mixtures, count, rng):
    """The second player's part begins at any byte."""
    values, mask = [features(mixture, rng) for mixture in mixtures], legal(rng)
    codec = PackedHistoryCodec(*(FeatureLayout.learn(each) for each in values), ACTIONS)
    keys = codec.encode(*values, mask, rng.integers(2, size=ROWS).astype(np.int8))[:count]
    inputs = PackedHistoryInputs(codec, CPU)
    assert inputs.width == sum(map(len, mixtures))
    for given in (keys, torch.from_numpy(keys)):
        np.testing.assert_array_equal(inputs.read(given), codec.features(keys))


def test_parts_of_a_larger_tensor_are_read(rng):
    """A minibatch is a piece of a block: it may begin at any byte."""
    values = features("bbbbbbbbbhs", rng)
    codec = PackedStateCodec(FeatureLayout.learn(values), ACTIONS)
    keys = codec.encode(values, legal(rng))
    assert keys.shape[1] % 2
    inputs = PackedStateInputs(codec, CPU)
    read = [inputs.read(part)[0] for part in torch.split(torch.from_numpy(keys), [1, 2, 0, ROWS - 3])]
    np.testing.assert_array_equal(torch.cat(read), codec.decode(keys)[0])


def test_the_lowest_bit_first_is_rejected(rng, monkeypatch):
    """Named mutant."""
    right = learners.inputs._bits_of_bytes
    monkeypatch.setattr(learners.inputs, "_bits_of_bytes", lambda device: right(device).flip(1))
    with pytest.raises(AssertionError):
        check_states("bbbbbbbb", ROWS, rng)
