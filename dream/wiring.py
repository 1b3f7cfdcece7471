"""From a configuration to a running system: the only place where all parts are joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from actors.games import registry
from actors.games.batch import Game
from actors.games.tree import TreeGame
from actors.sampling import chance, lanes
from actors.sampling.exact import ExactSampler
from actors.sampling.external import ExternalSampler
from actors.sampling.outcome import OutcomeSampler
from actors.strategies.bank import SimulatorBank, TreeBank
from buffers.buffer import Store
from buffers.circular import Circular
from buffers.merged import Merged
from buffers.reservoir import Reservoir
from buffers.rows import regression_schema, transition_schema
from buffers.shard import Shard
from buffers.sharded import Sharded, buffers_of, split_capacity
from dream import config as configuration
from dream.config import AdvantageConfig, AverageConfig, RunConfig
from dream.errors import ConfigError
from dream.evaluation.average import AverageOf
from dream.identity import identity, refuse_foreign
from dream.inspection import evaluations
from dream.methods import METHODS, Method
from dream.results import Evaluation, Result
from dream.runtime.learning import BaselineFit, advantage_fit, average_fit
from dream.runtime.local import LocalRuntime, Parts, Sampler
from dream.runtime.players import Players, TreePlayers
from dream.store import Commit, RunFolder
from dream.telemetry.progress import Progress, make_progress
from dream.telemetry.recorder import Recorder
from dream.training import cfr, resuming
from dream.training.interrupt import listening
from dream.training.run import Run
from learners.baseline import BaselineLearner
from learners.losses import advantage_loss, average_cross_entropy_loss, average_mse_loss
from learners.networks import NetworkSpec
from learners.regression import OptimiserSettings, RegressionLearner, RegressionLoss

if TYPE_CHECKING:
    from open_spiel.python.policy import Policy

_CHANCE_SEED = 201


@dataclass
class System:
    """The parts of one run."""

    config: RunConfig
    method: Method
    game: Game
    players: Players
    bank: TreeBank | SimulatorBank
    runtime: LocalRuntime

    @classmethod
    def build(cls, config: RunConfig) -> System:
        """Join the parts. Raises GameError or ConfigError for what cannot be run."""
        device = _device(config)
        torch.set_num_threads(max(1, config.runtime.threads))
        sampling = config.sampling
        game = registry.load(config.game, sampling.backend, sampling.enumerate_limit)
        if not isinstance(game, TreeGame) and (settings := configuration.tree_settings(config)):
            raise ConfigError(
                f"{', '.join(settings)} needs the game tree, and {config.game} has more histories than "
                f"sampling.enumerate_limit={sampling.enumerate_limit:,}."
            )
        method = METHODS[config.algorithm]
        if isinstance(game, TreeGame):
            tree_players = TreePlayers(game, config, device)
            tree_bank = TreeBank(game, tree_players.advantage_table)
            runtime = LocalRuntime(_parts(config, method, game, tree_players))
            return cls(config, method, game, tree_players, tree_bank, runtime)
        players = Players(game, config, device)
        bank = SimulatorBank(players.from_advantages)
        return cls(config, method, game, players, bank, LocalRuntime(_parts(config, method, game, players)))

    def average(self, folder: RunFolder) -> AverageOf:
        """Evaluates the run's average strategy."""
        return AverageOf(self.config, self.method, self.players, self.bank, self.runtime, folder)


def _device(config: RunConfig) -> torch.device:
    wanted = config.runtime.device
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError("runtime.device=cuda, but torch sees no CUDA device; use runtime.device=auto or cpu.")
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")


