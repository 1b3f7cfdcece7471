"""Several ranks fit what one rank fits with the same whole minibatches, and have the same bits as each other.

Tolerance: after 320 steps of 1e-3 in single precision, with sums in another order, weights of all cases here differ
by at most 4e-6 from one rank's; the check allows 2e-5. Named mutants differ by more than 1e-3.
"""

import functools
import itertools
import multiprocessing
import socket
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from oracles import rank_cases
from oracles.rank_cases import (
    CPU,
    FEW,
    LAYOUTS,
    MANY,
    baseline,
    check_drawn_once,
    drawn_rows,
    in_threads,
    regression,
    regression_feed,
    whole,
)

from buffers.rows import take
from learners.feed import UniformFeed
from learners.fit import Optimiser, fit
from learners.networks import Network, NetworkSpec
from learners.ranks import ALONE, LostRankError, ProcessGroup, agree, gather, listen, portion, shards_of

LOSSES = ["advantage_loss", "average_mse_loss", "average_cross_entropy_loss"]
KINDS = ["rows", "merged minibatches"]


@functools.cache
def alone(work, *arguments):
    """`work` in one process."""
    return work(ALONE, *arguments)


def check_equal(one, many):
    """`one`: parameters and metrics of one rank; `many`: of every rank of several."""
    for name, value in one[0].items():
        for found, _ in many:
            assert found[name].tobytes() == many[0][0][name].tobytes()
        np.testing.assert_allclose(many[0][0][name], value, rtol=0, atol=2e-5)
    for _, metrics in many:
        assert metrics == many[0][1]
        assert metrics.loss == pytest.approx(one[1].loss, rel=1e-4)
        assert metrics.gradient_norm == pytest.approx(one[1].gradient_norm, rel=1e-4)


def combinations():
    """Fast: every kind with every layout, with the losses in turn. Slow: everything, over several hundred steps."""
    for (i, kind), (j, layout), (k, loss) in itertools.product(*map(enumerate, (KINDS, LAYOUTS, LOSSES))):
        if (i + j) % 3 == k:
            yield kind, layout, loss, FEW
        yield pytest.param(kind, layout, loss, MANY, marks=pytest.mark.slow)
    for loss in LOSSES:
        yield "merged", "one shard", loss, FEW
        yield pytest.param("merged", "one shard", loss, MANY, marks=pytest.mark.slow)


@pytest.mark.parametrize(("kind", "layout", "loss", "steps"), list(combinations()))
def test_two_ranks_equal_one(kind, layout, loss, steps):
    one = alone(regression, kind, whole(layout), loss, steps)
    check_equal(one, in_threads(2, lambda ranks: regression(ranks, kind, layout, loss, steps)))


@pytest.mark.parametrize("steps", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["rows", "merged"])
def test_baselines_of_ranks_equal_one(kind, steps):
    """31 transitions in a minibatch: no number of ranks here divides them."""
    one = alone(baseline, kind, steps)
    for size in (2, 3):
        check_equal(one, in_threads(size, lambda ranks: baseline(ranks, kind, steps)))


@pytest.mark.parametrize("kind", [*KINDS, "merged"])
def test_more_ranks_than_some_minibatches_have_rows_for(kind):
    """Of four ranks one has the empty shard alone, and none of any minibatch."""
    layout = "own shards" if kind != "merged" else "one shard"
    loss = "average_cross_entropy_loss"
    one = alone(regression, kind, whole(layout), loss, FEW)
    check_equal(one, in_threads(4, lambda ranks: regression(ranks, kind, layout, loss, FEW)))


class MeanOfMeans:
    """Named mutant: every rank takes the mean over its own rows, and the ranks' means are averaged."""

    def __init__(self, feed):
        self.ranks, self._feed = feed.ranks, feed

    def draw(self, generator):
        batch = self._feed.draw(generator)
        whole = rank_cases.BATCHES["rows"]
        return replace(batch, weight=batch.weight * (whole / max(1, len(batch.weight)) / self.ranks.size))


class OwnSeed(MeanOfMeans):
    """Named mutant: a rank draws from a seed of its own."""

    def draw(self, generator):
        if not hasattr(self, "_own"):
            self._own = torch.Generator().manual_seed(generator.initial_seed() + self.ranks.rank)
        return self._feed.draw(self._own)


class Unweighted(MeanOfMeans):
    """Named mutant: every rank divides by the rows that it has, and the ranks are summed."""

    def draw(self, generator):
        batch = self._feed.draw(generator)
        return replace(batch, weight=batch.weight * (rank_cases.BATCHES["rows"] / max(1, len(batch.weight))))


@pytest.mark.parametrize("mutant", [MeanOfMeans, OwnSeed, Unweighted])
def test_faulty_shares_are_rejected(mutant):
    one = alone(regression, "rows", "all shards", "advantage_loss", FEW)
    many = in_threads(2, lambda ranks: regression(ranks, "rows", "own shards", "advantage_loss", FEW, mutant))
    with pytest.raises(AssertionError):
        check_equal(one, many)
    differences = [np.abs(many[0][0][name] - value).max() for name, value in one[0].items()]
    assert max(differences) > 1e-3


