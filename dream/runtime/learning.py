"""Learners bound to their buffers: which feed, which network or table, how many steps, from which seed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from actors.games.tree import TreeGame
from actors.sampling import lanes
from actors.strategies.strategy import Profile, StrategyProfile, TableProfile
from buffers.buffer import Store
from buffers.frames import Snapshot
from buffers.merged import Merged
from buffers.sharded import buffers_of
from dream.config import AdvantageConfig, AverageConfig, BaselineConfig
from dream.errors import DivergenceError
from dream.runtime.players import TABLE, Players, next_probabilities
from learners.baseline import BaselineLearner, Transitions
from learners.feed import MergedFeed, RegressionFeed, UniformFeed
from learners.fit import FitMetrics
from learners.inputs import HistoryInputs, StateInputs
from learners.networks import Parameters
from learners.predict import Predictor
from learners.regression import RegressionLearner
from learners.table import exact_advantages, exact_baseline

# Purposes that separate the random numbers of fits from each other and from the sampler's.
_ADVANTAGE: Final = 101
_AVERAGE: Final = 102
_BASELINE: Final = 103


def _named(name: str, metrics: FitMetrics) -> dict[str, float]:
    return {f"loss/{name}": metrics.loss, f"gradient_norm/{name}": metrics.gradient_norm}


@contextmanager
def _divergence(
    name: str, iteration: int, settings: AdvantageConfig | AverageConfig | BaselineConfig, player: int | None = None
) -> Iterator[None]:
    """Names whose fit it was that diverged, and the remedy, in a DivergenceError."""
    try:
        yield
    except FloatingPointError as error:
        whose = f"{name} network" if player is None else f"{name} network of player {player}"
        raise DivergenceError(
            f"iteration {iteration}, {whose}: {error}; lower {name}.learning_rate={settings.learning_rate:g} "
            f"or {name}.clip={settings.clip:g}."
        ) from error


@dataclass
class _RegressionFit:
    """Feeds a regression learner from the player's rows."""

    seed: int
    purpose: int
    name: str
    player: int
    players: Players
    settings: AdvantageConfig | AverageConfig
    scale: float
    learner: RegressionLearner

    def _feed(self, store: Store) -> RegressionFeed:
        inputs: StateInputs = self.players.state_inputs[self.player]
        device = self.players.device
        buffers = buffers_of(store)
        if isinstance(buffers[0], Merged):
            return MergedFeed(buffers[0], inputs, self.scale, device)
        shards = [(buffer.view(), buffer.seen) for buffer in buffers if not isinstance(buffer, Merged)]
        return UniformFeed(shards, inputs, self.settings.batch, self.scale, device)

    def _run(self, iteration: int, store: Store, steps: int, fresh: bool) -> tuple[Parameters, FitMetrics]:
        seed = lanes.derive(self.seed, self.purpose, iteration, self.player) >> 1
        with _divergence(self.name, iteration, self.settings, self.player):
            return self.learner.fit(self._feed(store), steps, seed, fresh)


class AdvantageFit(_RegressionFit):
    """One player's advantage network, or the exact table in its place."""

    settings: AdvantageConfig

    def fit(self, iteration: int, store: Store) -> tuple[Parameters, dict[str, float]]:
        """Fit to all rows of the player: from scratch when its time has come, else from where it stands."""
        settings = self.settings
        if settings.learner == "table":
            merged = buffers_of(store)[0]
            assert isinstance(merged, Merged)
            return {TABLE: exact_advantages(merged)}, {}
        fresh = settings.starts_afresh(iteration)
        parameters, metrics = self._run(iteration, store, settings.steps_in(iteration), fresh)
        return parameters, _named(self.name, metrics)

    def snapshot(self) -> Snapshot:
        """The network where it stands: fits that start from scratch make it superfluous but harmless."""
        return self.learner.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from `snapshot`."""
        self.learner.restore(snapshot)


class AverageFit(_RegressionFit):
    """One player's average network, always from scratch: evaluating changes nothing that is trained."""

    settings: AverageConfig

    def fit(self, iteration: int, store: Store) -> tuple[Parameters, dict[str, float]]:
        """Fit to all strategy rows of the player."""
        parameters, metrics = self._run(iteration, store, self.settings.steps, fresh=True)
        return parameters, _named(self.name, metrics)