def _parts(config: RunConfig, method: Method, game: Game, players: Players) -> Parts:
    stores = (_advantage_store(config, game, 0), _advantage_store(config, game, 1))
    fits = [
        advantage_fit(config.seed, p, players, config.advantage, _learner(players, p, config.advantage)) for p in (0, 1)
    ]
    streams = [chance.make(config.sampling.chance, lanes.derive(config.seed, _CHANCE_SEED, p)) for p in (0, 1)]
    sampler = _sampler(config, method, game)
    parts = Parts(
        seed=config.seed,
        traversals=1 if isinstance(sampler, ExactSampler) else config.sampling.traversals,
        chunk=config.sampling.chunk,
        sampler=sampler,
        streams=(streams[0], streams[1]),
        advantage_rows=stores,
        advantage=(fits[0], fits[1]),
        parallel=config.runtime.parallel_learners,
    )
    if method.average == "network":
        parts.strategy_rows = (_strategy_store(config, game, 0), _strategy_store(config, game, 1))
        averages = [
            average_fit(config.seed, p, players, config.average, _learner(players, p, config.average)) for p in (0, 1)
        ]
        parts.average = (averages[0], averages[1])
    if method.baseline:
        inputs = players.history_inputs()
        settings = config.baseline
        optimiser = OptimiserSettings(settings.learning_rate, settings.clip)
        scale = game.description.payoff_scale
        learner = BaselineLearner(players.baseline_spec(inputs), inputs, optimiser, scale, players.device)
        parts.baseline = BaselineFit(config.seed, players, settings, learner, inputs)
        parts.transitions = Shard(Circular(transition_schema(game.history_column), settings.capacity))
    return parts


def _sampler(config: RunConfig, method: Method, game: Game) -> Sampler:
    sampling = config.sampling
    kind = method.sampler if sampling.sampler == "auto" else sampling.sampler
    keep_strategy = method.average == "network"
    if kind == "exact":
        assert isinstance(game, TreeGame)
        return ExactSampler(game, keep_strategy, double=_merged_advantages(config))
    if kind == "external":
        return ExternalSampler(game, keep_strategy)
    scaled = sampling.reach_weight == "scaled"
    return OutcomeSampler(game, sampling.epsilon, scaled, keep_strategy, keep_transitions=method.baseline)


def _learner(players: Players, player: int, settings: AdvantageConfig | AverageConfig) -> RegressionLearner:
    loss: RegressionLoss
    spec: NetworkSpec
    decay = False
    if isinstance(settings, AdvantageConfig):
        spec, loss = players.advantage_spec(player), advantage_loss
    else:
        decay = settings.decay == "linear"
        spec = players.average_spec(player)
        loss = average_mse_loss if settings.loss == "mse" else average_cross_entropy_loss
    optimiser = OptimiserSettings(settings.learning_rate, settings.clip, decay)
    return RegressionLearner(spec, loss, optimiser, players.device)


def _advantage_store(config: RunConfig, game: Game, player: int) -> Store:
    return _regression_store(config, game, player, config.advantage.capacity, _merged_advantages(config))


def _merged_advantages(config: RunConfig) -> bool:
    return config.advantage.buffer == "merged" or config.advantage.learner == "table"


def _strategy_store(config: RunConfig, game: Game, player: int) -> Store:
    return _regression_store(config, game, player, config.average.capacity, config.average.buffer == "merged")


def _regression_store(config: RunConfig, game: Game, player: int, capacity: int, merged: bool) -> Store:
    actions = game.description.num_actions
    if merged:
        assert isinstance(game, TreeGame)
        return Shard(Merged(game.arrays.num_states[player], actions, game.offsets[player]))
    schema = regression_schema(game.state_column, actions)
    shards = config.runtime.shards
    if shards == 1:
        return Shard(Reservoir(schema, capacity))
    return Sharded([Shard(Reservoir(schema, part)) for part in split_capacity(capacity, shards)])


# --- what the API calls ------------------------------------------------------------------------------------


def train(config: RunConfig, folder: Path, *, progress: bool) -> Result:
    """Train `config` in a new run folder. Ctrl-C and SIGTERM commit and return with `interrupted` set."""
    config = configuration.resolve(config)
    system = System.build(config)
    run_folder = RunFolder.create(folder, configuration.to_yaml(config))
    with run_folder.lock():
        return _go(system, run_folder, None, make_progress(quiet=not progress))


def resume(folder: Path, overrides: Sequence[str], *, progress: bool) -> Result:
    """Go on from the newest commit, with `overrides` laid over the run's configuration."""
    run_folder = RunFolder.open(folder)
    with run_folder.lock():
        shown = make_progress(quiet=not progress)
        config = resuming.changed(run_folder, overrides)
        commit = resuming.find_commit(run_folder, config, shown)
        system = System.build(config)
        if commit:
            refuse_foreign(commit, identity(config, system.game.fingerprint))
        if overrides:
            run_folder.write_config(configuration.to_yaml(config))
        return _go(system, run_folder, commit, shown)


