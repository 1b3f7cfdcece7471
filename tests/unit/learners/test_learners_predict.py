"""Inputs of every kind of key, predictions in blocks, and learners side by side."""

import threading
import time

import numpy as np
import pytest
import torch

from buffers.packing import FeatureLayout, PackedHistoryCodec, PackedStateCodec, TableHistoryCodec, TableStateCodec
from learners.inputs import (
    DecodedHistoryInputs,
    DecodedStateInputs,
    TableHistoryInputs,
    TableStateInputs,
    history_inputs,
    state_inputs,
)
from learners.networks import Network, NetworkSpec
from learners.parallel import side_by_side
from learners.predict import Predictor

CPU = torch.device("cpu")
STATES, ACTIONS, OFFSET = 30, 3, 7


@pytest.fixture
def legal(rng):
    legal = rng.random((STATES, ACTIONS)) < 0.6
    legal[:, 1] = True
    return legal


@pytest.fixture
def features(rng):
    """Bits, halves and singles, and a constant."""
    kinds = [rng.integers(2, size=(STATES, 4)), rng.integers(300, size=(STATES, 2)), np.full((STATES, 1), 3.0)]
    return np.concatenate([*kinds, rng.standard_normal((STATES, 2))], axis=1).astype(np.float32)


@pytest.fixture
def table(features, legal):
    return TableStateCodec(features, legal, OFFSET)


@pytest.fixture
def predictor(features):
    spec = NetworkSpec(features.shape[1], ACTIONS, (16,))
    network = Network(spec, CPU)
    network.reset(torch.Generator().manual_seed(3))
    predictor = Predictor(spec, CPU)
    predictor.load(network.export())
    return predictor


def as_array(keys):
    return keys


def as_tensor(keys):
    return torch.from_numpy(keys)


@pytest.mark.parametrize("kind", [as_array, as_tensor])
def test_table_states_are_rows_of_the_tables(kind, table, features, legal, rng):
    inputs = state_inputs(table, CPU)
    assert isinstance(inputs, TableStateInputs)
    index = rng.integers(STATES, size=50).astype(np.int32)
    read, mask = inputs.read(kind(index + np.int32(OFFSET)))
    np.testing.assert_array_equal(read, features[index])
    np.testing.assert_array_equal(mask, legal[index].astype(np.float32))
    assert read.dtype == mask.dtype == torch.float32
    assert inputs.width == features.shape[1]


@pytest.mark.parametrize("kind", [as_array, as_tensor])
def test_packed_states_are_the_scaled_features(kind, features, legal):
    codec = PackedStateCodec(FeatureLayout.learn(features), ACTIONS)
    inputs = state_inputs(codec, CPU)
    assert isinstance(inputs, DecodedStateInputs)
    read, mask = inputs.read(kind(codec.encode(features, legal)))
    np.testing.assert_array_equal(read, features / np.abs(features).max(axis=0))
    np.testing.assert_array_equal(mask, legal.astype(np.float32))
    assert mask.dtype == torch.float32
    assert inputs.width == features.shape[1]


@pytest.mark.parametrize("kind", [as_array, as_tensor])
def test_table_histories_join_what_both_players_see(kind, legal, rng):
    views = [rng.standard_normal((n, f)).astype(np.float32) for n, f in ((8, 4), (11, 6))]
    view = np.stack([rng.integers(len(v), size=STATES) for v in views], axis=1).astype(np.int32)
    player = rng.integers(2, size=STATES).astype(np.int8)
    codec = TableHistoryCodec(*views, view, player, np.arange(STATES, dtype=np.int32), legal)
    inputs = history_inputs(codec, CPU)
    assert isinstance(inputs, TableHistoryInputs)
    keys = rng.integers(STATES, size=40).astype(np.int32)
    expected = [np.concatenate([views[0][view[k, 0]], views[1][view[k, 1]]]) for k in keys]
    np.testing.assert_array_equal(inputs.read(kind(keys)), np.stack(expected))
    assert inputs.width == 10


