"""Learners on a CUDA device: everything stays there, and the numbers are the CPU's up to rounding."""

import numpy as np
import pytest
import torch

from buffers.circular import Circular
from buffers.merged import Merged
from buffers.packing import FeatureLayout, PackedStateCodec, TableHistoryCodec, TableStateCodec
from buffers.rows import regression_schema
from learners.baseline import BaselineLearner, Transitions
from learners.feed import MergedFeed, UniformFeed
from learners.inputs import history_inputs, state_inputs
from learners.losses import advantage_loss, average_cross_entropy_loss, average_mse_loss
from learners.networks import Network, NetworkSpec
from learners.predict import Predictor
from learners.regression import OptimiserSettings, RegressionLearner

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
STATES, ACTIONS, OFFSET, FEATURES, ROWS = 40, 3, 10, 8, 500
SPEC = NetworkSpec(FEATURES, ACTIONS, (32, 32), layer_norm=True)
KEYS = np.arange(OFFSET, OFFSET + STATES, dtype=np.int32)
# Single precision without tensor-float-32: sums in another order, over 50 steps of 1e-3.
TOLERANCE = 1e-3


@pytest.fixture
def rng():
    return np.random.default_rng(20)


@pytest.fixture
def codec(rng):
    legal = rng.random((STATES, ACTIONS)) < 0.7
    legal[:, 0] = True
    return TableStateCodec(rng.standard_normal((STATES, FEATURES)).astype(np.float32), legal, OFFSET)


@pytest.fixture
def buffer(codec, rng):
    state = rng.integers(STATES, size=ROWS)
    target = np.where(codec.legal[state], rng.exponential(size=(ROWS, ACTIONS)), 0.0)
    buffer = Circular(regression_schema(codec.column, ACTIONS), ROWS)
    buffer.add(
        {
            "key": (state + OFFSET).astype(np.int32),
            "target": (target / target.sum(axis=1, keepdims=True)).astype(np.float32),
            "weight": rng.integers(1, 30, size=ROWS).astype(np.float32),
            "priority": np.zeros(ROWS, np.uint32),
        }
    )
    return buffer


def merged_feed(buffer, codec, device):
    merged = Merged(STATES, ACTIONS, OFFSET)
    merged.add(buffer.view())
    return MergedFeed(merged, state_inputs(codec, device), 2.0, device)


def uniform_feed(buffer, codec, device, batch=64):
    return UniformFeed([(buffer.view(), buffer.seen)], state_inputs(codec, device), batch, 2.0, device)


def learner(device, loss=advantage_loss):
    return RegressionLearner(SPEC, loss, OptimiserSettings(1e-3, 1.0), device)


def assert_close(first, second, tolerance=TOLERANCE):
    for name, value in first.items():
        np.testing.assert_allclose(second[name], value, rtol=0, atol=tolerance)


@pytest.mark.parametrize("loss", [advantage_loss, average_mse_loss, average_cross_entropy_loss])
def test_merged_fit_agrees_with_the_cpu(loss, buffer, codec):
    """Fresh weights come from a CPU generator, so that both start from the same ones."""
    fits = [learner(d, loss).fit(merged_feed(buffer, codec, d), 50, seed=1, fresh=True) for d in (CPU, CUDA)]
    assert_close(fits[0][0], fits[1][0])
    assert fits[0][1].loss == pytest.approx(fits[1][1].loss, rel=1e-3)
    assert fits[0][1].gradient_norm == pytest.approx(fits[1][1].gradient_norm, rel=1e-2)


def tensors(thing):
    return [value for value in vars(thing).values() if isinstance(value, torch.Tensor)]


def test_everything_stays_on_the_device(buffer, codec):
    feed, one = uniform_feed(buffer, codec, CUDA), learner(CUDA)
    batch = feed.draw(torch.Generator(CUDA).manual_seed(1))
    parts = feed._minibatches.source, feed._minibatches.draws, batch, one._optimiser
    found = [tensor for part in parts for tensor in tensors(part)] + list(one._network.parameters())
    assert len(found) >= 20
    assert {tensor.device.type for tensor in found} == {"cuda"}
    assert one._network.flat.grad.is_cuda


