"""Identity 7: every chance stream follows the chance law at every fixed index; Weyl's frequencies converge fast.

Marginals: n = 50,000 (50 seeds, 1,000 nodes), one chi-square per index over 20 equal cells, false-alarm rate 1e-6 over
all indices; a density that is off by 20 % in one cell of 20 is
detected. Frequencies: a bound that holds for every phase, no false alarms.
"""

import numpy as np
import pytest
from oracles import python_games
from oracles.bridge import case
from scipy import stats

from actors.sampling import chance, lanes

FALSE_ALARM = 1e-6
SEEDS = 50
NODES = 1000
INDICES = 12
BINS = 20
LAW = np.array([0.5, 0.3, 0.2])


def uniforms(rng, n):
    return np.floor(rng.random(n) * 2**53) * 2.0**-53


def first_draws(kind, rng):
    """[SEEDS * NODES, INDICES] the first draws at nodes of runs of different seeds."""
    rows = []
    for seed in range(SEEDS):
        nodes = np.repeat(np.arange(NODES, dtype=np.uint64), INDICES)
        draws = chance.make(kind, seed).draw(nodes, uniforms(rng, len(nodes)))
        rows.append(draws.reshape(NODES, INDICES))
    return np.concatenate(rows)


def check_marginals(draws):
    """Each column of `draws` [seeds, indices] is uniform on [0, 1)."""
    assert (draws >= 0).all()
    assert (draws < 1).all()
    limit = stats.chi2.isf(FALSE_ALARM / draws.shape[1], BINS - 1)
    for index, column in enumerate(draws.T):
        seen = np.histogram(column, BINS, (0, 1))[0]
        statistic = ((seen - len(column) / BINS) ** 2 / (len(column) / BINS)).sum()
        assert statistic < limit, f"draw {index}: chi-square {statistic:.0f}, limit {limit:.0f}"


@pytest.mark.parametrize("kind", ["iid", "antithetic", "weyl"])
def test_every_fixed_index_is_uniform(kind):
    check_marginals(first_draws(kind, np.random.default_rng(1)))


def phases_from_one_half(draws):
    return (draws / 2) % 1.0


def no_phase(draws):
    return np.tile((np.arange(INDICES) * chance.GOLDEN_RATIO) % 1.0, (SEEDS * NODES, 1))


@pytest.mark.parametrize("mutant", [phases_from_one_half, no_phase])
def test_wrong_phases_are_rejected(mutant):
    """Named mutants: phases on half the interval; the same phase in every run."""
    with pytest.raises(AssertionError):
        check_marginals(mutant(first_draws("weyl", np.random.default_rng(1))))


@pytest.mark.parametrize("kind", ["iid", "antithetic", "weyl"])
def test_nodes_have_streams_of_their_own(kind):
    """Two nodes' first draws are uncorrelated over the seeds (5 sigma), and nothing depends on the other's draws."""
    rng = np.random.default_rng(2)
    pairs = []
    for seed in range(4000):
        pairs.append(chance.make(kind, seed).draw(np.array([5, 6], np.uint64), uniforms(rng, 2)))  # noqa: PERF401
    assert abs(np.corrcoef(np.array(pairs).T)[0, 1]) < 5 / np.sqrt(len(pairs))
    numbers = uniforms(rng, 6)
    mixed = chance.make(kind, 3).draw(np.array([5, 6, 5, 5, 6, 5], np.uint64), numbers)
    alone = chance.make(kind, 3).draw(np.full(4, 5, np.uint64), numbers[[0, 2, 3, 5]])
    assert np.array_equal(mixed[[0, 2, 3, 5]], alone)


def check_discrepancy(draw):
    """After every N the outcome frequencies are within 3 log(N + 1) / N of the law (0.5, 0.3, 0.2)."""
    edges = np.cumsum(LAW)[:-1]
    for stream in range(20):
        u = draw(stream, 20_000)
        outcome = np.searchsorted(edges, u, side="right")
        n = np.arange(1, len(u) + 1)
        for k, p in enumerate(LAW):
            error = np.abs(np.cumsum(outcome == k) / n - p)
            bound = 3 * np.log(n + 1) / n
            assert (error < bound).all(), f"outcome {k}: error {error[-1]:.2g} after {n[-1]}"


