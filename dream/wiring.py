"""From a configuration to a running system: the only place where all parts are joined."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from actors.games import registry
from actors.games.batch import Game
from actors.games.tree import TreeGame
from actors.strategies.bank import SimulatorBank, TreeBank
from dream import config as configuration
from dream.config import RunConfig
from dream.evaluation.average import AverageOf
from dream.identity import identity, refuse_foreign
from dream.inspection import evaluations
from dream.methods import Method
from dream.results import Evaluation, Result
from dream.runtime.assembly import Assembly
from dream.runtime.backend import PartLostError
from dream.runtime.cluster import ClusterRuntime
from dream.runtime.local import LocalRuntime
from dream.runtime.players import TreePlayers
from dream.runtime.runtime import Runtime
from dream.store import Commit, RunFolder
from dream.store.places import Location
from dream.store.visibility import token_in, unseen
from dream.telemetry.progress import Progress, make_progress, warn
from dream.telemetry.recorder import Recorder
from dream.training import cfr, resuming
from dream.training.clerk import AtOnce, Beside
from dream.training.interrupt import Interrupt, listening
from dream.training.run import Run

if TYPE_CHECKING:
    from open_spiel.python.policy import Policy


@dataclass
class System:
    """The parts of one run."""

    assembly: Assembly
    bank: TreeBank | SimulatorBank
    runtime: Runtime

    @classmethod
    def build(cls, config: RunConfig) -> System:
        """Join the parts in this process. Raises GameError or ConfigError for what cannot be run."""
        assembly = Assembly.of(config)
        return cls.around(assembly, LocalRuntime(assembly))

    @classmethod
    def around(cls, assembly: Assembly, runtime: Runtime) -> System:
        """Join the parts around a runtime."""
        return cls(assembly, _bank(assembly), runtime)

    @property
    def config(self) -> RunConfig:
        """The run's configuration."""
        return self.assembly.config

    @property
    def method(self) -> Method:
        """The run's algorithm."""
        return self.assembly.method

    @property
    def game(self) -> Game:
        """The game."""
        return self.assembly.game

    def average(self, folder: RunFolder) -> AverageOf:
        """Evaluates the run's average strategy."""
        return AverageOf(self.config, self.method, self.assembly.players, self.bank, self.runtime, folder)


def _bank(assembly: Assembly) -> TreeBank | SimulatorBank:
    players = assembly.players
    if isinstance(players, TreePlayers):
        return TreeBank(players.game, players.advantage_table)
    return SimulatorBank(players.from_advantages)


# --- what the API calls ------------------------------------------------------------------------------------


def train(config: RunConfig, folder: Location, *, progress: bool, go_on: bool = False) -> Result:
    """Train `config` in a new run folder. Ctrl-C and SIGTERM commit and return with `interrupted` set.

    With `go_on`, a folder that holds a run already goes on as by `resume`, with what `config` changes.
    """
    config = configuration.resolve(config)
    if go_on and RunFolder.holds_run(folder):
        return _resume(RunFolder.open(folder), config, progress=progress)
    assembly = _assembly(config)
    run_folder = RunFolder.create(folder, configuration.to_yaml(config), warn)
    with run_folder.lock(warn):
        return _go(assembly, run_folder, None, make_progress(quiet=not progress))


def resume(folder: Location, overrides: Sequence[str], *, progress: bool) -> Result:
    """Go on from the newest commit, with `overrides` laid over the run's configuration."""
    run_folder = RunFolder.open(folder)
    return _resume(run_folder, resuming.with_overrides(run_folder, overrides), progress=progress)


def _resume(run_folder: RunFolder, config: RunConfig, *, progress: bool) -> Result:
    with run_folder.lock(warn):
        shown = make_progress(quiet=not progress)
        changed = resuming.changed(run_folder, config)
        commit = resuming.find_commit(run_folder, config, shown)
        assembly = _assembly(config)
        if commit:
            refuse_foreign(commit, identity(config, assembly.game.fingerprint))
        if changed:
            run_folder.write_config(configuration.to_yaml(config))
        return _go(assembly, run_folder, commit, shown)


def _assembly(config: RunConfig) -> Assembly:
    """The driver's parts. On a cluster the learners have the device, and the driver plays on the CPU."""
    return Assembly.of(config, on_cpu=on_cluster(config))


