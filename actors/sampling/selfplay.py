"""Whole games in lockstep: what is played when every lane has its own entry of a bank.

Trajectory sampling (Steinberger 2019): a player draws one iteration t per game, in proportion to t, and plays
sigma^t to the end. `strategies.bank.draw_entries` draws; the entry of a lane never changes inside a game.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from actors.games.batch import TERMINAL, Batch, Game
from actors.sampling import lanes
from actors.sampling.chance import ChanceStreams
from actors.sampling.traversals import inverse_cdf, resolve_chance
from actors.strategies.strategy import Probabilities


class LaneProfile(Protocol):
    """Both players' strategies, lane by lane."""

    def probabilities(
        self, batch: Batch, player: NDArray[np.int8], legal: NDArray[np.bool_], lane: NDArray[np.int64]
    ) -> Probabilities:
        """[n, A] the acting player's probabilities; `lane` [n] numbers the games that are still played."""
        ...


class TableEntries:
    """Bank entries of an enumerated game: tables [T, S, A], entry t in row t - 1; entries i8[games, 2] from 1."""

    def __init__(self, tables: Probabilities, entries: NDArray[np.int64]) -> None:
        self._tables = tables
        self._entries = entries

    def probabilities(
        self, batch: Batch, player: NDArray[np.int8], legal: NDArray[np.bool_], lane: NDArray[np.int64]
    ) -> Probabilities:
        """[n, A] rows of the acting players' own entries."""
        entry = self._entries[lane, player]
        return np.asarray(self._tables[entry - 1, batch.information_state()])


@dataclass(frozen=True)
class Games:
    """Games played to the end: player 0's payoff per game, and every decision in lockstep order."""

    payoff: NDArray[np.float64]  # [games] chips
    lane: NDArray[np.int64]  # [decisions] the game it was made in
    player: NDArray[np.int8]  # [decisions]
    state: NDArray[Any]  # [decisions, ...] keys of information states
    action: NDArray[np.int64]  # [decisions]


def play(game: Game, keys: lanes.Keys, profile: LaneProfile, streams: ChanceStreams) -> Games:
    """Play one game per lane key [games] to its end."""
    batch = game.start(len(keys))
    lane = np.arange(len(keys))
    payoff = np.zeros(len(keys))
    decisions: list[tuple[NDArray[Any], ...]] = []
    while True:
        keys = resolve_chance(batch, keys, streams)
        over = batch.player == TERMINAL
        payoff[lane[over]] = batch.returns()[over]
        alive = np.flatnonzero(~over)
        if not len(alive):
            break
        batch, lane, keys = batch.take(alive), lane[alive], keys[alive]
        player, legal = batch.player, batch.legal()
        action = inverse_cdf(profile.probabilities(batch, player, legal, lane), lanes.uniform(keys))
        decisions.append((lane, player, batch.information_state(), action))
        keys = lanes.child(keys, action)
        batch.step(action)
    return Games(payoff, *(np.concatenate(column) for column in zip(*decisions, strict=True)))
