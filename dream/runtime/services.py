"""What workers and learners of a cluster hold: plain classes, each made from the run's configuration."""

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from actors.strategies.strategy import Profile
from buffers.chunks import Chunk
from buffers.frames import Snapshot
from buffers.merged import Merged
from buffers.mirror import Mirror
from buffers.rows import Rows
from dream.config import RunConfig
from dream.runtime import assembly as names
from dream.runtime.assembly import Assembly
from dream.runtime.shard_service import rss_bytes
from dream.runtime.tally import Summary
from learners.device_mirror import DeviceMirror
from learners.ranks import ALONE, ProcessGroup, Ranks, listen

_PACKAGES = ("dream-cfr", "torch", "numpy", "open_spiel")

Look = Callable[[], str | None]  # why what it looks for cannot be seen from here; None where it can


@dataclass(frozen=True)
class Introduction:
    """What a process says of itself once it stands; the run refuses one that would compute something else."""

    host: str
    fingerprint: str
    versions: dict[str, str]
    blind: str | None = None  # why it does not see the run folder, where it was asked

    @classmethod
    def of(cls, assembly: Assembly, look: Look | None = None) -> "Introduction":
        """What the process that calls is, with the game that it has loaded; `look` for the run folder."""
        versions = {name: version(name) for name in _PACKAGES}
        return cls(socket.gethostname(), assembly.game.fingerprint, versions, look() if look else None)

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
    """One fit, or one rank of it, with mirrors of the shards that it reads."""

    def __init__(self, config: RunConfig, name: str, rank: int, size: int) -> None:
        self._assembly = Assembly.of(config)
        self._name, self._rank, self._size = name, rank, size
        self._store: Any = None
        self._mirrors: list[Mirror | DeviceMirror | Merged] = []

    def introduce(self, look: Look | None) -> Introduction:
        """See `Introduction`."""
        return Introduction.of(self._assembly, look)

    def listen(self) -> str:
        """Rank 0 opens a place where the others meet it: its address. A single rank needs none."""
        if self._size == 1:
            return ""
        self._store, address = listen(_own_address(), self._size)
        return address

    def join(self, address: str) -> list[int]:
        """Meet the other ranks at `address`; the numbers of the shards whose deltas `fit` wants, in their order."""
        ranks: Ranks = ALONE
        if self._size > 1:
            ranks = ProcessGroup(self._rank, self._size, self._store or address, self._assembly.players.device)
        rows = names.rows_of(self._name)
        share = self._assembly.share(rows, ranks)
        assert share.shards is not None
        self._mirrors = self._assembly.mirrors(rows, share.shards)
        self._fit = self._assembly.fit(self._name, share)
        return list(share.shards)

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


def _own_address() -> str:
    """The address under which other nodes see this one: that of the way out; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:  # a machine without a network
            return "127.0.0.1"
        return str(probe.getsockname()[0])
