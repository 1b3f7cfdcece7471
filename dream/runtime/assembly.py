"""From a configuration to each part of a run. Every process that works for a run makes its own parts here.

Row stores are named `advantage_rows_0`, `advantage_rows_1`, `strategy_rows_0`, `strategy_rows_1` and `transitions`;
fits `advantage_0`, `advantage_1`, `average_0`, `average_1` and `baseline`. A commit stores parts by these names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from actors.games import registry
from actors.games.batch import Game
from actors.games.tree import TreeGame
from actors.sampling import chance, lanes
from actors.sampling.exact import ExactSampler
from actors.sampling.external import ExternalSampler
from actors.sampling.outcome import OutcomeSampler
from actors.worker import Sampler, Worker
from buffers.buffer import Store
from buffers.circular import Circular
from buffers.merged import Merged
from buffers.mirror import Mirror
from buffers.reservoir import Reservoir
from buffers.rows import RowSchema, regression_schema, transition_schema
from buffers.shard import Shard
from buffers.sharded import Sharded, split_capacity
from dream import config as configuration
from dream.config import AdvantageConfig, AverageConfig, RunConfig
from dream.errors import ConfigError
from dream.methods import METHODS, Method
from dream.runtime.learning import (
    RESERVED_BYTES,
    WHOLE,
    AdvantageFit,
    AverageFit,
    BaselineFit,
    Fit,
    Share,
    advantage_fit,
    average_fit,
)
from dream.runtime.players import Baseline, Players, TreePlayers
from learners.baseline import BaselineLearner
from learners.device_mirror import DeviceMirror
from learners.losses import advantage_loss, average_cross_entropy_loss, average_mse_loss
from learners.networks import NetworkSpec
from learners.ranks import Ranks, shards_of
from learners.regression import OptimiserSettings, RegressionLearner, RegressionLoss
from learners.streaming import free_bytes

TRANSITIONS = "transitions"
BASELINE = "baseline"

_CHANCE_SEED = 201


def advantage(player: int) -> str:
    """Name of the player's advantage fit."""
    return f"advantage_{player}"


def average(player: int) -> str:
    """Name of the player's average fit."""
    return f"average_{player}"


def advantage_rows(player: int) -> str:
    """Name of the player's advantage rows."""
    return f"advantage_rows_{player}"


def strategy_rows(player: int) -> str:
    """Name of the rows of what the player played."""
    return f"strategy_rows_{player}"


def rows_of(fit: str) -> str:
    """Name of the rows that a fit reads."""
    if fit == BASELINE:
        return TRANSITIONS
    kind, player = fit.rsplit("_", 1)
    return advantage_rows(int(player)) if kind == "advantage" else strategy_rows(int(player))


