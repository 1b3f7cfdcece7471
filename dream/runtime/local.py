"""Everything in this process: plain calls."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from actors.strategies.strategy import Profile
from buffers.chunks import ChunkId, plan
from buffers.frames import Snapshot
from buffers.rows import Rows
from buffers.sharded import buffers_of
from dream.runtime import assembly as names
from dream.runtime.assembly import BASELINE, TRANSITIONS, Assembly
from dream.runtime.tally import Meter, Summary, Tally, of_players
from learners.networks import Parameters
from learners.parallel import side_by_side


class Snapshotting(Protocol):
    """A part that a commit stores."""

    def snapshot(self) -> Snapshot:
        """What a commit stores."""
        ...

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from `snapshot`."""
        ...


class LocalRuntime:
    """Samples, buffers and learners in one process."""

    def __init__(self, assembly: Assembly) -> None:
        method = assembly.method
        self.states = 0
        self.stores = {name: assembly.store(name) for name in assembly.row_names()}
        self.advantages = (assembly.advantage_fit(0), assembly.advantage_fit(1))
        self.averages = (assembly.average_fit(0), assembly.average_fit(1)) if method.average == "network" else ()
        self.baseline = assembly.baseline_fit() if method.baseline else None
        self._worker = assembly.worker()
        self._traversals = assembly.traversals
        self._config = assembly.config
        self._meter = Meter()

    def sample(self, iteration: int, traversers: Sequence[int], profile: Profile) -> None:
        """See `Runtime.sample`."""
        baseline = self.baseline.baseline.values if self.baseline else None
        with self._meter.timing("sampling"):
            for traverser in traversers:
                tally = Tally()
                for chunk in plan(iteration, traverser, self._traversals, self._config.sampling.chunk):
                    result = self._worker.traverse(chunk, profile, baseline)
                    self._keep(names.advantage_rows(traverser), chunk.id, result.advantage)
                    self._keep(names.strategy_rows(1 - traverser), chunk.id, result.strategy)
                    self._keep(TRANSITIONS, chunk.id, result.transitions)
                    tally.add(Summary.of(result))
                self.states += tally.states
                self._meter.sampled(traverser, tally)

    def _keep(self, store: str, chunk: ChunkId, rows: Rows | None) -> None:
        if rows is not None and store in self.stores:
            self.stores[store].add(chunk, rows)

    def fit_advantages(self, iteration: int, players: Sequence[int]) -> list[Parameters]:
        """See `Runtime.fit_advantages`."""
        with self._meter.timing("fitting"):
            stores = [self.stores[names.advantage_rows(player)] for player in players]
            pairs = zip(players, stores, strict=True)
            work = [partial(self.advantages[p].fit, iteration, buffers_of(store)) for p, store in pairs]
            fits = side_by_side(work, self._config.runtime.parallel_learners)
            for player, store, (_, metrics) in zip(players, stores, fits, strict=True):
                self._meter.set(metrics, f"_{player}")
                self._meter.filled(player, store.size, store.capacity, store.seen)
        return [parameters for parameters, _ in fits]

    def fit_baseline(self, iteration: int, profile: Profile) -> None:
        """See `Runtime.fit_baseline`."""
        assert self.baseline is not None
        with self._meter.timing("fitting"):
            _, metrics = self.baseline.fit(iteration, buffers_of(self.stores[TRANSITIONS]), profile)
            self._meter.set(metrics)

    def begin_averages(self, iteration: int) -> Callable[[], tuple[list[Parameters], dict[str, float]]]:
        """See `Runtime.begin_averages`. Nothing is done before the call."""
        return partial(self._fit_averages, iteration)

    def _fit_averages(self, iteration: int) -> tuple[list[Parameters], dict[str, float]]:
        stores = [buffers_of(self.stores[names.strategy_rows(player)]) for player in (0, 1)]
        fits = [fit.fit(iteration, buffers) for fit, buffers in zip(self.averages, stores, strict=True)]
        return [parameters for parameters, _ in fits], of_players([metrics for _, metrics in fits])

    def take_metrics(self) -> dict[str, float]:
        """See `Runtime.take_metrics`."""
        return self._meter.take()

    def begin_snapshot(self) -> Callable[[], dict[str, Snapshot]]:
        """See `Runtime.begin_snapshot`."""
        counters: dict[str, Snapshot] = {"counters": {"states": self.states}}
        parts = counters | {name: part.snapshot() for name, part in self._named_parts().items()}
        return lambda: parts

    def restore(self, parts: Mapping[str, Snapshot]) -> None:
        """See `Runtime.restore`."""
        self.states = parts["counters"]["states"]
        for name, part in self._named_parts().items():
            part.restore(parts[name])

    def close(self) -> None:
        """See `Runtime.close`."""

    def _named_parts(self) -> dict[str, Snapshotting]:
        named: dict[str, Snapshotting] = {**self.stores}
        for player in (0, 1):
            named[f"chance_{player}"] = self._worker.streams[player]
            named[names.advantage(player)] = self.advantages[player]
        return named | ({BASELINE: self.baseline} if self.baseline else {})
