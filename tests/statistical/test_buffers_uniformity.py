"""Every row offered is kept, and drawn, with equal probability, whatever shards, batches and arrival order.

n: TRIALS independent streams of POSITIONS rows, of which CAPACITY are kept, or DRAWS drawn from those kept.
False-alarm rate 1e-6 a test (chi-square over the positions). Bias detected with as small a chance of a miss:
a relative deviation, root mean square over the positions, of 11 % (kept) and about 25 % (drawn). Every named
mutant below is rejected by the same checker on the same n.
"""

import numpy as np
import pytest
from scipy import stats

from buffers.chunks import ChunkId
from buffers.circular import Circular
from buffers.reservoir import Reservoir
from buffers.rows import Column, RowSchema, concatenate, take
from buffers.shard import Shard
from buffers.sharded import Sharded, split_capacity

POSITIONS, CAPACITY, TRIALS, DRAWS, SLACK = 240, 60, 300, 20, 9
FALSE_ALARM = 1e-6
SCHEMA = RowSchema([Column("position", np.int32), Column("priority", np.uint32)])


def p_value(counts, expected, variance):
    """Chi-square with the variance of one count; the standardised counts' covariance has trace POSITIONS."""
    return stats.chi2.sf(((counts - expected) ** 2 / variance).sum(), POSITIONS)


def stream(rng, shuffle):
    rows = SCHEMA.allocate(POSITIONS)
    rows["position"][:] = np.arange(POSITIONS)
    rows["priority"][:] = rng.integers(0, 2**32, POSITIONS, dtype=np.uint64).astype(np.uint32)
    return take(rows, rng.permutation(POSITIONS)) if shuffle else rows


def feed(shards, kind, sizes, rows):
    """One trial's shards after chunks of the given sizes, dealt in turn."""
    sharded = Sharded([Shard(kind(c)) for c in split_capacity(CAPACITY, shards)])
    ends = np.cumsum(sizes)
    assert ends[-1] == POSITIONS
    for i, (end, size) in enumerate(zip(ends, sizes, strict=True)):
        sharded.add(ChunkId(1, 0, i), take(rows, slice(end - size, end)))
    return sharded


def exact(capacity):
    return Reservoir(SCHEMA, capacity, SLACK)


def kept_p_value(shards, sizes, kind=exact, shuffle=False):
    rng = np.random.default_rng(7)
    counts = np.zeros(POSITIONS, np.int64)
    for _ in range(TRIALS):
        sharded = feed(shards, kind, sizes, stream(rng, shuffle))
        kept = concatenate([shard.view() for shard in sharded.shards])["position"]
        assert len(kept) == CAPACITY
        counts += np.bincount(kept, minlength=POSITIONS)
    chance = CAPACITY / POSITIONS
    return p_value(counts, TRIALS * chance, TRIALS * chance * (1 - chance))


def drawn_p_value(shards, sizes, sample=Sharded.sample):
    rng = np.random.default_rng(8)
    counts = np.zeros(POSITIONS, np.int64)
    for _ in range(TRIALS):
        sharded = feed(shards, exact, sizes, stream(rng, False))
        counts += np.bincount(sample(sharded, DRAWS, rng)["position"], minlength=POSITIONS)
    # A row of shard s is held with chance size/seen, and then hit by each draw with chance q = seen/(N size).
    mean = DRAWS / POSITIONS
    hit = [shard.seen / (POSITIONS * shard.size) for shard in sharded.shards]
    shard_of = np.repeat(np.arange(len(sizes)) % shards, sizes)
    variance = mean * (1 + (DRAWS - 1) * np.array(hit)[shard_of] - mean)
    return p_value(counts, TRIALS * mean, TRIALS * variance)


# Dealt evenly, so that every shard sees equally many rows.
EVEN = [(1, [240]), *((s, c) for s in (1, 2, 4) for c in ([3] * 80, [60] * 4, [7] * 4 + [53] * 4))]
UNEVEN = [[200, 10, 30], [5, 100, 5, 100, 30], [3] * 80]