# --- what every rank evaluates -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_row_drawn_is_one_ranks(layout, size):
    check_drawn_once(layout, size, CPU)


@pytest.mark.parametrize("layout", ["one shard", "all shards"])
def test_shards_that_all_have_are_dealt_out_evenly(layout):
    """Every third row of a minibatch of 50 is each one's."""
    for part, count in zip(drawn_rows(layout, 3, CPU), (17, 17, 16), strict=True):
        assert [len(minibatch) for minibatch in part] == [count] * 10


def test_weights_are_scaled_by_all_shards_of_all_ranks():
    """Over many minibatches the shares' weights add up to mean 1 per minibatch: 5 standard errors."""

    def total(ranks):
        feed, generator = regression_feed(ranks, "rows", "own shards"), torch.Generator().manual_seed(1)
        weights = [
            batch.weight.sum() / max(1, len(batch.weight)) for batch in (feed.draw(generator) for _ in range(2000))
        ]
        return torch.stack(weights).double()

    each = sum(in_threads(2, total))
    assert abs(each.mean().item() - 1) < 5 * each.std().item() / 2000**0.5


def test_parts_differ_by_one_at_most():
    for count in (0, 1, 5, 6, 100):
        parts = in_threads(4, lambda ranks, count=count: portion(ranks, count))
        assert [i for part in parts for i in range(count)[part]] == list(range(count))
        lengths = [len(range(count)[part]) for part in parts]
        assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_shards_are_shared_out_evenly(shards, size):
    """A shard's rows are divided by the ranks that have it; each rank's parts add up to as much as any other's."""
    numbers = [shards_of(rank, size, shards) for rank in range(size)]
    holders = np.bincount(np.concatenate(numbers), minlength=shards)
    assert len(holders) == shards
    for own in numbers:
        assert len(set(own)) == len(own)
        assert sum(1 / holders[own]) == pytest.approx(shards / size)
    assert set(holders) <= {1, size}  # no row is mirrored more often than it must be


def test_gather_lays_parts_of_different_lengths_end_to_end():
    for kind in (np.float64, np.int64):
        found = in_threads(3, lambda ranks, kind=kind: gather(ranks, np.full((ranks.rank * 2, 2), ranks.rank, kind)))
        for each in found:
            assert each.dtype == kind
            np.testing.assert_array_equal(each, [[1, 1]] * 2 + [[2, 2]] * 4)
    large = in_threads(2, lambda ranks: gather(ranks, np.array([2**62 + 1 + ranks.rank])))
    np.testing.assert_array_equal(large[0], [2**62 + 1, 2**62 + 2])


# --- what does not fit together ----------------------------------------------------------------------------


def test_ranks_that_disagree_are_refused():
    in_threads(2, lambda ranks: agree(ranks, seed=2**62 + 3, steps=10))
    with pytest.raises(ValueError, match=r"steps must be the same on every rank; ranks 0 to 1 have \[0, 1\]"):
        in_threads(2, lambda ranks: agree(ranks, seed=3, steps=ranks.rank))


@pytest.mark.parametrize("name", ["seed", "steps", "fresh"])
def test_fits_with_different_arguments_are_refused(name):
    def one(ranks):
        arguments = {"steps": 5, "seed": 1, "fresh": True} | ({name: 0} if ranks.rank else {})
        learner = rank_cases.regression_learner("advantage_loss")
        return learner.fit(regression_feed(ranks, "rows", "one shard"), **arguments)

    with pytest.raises(ValueError, match=f"{name} must be the same on every rank"):
        in_threads(2, one)


def test_baselines_with_different_seeds_are_refused():
    with pytest.raises(ValueError, match=r"seed must be the same on every rank; ranks 0 to 1 have \[7, 8\]"):
        in_threads(2, lambda ranks: baseline(ranks, "rows", 5, 7 + ranks.rank))


def test_a_baseline_batch_smaller_than_the_ranks_is_refused():
    codec, played = rank_cases.transitions()
    many = type("Many", (), {"rank": 0, "size": 3})()
    learner = rank_cases.BaselineLearner(
        NetworkSpec(8, 3, (4,)), rank_cases.history_inputs(codec, CPU), rank_cases.OptimiserSettings(1, 1), 1, CPU, many
    )
    with pytest.raises(ValueError, match="the batch is 2; it must be at least the number of ranks, 3"):
        learner.fit(played, 1, 2, 1)


def test_different_weights_are_noticed():
    """Ranks that do not start from the same weights end with different ones."""

    def one(ranks):
        network = Network(NetworkSpec(2, 1, (4,)), CPU)
        network.reset(torch.Generator().manual_seed(ranks.rank))
        return fit(network, Optimiser(network, 1e-3, 1.0), lambda n: n(torch.ones(3, 2)).mean(), 3, ranks=ranks)

    with pytest.raises(ValueError, match="weights must be the same on every rank"):
        in_threads(2, one)


