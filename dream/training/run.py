"""A run: its iterations, its bank, and everything that is kept of it."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from actors.strategies.strategy import Profile
from buffers.frames import Snapshot
from dream.config import RunConfig
from dream.identity import identity
from dream.runtime.runtime import Runtime
from dream.store import ADVANTAGES, RunFolder
from dream.telemetry.recorder import Recorder
from dream.telemetry.report import IterationReport
from dream.training.clerk import Clerk
from dream.training.interrupt import Interrupt
from learners.networks import Parameters


class Bank(Protocol):
    """The strategies in play and their average, fed with parameters."""

    def profile(self) -> Profile:
        """The newest strategies."""
        ...

    def weigh(self, iteration: int) -> None:
        """Enter the newest strategies, sigma^t, into the average."""
        ...

    def append(self, player: int, parameters: Parameters) -> None:
        """Make the network's strategy the player's newest."""
        ...

    def snapshot(self) -> Snapshot:
        """What a commit stores."""
        ...

    def restore(self, snapshot: Snapshot, newest: Sequence[Parameters]) -> None:
        """Continue from a commit whose last iteration made the networks `newest`."""
        ...


Evaluate = Callable[[int], Callable[[], tuple[Mapping[str, Any] | None, dict[str, float]]]]


class Run:
    """Counts iterations and decides when to evaluate, report and commit."""

    def __init__(
        self,
        config: RunConfig,
        fingerprint: str,
        folder: RunFolder,
        bank: Bank,
        runtime: Runtime,
        recorder: Recorder,
        interrupt: Interrupt,
        evaluate: Evaluate,
        clerk: Clerk,
    ) -> None:
        self.bank = bank
        self.config = config
        self._identity = identity(config, fingerprint)
        self.done = 0
        self.interrupted = False
        self._folder = folder
        self._runtime = runtime
        self._recorder = recorder
        self._interrupt = interrupt
        self._evaluate = evaluate
        self._clerk = clerk
        self._committed = 0
        self._pending: tuple[list[Parameters], list[Parameters]] = ([], [])
        self._seconds_before = 0.0
        self._began = time.perf_counter()
        self._committing_seconds = 0.0

    @property
    def seconds(self) -> float:
        """The run's own time, over all its sittings."""
        return self._seconds_before + time.perf_counter() - self._began

    def iterations(self) -> Iterator[int]:
        """The numbers of the iterations still to do, from 1; ends early where a stop was asked for."""
        while self.done < self.config.iterations:
            yield self.done + 1
            if self._interrupt.requested:
                self.interrupted = self.done < self.config.iterations
                break
        if self.done > self._committed:
            self.commit()
        self._clerk.wait()

    def append(self, player: int, parameters: Parameters) -> None:
        """Keep an iteration's network and play it from here on."""
        self._pending[player].append(parameters)
        self.bank.append(player, parameters)

    def finish(self, iteration: int) -> None:
        """The iteration is over: evaluate, report and commit where due."""
        self.done = iteration
        metrics = self._runtime.take_metrics()
        evaluation_due, commit_due = self._evaluation_due(iteration), iteration % self.config.checkpoint.every == 0
        if (evaluation_due or commit_due) and (waited := self._clerk.wait()):  # one of each at a time
            metrics["time/waiting_seconds"] = waited
        evaluate = self._evaluate(iteration) if evaluation_due else None
        self._clerk.do(partial(self._report, iteration, self._runtime.states, metrics, evaluate))
        if commit_due:
            self.commit()

    def _report(
        self, iteration: int, states: int, metrics: dict[str, float], evaluate: Callable[[], Any] | None
    ) -> None:
        evaluation = None
        if evaluate is not None:
            began = time.perf_counter()
            evaluation, own = evaluate()
            metrics |= own | {"time/evaluating_seconds": time.perf_counter() - began}
        metrics["time/committing_seconds"] = self._committing_seconds
        self._committing_seconds = 0.0
        self._recorder.record(IterationReport(iteration, states, self.seconds, metrics, evaluation))

    def _evaluation_due(self, iteration: int) -> bool:
        every = self.config.evaluation.every
        return iteration == self.config.iterations or (every > 0 and iteration % every == 0)

    def commit(self) -> None:
        """Keep everything that is needed to go on from here."""
        snapshot, bank = self._runtime.begin_snapshot(), self.bank.snapshot()
        meta = {"seconds": self.seconds} | self._identity
        self._clerk.do(partial(self._write, self._committed + 1, self.done, self._pending, snapshot, bank, meta))
        self._committed = self.done
        self._pending = ([], [])

    def _write(
        self,
        first: int,
        iteration: int,
        networks: tuple[list[Parameters], list[Parameters]],
        snapshot: Callable[[], dict[str, Snapshot]],
        bank: Snapshot,
        meta: Snapshot,
    ) -> None:
        """Networks, then metrics, then the commit, then pruning: a kill in between loses nothing."""
        began = time.perf_counter()
        folder = self._folder
        for kind, entries in zip(ADVANTAGES, networks, strict=True):
            folder.networks.put_segment(kind, first, entries)
        self._recorder.flush()
        folder.checkpoints.commit(iteration, snapshot() | {"bank": bank}, meta)
        folder.checkpoints.prune(self.config.checkpoint.keep)
        self._committing_seconds += time.perf_counter() - began

    def restore(self, iteration: int, seconds: float, parts: Mapping[str, Snapshot]) -> None:
        """Stand where the commit of `iteration` stood."""
        networks = self._folder.networks
        newest = [networks.get(kind, iteration) for kind in ADVANTAGES if iteration]
        self.bank.restore(parts["bank"], newest)
        self._runtime.restore(parts)
        self.done = self._committed = iteration
        self._seconds_before = seconds
