"""Learners bound to their buffers: which feed, which network or table, how many steps, from which seed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from actors.sampling import lanes
from actors.strategies.strategy import Profile, StrategyProfile, TableProfile
from buffers.buffer import Readable
from buffers.frames import Snapshot
from buffers.merged import Merged
from dream.config import AdvantageConfig, AverageConfig, BaselineConfig
from dream.errors import DivergenceError
from dream.runtime.players import TABLE, Baseline, Players, next_probabilities
from learners.baseline import BaselineLearner, Transitions
from learners.device_mirror import DeviceMirror
from learners.feed import MergedFeed, RegressionFeed, UniformFeed
from learners.fit import FitMetrics
from learners.inputs import StateInputs
from learners.networks import Parameters
from learners.ranks import ALONE, Ranks
from learners.regression import RegressionLearner
from learners.streaming import free_bytes
from learners.table import exact_advantages, exact_baseline

# Purposes that separate the random numbers of fits from each other and from the sampler's.
_ADVANTAGE: Final = 101
_AVERAGE: Final = 102
_BASELINE: Final = 103

RESERVED_BYTES: Final = 2**30  # of a GPU, for networks and steps; rows may take the rest, others are streamed

Buffers = Sequence[Readable | DeviceMirror | Merged]  # the shards of a store, or their mirrors


@dataclass(frozen=True)
class Share:
    """Who fits a network together, and which of all shards this one of them reads; None is all."""

    ranks: Ranks = ALONE
    shards: Sequence[int] | None = None


WHOLE: Final = Share()


class Fit(Protocol):
    """A learner bound to its buffers."""

    def fit(
        self, iteration: int, buffers: Buffers, profile: Profile | None = None
    ) -> tuple[Snapshot, dict[str, float]]:
        """Fit to all rows: parameters (of the baseline: its message) and metrics. The baseline needs `profile`."""
        ...

    def result(self) -> Snapshot:
        """What a fit before the last commit gave and is still in use: the baseline's message, otherwise nothing."""
        ...

    def snapshot(self) -> Snapshot:
        """What a commit stores."""
        ...

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from `snapshot`."""
        ...


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
    share: Share

    def result(self) -> Snapshot:
        """Nothing: the run keeps every network."""
        return {}

    def snapshot(self) -> Snapshot:
        """The network where it stands: fits that start from scratch make it superfluous but harmless."""
        return self.learner.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from `snapshot`."""
        self.learner.restore(snapshot)

    def _feed(self, buffers: Buffers) -> RegressionFeed:
        inputs: StateInputs = self.players.state_inputs[self.player]
        device = self.players.device
        if isinstance(buffers[0], Merged):
            return MergedFeed(buffers[0], inputs, self.scale, device, self.share.ranks)
        shards = [(buffer.view(), buffer.seen) for buffer in buffers if not isinstance(buffer, Merged)]
        share, room = self.share, free_bytes(device, RESERVED_BYTES)
        return UniformFeed(shards, inputs, self.settings.batch, self.scale, device, share.ranks, share.shards, room)

    def _run(self, iteration: int, buffers: Buffers, steps: int, fresh: bool) -> tuple[Parameters, FitMetrics]:
        seed = lanes.derive(self.seed, self.purpose, iteration, self.player) >> 1
        with _divergence(self.name, iteration, self.settings, self.player):
            return self.learner.fit(self._feed(buffers), steps, seed, fresh)


class AdvantageFit(_RegressionFit):
    """One player's advantage network, or the exact table in its place."""

    settings: AdvantageConfig

    def fit(
        self, iteration: int, buffers: Buffers, profile: Profile | None = None
    ) -> tuple[Parameters, dict[str, float]]:
        """Fit to all rows of the player: from scratch when its time has come, else from where it stands."""
        settings = self.settings
        if settings.learner == "table":
            merged = buffers[0]
            assert isinstance(merged, Merged)
            return {TABLE: exact_advantages(merged)}, {}
        fresh = settings.starts_afresh(iteration)
        parameters, metrics = self._run(iteration, buffers, settings.steps_in(iteration), fresh)
        return parameters, _named(self.name, metrics)


class AverageFit(_RegressionFit):
    """One player's average network, always from scratch: evaluating changes nothing that is trained."""

    settings: AverageConfig

    def fit(
        self, iteration: int, buffers: Buffers, profile: Profile | None = None
    ) -> tuple[Parameters, dict[str, float]]:
        """Fit to all strategy rows of the player."""
        parameters, metrics = self._run(iteration, buffers, self.settings.steps, fresh=True)
        return parameters, _named(self.name, metrics)


class BaselineFit:
    """DREAM's baseline, fitted once per iteration; `baseline` answers the sampler."""

    def __init__(
        self, seed: int, players: Players, settings: BaselineConfig, learner: BaselineLearner, baseline: Baseline
    ) -> None:
        self.baseline = baseline
        self._seed = seed
        self._players = players
        self._settings = settings
        self._learner = learner
        self._fitted = False
        learner.start(lanes.derive(seed, _BASELINE) >> 1)

    def fit(
        self, iteration: int, buffers: Buffers, profile: Profile | None = None
    ) -> tuple[Snapshot, dict[str, float]]:
        """Expected SARSA on the circular buffer, with `profile` at the next decisions: its message, and metrics."""
        (buffer,) = buffers
        assert not isinstance(buffer, Merged | DeviceMirror)
        assert isinstance(profile, TableProfile | StrategyProfile)
        rows = buffer.view()
        game = self._players.game
        transitions = Transitions(rows, lambda keys: next_probabilities(game, profile, keys))
        settings = self._settings
        if settings.learner == "table":
            assert self.baseline.table is not None
            sweeps = self._players.game.description.horizon + 1
            self.baseline.table = exact_baseline(self.baseline.table, transitions, sweeps)
            return self.result(), {}
        with _divergence("baseline", iteration, settings):
            if settings.merge:
                parameters, metrics = self._learner.fit_merged(transitions, settings.steps)
            else:
                seed = lanes.derive(self._seed, _BASELINE, iteration) >> 1
                parameters, metrics = self._learner.fit(transitions, settings.steps, settings.batch, seed)
        self.baseline.publish(parameters)
        self._fitted = True
        return self.result(), _named("baseline", metrics)

    def result(self) -> Snapshot:
        """The baseline as samplers are told it."""
        return self.baseline.message()

    def snapshot(self) -> Snapshot:
        """Network, moments and, in an enumerated game, the table of values in use."""
        snapshot = self._learner.snapshot() | {"fitted": self._fitted}
        return snapshot | ({} if self.baseline.table is None else {"table": self.baseline.table.copy()})

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from `snapshot`."""
        self._learner.restore(snapshot)
        self._fitted = snapshot["fitted"]
        if self._fitted:
            self.baseline.publish(self._learner.export())
        if "table" in snapshot:
            self.baseline.table = snapshot["table"].copy()


def advantage_fit(
    seed: int, player: int, players: Players, settings: AdvantageConfig, learner: RegressionLearner, share: Share
) -> AdvantageFit:
    """The advantage fit of a player; targets are in units of the largest payoff."""
    scale = players.game.description.payoff_scale
    return AdvantageFit(seed, _ADVANTAGE, "advantage", player, players, settings, scale, learner, share)


def average_fit(
    seed: int, player: int, players: Players, settings: AverageConfig, learner: RegressionLearner, share: Share
) -> AverageFit:
    """The average fit of a player; targets are probabilities."""
    return AverageFit(seed, _AVERAGE, "average", player, players, settings, 1.0, learner, share)
