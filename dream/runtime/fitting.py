"""A learner on the cluster: one process, or several ranks that fit one network together, each fed by its shards."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from buffers.frames import Snapshot
from dream.runtime.backend import Backend, Handle, Reference
from dream.runtime.services import FitReport


class _Rank:
    """One process of a learner and the shards that it follows: `numbers` of `shards`, which are all."""

    def __init__(self, backend: Backend, handle: Handle, shards: Sequence[Handle]) -> None:
        self.handle = handle
        self.numbers: list[int] = []
        self.versions: list[int] = []
        self._backend = backend
        self._shards = shards

    def follow(self, numbers: list[int]) -> None:
        """Its mirrors are of these shards, and empty."""
        self.numbers, self.versions = numbers, [0] * len(numbers)

    def begin(self, iteration: int, profile: Reference | None) -> list[Reference]:
        """Ask for a fit to all rows added so far: references to its result, its report, and its shards' numbers."""
        call = self._backend.call_for
        asked = zip(self.numbers, self.versions, strict=True)
        deltas = [call(2, self._shards[number], "delta", version) for number, version in asked]
        fit = call(2, self.handle, "fit", iteration, profile, *(delta for delta, _ in deltas))
        return [*fit, *(info for _, info in deltas)]


@dataclass(frozen=True)
class Fitted:
    """What a fit gave: its result (where it was asked for), the first rank's report, numbers of every shard."""

    result: Snapshot
    report: FitReport
    shards: list[dict[str, int]]


class Learner:
    """Begins fits and ends them. The result is the first rank's; the others have the same bits."""

    def __init__(self, backend: Backend, handles: Sequence[Handle], shards: Sequence[Handle]) -> None:
        self.handles = list(handles)
        self._backend = backend
        self._ranks = [_Rank(backend, handle, shards) for handle in handles]
        self._begun: list[list[Reference]] = []

    def join(self) -> None:
        """Let the ranks meet. They must have started."""
        (address,) = self._backend.get([self._backend.call(self.handles[0], "listen")])
        joins = [self._backend.call(handle, "join", address) for handle in self.handles]
        for rank, numbers in zip(self._ranks, self._backend.get(joins), strict=True):
            rank.follow(numbers)

    def begin(self, iteration: int, profile: Reference | None) -> Reference:
        """Ask all ranks for a fit to all rows added so far; the reference to what it will give."""
        self._begun = [rank.begin(iteration, profile) for rank in self._ranks]
        return self._begun[0][0]

    def end(self, also: Sequence[Reference], take: bool) -> Fitted:
        """Wait for the fit, and for the references `also`. Without `take` the result stays where it is."""
        begun, self._begun = self._begun, []
        result = begun[0][:1] if take else []
        reports = [references[1:] for references in begun]
        wanted = [*result, *(reference for references in reports for reference in references)]
        values = iter(self._backend.get([*wanted, *also])[: len(wanted)])
        given: Snapshot = next(values) if take else {}
        shards: dict[int, dict[str, int]] = {}
        first: FitReport | None = None
        for rank, references in zip(self._ranks, reports, strict=True):
            report, *infos = [next(values) for _ in references]
            rank.versions = list(report.versions)
            shards |= dict(zip(rank.numbers, infos, strict=True))
            first = first or report
        assert first is not None
        return Fitted(given, first, list(shards.values()))

    def snapshot(self) -> Reference:
        """What a commit stores."""
        return self._backend.call(self.handles[0], "snapshot")

    def restore(self, snapshot: Any) -> list[Reference]:
        """Continue from `snapshot`, every rank; the first reference is to what the fit before it gave."""
        return [self._backend.call(handle, "restore", snapshot) for handle in self.handles]
