"""Tests of sampled rows: a traversal meets an information state at most once, so rows of a state are independent."""

import numpy as np
from scipy import stats

FALSE_ALARM = 1e-6


def check_means(key, values, expected, n, visits, what="estimate"):
    """The mean over `n` traversals of the sum of `values` [rows, B] per key equals `expected` [S, B].

    A z-test per cell with at least 200 expected visits (`visits` [S], exact, not the sampled ones); the
    threshold is that of a false alarm of 1e-6 over all cells together (normal approximation, 5 to 7 sigma).
    """
    cells = expected.size
    width = expected.shape[1]
    index = (np.asarray(key, np.int64)[:, None] * width + np.arange(width)).reshape(-1)
    flat = np.asarray(values, np.float64).reshape(-1)
    total = np.bincount(index, weights=flat, minlength=cells)
    second = np.bincount(index, weights=flat**2, minlength=cells)
    deviation = np.sqrt(np.maximum(second - total**2 / n, 0.0))
    tested = np.repeat(visits >= 200.0, width)
    assert tested.any(), "no state is visited often enough to be tested"
    threshold = stats.norm.isf(FALSE_ALARM / (2 * tested.sum()))
    # Rows hold float32: allow its rounding where an estimate hardly varies.
    rounding = 1e-6 * np.bincount(index, weights=np.abs(flat), minlength=cells) + 1e-9
    excess = np.abs(total - n * expected.reshape(-1)) - threshold * deviation - rounding
    worst = np.where(tested, excess, -np.inf).argmax()
    assert excess[worst] <= 0.0, (
        f"{what}: state {worst // width}, entry {worst % width}: mean {total[worst] / n:.6g}, expected "
        f"{expected.reshape(-1)[worst]:.6g}, standard error {deviation[worst] / n:.3g}"
    )
    return int(tested.sum())


def check_frequencies(state, action, strategy):
    """Actions seen at each state follow `strategy` [S, A]: one chi-square over all states, level 1e-6.

    Given the number of visits of a state (independent games, one visit each) its actions are multinomial.
    States whose rarest possible action is expected fewer than 5 times are left out.
    """
    width = strategy.shape[1]
    seen = np.bincount(state * width + action, minlength=strategy.size).reshape(strategy.shape)
    expected = seen.sum(axis=1, keepdims=True) * strategy
    possible = strategy > 0.0
    assert not seen[~possible].any(), "an action of probability 0 was played"
    used = (np.where(possible, expected, np.inf).min(axis=1) >= 5.0) & (possible.sum(axis=1) > 1)
    assert used.any(), "no state is visited often enough to be tested"
    rows = possible & used[:, None]
    statistic = (((seen - expected) ** 2)[rows] / expected[rows]).sum()
    freedom = int(rows.sum() - used.sum())
    assert statistic < stats.chi2.isf(FALSE_ALARM, freedom), f"chi-square {statistic:.1f}, {freedom} degrees"
    return freedom
