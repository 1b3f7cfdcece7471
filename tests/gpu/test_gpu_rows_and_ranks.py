"""Mirrors, streams, packed keys and a group of ranks on a CUDA device."""

import numpy as np
import pytest
import torch
from oracles.rank_cases import ACTIONS, BATCHES, LAYOUTS, OFFSET, ROWS, STATES, check_drawn_once, own_shards, state_rows

import learners.feed
from buffers.packing import FeatureLayout, PackedHistoryCodec, PackedStateCodec
from buffers.reservoir import Reservoir
from buffers.rows import Column, regression_schema
from learners.device_mirror import DeviceMirror
from learners.feed import UniformFeed
from learners.inputs import PackedHistoryInputs, PackedStateInputs, history_inputs, state_inputs
from learners.ranks import ALONE, ProcessGroup
from learners.streaming import Resident, Streamed, free_bytes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]

CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(learners.feed, "_STREAMED_AT_ONCE", 200)


def feed(ranks, layout, resident_bytes):
    """Single rows: counts of merged ones are summed in any order on a CUDA device."""
    codec, rows = state_rows()
    shards, numbers = own_shards(rows, layout, ranks)
    return UniformFeed(shards, state_inputs(codec, CUDA), BATCHES["rows"], 2.0, CUDA, ranks, numbers, resident_bytes)


def check_same(*feeds):
    generators = [torch.Generator(CUDA).manual_seed(6) for _ in feeds]
    for _ in range(200):
        one, other = (each.draw(generator) for each, generator in zip(feeds, generators, strict=True))
        for name, value in vars(one).items():
            assert getattr(other, name).is_cuda
            assert torch.equal(getattr(other, name), value)


@pytest.mark.parametrize("layout", ["one shard", "all shards"])
def test_streamed_minibatches_are_the_resident_ones(layout):
    resident, streamed = (feed(ALONE, layout, limit) for limit in (None, 0))
    assert isinstance(resident._minibatches.source, Resident)
    assert isinstance(streamed._minibatches.source, Streamed)
    check_same(resident, streamed)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_row_drawn_is_one_ranks(layout):
    check_drawn_once(layout, 2, CUDA)


def test_a_mirror_on_the_device_feeds_without_a_copy():
    rng = np.random.default_rng(5)
    buffer = Reservoir(regression_schema(Column("key", np.int32), ACTIONS), 800)
    mirror = DeviceMirror(800, CUDA)
    for count in (100, 500, 3000):
        buffer.add(
            {
                "key": rng.integers(OFFSET, OFFSET + STATES, size=count).astype(np.int32),
                "target": rng.standard_normal((count, ACTIONS)).astype(np.float32),
                "weight": rng.integers(1, 9, count).astype(np.float32),
                "priority": rng.integers(2**32, size=count, dtype=np.uint32),
            }
        )
        mirror.apply(buffer.delta(mirror.version))
        for name, tensor in mirror.view().items():
            assert tensor.is_cuda
            np.testing.assert_array_equal(tensor.cpu(), buffer.view()[name])
    assert Resident([mirror.view()], CUDA).target.data_ptr() == mirror.view()["target"].data_ptr()
    inputs = state_inputs(state_rows()[0], CUDA)
    check_same(*(UniformFeed([(one.view(), one.seen)], inputs, 20, 2.0, CUDA) for one in (buffer, mirror)))


def test_packed_keys_are_decoded_on_the_device():
    rng = np.random.default_rng(1)
    features = [rng.integers(2, size=(ROWS, 11)), rng.integers(500, size=(ROWS, 2)), rng.standard_normal((ROWS, 2))]
    features = np.concatenate(features, axis=1).astype(np.float32)
    layout, legal = FeatureLayout.learn(features), rng.random((ROWS, ACTIONS)) < 0.5
    codec = PackedStateCodec(layout, ACTIONS)
    keys = codec.encode(features, legal)
    inputs = state_inputs(codec, CUDA)
    assert isinstance(inputs, PackedStateInputs)
    on_device = torch.from_numpy(keys).to(CUDA)
    torch.cuda.set_sync_debug_mode("error")  # raises where the host would wait for the device
    try:
        read, mask = inputs.read(on_device)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    np.testing.assert_array_equal(read.cpu(), codec.decode(keys)[0])
    np.testing.assert_array_equal(mask.cpu(), legal)
    histories = PackedHistoryCodec(layout, layout, ACTIONS)
    keys = histories.encode(features, features[::-1], legal, np.zeros(ROWS, np.int8))
    inputs = history_inputs(histories, CUDA)
    assert isinstance(inputs, PackedHistoryInputs)
    np.testing.assert_array_equal(inputs.read(keys).cpu(), histories.features(keys))


def test_free_bytes_leave_the_reserve():
    free = torch.cuda.mem_get_info()[0]
    assert free_bytes(CUDA, 2**62) == 0
    assert 0 < free_bytes(CUDA, 1 << 20) <= free


def test_a_group_of_one_sums_by_nccl(tmp_path):
    with ProcessGroup(0, 1, f"file://{tmp_path}/meet", CUDA) as ranks:
        tensor = torch.arange(5.0, device=CUDA)
        ranks.sum(tensor)
        assert tensor.tolist() == [0, 1, 2, 3, 4]