def test_a_fit_does_not_wait_for_the_device(buffer, codec):
    """Torch raises wherever the host would wait for the device inside a step.

    Merged minibatches wait once for many steps, so that only the plain ones are held to it.
    """
    batch = STATES // 2
    network = Network(SPEC, CUDA)
    feed, generator = uniform_feed(buffer, codec, CUDA, batch), torch.Generator(CUDA).manual_seed(1)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            drawn = feed.draw(generator)
            advantage_loss(network(drawn.features), drawn.target, drawn.legal, drawn.weight).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_minibatch_fit_gets_near_the_cpus(buffer, codec):
    """Other random numbers: the losses agree up to minibatch noise, and are far below the first step's."""
    fits = [learner(d).fit(uniform_feed(buffer, codec, d), 300, seed=1, fresh=True)[1] for d in (CPU, CUDA)]
    before = learner(CUDA).fit(uniform_feed(buffer, codec, CUDA), 1, seed=1, fresh=True)[1]
    assert fits[1].loss == pytest.approx(fits[0].loss, rel=0.3)
    assert fits[1].loss < 0.5 * before.loss


def test_a_feed_keeps_its_rows_when_the_buffer_goes_on(buffer, codec):
    """On the device the rows are copies: what is added later is in the next feed, not in this one."""
    feed = uniform_feed(buffer, codec, CUDA, STATES // 2)
    before = feed.draw(torch.Generator(CUDA).manual_seed(1))
    buffer.add(
        {name: np.zeros_like(column) + (OFFSET if name == "key" else 1) for name, column in buffer.view().items()}
    )
    after = feed.draw(torch.Generator(CUDA).manual_seed(1))
    assert torch.equal(before.target, after.target)
    assert torch.equal(before.weight, after.weight)
    new = uniform_feed(buffer, codec, CUDA).draw(torch.Generator(CUDA).manual_seed(1))
    assert (new.target == 0.5).all()


def test_packed_keys_agree_with_the_cpu(rng):
    features = rng.integers(2, size=(STATES, FEATURES)).astype(np.float32)
    legal = np.ones((STATES, ACTIONS), np.bool_)
    codec = PackedStateCodec(FeatureLayout.learn(features), ACTIONS)
    keys = codec.encode(features, legal)
    for given in (keys, torch.from_numpy(keys).to(CUDA)):
        read, mask = state_inputs(codec, CUDA).read(given)
        assert read.is_cuda
        assert mask.is_cuda
        np.testing.assert_array_equal(read.cpu(), state_inputs(codec, CPU).read(keys)[0])


def test_predictions_agree_with_the_cpu(codec):
    network = Network(SPEC, CPU)
    network.reset(torch.Generator().manual_seed(1))
    found = []
    for device in (CPU, CUDA):
        predictor = Predictor(SPEC, device)
        predictor.load(network.export())
        found.append(predictor.probabilities(state_inputs(codec, device), KEYS))
    np.testing.assert_allclose(*found, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["merged", "minibatches"])
def test_baseline_fit_agrees_with_the_cpu(kind, rng):
    """Transitions are drawn by numpy: the same on every device."""
    views = [rng.standard_normal((n, 4)).astype(np.float32) for n in (6, 9)]
    view = np.stack([rng.integers(len(v), size=STATES) for v in views], axis=1).astype(np.int32)
    player, state = np.zeros(STATES, np.int8), np.arange(STATES, dtype=np.int32)
    codec = TableHistoryCodec(*views, view, player, state, np.ones((STATES, ACTIONS), np.bool_))
    rows = {
        "history": rng.integers(STATES, size=ROWS).astype(np.int32),
        "action": rng.integers(ACTIONS, size=ROWS).astype(np.int16),
        "reward": rng.standard_normal(ROWS).astype(np.float32),
        "next_history": rng.integers(STATES, size=ROWS).astype(np.int32),
        "terminal": rng.random(ROWS) < 0.5,
    }
    transitions = Transitions(rows, lambda keys: np.full((len(keys), ACTIONS), 1 / ACTIONS))
    fits = []
    for device in (CPU, CUDA):
        inputs = history_inputs(codec, device)
        one = BaselineLearner(SPEC, inputs, OptimiserSettings(1e-3, 1.0), 2.0, device)
        one.start(1)
        steps = one.fit_merged(transitions, 50) if kind == "merged" else one.fit(transitions, 50, 64, seed=2)
        fits.append(steps[0])
    assert_close(*fits)


def test_a_snapshot_of_one_device_goes_on_on_another(buffer, codec):
    first = learner(CUDA)
    first.fit(merged_feed(buffer, codec, CUDA), 20, seed=1, fresh=True)
    second = learner(CPU)
    second.restore(first.snapshot())
    fits = [
        one.fit(merged_feed(buffer, codec, device), 20, seed=2, fresh=False)[0]
        for one, device in ((first, CUDA), (second, CPU))
    ]
    assert_close(*fits)
