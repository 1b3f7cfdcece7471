"""The SD-CFR average (Steinberger 2019, Theorem 2): sigma^t of every iteration t with weight t.

Entry 1 is the uniform strategy, entry t + 1 is regret matching on the network trained in iteration t. Trajectory
sampling draws t in proportion to t once per game and plays sigma^t to the end. The explicit average weighs entry t
at I with t * pi_i^{sigma^t}(I). Both are the same strategy.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.games.tree import TreeGame
from actors.strategies.strategy import (
    Probabilities,
    Profile,
    Strategy,
    StrategyProfile,
    TableProfile,
    Uniform,
    uniform,
)
from buffers.frames import Snapshot

Parameters = dict[str, NDArray[Any]]  # a network's weights by name


class TreeBank:
    """The bank of an enumerated game: the explicit average is a running sum over all information states.

    `tabulate(player, parameters)` gives the table [S_p, A] that a player's network plays.
    """

    def __init__(self, game: TreeGame, tabulate: Callable[[int, Parameters], Probabilities]) -> None:
        self._game = game
        self._tabulate = tabulate
        legal = game.arrays.legal
        self._current = uniform(legal)
        self._sums = np.zeros(legal.shape)

    def profile(self) -> Profile:
        """The newest strategies of both players."""
        return TableProfile(self._current.copy())

    def weigh(self, iteration: int) -> None:
        """Enter the newest strategies, sigma^t, into the average: once at the start of iteration t."""
        reach = self._game.sequences.own_reach(self._current)
        self._sums += (iteration * reach)[:, None] * self._current

    def append(self, player: int, parameters: Parameters) -> None:
        """Make the network's strategy the player's newest."""
        self._current[self._game.states_of(player)] = self._tabulate(player, parameters)

    def average(self) -> Probabilities:
        """[S, A] both players' average strategies; uniform where no entry ever goes."""
        return explicit_average(self._sums, self._game.arrays.legal)

    def snapshot(self) -> Snapshot:
        """The running sums and the newest strategies."""
        return {"current": self._current.copy(), "sums": self._sums.copy()}

    def restore(self, snapshot: Snapshot, newest: Sequence[Parameters]) -> None:
        """Continue from `snapshot`; it holds the newest strategies, so that their networks are not needed."""
        self._current[...] = snapshot["current"]
        self._sums[...] = snapshot["sums"]


def explicit_average(sums: NDArray[np.float64], legal: NDArray[np.bool_]) -> Probabilities:
    """[S, A] rows of `sums` (weight * reach * probability, added up) normalised; uniform where they are 0."""
    total = sums.sum(axis=1, keepdims=True)
    return np.where(total > 0.0, sums / np.where(total > 0.0, total, 1.0), uniform(legal))


class SimulatorBank:
    """The newest strategies of a game that is too large for tables; their average is played by trajectory."""

    def __init__(self, strategy_of: Callable[[int, Parameters], Strategy]) -> None:
        self._strategy_of = strategy_of
        self._current: list[Strategy] = [Uniform(), Uniform()]

    def profile(self) -> Profile:
        """The newest strategies of both players."""
        return StrategyProfile((self._current[0], self._current[1]))

    def weigh(self, iteration: int) -> None:
        """Nothing to add up: the store keeps every entry."""

    def append(self, player: int, parameters: Parameters) -> None:
        """Make the network's strategy the player's newest."""
        self._current[player] = self._strategy_of(player, parameters)

    def snapshot(self) -> Snapshot:
        """Nothing: the store has the networks."""
        return {}

    def restore(self, snapshot: Snapshot, newest: Sequence[Parameters]) -> None:
        """Play the networks `newest` of the last iteration, one per player; none before the first."""
        for player, parameters in enumerate(newest):
            self.append(player, parameters)


def draw_entries(iterations: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """[count] bank entries from 1 to `iterations`, entry t with probability t / sum_s s: one per game."""
    weights = np.arange(1, iterations + 1, dtype=np.float64)
    return rng.choice(np.arange(1, iterations + 1), size=count, p=weights / weights.sum())
