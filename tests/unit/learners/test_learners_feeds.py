"""Minibatches: which rows, how often, with which weights and targets, and which gradient they give.

Uniformity: n = 200,000 draws over 50 rows, chi-square, false-alarm rate 1e-6 a test; detected with as small a
chance of a miss: relative deviations of 3.5 %, root mean square over the rows. Each named mutant is rejected on the
same n.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from buffers.merged import Merged
from buffers.packing import TableStateCodec
from buffers.rows import concatenate, take
from learners.draws import Draws
from learners.feed import MergedFeed, RegressionBatch, UniformFeed
from learners.inputs import TableStateInputs
from learners.losses import advantage_loss, average_cross_entropy_loss, average_mse_loss
from learners.networks import Network, NetworkSpec

CPU = torch.device("cpu")
STATES, ACTIONS, OFFSET, FEATURES = 12, 3, 100, 6
DRAWS, FALSE_ALARM = 200_000, 1e-6
LOSSES = [advantage_loss, average_mse_loss, average_cross_entropy_loss]


@pytest.fixture
def codec(rng):
    legal = rng.random((STATES, ACTIONS)) < 0.7
    legal[:, 0] = True
    return TableStateCodec(rng.standard_normal((STATES, FEATURES)).astype(np.float32), legal, OFFSET)


@pytest.fixture
def inputs(codec):
    return TableStateInputs(codec, CPU)


def make_rows(codec, count, rng):
    """Rows of all states but the last; targets are strategies, which suits every loss; weights like t."""
    state = rng.integers(STATES - 1, size=count)
    target = np.where(codec.legal[state], rng.exponential(size=(count, ACTIONS)), 0.0)
    return {
        "key": (state + OFFSET).astype(np.int32),
        "target": (target / target.sum(axis=1, keepdims=True)).astype(np.float32),
        "weight": rng.integers(1, 30, size=count).astype(np.float32),
        "priority": rng.integers(2**32, size=count, dtype=np.uint64).astype(np.uint32),
    }


@pytest.fixture
def rows(codec, rng):
    return make_rows(codec, 50, rng)


class Unshared:
    """The same inputs without being a table: every row has its own forward pass."""

    def __init__(self, inputs):
        self.read = inputs.read
        self.width = inputs.width


def loss_and_gradient(batch, loss):
    network = Network(NetworkSpec(FEATURES, ACTIONS, (16, 16)), CPU)
    network.reset(torch.Generator().manual_seed(6))
    value = loss(network(batch.features), batch.target, batch.legal, batch.weight)
    value.backward()
    return value.item(), network.flat.grad


def check_same_gradient(batch, other, loss, rtol=1e-5):
    """Relative to the largest entry: single precision, summed in another order."""
    _, gradient = loss_and_gradient(batch, loss)
    _, other_gradient = loss_and_gradient(other, loss)
    np.testing.assert_allclose(gradient, other_gradient, rtol=0, atol=rtol * other_gradient.abs().max())


def draws(rows, inputs, count):
    feed, generator = UniformFeed([(rows, 50)], inputs, 64, 2.0, CPU), torch.Generator().manual_seed(1)
    return [feed.draw(generator) for _ in range(count)]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
def test_merged_minibatches_have_the_gradients_of_their_rows(loss, inputs, rows):
    merged, plain = (draws(rows, each, 20) for each in (inputs, Unshared(inputs)))
    for first, second in zip(merged, plain, strict=True):
        assert first.features.shape == (STATES, FEATURES)
        assert second.features.shape == (64, FEATURES)
        check_same_gradient(first, second, loss)


def test_the_merged_loss_lacks_the_scatter_alone(inputs, rows):
    """Squared error splits into that of the means and the scatter around them, which no output changes."""
    (first,), (second,) = draws(rows, inputs, 1), draws(rows, Unshared(inputs), 1)
    gaps = []
    for seed in (1, 2):
        network = Network(NetworkSpec(FEATURES, ACTIONS, (16, 16)), CPU)
        network.reset(torch.Generator().manual_seed(seed))
        merged, plain = (advantage_loss(network(b.features), b.target, b.legal, b.weight) for b in (first, second))
        gaps.append((plain - merged).item())
    assert gaps[0] > 1e-3
    assert gaps[0] == pytest.approx(gaps[1], rel=1e-4)


@pytest.mark.parametrize("mutant", ["neighbour's mean", "weights left out", "sum for mean"])
def test_faulty_merges_are_rejected(mutant, inputs, rows):
    (first,), (second,) = draws(rows, inputs, 1), draws(rows, Unshared(inputs), 1)
    target, weight = first.target, first.weight
    if mutant == "neighbour's mean":
        target = target.roll(1, 0)
    elif mutant == "weights left out":
        weight = torch.ones_like(weight)
    else:
        target = target * weight[:, None]
    wrong = RegressionBatch(first.features, first.legal, target, weight)
    with pytest.raises(AssertionError):
        check_same_gradient(wrong, second, advantage_loss)


def test_batches_smaller_than_the_table_are_not_merged(inputs, rows):
    feed = UniformFeed([(rows, 50)], inputs, STATES - 1, 1.0, CPU)
    assert len(feed.draw(torch.Generator().manual_seed(1)).features) == STATES - 1


def numbered(rows):
    """The rows with their number in the first action's target, to recognise them by."""
    target = rows["target"].copy()
    target[:, 0] = np.arange(len(target))
    return rows | {"target": target}


