"""Exact values of an enumerated game by its sequence form: a few array passes, whatever the number of histories.

A player's sequence is (information state, action); perfect recall gives every information state one parent
sequence. Realisation plans, best responses, counterfactual values and averages are passes over the levels of
that forest (von Stengel 1996).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from actors.games.tree_arrays import TreeArrays

Table = NDArray[np.float64]  # [S, A] one row per information state of both players


@dataclass(frozen=True)
class SequenceForm:
    """Both players' sequences as state * A + action over all S states; the last slot, S * A, is the empty one."""

    parent: NDArray[np.int64]  # [S] sequence that leads to a state
    levels: tuple[tuple[NDArray[np.int64], ...], tuple[NDArray[np.int64], ...]]  # per player, by own depth
    terminal_sequence: NDArray[np.int64]  # [Z, 2]
    terminal_payoff: NDArray[np.float64]  # [Z] player 0's payoff times chance reach
    decision_state: NDArray[np.int64]  # [H]
    decision_opponent: NDArray[np.int64]  # [H] the non-acting player's last sequence
    decision_chance: NDArray[np.float64]  # [H] chance reach
    legal: NDArray[np.bool_]  # [S, A]

    @classmethod
    def build(cls, arrays: TreeArrays) -> "SequenceForm":
        """Read the sequences off the enumerated nodes."""
        states, width = arrays.legal.shape
        empty = states * width
        sequence = np.where(arrays.sequence < 0, empty, arrays.sequence).astype(np.int64)
        at = np.flatnonzero(arrays.player >= 0)
        player, state = arrays.player[at].astype(np.int64), arrays.state[at].astype(np.int64)
        parent = np.full(states, empty, np.int64)
        parent[state] = sequence[at, player]
        end = np.flatnonzero(arrays.first_child < 0)
        return cls(
            parent=parent,
            levels=(
                _levels(parent, np.arange(arrays.num_states[0]), width),
                _levels(parent, np.arange(arrays.num_states[0], states), width),
            ),
            terminal_sequence=sequence[end],
            terminal_payoff=arrays.payoff[end] * arrays.chance_reach[end],
            decision_state=state,
            decision_opponent=sequence[at, 1 - player],
            decision_chance=arrays.chance_reach[at],
            legal=arrays.legal,
        )

    def realisation(self, strategy: Table) -> NDArray[np.float64]:
        """[S * A + 1] each sequence's probability by its own player's choices alone; the last entry is 1."""
        states, width = self.legal.shape
        plan = np.ones(states * width + 1)
        rows = plan[:-1].reshape(states, width)
        for levels in self.levels:
            for level in levels:
                rows[level] = plan[self.parent[level], None] * strategy[level]
        return plan

    def own_reach(self, strategy: Table) -> NDArray[np.float64]:
        """[S] pi_i(I): the product of the acting player's own probabilities on the way to I."""
        return self.realisation(strategy)[self.parent]

    def opponent_reach(self, strategy: Table) -> NDArray[np.float64]:
        """[S] pi_{-i}(I): the opponent's and chance's probability of I, summed over its histories."""
        plan = self.realisation(strategy)
        weights = self.decision_chance * plan[self.decision_opponent]
        reach: NDArray[np.float64] = np.bincount(
            self.decision_state, weights=weights, minlength=len(self.legal)
        ).astype(np.float64, copy=False)
        return reach

    def counterfactual_values(self, strategy: Table) -> tuple[Table, NDArray[np.float64]]:
        """q[S, A] and v[S]: counterfactual values of actions and states under the profile `strategy`.

        The acting player's payoff, weighted with pi_{-i}; r(I, a) = q[I, a] - v[I] is the instantaneous regret
        (Zinkevich et al. 2007).
        """
        plan = self.realisation(strategy)
        q, v = np.zeros(self.legal.shape), np.zeros(len(self.legal))
        for player in (0, 1):
            own_q, own_v, _ = self._backward(player, plan, strategy)
            q += own_q
            v += own_v
        return q, v

    def best_response_value(self, player: int, strategy: Table) -> float:
        """What `player` wins per game, in chips, by the best response to the other player's `strategy`."""
        return self._backward(player, self.realisation(strategy), None)[2]

    def value(self, strategy: Table) -> float:
        """Player 0's expected payoff in chips under the profile `strategy`."""
        plan = self.realisation(strategy)
        reach = plan[self.terminal_sequence[:, 0]] * plan[self.terminal_sequence[:, 1]]
        return float(np.dot(self.terminal_payoff, reach))

    def nash_conv(self, strategy: Table) -> float:
        """Sum of both players' best-response values against `strategy`, in chips; 0 at an equilibrium."""
        return self.best_response_value(0, strategy) + self.best_response_value(1, strategy)

    def _backward(
        self, player: int, plan: NDArray[np.float64], strategy: Table | None
    ) -> tuple[Table, NDArray[np.float64], float]:
        """Values of `player`'s sequences and states, deepest first; a best response where `strategy` is None."""
        states, width = self.legal.shape
        sign = 1.0 - 2.0 * player
        weights = sign * self.terminal_payoff * plan[self.terminal_sequence[:, 1 - player]]
        sums = np.bincount(self.terminal_sequence[:, player], weights=weights, minlength=states * width + 1)
        flat = sums.astype(np.float64, copy=False)
        q = flat[:-1].reshape(states, width)
        v = np.zeros(states)
        for level in reversed(self.levels[player]):
            if strategy is None:
                v[level] = np.where(self.legal[level], q[level], -np.inf).max(axis=1)
            else:
                v[level] = (strategy[level] * q[level]).sum(axis=1)
            np.add.at(flat, self.parent[level], v[level])
        return q, v, float(flat[-1])


def _levels(parent: NDArray[np.int64], states: NDArray[np.int64], width: int) -> tuple[NDArray[np.int64], ...]:
    """A player's `states` grouped by the number of own decisions before them."""
    empty = len(parent) * width
    depth = np.full(len(parent), -1, np.int64)
    waiting = states
    level = 0
    result: list[NDArray[np.int64]] = []
    while len(waiting):
        above = parent[waiting]
        ready = (above == empty) | (depth[np.minimum(above // width, len(parent) - 1)] >= 0)
        result.append(waiting[ready])
        depth[waiting[ready]] = level
        waiting = waiting[~ready]
        level += 1
    return tuple(result)
