"""Everything in this process: plain calls."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from actors.sampling import lanes
from actors.sampling.chance import ChanceStreams
from actors.sampling.exact import ExactSampler
from actors.sampling.external import ExternalSampler
from actors.sampling.outcome import Baseline, OutcomeSampler
from actors.sampling.traversals import Traversals
from actors.strategies.strategy import Profile
from buffers.buffer import Store
from buffers.chunks import Chunk, plan
from buffers.frames import Snapshot
from dream.runtime.learning import AdvantageFit, AverageFit, BaselineFit
from learners.networks import Parameters
from learners.parallel import side_by_side

Sampler = OutcomeSampler | ExternalSampler | ExactSampler


_STATES = "throughput/states_per_second"
_ROWS = "throughput/rows_per_second"


class Snapshotting(Protocol):
    """A part that a commit stores."""

    def snapshot(self) -> Snapshot:
        """What a commit stores."""
        ...

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from `snapshot`."""
        ...


@dataclass
class Parts:
    """What the runtime is made of; `dream.wiring` joins it."""

    seed: int
    traversals: int
    chunk: int
    sampler: Sampler
    streams: tuple[ChanceStreams, ChanceStreams]  # one set per traverser
    advantage_rows: tuple[Store, Store]
    advantage: tuple[AdvantageFit, AdvantageFit]
    strategy_rows: tuple[Store, Store] | None = None
    average: tuple[AverageFit, AverageFit] | None = None
    transitions: Store | None = None
    baseline: BaselineFit | None = None
    parallel: bool = False


class _Tally:
    """Scalars of an iteration's rows over all its chunks: the largest of a maximum, the rows' mean of the rest.

    `target_scale/advantage` is the root mean square of the sampled advantages, in chips.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._entries = 0
        self._squares = 0.0
        self._largest: dict[str, float] = {}
        self._sums: dict[str, float] = {}

    def add(self, result: Traversals) -> None:
        target = result.advantage["target"]
        rows = len(target)
        self.rows += rows
        self._entries += target.size
        self._squares += float(np.square(target, dtype=np.float64).sum())
        for name, value in result.metrics.items():
            if name.endswith("/max"):
                self._largest[name] = max(value, self._largest.get(name, value))
            else:
                self._sums[name] = self._sums.get(name, 0.0) + rows * value

    def metrics(self) -> dict[str, float]:
        means = {name: total / max(self.rows, 1) for name, total in self._sums.items()}
        scale = math.sqrt(self._squares / max(self._entries, 1))
        return means | self._largest | {"target_scale/advantage": scale}


@dataclass
class LocalRuntime:
    """Samples, buffers and learners in one process."""

    parts: Parts
    states: int = 0
    _metrics: dict[str, float] = field(default_factory=dict)

    def sample(self, iteration: int, traverser: int, profile: Profile) -> None:
        """See `Runtime.sample`."""
        began = time.perf_counter()
        parts = self.parts
        states = 0
        tally = _Tally()
        for chunk in plan(iteration, traverser, parts.traversals, parts.chunk):
            result = self._traverse(chunk, profile)
            self._keep(chunk, traverser, result)
            states += result.states
            tally.add(result)
        self._metrics |= {f"{name}_{traverser}": value for name, value in tally.metrics().items()}
        self.states += states
        self._add("time/sampling_seconds", time.perf_counter() - began)
        self._add(_STATES, states)
        self._add(_ROWS, tally.rows)

    def _traverse(self, chunk: Chunk, profile: Profile) -> Traversals:
        parts, (iteration, traverser, _) = self.parts, chunk.id
        keys = lanes.start(parts.seed, iteration, traverser, chunk.first, chunk.count)
        streams = parts.streams[traverser]
        if isinstance(parts.sampler, OutcomeSampler):
            baseline: Baseline | None = parts.baseline.values if parts.baseline else None
            return parts.sampler.sample(iteration, traverser, keys, profile, streams, baseline)
        return parts.sampler.sample(iteration, traverser, keys, profile, streams)

    def _keep(self, chunk: Chunk, traverser: int, result: Traversals) -> None:
        parts = self.parts
        parts.advantage_rows[traverser].add(chunk.id, result.advantage)
        if parts.strategy_rows and result.strategy is not None:
            parts.strategy_rows[1 - traverser].add(chunk.id, result.strategy)
        if parts.transitions and result.transitions is not None:
            parts.transitions.add(chunk.id, result.transitions)

    def fit_advantages(self, iteration: int, players: Sequence[int]) -> list[Parameters]:
        """See `Runtime.fit_advantages`."""
        began = time.perf_counter()
        parts = self.parts
        fits = side_by_side(
            [partial(parts.advantage[p].fit, iteration, parts.advantage_rows[p]) for p in players],
            parts.parallel,
        )
        for player, (_, metrics) in zip(players, fits, strict=True):
            self._metrics |= {f"{name}_{player}": value for name, value in metrics.items()}
            store = parts.advantage_rows[player]
            self._metrics[f"buffer/fill_advantage_{player}"] = store.size / store.capacity
            self._metrics[f"buffer/seen_advantage_{player}"] = float(store.seen)
        self._add("time/fitting_seconds", time.perf_counter() - began)
        return [parameters for parameters, _ in fits]

    def fit_baseline(self, iteration: int, profile: Profile) -> None:
        """See `Runtime.fit_baseline`."""
        began = time.perf_counter()
        assert self.parts.baseline is not None
        assert self.parts.transitions is not None
        self._metrics |= self.parts.baseline.fit(iteration, self.parts.transitions, profile)
        self._add("time/fitting_seconds", time.perf_counter() - began)

    def fit_averages(self, iteration: int) -> list[Parameters]:
        """See `Runtime.fit_averages`."""
        assert self.parts.average is not None
        assert self.parts.strategy_rows is not None
        pairs = zip(self.parts.average, self.parts.strategy_rows, strict=True)
        fits = [average.fit(iteration, rows) for average, rows in pairs]
        for player, (_, metrics) in enumerate(fits):
            self._metrics |= {f"{name}_{player}": value for name, value in metrics.items()}
        return [parameters for parameters, _ in fits]

    def take_metrics(self) -> dict[str, float]:
        """See `Runtime.take_metrics`."""
        metrics, self._metrics = self._metrics, {}
        for name in (_STATES, _ROWS):  # of both players, over the time that sampling took
            if name in metrics:
                metrics[name] /= metrics["time/sampling_seconds"]
        return metrics

    def snapshot(self) -> dict[str, Snapshot]:
        """See `Runtime.snapshot`."""
        return {"counters": {"states": self.states}} | {
            name: part.snapshot() for name, part in self._named_parts().items()
        }

    def restore(self, parts: dict[str, Snapshot]) -> None:
        """See `Runtime.restore`."""
        self.states = parts["counters"]["states"]
        for name, part in self._named_parts().items():
            part.restore(parts[name])

    def _named_parts(self) -> dict[str, Snapshotting]:
        parts = self.parts
        named: dict[str, Snapshotting] = {}
        for player in (0, 1):
            named[f"chance_{player}"] = parts.streams[player]
            named[f"advantage_rows_{player}"] = parts.advantage_rows[player]
            named[f"advantage_{player}"] = parts.advantage[player]
            if parts.strategy_rows:
                named[f"strategy_rows_{player}"] = parts.strategy_rows[player]
        if parts.transitions and parts.baseline:
            named |= {"transitions": parts.transitions, "baseline": parts.baseline}
        return named

    def _add(self, name: str, value: float) -> None:
        self._metrics[name] = self._metrics.get(name, 0.0) + value