class BaselineFit:
    """DREAM's baseline: fitted once per iteration, asked for values by the sampler."""

    def __init__(
        self,
        seed: int,
        players: Players,
        settings: BaselineConfig,
        learner: BaselineLearner,
        inputs: HistoryInputs,
    ) -> None:
        self._seed = seed
        self._players = players
        self._settings = settings
        self._learner = learner
        self._inputs = inputs
        self._scale = players.game.description.payoff_scale
        self._predictor = Predictor(players.baseline_spec(inputs), players.device)
        self._fitted = False
        self._table: NDArray[np.float64] | None = None
        if isinstance(players.game, TreeGame):
            self._table = np.zeros((players.game.num_histories, players.game.description.num_actions))
        learner.start(lanes.derive(seed, _BASELINE) >> 1)

    def values(self, keys: NDArray[Any]) -> NDArray[np.float64]:
        """[n, A] player 0's Q(h, .) in chips; 0 before the first fit."""
        if self._table is not None:
            return self._table.take(keys, axis=0)
        if not self._fitted:
            return np.zeros((len(keys), self._players.game.description.num_actions))
        return self._scale * self._predictor.values(self._inputs, keys).astype(np.float64)

    def fit(self, iteration: int, store: Store, profile: Profile) -> dict[str, float]:
        """Expected SARSA on the circular buffer, with `profile` at the next decisions."""
        (buffer,) = buffers_of(store)
        assert not isinstance(buffer, Merged)
        assert isinstance(profile, TableProfile | StrategyProfile)
        rows = buffer.view()
        game = self._players.game
        transitions = Transitions(rows, lambda keys: next_probabilities(game, profile, keys))
        settings = self._settings
        if settings.learner == "table":
            assert self._table is not None
            sweeps = self._players.game.description.horizon + 1
            self._table = exact_baseline(self._table, transitions, sweeps)
            return {}
        with _divergence("baseline", iteration, settings):
            if settings.merge:
                parameters, metrics = self._learner.fit_merged(transitions, settings.steps)
            else:
                seed = lanes.derive(self._seed, _BASELINE, iteration) >> 1
                parameters, metrics = self._learner.fit(transitions, settings.steps, settings.batch, seed)
        self._publish(parameters)
        return _named("baseline", metrics)

    def _publish(self, parameters: Parameters) -> None:
        self._predictor.load(parameters)
        self._fitted = True
        if self._table is not None:
            histories = np.arange(len(self._table), dtype=np.int32)
            self._table = self._scale * self._predictor.values(self._inputs, histories).astype(np.float64)

    def snapshot(self) -> Snapshot:
        """Network, moments and, in an enumerated game, the table of values in use."""
        snapshot = self._learner.snapshot() | {"fitted": self._fitted}
        return snapshot | ({} if self._table is None else {"table": self._table.copy()})

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from `snapshot`."""
        self._learner.restore(snapshot)
        if snapshot["fitted"]:
            self._publish(self._learner.export())
        if self._table is not None:
            self._table = snapshot["table"].copy()


def advantage_fit(
    seed: int, player: int, players: Players, settings: AdvantageConfig, learner: RegressionLearner
) -> AdvantageFit:
    """The advantage fit of a player; targets are in units of the largest payoff."""
    scale = players.game.description.payoff_scale
    return AdvantageFit(seed, _ADVANTAGE, "advantage", player, players, settings, scale, learner)


def average_fit(
    seed: int, player: int, players: Players, settings: AverageConfig, learner: RegressionLearner
) -> AverageFit:
    """The average fit of a player; targets are probabilities."""
    return AverageFit(seed, _AVERAGE, "average", player, players, settings, 1.0, learner)
