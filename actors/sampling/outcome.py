"""Outcome sampling with a baseline, in lockstep (Lanctot et al. 2009; Steinberger et al. 2020, section 4).

One action at every decision. The traverser explores: xi = eps / |A| + (1 - eps) sigma; the opponent and chance play
their own law. Backward along the sampled path, at the decisions of both players, a' the action taken:

    v~(h, a) = Q(h, a) + 1[a = a'] / xi(h, a) * (v~(h') - Q(h, a)),      v~(h) = sum_a sigma(h, a) v~(h, a)

The advantage row of a traverser's decision is (I, v~(h, .) - v~(h)) with weight t / pi_i^xi(I).
"""

from collections.abc import Callable
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
        q = self._baseline_values(path, traverser, baseline)
        return self._rows(iteration, traverser, path, q)

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
                    return _Path(steps, payoff)
                batch, lane, keys = batch.take(alive), lane[alive], keys[alive]
                reach, player = reach[alive], player[alive]
            legal = batch.legal()
            sigma = profile.probabilities(batch, player, legal)
            mine = np.flatnonzero(player == traverser)
            count = legal[mine].sum(axis=1)
            xi = sigma.copy()
            xi[mine] = (self.epsilon / count)[:, None] * legal[mine] + (1 - self.epsilon) * sigma[mine]
            action = inverse_cdf(xi, lanes.uniform(keys))
            row = np.arange(len(lane))
            xi_action = xi[row, action]
            steps.append(
                _Step(
                    lane=lane,
                    mine=mine,
                    state=batch.information_state(),
                    history=batch.history() if need_history else None,
                    legal=legal,
                    sigma=sigma,
                    action=action,
                    ratio=sigma[row, action] / xi_action,
                    xi_action=xi_action,
                    reach=reach,
                    keys=keys,
                )
            )
            reach = reach.copy()
            reach[mine] *= xi_action[mine] * count if self.scaled else xi_action[mine]
            keys = lanes.child(keys, action)
            batch.step(action)

    def _baseline_values(
        self, path: "_Path", traverser: int, baseline: Baseline | None
    ) -> list[NDArray[np.float64]] | None:
        """The traverser's Q at every step, from one evaluation for the whole chunk."""
        if baseline is None:
            return None
        histories = [step.history for step in path.steps if step.history is not None]
        q = baseline(np.concatenate(histories)) * (1.0 - 2.0 * traverser)
        return np.split(q, np.cumsum([len(step.lane) for step in path.steps])[:-1])

    def _rows(self, iteration: int, traverser: int, path: "_Path", q: list[NDArray[np.float64]] | None) -> Traversals:
        value = path.payoff * (1.0 - 2.0 * traverser)
        advantages: list[NDArray[np.float64]] = []
        for number in range(len(path.steps) - 1, -1, -1):
            step = path.steps[number]
            own, action = step.mine, step.action
            surprise = below = value[step.lane]
            here = step.ratio * below
            advantage = np.zeros((len(own), step.legal.shape[1]))
            if q is not None:
                estimate = q[number]
                surprise = below - estimate[np.arange(len(below)), action]
                here = np.einsum("na,na->n", step.sigma, estimate) + step.ratio * surprise
                advantage += estimate[own]
            advantage -= here[own, None]
            advantage[np.arange(len(own)), action[own]] += surprise[own] / step.xi_action[own]
            advantage *= step.legal[own]
            value[step.lane] = here
            advantages.append(advantage)
        advantages.reverse()
        steps = path.steps
        mine = _gather(steps, [step.mine for step in steps])
        weight = iteration / mine.reach
        advantage_rows = regression_rows(mine.state, np.concatenate(advantages)[mine.order], weight, mine.keys)
        return Traversals(
            advantage=advantage_rows,
            strategy=self._strategy_rows(iteration, steps) if self.keep_strategy else None,
            transitions=_transitions(path) if self.keep_transitions else None,
            states=sum(len(s.lane) for s in steps) + len(path.payoff),
            metrics=_weight_tail(weight / iteration),
        )

    def _strategy_rows(self, iteration: int, steps: list["_Step"]) -> Rows:
        """The opponent plays on-policy, so its rows appear with its own reach, as the average needs.

        They also appear with the traverser's xi, which changes with t: the weight t / pi_i^xi takes that out.
        """
        others = [np.delete(np.arange(len(step.lane)), step.mine) for step in steps]
        theirs = _gather(steps, others)
        sigma = np.concatenate([s.sigma[o] for s, o in zip(steps, others, strict=True)])[theirs.order]
        return regression_rows(theirs.state, sigma, iteration / theirs.reach, theirs.keys)


@dataclass(frozen=True)
class _Step:
    """One decision of every live lane."""

    lane: NDArray[np.int64]
    mine: NDArray[np.int64]  # the lanes at which the traverser acts
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
class _Path:
    steps: list[_Step]
    payoff: NDArray[np.float64]  # [n] player 0's


@dataclass(frozen=True)
class _Gathered:
    order: NDArray[np.int64]
    state: NDArray[Any]
    reach: NDArray[np.float64]
    keys: lanes.Keys


def _gather(steps: list[_Step], index: list[NDArray[np.int64]]) -> _Gathered:
    """Some lanes of all steps, ordered by traversal: rows do not depend on how lanes were batched."""
    pairs = list(zip(steps, index, strict=True))
    order = np.argsort(np.concatenate([s.lane[i] for s, i in pairs]), kind="stable")
    return _Gathered(
        order=order,
        state=np.concatenate([s.state[i] for s, i in pairs])[order],
        reach=np.concatenate([s.reach[i] for s, i in pairs])[order],
        keys=np.concatenate([s.keys[i] for s, i in pairs])[order],
    )


def _transitions(path: _Path) -> Rows:
    """(h, a, reward, h') at both players' decisions; the reward is player 0's payoff on the last one."""
    order = np.argsort(np.concatenate([s.lane for s in path.steps]), kind="stable")
    lane = np.concatenate([s.lane for s in path.steps])[order]
    history = np.concatenate([s.history for s in path.steps if s.history is not None])[order]
    action = np.concatenate([s.action for s in path.steps])[order]
    terminal = np.r_[lane[1:] != lane[:-1], True]
    following = np.where(terminal.reshape(-1, *[1] * (history.ndim - 1)), history, np.roll(history, -1, axis=0))
    return {
        "history": history,
        "action": action.astype(np.int16),
        "reward": np.where(terminal, path.payoff[lane], 0.0).astype(np.float32),
        "next_history": following,
        "terminal": terminal,
    }


def _weight_tail(weight: NDArray[np.float64]) -> dict[str, float]:
    """How heavy the importance weights are (before the factor t)."""
    if not len(weight):
        return {}
    return {
        "importance_weight/mean": float(weight.mean()),
        "importance_weight/p99": float(np.quantile(weight, 0.99)),
        "importance_weight/max": float(weight.max()),
    }
