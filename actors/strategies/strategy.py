"""Strategies and profiles: what is played at a batch of information states."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from actors.games.batch import Batch
from actors.strategies.regret_matching import regret_matching

Probabilities = NDArray[np.float64]  # [n, A] zero where illegal, rows sum to 1
Predict = Callable[[NDArray[Any]], NDArray[np.float32]]  # keys [n, ...] -> network outputs [n, A]


class Strategy(Protocol):
    """One player's behavioural strategy."""

    def probabilities(self, keys: NDArray[Any], legal: NDArray[np.bool_]) -> Probabilities:
        """[n, A] action probabilities at the information states `keys`."""
        ...


def uniform(legal: NDArray[np.bool_]) -> Probabilities:
    """[n, A] one over the number of legal actions of each row."""
    probabilities: Probabilities = legal / legal.sum(axis=1, keepdims=True)
    return probabilities


class Uniform:
    """Every legal action alike: sigma^1 of every method."""

    def probabilities(self, keys: NDArray[Any], legal: NDArray[np.bool_]) -> Probabilities:
        """[n, A] one over the number of legal actions."""
        return uniform(legal)


class FromAdvantages:
    """Regret matching on predicted advantages (Brown et al. 2019)."""

    def __init__(self, predict: Predict) -> None:
        self._predict = predict

    def probabilities(self, keys: NDArray[Any], legal: NDArray[np.bool_]) -> Probabilities:
        """[n, A] regret matching on D(I, .)."""
        return regret_matching(self._predict(keys), legal)


class FromProbabilities:
    """An average network: its outputs are already probabilities over the legal actions."""

    def __init__(self, predict: Predict) -> None:
        self._predict = predict

    def probabilities(self, keys: NDArray[Any], legal: NDArray[np.bool_]) -> Probabilities:
        """[n, A] outputs, masked and normalised in float64."""
        masked = np.where(legal, self._predict(keys).astype(np.float64), 0.0)
        probabilities: Probabilities = masked / masked.sum(axis=1, keepdims=True)
        return probabilities


class Table:
    """A strategy written down: row `key - offset` of a table."""

    def __init__(self, table: Probabilities, offset: int = 0) -> None:
        self.table = table
        self.offset = offset

    def probabilities(self, keys: NDArray[Any], legal: NDArray[np.bool_]) -> Probabilities:
        """[n, A] rows of the table."""
        return self.table.take(keys - self.offset, axis=0)


class Profile(Protocol):
    """Both players' strategies, evaluated where a batch stands."""

    def probabilities(self, batch: Batch, player: NDArray[np.int8], legal: NDArray[np.bool_]) -> Probabilities:
        """[n, A] the acting player's probabilities; `player` and `legal` are the batch's own."""
        ...


class StrategyProfile:
    """Two strategies: one evaluation per player for the whole batch."""

    def __init__(self, strategies: tuple[Strategy, Strategy]) -> None:
        self.strategies = strategies

    def probabilities(self, batch: Batch, player: NDArray[np.int8], legal: NDArray[np.bool_]) -> Probabilities:
        """[n, A] the acting player's probabilities."""
        keys = batch.information_state()
        result = np.empty(legal.shape)
        for own, strategy in enumerate(self.strategies):
            at = np.flatnonzero(player == own)
            if len(at):
                result[at] = strategy.probabilities(keys[at], legal[at])
        return result


class TableProfile:
    """Both players' strategies of a tree game as one table [S, A]: one gather per step."""

    def __init__(self, table: Probabilities) -> None:
        self.table = table

    def probabilities(self, batch: Batch, player: NDArray[np.int8], legal: NDArray[np.bool_]) -> Probabilities:
        """[n, A] rows of the table."""
        return self.table.take(batch.information_state(), axis=0)