@pytest.mark.parametrize("kind", [as_array, as_tensor])
def test_packed_histories_join_what_both_players_see(kind, features, legal):
    other = features[::-1, :5].copy()
    codec = PackedHistoryCodec(FeatureLayout.learn(features), FeatureLayout.learn(other), ACTIONS)
    inputs = history_inputs(codec, CPU)
    assert isinstance(inputs, DecodedHistoryInputs)
    keys = codec.encode(features, other, legal, np.zeros(STATES, np.int8))
    scaled = [v / np.abs(v).max(axis=0) for v in (features, other)]
    np.testing.assert_array_equal(inputs.read(kind(keys)), np.concatenate(scaled, axis=1))
    assert inputs.width == features.shape[1] + 5


class HistoriesOf:
    """History inputs that are the state's."""

    def __init__(self, inputs):
        self._inputs = inputs
        self.width = inputs.width

    def read(self, keys):
        return self._inputs.read(keys)[0]


@pytest.mark.parametrize("what", ["advantages", "probabilities", "values"])
@pytest.mark.parametrize("count", [0, 1, 7, 50, 56])
def test_blocks_give_what_one_pass_gives(what, count, predictor, table, rng):
    """Blocks of 7: none, one, whole ones, and a rest of one. Single precision: 1e-6 of outputs of size 1."""
    inputs = state_inputs(table, CPU)
    inputs = HistoriesOf(inputs) if what == "values" else inputs
    keys = (rng.integers(STATES, size=count) + OFFSET).astype(np.int32)
    whole = getattr(predictor, what)(inputs, keys)
    assert whole.shape == (count, ACTIONS)
    assert whole.dtype == np.float32
    predictor._rows = 7
    np.testing.assert_allclose(getattr(predictor, what)(inputs, keys), whole, rtol=0, atol=1e-6)


def test_advantages_are_the_networks_outputs(predictor, table, features):
    keys = np.arange(OFFSET, OFFSET + STATES, dtype=np.int32)
    expected = predictor._network(torch.from_numpy(features)).detach()
    np.testing.assert_allclose(predictor.advantages(state_inputs(table, CPU), keys), expected, atol=1e-6)


def test_probabilities_are_a_softmax_over_the_legal(predictor, table, legal):
    keys = np.arange(OFFSET, OFFSET + STATES, dtype=np.int32)
    inputs = state_inputs(table, CPU)
    played = predictor.probabilities(inputs, keys)
    np.testing.assert_allclose(played.sum(axis=1), 1.0, atol=1e-6)
    assert (played[~legal] == 0).all()
    assert (played[legal] > 0).all()
    powers = np.exp(predictor.advantages(inputs, keys).astype(np.float64)) * legal
    np.testing.assert_allclose(played, powers / powers.sum(axis=1, keepdims=True), atol=1e-6)


def test_results_outlive_the_next_call_and_the_next_weights(predictor, table, untouched_global_rng):
    keys = np.arange(OFFSET, OFFSET + STATES, dtype=np.int32)
    inputs = state_inputs(table, CPU)
    with untouched_global_rng():
        first = predictor.advantages(inputs, keys)
    kept = first.copy()
    predictor.load({name: 0 * value for name, value in predictor._network.export().items()})
    assert (predictor.advantages(inputs, keys) == 0).all()
    np.testing.assert_array_equal(first, kept)


def test_side_by_side_is_at_once_and_in_order():
    """Each waits for the other: one after another, neither would get past the barrier."""
    barrier = threading.Barrier(2, timeout=20)

    def work(name, pause):
        barrier.wait()
        time.sleep(pause)
        return name

    assert side_by_side([lambda: work("slow", 0.05), lambda: work("fast", 0.0)], parallel=True) == ["slow", "fast"]


@pytest.mark.parametrize(("count", "parallel"), [(2, False), (1, True), (0, True)])
def test_one_at_a_time_stays_in_this_thread(count, parallel):
    found = side_by_side([threading.get_ident] * count, parallel)
    assert found == [threading.get_ident()] * count


@pytest.mark.parametrize("parallel", [True, False])
def test_the_first_error_is_raised(parallel):
    def fail(number):
        raise FloatingPointError(f"fit {number}")

    with pytest.raises(FloatingPointError, match="fit 0"):
        side_by_side([lambda: fail(0), lambda: fail(1)], parallel)