def p_value(feed, expected):
    number = feed.draw(torch.Generator().manual_seed(5)).target[:, 0].long().numpy()
    counts = np.bincount(number, minlength=len(expected))
    assert len(counts) == len(expected)
    assert counts.sum() == DRAWS
    return stats.chisquare(counts, DRAWS * expected).pvalue


def test_one_shard_is_drawn_uniformly(inputs, rows):
    feed = UniformFeed([(numbered(rows), 5000)], Unshared(inputs), DRAWS, 1.0, CPU)
    assert p_value(feed, np.full(50, 1 / 50)) > FALSE_ALARM


SIZES, SEEN = [20, 20, 0, 10], [20, 200, 0, 50]


def sharded_feed(inputs, rows, seen):
    rows, ends = numbered(rows), np.cumsum(SIZES)
    parts = [take(rows, slice(e - s, e)) for e, s in zip(ends, SIZES, strict=True)]
    return UniformFeed(list(zip(parts, seen, strict=True)), Unshared(inputs), DRAWS, 1.0, CPU)


def shares():
    return np.repeat([s / n if n else 0 for s, n in zip(SEEN, SIZES, strict=True)], SIZES) / sum(SEEN)


def test_shards_are_drawn_in_proportion_to_what_they_have_seen(inputs, rows):
    assert p_value(sharded_feed(inputs, rows, SEEN), shares()) > FALSE_ALARM


def test_shards_in_proportion_to_size_are_rejected(inputs, rows):
    """Named mutant: a shard's share is the number of rows it holds, not the number it has seen."""
    assert p_value(sharded_feed(inputs, rows, SIZES), shares()) < FALSE_ALARM


def test_first_rows_of_a_shard_preferred_is_rejected(inputs, rows, monkeypatch):
    """Named mutant: the place in the shard is drawn as u^1.1 instead of u."""

    def preferring(self, count, generator):
        place = torch.rand(count, generator=generator, dtype=torch.float64) ** 1.1
        return None, (place * self._sizes[0]).long()

    monkeypatch.setattr(Draws, "_one", preferring)
    feed = UniformFeed([(numbered(rows), 50)], Unshared(inputs), DRAWS, 1.0, CPU)
    assert p_value(feed, np.full(50, 1 / 50)) < FALSE_ALARM


@pytest.mark.parametrize("seen", [[50], SEEN])
def test_weights_have_mean_one_over_all_rows_ever(inputs, rows, seen):
    """Of n = 200,000 draws of weights of 1 to 29, deviation 0.56 of the mean: 5 standard errors are 0.0063."""
    feed = (
        UniformFeed([(rows, 50)], Unshared(inputs), DRAWS, 1.0, CPU)
        if len(seen) == 1
        else sharded_feed(inputs, rows, seen)
    )
    weight = feed.draw(torch.Generator().manual_seed(3)).weight.double()
    assert abs(weight.mean().item() - 1) < 5 * weight.std().item() / DRAWS**0.5


def check_factor_on_weights(make, rows):
    """A constant factor on t changes neither loss nor gradient, hence not the step."""
    factor = take(rows, slice(None)) | {"weight": rows["weight"] * np.float32(1000.0)}
    first, second = (make(each).draw(torch.Generator().manual_seed(1)) for each in (rows, factor))
    check_same_gradient(first, second, advantage_loss)


def merged(rows):
    result = Merged(STATES, ACTIONS, OFFSET)
    result.add(rows)
    return result