def on_cluster(config: RunConfig) -> bool:
    """Whether the run goes to a Ray cluster. Raises ConfigError for a configuration that cannot."""
    settings = config.runtime
    if settings.kind == "auto" and (settings.address or os.environ.get("RAY_ADDRESS")):
        configuration.merged(config, {"runtime": {"kind": "ray"}})  # for what does not go with it
        return True
    return settings.kind == "ray"


def _runtime(assembly: Assembly, folder: RunFolder, progress: Progress) -> Runtime:
    if not on_cluster(assembly.config):
        return LocalRuntime(assembly)
    from dream.runtime.ray_backend import RayBackend

    settings = assembly.config.runtime
    backend = RayBackend.connect(settings.address, settings.workers, settings.silence_timeout_seconds)
    try:
        with token_in(folder) as token:
            look = partial(unseen, str(folder.path), token)
            return ClusterRuntime(assembly, backend, progress.note, look=look)
    except BaseException:
        backend.close()
        raise


def _go(assembly: Assembly, folder: RunFolder, commit: Commit | None, progress: Progress) -> Result:
    """Train to the end. Where a cluster loses more than workers, go back to the last commit as a resume does."""
    config, losses, reached = assembly.config, 0, -1
    with listening(progress.note) as interrupt:
        while True:
            try:
                with closing(_runtime(assembly, folder, progress)) as runtime:
                    return _sitting(System.around(assembly, runtime), folder, commit, progress, interrupt)
            except PartLostError as lost:
                commit = resuming.find_commit(folder, config, progress)
                done = commit.iteration if commit else 0
                losses = losses + 1 if done == reached else 1
                reached = done
                if losses > config.runtime.recoveries:
                    raise
                progress.warn(f"{lost}; going back to iteration {done} (loss {losses} of {config.runtime.recoveries})")


def _sitting(
    system: System, folder: RunFolder, commit: Commit | None, progress: Progress, interrupt: Interrupt
) -> Result:
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
        closing(Beside() if on_cluster(config) else AtOnce()) as clerk,
    ):
        recorder.hyperparameters(config.model_dump(mode="json"), system.game.description.milli_unit)
        average = system.average(folder)
        fingerprint, bank, runtime = system.game.fingerprint, system.bank, system.runtime
        run = Run(config, fingerprint, folder, bank, runtime, recorder, interrupt, average, clerk)
        if commit:
            run.restore(commit.iteration, float(commit.meta["seconds"]), commit.parts)
        updates = cfr.ALTERNATING if config.sampling.updates == "alternating" else cfr.SIMULTANEOUS
        cfr.train(run, system.runtime, system.method, updates)
    rows: list[Evaluation] = evaluations(folder)  # type: ignore[assignment]
    return Result(folder.path, run.done, system.runtime.states, run.seconds, rows, run.interrupted)


def evaluate(folder: Location, iterations: Sequence[int] | None, average: str | None) -> list[Evaluation]:
    """Exact exploitability of the stored run's average after each of `iterations`; None: the newest commit."""
    run_folder = RunFolder.open(folder)
    config = run_folder.config()
    system = System.build(config)
    return system.average(run_folder).stored(iterations, average)


def policy(folder: Location, iteration: int | None) -> Policy:
    """The stored run's average strategy as an OpenSpiel policy."""
    from dream.adapters.openspiel import make_policy

    run_folder = RunFolder.open(folder)
    system = System.build(run_folder.config())
    return make_policy(system.average(run_folder), iteration)


def predict_sizes(config: RunConfig) -> list[dict[str, Any]]:
    """What the run will hold in memory when its buffers are full: part, rows, bytes per row, bytes."""
    return sizes(System.build(configuration.resolve(config)))


def sizes(system: System) -> list[dict[str, Any]]:
    """The same for parts that are already joined."""
    assembly, rows = system.assembly, []
    for name in assembly.row_names():
        shards = [assembly.predicted(name, index) for index in range(assembly.shards(name))]
        rows.append(
            {"part": _in_words(name), "rows": sum(rows for rows, _ in shards), "bytes": sum(b for _, b in shards)}
        )
    return rows


def _in_words(name: str) -> str:
    kind, _, player = name.partition("_rows_")
    return f"{kind} rows, player {player}" if player else kind


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
