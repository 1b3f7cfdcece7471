"""Single traversals of a solver that learns nothing, and means over many, against exact values."""

import numpy as np
from oracles.estimates import FALSE_ALARM
from scipy import stats


def single_traversals(solver, traverser, n):
    """For n traversals in turn: (entries into `moments` [K], the solver)."""
    for index in range(n):
        solver.tables.moments[:] = 0.0
        solver.advance(np.iinfo(np.int64).max, index + 1, (traverser, traverser + 1))
        yield solver.tables.moments[0].copy(), solver


def check_moments(mean, variance, n, expected, visits, least):
    """Means over n independent traversals equal `expected` [S, A]: z-tests of the cells with 200 expected visits.

    `visits` [S]: exact expected numbers of visits. Level 1e-6 over all cells together. At least `least` cells.
    """
    tested = np.broadcast_to((visits >= 200.0)[:, None], expected.shape) & ((variance > 0.0) | (expected != 0.0))
    assert tested.sum() >= least, f"only {tested.sum()} cells are tested"
    threshold = stats.norm.isf(FALSE_ALARM / (2 * tested.sum()))
    excess = np.abs(mean - expected) - threshold * np.sqrt(variance / n) - 1e-12
    worst = np.unravel_index(np.where(tested, excess, -np.inf).argmax(), excess.shape)
    assert excess[worst] <= 0.0, (
        f"state {worst[0]}, entry {worst[1]}: mean {mean[worst]:.6g}, expected {expected[worst]:.6g}, "
        f"standard error {np.sqrt(variance[worst] / n):.3g}"
    )


def check_batches(batches, expected, least):
    """Means of `batches` [B, cells] equal `expected` [cells]: t-tests, level 1e-6 over all cells together."""
    count = len(batches)
    deviation = batches.std(axis=0, ddof=1) / np.sqrt(count)
    tested = deviation > 0.0
    assert tested.sum() >= least, f"only {tested.sum()} cells are tested"
    threshold = stats.t.isf(FALSE_ALARM / (2 * tested.sum()), count - 1)
    score = np.abs(batches.mean(axis=0) - expected)[tested] / deviation[tested]
    assert score.max() <= threshold, f"score {score.max():.1f} beyond {threshold:.1f}"
