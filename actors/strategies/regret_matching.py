"""Regret matching with the deep methods' fallback."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def regret_matching(advantages: NDArray[Any], legal: NDArray[np.bool_]) -> NDArray[np.float64]:
    """p(a) in proportion to max(D(a), 0) over legal actions (Brown et al. 2019, section 4).

    advantages [n, A] and legal [n, A] -> float64 [n, A]. Where no legal entry is positive the legal action with
    the largest D has probability 1, the lowest action id on ties.
    """
    masked = np.where(legal, advantages.astype(np.float64), -np.inf)
    positive = np.maximum(masked, 0.0)
    total = positive.sum(axis=1, keepdims=True)
    stuck = np.flatnonzero(total[:, 0] <= 0.0)
    if len(stuck):
        positive[stuck, masked[stuck].argmax(axis=1)] = 1.0
        total[stuck] = 1.0
    probabilities: NDArray[np.float64] = positive / total
    return probabilities