@pytest.mark.parametrize(("shards", "sizes"), EVEN, ids=lambda v: f"{len(v)}chunks" if type(v) is list else None)
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_row_is_kept_equally_often(shards, sizes, shuffle):
    assert kept_p_value(shards, sizes, shuffle=shuffle) > FALSE_ALARM


@pytest.mark.parametrize("sizes", UNEVEN, ids=lambda sizes: f"{len(sizes)}chunks")
@pytest.mark.parametrize("shards", [1, 3])
def test_every_row_is_drawn_equally_often(shards, sizes):
    assert drawn_p_value(shards, sizes) > FALSE_ALARM


def ring_buffer(capacity):
    """Mutant: the newest rows in place of a sample of all."""
    return Circular(SCHEMA, capacity)


class NewestBelowStaleThreshold(Reservoir):
    """Mutant: trims to the newest of the rows that passed the threshold, without looking at priorities."""

    def _survivors(self):
        exact = super()._survivors()
        keep = np.zeros_like(exact)
        keep[-self.capacity :] = True
        return keep


class FirstBelowThreshold(Reservoir):
    """Mutant: the threshold is lowered, but the rows that came first stay where they are."""

    def _survivors(self):
        keep = np.zeros_like(super()._survivors())
        keep[: self.capacity] = True
        return keep


class LargestOfPiece(Reservoir):
    """Mutant: keeps the rows of largest priority, but rejects by the threshold of the smallest."""

    def _survivors(self):
        priority = self._slots.columns["priority"][: self._held]
        super()._survivors()
        keep = np.zeros(self._held, bool)
        keep[np.argsort(priority)[-self.capacity :]] = True
        return keep


MUTANTS = [NewestBelowStaleThreshold, FirstBelowThreshold, LargestOfPiece]


@pytest.mark.parametrize("kind", [ring_buffer, *(lambda c, m=m: m(SCHEMA, c, SLACK) for m in MUTANTS)])
@pytest.mark.parametrize("shards", [1, 4])
def test_mutant_reservoirs_are_rejected(kind, shards):
    assert kept_p_value(shards, [3] * 80, kind) < FALSE_ALARM


def sample_by_size_held(sharded, n, rng):
    """Mutant: draws a shard in proportion to the rows it holds instead of those it has seen."""
    sizes = np.array([shard.size for shard in sharded.shards])
    counts = rng.multinomial(n, sizes / sizes.sum())
    return concatenate([s.sample(int(k), rng) for s, k in zip(sharded.shards, counts, strict=True) if k])


def sample_shards_equally(sharded, n, rng):
    """Mutant: draws every shard equally often."""
    counts = rng.multinomial(n, np.full(len(sharded.shards), 1 / len(sharded.shards)))
    return concatenate([s.sample(int(k), rng) for s, k in zip(sharded.shards, counts, strict=True) if k])


@pytest.mark.parametrize("sample", [sample_by_size_held, sample_shards_equally])
@pytest.mark.parametrize("sizes", UNEVEN[:2], ids=lambda sizes: f"{len(sizes)}chunks")
def test_mutant_draws_are_rejected(sample, sizes):
    assert drawn_p_value(3, sizes, sample) < FALSE_ALARM


def test_draws_come_in_exchangeable_order():
    """A batch cut into halves is two samples: mutant, rows left in the order of their shards."""

    def first_halves(in_order):
        rng = np.random.default_rng(9)
        sharded = feed(2, exact, [120, 120], stream(rng, False))
        positions = sharded.sample(4000, rng)["position"]
        return int(((np.sort(positions) if in_order else positions)[:2000] < 120).sum())

    def binomial_p_value(count):
        return stats.binomtest(count, 2000, 0.5).pvalue

    assert binomial_p_value(first_halves(False)) > FALSE_ALARM
    assert binomial_p_value(first_halves(True)) < FALSE_ALARM
