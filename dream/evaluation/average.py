"""The average strategy of a run: while it trains, and from what it stored."""

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np

from actors.strategies.bank import SimulatorBank, TreeBank
from actors.strategies.strategy import Probabilities
from dream import config as configuration
from dream.config import RunConfig
from dream.errors import UsageError
from dream.evaluation.exploitability import exploitability
from dream.identity import identity, refuse_foreign
from dream.methods import Method
from dream.results import Evaluation
from dream.runtime.players import Players, TreePlayers
from dream.runtime.runtime import Runtime
from dream.store import ADVANTAGES, Commit, RunFolder
from dream.store.standing import newest_commit
from dream.telemetry.progress import warn
from learners.networks import Parameters

AVERAGES = ("bank", "network")

Measured = tuple[
    dict[str, Any] | None, dict[str, float]
]  # an evaluation, None where nothing exact can be said; metrics
Pending = Callable[[], Measured]


class AverageOf:
    """Gives the average of a run as a table, where its game is enumerated."""

    def __init__(
        self,
        config: RunConfig,
        method: Method,
        players: Players,
        bank: TreeBank | SimulatorBank,
        runtime: Runtime,
        folder: RunFolder,
    ) -> None:
        self._config = config
        self._method = method
        self._players = players
        self._bank = bank
        self._runtime = runtime
        self._folder = folder

    @property
    def players(self) -> Players:
        """The game and the networks' readers."""
        return self._players

    @property
    def method(self) -> Method:
        """The run's algorithm."""
        return self._method

    def __call__(self, iteration: int) -> Pending:
        """Begin to evaluate the running average as it stands after `iteration`; the call of the result ends it."""
        if self._config.evaluation.by == "none" or not isinstance(self._bank, TreeBank):
            return lambda: (None, {})
        if self._method.average == "network":
            fits = self._runtime.begin_averages(iteration)
            return lambda: self._of_networks(*fits())
        table = self._bank.average()
        return lambda: (self._measures(table), {})

    def _of_networks(self, parameters: list[Parameters], metrics: dict[str, float]) -> Measured:
        return self._measures(self._network_table(parameters)), metrics

    def _measures(self, table: Probabilities) -> dict[str, Any]:
        return exploitability(self._players.game, table) | {"average": self._method.average}  # type: ignore[arg-type]

    def _network_table(self, parameters: Sequence[Parameters]) -> Probabilities:
        assert isinstance(self._players, TreePlayers)
        return np.concatenate([self._players.average_table(p, own) for p, own in enumerate(parameters)])

    def stored(self, iterations: Sequence[int] | None, average: str | None) -> list[Evaluation]:
        """Evaluate what the run folder holds after each of `iterations` (None: the newest commit's).

        The bank's average comes from the stored networks alone. An average network is fitted to the strategy rows
        of the newest commit, so it exists for that iteration only. Raises UsageError for what is not there.
        """
        kind = self._method.average if average is None else average
        if kind not in AVERAGES:
            raise UsageError(configuration.unknown("average", str(kind), AVERAGES))
        wanted = None if iterations is None else _ascending(iterations)
        wanted = [self.newest()] if wanted is None else wanted
        by_iteration = {record["iteration"]: record for record in self._folder.metrics.read()}
        rows: list[Evaluation] = []
        for iteration, table in self.tables(wanted, kind):
            assert isinstance(self._players, TreePlayers)
            record = by_iteration.get(iteration, {})
            row: dict[str, Any] = {
                "iteration": iteration,
                "states": record.get("states"),
                "seconds": record.get("seconds"),
                **exploitability(self._players.game, table),
                "average": kind,
            }
            rows.append(cast(Evaluation, row))
        return rows

    def newest(self) -> int:
        """The last iteration that has been committed.

        Raises UsageError where there is none, CheckpointError where no commit is usable or it is another run's.
        """
        return self._commit.iteration

    @functools.cached_property
    def _commit(self) -> Commit:
        """The newest usable commit, read once; says which newer ones are damaged."""
        if not self._folder.checkpoints.any():
            raise UsageError(f"{self._folder.path} has no commit yet: nothing to evaluate.")
        commit = newest_commit(self._folder)
        for sentence in commit.damaged:
            warn(sentence)
        refuse_foreign(commit, identity(self._config, self._players.game.fingerprint))
        return commit

    def tables(self, iterations: Sequence[int], average: str) -> Iterator[tuple[int, Probabilities]]:
        """The average after each of `iterations`, ascending, as a table [S, A]."""
        if not isinstance(self._bank, TreeBank):
            raise UsageError(_no_tree(self._config))
        newest = self.newest()
        for iteration in iterations:
            self._refuse_unstored(iteration, newest)
        if average == "network":
            yield from self._network_tables(iterations)
        else:
            yield from self._bank_tables(iterations)

    def networks(self, iteration: int) -> list[Parameters]:
        """Both players' average networks, fitted to the strategy rows of the newest commit.

        Raises UsageError for another iteration than the newest: its rows are gone.
        """
        newest = self.newest()
        if iteration != newest:
            raise UsageError(
                f"the average network of iteration {iteration} cannot be fitted any more: strategy rows are "
                f"kept for the newest commit, {newest}, alone; `--average bank` has every iteration."
            )
        self._runtime.restore(self._commit.parts)
        parameters, _ = self._runtime.begin_averages(iteration)()
        return parameters

    def bank_stacks(self, iteration: int) -> list[Parameters]:
        """Both players' networks that the average after `iteration` holds: of iterations 1 to `iteration` - 1.

        Each parameter is stacked, [iteration - 1, ...]; empty for iteration 1, whose average is uniform. Raises
        UsageError for an iteration that is not stored.
        """
        self._refuse_unstored(iteration, self.newest())
        if iteration == 1:
            return [{}, {}]
        return [self._folder.networks.stack(kind, 1, iteration - 1) for kind in ADVANTAGES]

    def _refuse_unstored(self, iteration: int, newest: int) -> None:
        if not 1 <= _whole(iteration) <= newest:
            raise UsageError(f"iteration {iteration} is not stored; allowed are 1 to {newest}.")

    def _network_tables(self, iterations: Sequence[int]) -> Iterator[tuple[int, Probabilities]]:
        if self._method.average != "network":
            raise UsageError(
                f"{self._method.name} keeps no strategy rows, so it has no average network; use --average bank."
            )
        for iteration in iterations:
            yield iteration, self._network_table(self.networks(iteration))

    def _bank_tables(self, iterations: Sequence[int]) -> Iterator[tuple[int, Probabilities]]:
        assert isinstance(self._players, TreePlayers)
        bank = TreeBank(self._players.game, self._players.advantage_table)
        last = max(iterations, default=0)
        stacks = self.bank_stacks(last) if last else []
        for t in range(1, last + 1):
            for player, stack in enumerate(stacks if t > 1 else []):
                bank.append(player, {name: values[t - 2] for name, values in stack.items()})
            bank.weigh(t)
            if t in iterations:
                yield t, bank.average()


def _no_tree(config: RunConfig) -> str:
    if config.sampling.backend == "simulator":
        return (
            f"{config.game} was trained without its tree (sampling.backend=simulator), which exact evaluation needs; "
            "train it with sampling.backend=auto."
        )
    return (
        f"{config.game} is too large for exact evaluation (sampling.enumerate_limit="
        f"{config.sampling.enumerate_limit:,} histories)."
    )


def _ascending(iterations: Sequence[int]) -> list[int]:
    """Sorted, each once. Raises UsageError for what is no list of whole numbers."""
    if isinstance(iterations, str | bytes) or not hasattr(iterations, "__iter__"):
        raise UsageError(f"iterations must be a list of whole numbers such as [1, 10], not {iterations!r}.")
    return sorted({_whole(iteration) for iteration in iterations})


def _whole(iteration: Any) -> int:
    if not isinstance(iteration, bool) and hasattr(iteration, "__index__"):
        return operator.index(iteration)
    raise UsageError(f"an iteration is a whole number, not {iteration!r}.")
