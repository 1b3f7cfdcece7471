"""External sampling in lockstep (Lanctot et al. 2009; Brown et al. 2019, Algorithm 2).

The traverser branches into every legal action, the opponent and chance play one draw of their own law. At each
traverser decision r~(I, a) = v~(h a) - sum_b sigma(I, b) v~(h b), with weight t: the rest of the world is sampled
on-policy, so I appears with frequency pi_{-i}(I) and needs no importance weight.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.games.batch import TERMINAL, Game
from actors.sampling import lanes
from actors.sampling.chance import ChanceStreams
from actors.sampling.traversals import Traversals, inverse_cdf, regression_rows, resolve_chance
from actors.strategies.strategy import Profile
from buffers.rows import Rows


@dataclass(frozen=True)
class _Level:
    """One decision of every live lane; lanes of the next level point back to it."""

    entry: NDArray[np.int64]  # [n] the lanes' numbers among all that entered, terminal ones included
    traversal: NDArray[np.int64]
    mine: NDArray[np.bool_]
    state: NDArray[Any]
    legal: NDArray[np.bool_]
    sigma: NDArray[np.float64]
    keys: lanes.Keys
    parent: NDArray[np.int64]  # [children] the lane that a child comes from
    action: NDArray[np.int64]  # [children] the action that leads to it


@dataclass(frozen=True)
class ExternalSampler:
    """Settings of external sampling."""

    game: Game
    keep_strategy: bool = False

    def sample(
        self, iteration: int, traverser: int, keys: lanes.Keys, profile: Profile, streams: ChanceStreams
    ) -> Traversals:
        """Play one traversal per lane key and return the rows, ordered by traversal."""
        levels, values, states = self._descend(traverser, keys, profile, streams)
        advantages = _ascend(levels, values)
        mine = [level.mine for level in levels]
        rows = _rows(levels, mine, advantages, float(iteration))
        theirs = [~level.mine for level in levels]
        sigma = [level.sigma[m] for level, m in zip(levels, theirs, strict=True)]
        strategy = _rows(levels, theirs, sigma, float(iteration)) if self.keep_strategy else None
        return Traversals(advantage=rows, strategy=strategy, transitions=None, states=states)

    def _descend(
        self, traverser: int, keys: lanes.Keys, profile: Profile, streams: ChanceStreams
    ) -> tuple[list[_Level], list[NDArray[np.float64]], int]:
        """Levels from the root down, and each level's entered lanes' payoffs (0 where play goes on)."""
        batch = self.game.start(len(keys))
        traversal = np.arange(len(keys))
        levels: list[_Level] = []
        values: list[NDArray[np.float64]] = []
        sign = 1.0 - 2.0 * traverser
        states = 0
        while True:
            keys = resolve_chance(batch, keys, streams)
            states += len(keys)
            values.append(batch.returns() * sign)
            alive = np.flatnonzero(batch.player != TERMINAL)
            if not len(alive):
                return levels, values, states
            batch, traversal, keys = batch.take(alive), traversal[alive], keys[alive]
            player, legal = batch.player, batch.legal()
            sigma = profile.probabilities(batch, player, legal)
            mine = player == traverser
            drawn = inverse_cdf(sigma, lanes.uniform(keys))
            chosen = np.where(mine[:, None], legal, np.arange(legal.shape[1]) == drawn[:, None])
            parent, action = np.nonzero(chosen)
            state = batch.information_state()
            levels.append(_Level(alive, traversal, mine, state, legal, sigma, keys, parent, action))
            batch, traversal = batch.take(parent), traversal[parent]
            keys = lanes.child(keys[parent], action)
            batch.step(action)


def _ascend(levels: list[_Level], values: list[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """Values up, deepest level first; returns the advantages [m, A] of each level's traverser lanes."""
    advantages: list[NDArray[np.float64]] = []
    for depth in range(len(levels) - 1, -1, -1):
        level = levels[depth]
        q = np.zeros(level.legal.shape)
        q[level.parent, level.action] = values[depth + 1]
        # An opponent's row of q holds only the action drawn, so its sum is the value that was sampled.
        v = np.where(level.mine, (level.sigma * q).sum(axis=1), q.sum(axis=1))
        values[depth][level.entry] = v
        advantages.append(np.where(level.legal, q - v[:, None], 0.0)[level.mine])
    advantages.reverse()
    return advantages


def _rows(
    levels: list[_Level], masks: list[NDArray[np.bool_]], targets: list[NDArray[np.float64]], weight: float
) -> Rows:
    """Rows of the masked lanes, ordered by traversal: they do not depend on how lanes were batched."""
    pairs = list(zip(levels, masks, strict=True))
    order = np.argsort(np.concatenate([level.traversal[m] for level, m in pairs]), kind="stable")
    state = np.concatenate([level.state[m] for level, m in pairs])[order]
    keys = np.concatenate([level.keys[m] for level, m in pairs])[order]
    return regression_rows(state, np.concatenate(targets)[order], np.full(len(order), weight), keys)