def test_divergence_is_every_ranks():
    """A loss that is not finite on one rank is not on any."""

    def one(ranks):
        network = Network(NetworkSpec(2, 1, (4,)), CPU)
        factor = np.nan if ranks.rank else 1.0
        with pytest.raises(FloatingPointError, match="the fit diverged: loss nan"):
            fit(network, Optimiser(network, 1e-3, 1.0), lambda n: factor * n(torch.ones(3, 2)).mean(), 3, ranks=ranks)
        return True

    assert in_threads(2, one) == [True, True]


SHARD_FAULTS = {
    r"the ranks have the shards \[0, 2\]; they must be 0, 1, \.\.\., none left out": ([0], [2], 10),
    r"shards are numbered \[0, 0, 1\]; a rank may have each once": ([0, 0], [1], 10),
    r"shard 1 differs between the 2 ranks": ([0, 1], [1], 9),
}


@pytest.mark.parametrize("fault", SHARD_FAULTS)
def test_shards_that_do_not_fit_together_are_refused(fault):
    codec, rows = rank_cases.state_rows()
    *numbers, size = SHARD_FAULTS[fault]

    def one(ranks):
        part = take(rows, slice(0, size if ranks.rank else 10))
        own = numbers[ranks.rank]
        inputs = rank_cases.state_inputs(codec, CPU)
        return UniformFeed([(part, 10)] * len(own), inputs, 8, 1.0, CPU, ranks, own)

    with pytest.raises(ValueError, match=fault):
        in_threads(2, one)


# --- real processes ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pool():
    """Two processes that have loaded torch."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as processes:
        yield processes


def on_both(pool, rendezvous, work, *arguments):
    futures = [pool.submit(rank_cases.in_a_process, rank, 2, rendezvous, work, *arguments) for rank in range(2)]
    return [future.result(timeout=120) for future in futures]


@pytest.mark.slow
def test_two_processes_equal_one(pool, tmp_path):
    """All kinds of fits over gloo; both ways to meet, one after the other in the same processes."""
    one = alone(rank_cases.every_fit)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for rendezvous in (f"tcp://127.0.0.1:{port}", f"file://{tmp_path}/meet"):
        found = on_both(pool, rendezvous, rank_cases.every_fit)
        for name, expected in one.items():
            check_equal(expected, [each[name] for each in found])


def end_early(ranks):
    """Rank 1 leaves; rank 0 waits for it."""
    if ranks.rank:
        return None
    with pytest.raises(LostRankError, match="rank 0 of 2: another rank ended or did not come within 60 seconds"):
        ranks.sum(torch.ones(3))
    return True


@pytest.mark.slow
def test_a_rank_that_leaves_is_noticed_by_the_other(pool, tmp_path):
    assert on_both(pool, f"file://{tmp_path}/meet", end_early) == [True, None]


def test_others_that_do_not_come_are_not_waited_for_for_ever(tmp_path):
    store, _ = listen("127.0.0.1", 2)
    for rendezvous in (f"file://{tmp_path}/meet", store):
        began = time.monotonic()
        with pytest.raises(LostRankError, match=r"rank 0 of 2: another rank ended or did not come within 0\.5 seconds"):
            ProcessGroup(0, 2, rendezvous, CPU, timeout_seconds=0.5)
        assert time.monotonic() - began < 30  # and not the default of minutes


def test_one_process_may_be_a_group_and_leaves_it(tmp_path):
    store, address = listen("127.0.0.1", 1)
    assert address == f"tcp://127.0.0.1:{store.port}"
    earlier = None
    for rendezvous in (store, f"file://{tmp_path}/meet"):
        with ProcessGroup(0, 1, rendezvous, CPU) as ranks:
            if earlier:
                earlier.close()  # once more: that is not this group
            tensor = torch.arange(3.0)
            ranks.sum(tensor)
            assert tensor.tolist() == [0, 1, 2]
            with pytest.raises(ValueError, match="belongs to a group of ranks already"):
                ProcessGroup(0, 1, f"file://{tmp_path}/other", CPU)
        earlier = ranks


@pytest.mark.parametrize(("rank", "size"), [(2, 2), (-1, 2), (0, 0)])
def test_ranks_that_cannot_be_are_refused(rank, size, tmp_path):
    with pytest.raises(ValueError, match=f"rank is {rank} of {size}"):
        ProcessGroup(rank, size, f"file://{tmp_path}/meet", CPU)


@pytest.mark.parametrize("rendezvous", ["tcp://host", "tcp://:80", "env://", "/some/path", "file://path", ""])
def test_places_that_cannot_be_are_refused(rendezvous):
    with pytest.raises(ValueError, match=r"it must be tcp://host:port or file:///path"):
        ProcessGroup(0, 2, rendezvous, CPU)
