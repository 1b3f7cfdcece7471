"""What the processes of a cluster hold: plain classes, each made from the run's configuration. A shard is its own."""

import resource
import socket
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from actors.strategies.strategy import Profile
from buffers.buffer import Delta
from buffers.chunks import Chunk
from buffers.frames import Snapshot
from buffers.merged import Merged
from buffers.mirror import Mirror
from buffers.rows import Rows
from buffers.shard import Shard
from dream.config import RunConfig
from dream.runtime import assembly as names
from dream.runtime.assembly import Assembly
from dream.runtime.tally import Summary

_PACKAGES = ("dream-cfr", "torch", "numpy", "open_spiel")


@dataclass(frozen=True)
class Introduction:
    """What a process says of itself once it stands; the run refuses one that would compute something else."""

    host: str
    fingerprint: str
    versions: dict[str, str]

    @classmethod
    def of(cls, assembly: Assembly) -> "Introduction":
        """What the process that calls is, with the game that it has loaded."""
        return cls(socket.gethostname(), assembly.game.fingerprint, {name: version(name) for name in _PACKAGES})

    def differences(self, other: "Introduction") -> list[str]:
        """What `other` has otherwise, in a few words each."""
        pairs = [(name, mine, other.versions[name]) for name, mine in self.versions.items()]
        found = [f"{name} {theirs} instead of {mine}" for name, mine, theirs in pairs if mine != theirs]
        return found if self.fingerprint == other.fingerprint else [*found, "another game under the same name"]


@dataclass(frozen=True)
class ChunkReport:
    """A chunk without its rows, and what it cost its worker."""

    summary: Summary
    seconds: float
    rss_bytes: int


class SamplerService:
    """A worker with the strategies that it was last told."""

    def __init__(self, config: RunConfig) -> None:
        self._assembly = Assembly.of(config, on_cpu=True)
        self._worker = self._assembly.worker()
        self._baseline = self._assembly.baseline_values() if self._assembly.method.baseline else None
        self._told = (-1, -1)
        self._profile: Profile | None = None

    def introduce(self) -> Introduction:
        """See `Introduction`."""
        return Introduction.of(self._assembly)

    def sample(
        self, chunk: Chunk, told: tuple[int, int], profile: Snapshot, baseline: Snapshot
    ) -> tuple[ChunkReport, Rows, Rows | None, Rows | None]:
        """Play a chunk: its report, then advantage rows, strategy rows, transitions.

        `told` numbers the profile and the baseline: one that is known already is not read again.
        """
        began = time.perf_counter()
        if told[0] != self._told[0]:
            self._profile = self._assembly.players.profile(profile)
        if self._baseline and told[1] != self._told[1]:
            self._baseline.load(baseline)
        self._told = told
        assert self._profile is not None
        result = self._worker.traverse(chunk, self._profile, self._baseline.values if self._baseline else None)
        report = ChunkReport(Summary.of(result), time.perf_counter() - began, rss_bytes())
        return report, result.advantage, result.strategy, result.transitions


@dataclass(frozen=True)
class FitReport:
    """What a fit says besides its network. `versions`: where its mirrors stand, to ask the shards with."""

    metrics: dict[str, float]
    versions: tuple[int, ...]
    seconds: float
    rss_bytes: int


class LearnerService:
    """One fit with mirrors of the shards that it reads."""

    def __init__(self, config: RunConfig, name: str) -> None:
        self._assembly = Assembly.of(config)
        rows = names.rows_of(name)
        shards = range(self._assembly.shards(rows))
        self._mirrors: list[Mirror | Merged] = [self._assembly.mirror(rows, index) for index in shards]
        self._fit = self._assembly.fit(name)

    def introduce(self) -> Introduction:
        """See `Introduction`."""
        return Introduction.of(self._assembly)

    def fit(self, iteration: int, profile: Snapshot | None, *deltas: Any) -> tuple[Snapshot, FitReport]:
        """Fit to the shards' rows after `deltas`, one per shard: what the fit gives, and a report."""
        began = time.perf_counter()
        for mirror, delta in zip(self._mirrors, deltas, strict=True):
            mirror.apply(delta)
        told = None if profile is None else self._assembly.players.profile(profile)
        result, metrics = self._fit.fit(iteration, self._mirrors, told)
        versions = tuple(mirror.version for mirror in self._mirrors)
        return result, FitReport(metrics, versions, time.perf_counter() - began, rss_bytes())

    def snapshot(self) -> Snapshot:
        """What a commit stores of the fit: the rows are the shards' business."""
        return self._fit.snapshot()

    def restore(self, snapshot: Snapshot) -> Snapshot:
        """Continue from `snapshot`; what the last fit gave."""
        self._fit.restore(snapshot)
        return self._fit.result()


class ShardService:
    """A shard that says what it costs."""

    def __init__(self, shard: Shard[Any]) -> None:
        self._shard = shard
        self.add = shard.add
        self.snapshot = shard.snapshot
        self.restore = shard.restore

    def delta(self, version: int) -> tuple[Delta | Snapshot, dict[str, int]]:
        """What a mirror that stands at `version` lacks, and the shard's numbers."""
        return self._shard.delta(version), self._shard.info() | {"rss_bytes": rss_bytes()}


def rss_bytes() -> int:
    """Resident memory of this process at its largest."""
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024