def _go(system: System, folder: RunFolder, commit: Commit | None, progress: Progress) -> Result:
    config = system.config
    resumed = bool(folder.metrics.read()) or commit is not None
    done = commit.iteration if commit else 0
    for kind in folder.networks.kinds():
        folder.networks.truncate_after(kind, done)
    for line in size_lines(system):
        progress.note(line)
    resume_after = done if resumed else None
    with (
        Recorder.start(folder, progress, config.iterations, resume_after) as recorder,
        listening(progress.note) as interrupt,
    ):
        recorder.hyperparameters(config.model_dump(mode="json"), system.game.description.milli_unit)
        average = system.average(folder)
        run = Run(config, system.game.fingerprint, folder, system.bank, system.runtime, recorder, interrupt, average)
        if commit:
            run.restore(commit.iteration, float(commit.meta["seconds"]), dict(commit.parts))
        updates = cfr.ALTERNATING if config.sampling.updates == "alternating" else cfr.SIMULTANEOUS
        cfr.train(run, system.runtime, system.method, updates)
    rows: list[Evaluation] = evaluations(folder)  # type: ignore[assignment]
    return Result(folder.path, run.done, system.runtime.states, run.seconds, rows, run.interrupted)


def evaluate(folder: Path, iterations: Sequence[int] | None, average: str | None) -> list[Evaluation]:
    """Exact exploitability of the stored run's average after each of `iterations`; None: the newest commit."""
    run_folder = RunFolder.open(folder)
    config = configuration.load(run_folder.path / "config.yaml")
    system = System.build(config)
    return system.average(run_folder).stored(iterations, average)


def policy(folder: Path, iteration: int | None) -> Policy:
    """The stored run's average strategy as an OpenSpiel policy."""
    from dream.adapters.openspiel import make_policy

    run_folder = RunFolder.open(folder)
    system = System.build(configuration.load(run_folder.path / "config.yaml"))
    return make_policy(system.average(run_folder), iteration)


def predict_sizes(config: RunConfig) -> list[dict[str, Any]]:
    """What the run will hold in memory when its buffers are full: part, rows, bytes per row, bytes."""
    return sizes(System.build(configuration.resolve(config)))


def sizes(system: System) -> list[dict[str, Any]]:
    """The same for parts that are already joined."""
    parts, rows = system.runtime.parts, []
    stores: dict[str, Store | None] = {
        "advantage rows, player 0": parts.advantage_rows[0],
        "advantage rows, player 1": parts.advantage_rows[1],
        "strategy rows, player 0": parts.strategy_rows[0] if parts.strategy_rows else None,
        "strategy rows, player 1": parts.strategy_rows[1] if parts.strategy_rows else None,
        "transitions": parts.transitions,
    }
    for name, store in stores.items():
        if store is not None:
            rows.append({"part": name, "rows": store.capacity, "bytes": store_bytes(store)})
    return rows


def store_bytes(store: Store) -> int:
    """Bytes of a store when it is full."""
    total = 0
    for buffer in buffers_of(store):
        if isinstance(buffer, Merged):
            total += buffer.bytes
        elif isinstance(buffer, Reservoir | Circular):
            total += type(buffer).predicted_bytes(buffer.schema, buffer.capacity)
    return total


def size_lines(system: System) -> list[str]:
    """What a run prints at its start."""
    description = system.game.description
    backend = "tree" if isinstance(system.game, TreeGame) else "simulator"
    head = f"{description.name}: {backend} backend, {description.num_actions} actions"
    rows = sizes(system)
    return [head, *(f"{row['part']}: up to {row['rows']:,} rows, {row['bytes'] / 1e6:,.1f} MB" for row in rows)]


def describe_game(name: str) -> dict[str, Any]:
    """What a game is: sizes, payoffs with units, backend."""
    game = registry.load(name)
    description = game.description
    document: dict[str, Any] = {
        "name": description.name,
        "game_string": description.game_string,
        "backend": "tree" if isinstance(game, TreeGame) else "simulator",
        "actions": description.num_actions,
        "features": list(description.state_features),
        "horizon_moves": description.horizon,
        "min_payoff_chips": description.min_payoff,
        "max_payoff_chips": description.max_payoff,
        "unit": description.milli_unit,
        "chips_per_unit": description.unit_chips,
    }
    if isinstance(game, TreeGame):
        document |= {
            "histories": game.arrays.nodes,
            "decision_histories": game.num_histories,
            "information_states": list(game.arrays.num_states),
        }
    return document