@dataclass(frozen=True)
class Assembly:
    """The game, read once, and functions that make the parts around it."""

    config: RunConfig
    method: Method
    game: Game
    players: Players

    @classmethod
    def of(cls, config: RunConfig, on_cpu: bool = False) -> Assembly:
        """Load the game. Raises GameError or ConfigError for what cannot be run; sets torch's threads.

        `on_cpu`: whatever `runtime.device` says, for processes that only play.
        """
        device = torch.device("cpu") if on_cpu else _device(config)
        torch.set_num_threads(max(1, config.runtime.threads))
        sampling = config.sampling
        game = registry.load(config.game, sampling.backend, sampling.enumerate_limit)
        if not isinstance(game, TreeGame) and (settings := configuration.tree_settings(config)):
            raise ConfigError(
                f"{', '.join(settings)} needs the game tree, and {config.game} has more histories than "
                f"sampling.enumerate_limit={sampling.enumerate_limit:,}."
            )
        kind = TreePlayers if isinstance(game, TreeGame) else Players
        return cls(config, METHODS[config.algorithm], game, kind(game, config, device))  # type: ignore[arg-type]

    # --- sampling ---

    @property
    def traversals(self) -> int:
        """Traversals per player and iteration; the exact sampler walks the tree once."""
        return 1 if self._sampler_kind == "exact" else self.config.sampling.traversals

    @property
    def _sampler_kind(self) -> str:
        wanted = self.config.sampling.sampler
        return self.method.sampler if wanted == "auto" else wanted

    def worker(self) -> Worker:
        """A worker with streams of its own."""
        seed, kind = self.config.seed, self.config.sampling.chance
        first, second = (chance.make(kind, lanes.derive(seed, _CHANCE_SEED, player)) for player in (0, 1))
        return Worker(seed, self._sampler(), (first, second))

    def _sampler(self) -> Sampler:
        sampling, game = self.config.sampling, self.game
        keep_strategy = self.method.average == "network"
        if self._sampler_kind == "exact":
            assert isinstance(game, TreeGame)
            return ExactSampler(game, keep_strategy, double=self._merged(advantage_rows(0)))
        if self._sampler_kind == "external":
            return ExternalSampler(game, keep_strategy)
        scaled = sampling.reach_weight == "scaled"
        return OutcomeSampler(game, sampling.epsilon, scaled, keep_strategy, keep_transitions=self.method.baseline)

    def baseline_values(self) -> Baseline:
        """The baseline as samplers ask it, before anything was fitted."""
        return Baseline(self.players)

    # --- rows ---

    def row_names(self) -> list[str]:
        """The stores that the algorithm fills."""
        names = [advantage_rows(0), advantage_rows(1)]
        if self.method.average == "network":
            names += [strategy_rows(0), strategy_rows(1)]
        return names + ([TRANSITIONS] if self.method.baseline else [])

    def shards(self, rows: str) -> int:
        """How many shards a store has: transitions and merged rows are one."""
        return 1 if rows == TRANSITIONS or self._merged(rows) else self.config.runtime.shards

    def store(self, rows: str) -> Store:
        """All shards of a store as one."""
        count = self.shards(rows)
        if count == 1:
            return self.shard(rows, 0)
        return Sharded([self.shard(rows, index) for index in range(count)])  # type: ignore[misc]

    def shard(self, rows: str, index: int) -> Shard[Reservoir | Circular | Merged]:
        """One shard of a store."""
        if self._merged(rows):
            return Shard(self._merged_rows(rows))
        capacity = self._capacity(rows, index)
        kind = Circular if rows == TRANSITIONS else Reservoir
        return Shard(kind(self._schema(rows), capacity))

    def mirrors(self, rows: str, shards: Sequence[int]) -> list[Mirror | DeviceMirror | Merged]:
        """What follows these shards by their deltas, in another process: on its GPU where all of them fit there."""
        device = self.players.device
        full = sum(self.predicted(rows, index)[1] for index in shards)
        room = free_bytes(device, RESERVED_BYTES)
        on_device = room is not None and full <= room and rows != TRANSITIONS
        return [self._mirror(rows, index, on_device) for index in shards]

    def _mirror(self, rows: str, index: int, on_device: bool) -> Mirror | DeviceMirror | Merged:
        if self._merged(rows):
            return self._merged_rows(rows)
        capacity = self._capacity(rows, index)
        return DeviceMirror(capacity, self.players.device) if on_device else Mirror(self._schema(rows), capacity)

    def predicted(self, rows: str, index: int) -> tuple[int, int]:
        """Rows and bytes of a full shard."""
        if self._merged(rows):
            merged = self._merged_rows(rows)
            return merged.capacity, merged.bytes
        capacity = self._capacity(rows, index)
        kind = Circular if rows == TRANSITIONS else Reservoir
        return capacity, kind.predicted_bytes(self._schema(rows), capacity)

    def _merged(self, rows: str) -> bool:
        if rows == TRANSITIONS:
            return False
        settings = self._settings(rows)
        return settings.buffer == "merged" or (isinstance(settings, AdvantageConfig) and settings.learner == "table")

    def _settings(self, rows: str) -> AdvantageConfig | AverageConfig:
        return self.config.advantage if rows.startswith("advantage") else self.config.average

    def _merged_rows(self, rows: str) -> Merged:
        game, player = self.game, int(rows[-1])
        assert isinstance(game, TreeGame)
        return Merged(game.arrays.num_states[player], game.description.num_actions, game.offsets[player])

    def _capacity(self, rows: str, index: int) -> int:
        if rows == TRANSITIONS:
            return self.config.baseline.capacity
        return split_capacity(self._settings(rows).capacity, self.shards(rows))[index]

    def _schema(self, rows: str) -> RowSchema:
        if rows == TRANSITIONS:
            return transition_schema(self.game.history_column)
        return regression_schema(self.game.state_column, self.game.description.num_actions)

    # --- fits ---

    def fit_names(self) -> list[str]:
        """The fits that the algorithm makes."""
        names = [advantage(0), advantage(1)]
        if self.method.average == "network":
            names += [average(0), average(1)]
        return names + ([BASELINE] if self.method.baseline else [])

    def fit(self, name: str, share: Share = WHOLE) -> Fit:
        """The fit of that name; with others that have the same fit and another `share`, a part of it."""
        if name == BASELINE:
            return self.baseline_fit(share)
        kind, player = name.rsplit("_", 1)
        return self.advantage_fit(int(player), share) if kind == "advantage" else self.average_fit(int(player), share)

    def share(self, rows: str, ranks: Ranks) -> Share:
        """Every rank reads its own shards of `rows`, and those left over with all others."""
        return Share(ranks, shards_of(ranks.rank, ranks.size, self.shards(rows)))

    def advantage_fit(self, player: int, share: Share = WHOLE) -> AdvantageFit:
        """The player's advantage fit."""
        settings = self.config.advantage
        optimiser = OptimiserSettings(settings.learning_rate, settings.clip)
        learner = self._learner(self.players.advantage_spec(player), advantage_loss, optimiser)
        return advantage_fit(self.config.seed, player, self.players, settings, learner, share)

    def average_fit(self, player: int, share: Share = WHOLE) -> AverageFit:
        """The player's average fit."""
        settings = self.config.average
        optimiser = OptimiserSettings(settings.learning_rate, settings.clip, settings.decay == "linear")
        loss = average_mse_loss if settings.loss == "mse" else average_cross_entropy_loss
        learner = self._learner(self.players.average_spec(player), loss, optimiser)
        return average_fit(self.config.seed, player, self.players, settings, learner, share)

    def baseline_fit(self, share: Share = WHOLE) -> BaselineFit:
        """The baseline's fit."""
        inputs, settings = self.players.history_inputs(), self.config.baseline
        optimiser = OptimiserSettings(settings.learning_rate, settings.clip)
        scale, device = self.game.description.payoff_scale, self.players.device
        learner = BaselineLearner(self.players.baseline_spec(inputs), inputs, optimiser, scale, device, share.ranks)
        return BaselineFit(self.config.seed, self.players, settings, learner, Baseline(self.players))

    def _learner(self, spec: NetworkSpec, loss: RegressionLoss, optimiser: OptimiserSettings) -> RegressionLearner:
        return RegressionLearner(spec, loss, optimiser, self.players.device)


def _device(config: RunConfig) -> torch.device:
    wanted = config.runtime.device
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError("runtime.device=cuda, but torch sees no CUDA device; use runtime.device=auto or cpu.")
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")
