"""Exact fits in place of networks, for enumerated games: they separate sampling faults from network faults."""

import numpy as np
from numpy.typing import NDArray

from buffers.merged import Merged, unique_transitions
from learners.baseline import Transitions


def exact_advantages(merged: Merged) -> NDArray[np.float64]:
    """The minimiser of the weighted advantage loss: D(I, .) [N, A] = weighted mean of I's targets.

    A state without rows is undetermined; 1 for every action makes regret matching play uniformly there.
    """
    means, weights = merged.means()
    return np.where(weights[:, None] > 0.0, means, 1.0)


def exact_baseline(q: NDArray[np.float64], transitions: Transitions, sweeps: int) -> NDArray[np.float64]:
    """The fixed point of expected SARSA on the transitions, in player 0's chips.

    q [H, A] holds the values before; pairs (h, a) without transitions keep them. `sweeps` must be at least the
    game's horizon: one sweep carries values up by one decision.
    """
    merged = unique_transitions(transitions.rows)
    width = q.shape[1]
    pair = merged.history.astype(np.int64) * width + merged.action
    pairs, slot = np.unique(pair, return_inverse=True)
    total = np.bincount(slot, weights=merged.count)
    going_on = ~merged.terminal
    probabilities = transitions.next_probabilities(merged.next_history) * going_on[:, None]
    following = np.where(going_on, merged.next_history, 0)
    flat = q.copy().reshape(-1)
    for _ in range(sweeps):
        target = merged.reward + (flat.reshape(q.shape)[following] * probabilities).sum(axis=1)
        updated = np.bincount(slot, weights=merged.count * target) / total
        if np.array_equal(updated, flat[pairs]):
            break
        flat[pairs] = updated
    return flat.reshape(q.shape)
