"""Outcome sampling with a baseline, in lockstep (Lanctot et al. 2009; Steinberger et al. 2020, section 4).

One action at every decision. The traverser explores: xi = eps / |A| + (1 - eps) sigma; the opponent and chance play
their own law. Backward along the sampled path, at the decisions of both players, a' the action taken:

    v~(h, a) = Q(h, a) + 1[a = a'] / xi(h, a) * (v~(h') - Q(h, a)),      v~(h) = sum_a sigma(h, a) v~(h, a)

The advantage row of a traverser's decision is (I, v~(h, .) - v~(h)) with weight t / pi_i^xi(I).
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.games.batch import TERMINAL, Game
from actors.sampling import lanes
from actors.sampling.chance import ChanceStreams
from actors.sampling.traversals import Traversals, inverse_cdf, regression_rows, resolve_chance
from actors.strategies.strategy import Profile
from buffers.rows import Rows

Baseline = Callable[[NDArray[Any]], NDArray[np.float64]]  # history keys [n] -> player 0's Q(h, .) [n, A]


@dataclass(frozen=True)
class OutcomeSampler:
    """Settings of outcome sampling. `scaled`: multiply xi by |A| in the reach weight (rescales it per state)."""

    game: Game
    epsilon: float
    scaled: bool = True
    keep_strategy: bool = False
    keep_transitions: bool = False

    def sample(
        self,
        iteration: int,
        traverser: int,
        keys: lanes.Keys,
        profile: Profile,
        streams: ChanceStreams,
        baseline: Baseline | None = None,
    ) -> Traversals:
        """Play one traversal per lane key and return the rows, ordered by traversal."""
        path = self._play(traverser, keys, profile, streams, self.keep_transitions or baseline is not None)
        return self._rows(iteration, traverser, path, baseline)

    def _play(
        self, traverser: int, keys: lanes.Keys, profile: Profile, streams: ChanceStreams, need_history: bool
    ) -> "_Path":
        batch = self.game.start(len(keys))
        lane = np.arange(len(keys))
        reach = np.ones(len(keys))
        payoff = np.zeros(len(keys))
        steps: list[_Step] = []
        while True:
            keys = resolve_chance(batch, keys, streams)
            player = batch.player
            over = player == TERMINAL
            if over.any():
                payoff[lane[over]] = batch.returns()[over]
                alive = np.flatnonzero(~over)
                if not len(alive):
                    return _Path.join(steps, payoff)
                batch, lane, keys = batch.take(alive), lane[alive], keys[alive]
                reach, player = reach[alive], player[alive]
            history = batch.history() if need_history else None  # first: it tells the information state too
            legal = batch.legal()
            sigma = profile.probabilities(batch, player, legal)
            # Actions are few and lanes many: numpy is several times faster along the long axis, so it is the last.
            legal, sigma = np.ascontiguousarray(legal.T), np.ascontiguousarray(sigma.T)
            mine = player == traverser
            count = legal.sum(axis=0)
            epsilon = np.where(mine, self.epsilon, 0.0)
            xi = epsilon / count * legal + (1.0 - epsilon) * sigma
            action = inverse_cdf(xi.T, lanes.uniform(keys))
            row = np.arange(len(lane))
            xi_action = xi[action, row]
            steps.append(
                _Step(
                    lane=lane,
                    mine=mine,
                    state=batch.information_state(),
                    history=history,
                    legal=legal,
                    sigma=sigma,
                    action=action,
                    ratio=sigma[action, row] / xi_action,
                    xi_action=xi_action,
                    reach=reach,
                    keys=keys,
                )
            )
            scale = count if self.scaled else 1
            reach = np.where(mine, reach * xi_action * scale, reach)
            keys = lanes.child(keys, action)
            batch.step(action)

    def _rows(self, iteration: int, traverser: int, path: "_Path", baseline: Baseline | None) -> Traversals:
        sign = 1.0 - 2.0 * traverser
        place = np.arange(len(path.lane))
        q = expected = chosen = None
        if baseline is not None:
            assert path.history is not None
            q = np.ascontiguousarray(baseline(path.history).T) * sign  # one evaluation for the whole chunk
            expected = (path.sigma * q).sum(axis=0)
            chosen = q[path.action, place]
        value, surprise = _backward(path, path.payoff * sign, expected, chosen)

        # By traversal, so that rows do not depend on how lanes were batched. 16-bit numbers are sorted by radix.
        lane = path.lane.astype(np.uint16) if len(path.payoff) <= 1 << 16 else path.lane
        order = np.argsort(lane, kind="stable")
        mine = order[path.mine[order]]
        above = -value[mine] if q is None else q[:, mine] - value[mine]
        advantage = path.legal[:, mine] * above
        advantage[path.action[mine], np.arange(len(mine))] += surprise[mine] / path.xi_action[mine]
        weight = iteration / path.reach[mine]
        return Traversals(
            advantage=regression_rows(path.state[mine], advantage.T, weight, path.keys[mine]),
            strategy=_strategy_rows(iteration, path, order) if self.keep_strategy else None,
            transitions=_transitions(path, order) if self.keep_transitions else None,
            states=len(path.lane) + len(path.payoff),
            metrics=_weight_tail(weight / iteration),
        )


@dataclass(frozen=True)
class _Step:
    """One decision of every live lane. Actions come first in `legal` and `sigma` [A, n]."""

    lane: NDArray[np.int64]
    mine: NDArray[np.bool_]
    state: NDArray[Any]
    history: NDArray[Any] | None
    legal: NDArray[np.bool_]
    sigma: NDArray[np.float64]
    action: NDArray[np.int64]
    ratio: NDArray[np.float64]  # sigma / xi of the action taken
    xi_action: NDArray[np.float64]
    reach: NDArray[np.float64]  # the traverser's xi over its earlier decisions
    keys: lanes.Keys


@dataclass(frozen=True)
class _Path(_Step):
    """The decisions of all steps one after another."""

    steps: list[slice]
    payoff: NDArray[np.float64]  # [lanes] player 0's

    @classmethod
    def join(cls, steps: list[_Step], payoff: NDArray[np.float64]) -> "_Path":
        """Every column over all steps."""
        columns: dict[str, Any] = {}
        for column in fields(_Step):
            pieces = [getattr(step, column.name) for step in steps]
            columns[column.name] = (
                None if pieces[0] is None else np.concatenate(pieces, axis=-1 if column.name in _BY_ACTION else 0)
            )
        ends = np.cumsum([len(step.lane) for step in steps]).tolist()
        return cls(**columns, steps=[slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)], payoff=payoff)


_BY_ACTION = ("legal", "sigma")


def _backward(
    path: _Path,
    value: NDArray[np.float64],
    expected: NDArray[np.float64] | None,
    chosen: NDArray[np.float64] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """v~(h) and v~(h') - Q(h, a') at every decision, from the lanes' payoffs `value`, which is overwritten.

    `expected`: sum_a sigma(h, a) Q(h, a), `chosen`: Q(h, a'); None where Q = 0.
    """
    values, surprise = np.empty(len(path.lane)), np.empty(len(path.lane))
    for at in reversed(path.steps):
        lane = path.lane[at]
        if expected is None or chosen is None:
            surprise[at] = value[lane]
            here = path.ratio[at] * surprise[at]
        else:
            surprise[at] = value[lane] - chosen[at]
            here = expected[at] + path.ratio[at] * surprise[at]
        value[lane] = values[at] = here
    return values, surprise


def _strategy_rows(iteration: int, path: _Path, order: NDArray[np.int64]) -> Rows:
    """The opponent plays on-policy, so its rows appear with its own reach, as the average needs.

    They also appear with the traverser's xi, which changes with t: the weight t / pi_i^xi takes that out.
    """
    theirs = order[~path.mine[order]]
    sigma = path.sigma[:, theirs].T
    return regression_rows(path.state[theirs], sigma, iteration / path.reach[theirs], path.keys[theirs])


def _transitions(path: _Path, order: NDArray[np.int64]) -> Rows:
    """(h, a, reward, h') at both players' decisions; the reward is player 0's payoff on the last one."""
    assert path.history is not None
    lane, history = path.lane[order], path.history[order]
    terminal = np.r_[lane[1:] != lane[:-1], True]
    following = history.copy()
    going_on = np.flatnonzero(~terminal)
    following[going_on] = history[going_on + 1]
    return {
        "history": history,
        "action": path.action[order].astype(np.int16),
        "reward": np.where(terminal, path.payoff[lane], 0.0).astype(np.float32),
        "next_history": following,
        "terminal": terminal,
    }


def _weight_tail(weight: NDArray[np.float64]) -> dict[str, float]:
    """How heavy the importance weights are (before the factor t)."""
    if not len(weight):
        return {}
    tail = len(weight) * 99 // 100
    return {
        "importance_weight/mean": float(weight.mean()),
        "importance_weight/p99": float(np.partition(weight, tail)[tail]),
        "importance_weight/max": float(weight.max()),
    }