def test_weyl_frequencies_converge_like_log_n_over_n():
    def draw(stream, n):
        streams = chance.make("weyl", stream)
        return np.concatenate([streams.draw(np.full(500, 9, np.uint64), np.zeros(500)) for _ in range(n // 500)])

    check_discrepancy(draw)


def iid(stream, n):
    return np.random.default_rng(stream).random(n)


def rational(stream, n):
    phase = np.random.default_rng(stream).random()
    return (phase + np.arange(n) * 5 / 8) % 1.0


def count_not_kept(stream, n):
    """Each batch starts the stream anew: n is not persistent."""
    return np.concatenate(
        [chance.make("weyl", stream).draw(np.full(500, 9, np.uint64), np.zeros(500)) for _ in range(n // 500)]
    )


def off_by_batch(stream, n):
    """N counts batches, not draws."""
    phase = np.random.default_rng(stream).random()
    return (phase + (np.arange(n) // 500) * chance.GOLDEN_RATIO) % 1.0


@pytest.mark.parametrize("mutant", [iid, rational, count_not_kept, off_by_batch])
def test_wrong_streams_are_rejected(mutant):
    """Named mutants: independent draws; 5/8 for the golden ratio; a count that is not kept; a count of batches."""
    with pytest.raises(AssertionError):
        check_discrepancy(mutant)


def test_antithetic_draws_are_pairs():
    """Draw 2k + 1 of a node mirrors draw 2k, across batches of odd sizes."""
    rng, streams = np.random.default_rng(3), chance.make("antithetic", 1)
    seen = {4: [], 5: []}
    for size in (1, 2, 7, 3, 1, 1, 9):
        nodes = rng.integers(4, 6, size).astype(np.uint64)
        for node, u in zip(nodes, streams.draw(nodes, uniforms(rng, size)), strict=True):
            seen[int(node)].append(u)
    for draws in seen.values():
        pairs = np.array(draws[: len(draws) // 2 * 2]).reshape(-1, 2)
        assert len(pairs) > 2
        np.testing.assert_allclose(pairs.sum(axis=1), 1.0, atol=1e-15)
        assert len(np.unique(pairs[:, 0])) == len(pairs)


def test_the_mirror_of_zero_stays_below_one():
    draws = chance.make("antithetic", 1).draw(np.zeros(2, np.uint64), np.zeros(2))
    assert draws[0] == 0.0
    assert draws[1] == np.nextafter(1.0, 0.0)


def some_draws(streams, rng, batches):
    return [streams.draw(rng.integers(0, 6, 11).astype(np.uint64), uniforms(rng, 11)) for _ in range(batches)]


def check_resume(kind, take, give):
    """Draws after `give(fresh, take(streams))` are those of the undisturbed streams."""
    rng, again = np.random.default_rng(4), np.random.default_rng(4)
    whole = some_draws(chance.make(kind, 8), rng, 6)
    first = chance.make(kind, 8)
    some_draws(first, again, 3)
    kept = take(first)
    some_draws(first, np.random.default_rng(9), 2)  # must not reach into the snapshot
    resumed = chance.make(kind, 8)
    give(resumed, kept)
    for mine, theirs in zip(some_draws(resumed, again, 3), whole[3:], strict=True):
        assert np.array_equal(mine, theirs)


@pytest.mark.parametrize("kind", ["iid", "antithetic", "weyl"])
def test_restored_streams_go_on_identically(kind):
    check_resume(kind, lambda s: s.snapshot(), lambda s, kept: s.restore(kept))


def counts_lost(streams, kept):
    streams.restore(kept | {"count": np.zeros_like(kept["count"])})


def last_lost(streams, kept):
    streams.restore(kept | {"last": np.zeros_like(kept["last"])} if "last" in kept else kept)


@pytest.mark.parametrize(
    ("kind", "mutant"), [("weyl", counts_lost), ("antithetic", counts_lost), ("antithetic", last_lost)]
)
def test_incomplete_snapshots_are_rejected(kind, mutant):
    """Named mutants: n not persistent; the number that waits for its mirror not persistent."""
    with pytest.raises(AssertionError):
        check_resume(kind, lambda s: s.snapshot(), mutant)


@pytest.mark.parametrize("kind", ["iid", "antithetic", "weyl"])
def test_a_game_draws_its_chance_law(kind):
    """First card of the Python game, law (0.5, 0.3, 0.2): 6 sigma of independent draws, n = 100,000."""
    n, streams = 100_000, chance.make(kind, 5)
    batch = case(python_games.SECRET).game.start(n)
    index = np.arange(n)
    u = streams.draw(batch.chance_nodes(index), lanes.uniform(lanes.start(1, 1, 0, 0, n)))
    seen = np.bincount(batch.step_chance(index, u), minlength=3) / n
    assert (np.abs(seen - LAW) < 6 * np.sqrt(LAW * (1 - LAW) / n)).all()