@pytest.mark.parametrize("kind", ["uniform", "merged"])
def test_step_does_not_grow_with_t(kind, inputs, rows):
    if kind == "uniform":
        check_factor_on_weights(lambda r: UniformFeed([(r, 50)], inputs, 64, 1.0, CPU), rows)
    else:
        check_factor_on_weights(lambda r: MergedFeed(merged(r), inputs, 1.0, CPU), rows)


def test_raw_weights_are_rejected(inputs, rows):
    """Named mutant: weights are not divided by their mean."""

    class Raw(UniformFeed):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self._minibatches = replace(self._minibatches, weight_scale=1.0)

    with pytest.raises(AssertionError):
        check_factor_on_weights(lambda r: Raw([(r, 50)], inputs, 64, 1.0, CPU), rows)


def all_rows(rows, inputs, scale, weight):
    features, legal = inputs.read(rows["key"])
    weight = torch.from_numpy(weight / weight.mean())
    return RegressionBatch(features, legal, torch.from_numpy(rows["target"] / np.float32(scale)), weight)


def check_merged_gradient(rows, batch, inputs, loss, weight):
    _, gradient = loss_and_gradient(batch, loss)
    _, expected = loss_and_gradient(all_rows(rows, inputs, 2.0, weight), loss)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=2e-6 * expected.abs().max())


@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
def test_merged_gradient_is_that_of_every_row(loss, codec, inputs, rng):
    rows = make_rows(codec, 500, rng)
    batch = MergedFeed(merged(rows), inputs, 2.0, CPU).draw(torch.Generator())
    assert len(batch.features) == STATES - 1  # the state without rows has no part
    check_merged_gradient(rows, batch, inputs, loss, rows["weight"])


@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
def test_means_without_weights_are_rejected(loss, codec, inputs, rng):
    """Named mutants: merged as if all rows weighed the same; every state weighs the same."""
    rows = make_rows(codec, 500, rng)
    plain = MergedFeed(merged(rows | {"weight": np.ones(500, np.float32)}), inputs, 2.0, CPU).draw(torch.Generator())
    good = MergedFeed(merged(rows), inputs, 2.0, CPU).draw(torch.Generator())
    even = RegressionBatch(good.features, good.legal, good.target, torch.ones_like(good.weight))
    for wrong in (plain, even):
        with pytest.raises(AssertionError):
            check_merged_gradient(rows, wrong, inputs, loss, rows["weight"])


def test_targets_are_in_units_of_the_scale(inputs, rows):
    generator = torch.Generator()
    drawn = [UniformFeed([(rows, 50)], inputs, 64, s, CPU).draw(generator.manual_seed(2)).target for s in (1.0, 8.0)]
    assert torch.equal(drawn[0], 8.0 * drawn[1])
    whole = [MergedFeed(merged(rows), inputs, s, CPU).draw(generator).target for s in (1.0, 8.0)]
    assert torch.equal(whole[0], 8.0 * whole[1])
    means, weights = merged(rows).means()
    np.testing.assert_allclose(whole[0], means[weights > 0], rtol=1e-6)


def test_one_shard_is_not_copied_on_the_cpu(inputs, rows):
    """Tens of millions of rows must not be held twice."""
    feed = UniformFeed([(rows, 50)], inputs, 64, 1.0, CPU)
    source = feed._minibatches.source
    held = {"key": source.keys, "target": source.target, "weight": source.weight}
    for name, tensor in held.items():
        assert tensor.data_ptr() == rows[name].ctypes.data


def test_the_generator_alone_decides(inputs, rows, untouched_global_rng):
    feed = sharded_feed(inputs, rows, SEEN)
    with untouched_global_rng():
        draws = [feed.draw(torch.Generator().manual_seed(seed)).target for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_nothing_to_fit_to_is_refused(inputs, rows):
    none = take(rows, slice(0, 0))
    weightless = rows | {"weight": np.zeros(50, np.float32)}
    for shards in ([(none, 0)], [(none, 0), (none, 0)], [(weightless, 50)]):
        count = len(concatenate([r for r, _ in shards])["key"])
        with pytest.raises(ValueError, match=f"none of the {count} rows to fit to has a positive weight"):
            UniformFeed(shards, inputs, 8, 1.0, CPU)
    with pytest.raises(ValueError, match="none of the 50 rows to fit to has a positive weight"):
        MergedFeed(merged(weightless), inputs, 1.0, CPU)
