"""The run on a cluster: the same parts as in one process, each in a process of its own.

Rows go from worker to shard and from shard to learner; here pass reports, and each iteration's networks. Chunks are
applied in their order, so that the bits do not depend on the workers. A lost worker costs its chunks; whatever else is
lost raises PartLostError, and the run goes back to its last commit.
"""

from collections.abc import Callable, Sequence
from typing import Any

from actors.strategies.strategy import Profile
from buffers.chunks import Chunk, plan
from buffers.frames import Snapshot
from buffers.sharded import join_snapshots, split_snapshot
from dream.runtime import assembly as names
from dream.runtime.assembly import BASELINE, TRANSITIONS, Assembly
from dream.runtime.backend import Asked, Backend, Handle, Reference, ResourcesError
from dream.runtime.crew import Crew, check_same, real_clock
from dream.runtime.needs import needs_of, shard_name
from dream.runtime.placement import Needs, PlacementError, Plan
from dream.runtime.placement import plan as plan_for
from dream.runtime.players import profile_message
from dream.runtime.services import FitReport, Introduction, LearnerService, ShardService
from dream.runtime.tally import Meter, Tally
from learners.networks import Parameters

_LOOK_SECONDS = 1.0  # between two looks at what has started


class _Learner:
    """A learner's process and the shards that it follows."""

    def __init__(self, backend: Backend, handle: Handle, shards: Sequence[Handle]) -> None:
        self.handle = handle
        self.busy_seconds = 0.0
        self._backend = backend
        self._shards = shards
        self._versions = [0] * len(shards)

    def begin(self, iteration: int, profile: Reference | None) -> list[Reference]:
        """Ask for a fit to all rows added so far: references to its result, its report, and each shard's numbers."""
        call = self._backend.call_for
        pairs = zip(self._shards, self._versions, strict=True)
        deltas = [call(2, shard, "delta", version) for shard, version in pairs]
        fit = call(2, self.handle, "fit", iteration, profile, *(delta for delta, _ in deltas))
        return [*fit, *(info for _, info in deltas)]

    def ended(self, report: FitReport) -> None:
        """Remember where its mirrors stand."""
        self._versions = list(report.versions)
        self.busy_seconds += report.seconds


class ClusterRuntime:
    """Workers, shards and learners in processes of a cluster."""

    def __init__(
        self,
        assembly: Assembly,
        backend: Backend,
        notify: Callable[[str], None],
        clock: Callable[[], float] = real_clock,
    ) -> None:
        self.states = 0
        self._assembly = assembly
        self._backend = backend
        self._clock = clock
        self._meter = Meter()
        self._unconfirmed: list[Reference] = []
        self._fits: dict[str, list[Reference]] = {}
        self._told = [0, 0]
        self._baseline: Any = {}
        needs, mine = needs_of(assembly), Introduction.of(assembly)
        plan = self._planned(needs)
        for node in plan.nodes:
            notify(str(node))
        self._places = {
            p.name: Asked(p.cpus, p.gpus, p.bytes, group.node) for group in plan.groups for p in group.parts
        }
        self._shards = {rows: self._spawn_shards(rows) for rows in assembly.row_names()}
        self._learners = {name: self._spawn_learner(name) for name in assembly.fit_names()}
        self._crew = Crew(assembly.config, needs, backend, mine, notify, clock)
        self._crew.start()
        self._await_learners(mine)

    def _planned(self, needs: Needs) -> Plan:
        """Where everything goes; waits for nodes to join, but not for ever: raises PlacementError then."""
        deadline = self._clock() + self._assembly.config.runtime.start_timeout_seconds
        while True:
            try:
                return plan_for(self._backend.nodes(), needs)
            except PlacementError:
                if self._clock() >= deadline:
                    raise
                self._backend.wait([], _LOOK_SECONDS)

    def _spawn_shards(self, rows: str) -> list[Handle]:
        assembly, handles = self._assembly, []
        for index in range(assembly.shards(rows)):
            name = shard_name(rows, index)
            handles.append(self._backend.spawn(name, ShardService, (assembly.shard(rows, index),), self._places[name]))
        return handles

    def _spawn_learner(self, name: str) -> _Learner:
        handle = self._backend.spawn(name, LearnerService, (self._assembly.config, name), self._places[name])
        return _Learner(self._backend, handle, self._shards[names.rows_of(name)])

    def _await_learners(self, mine: Introduction) -> None:
        seconds = self._assembly.config.runtime.start_timeout_seconds
        waiting = {self._call(learner, "introduce"): name for name, learner in self._learners.items()}
        deadline = self._clock() + seconds
        while waiting:
            ready = self._backend.wait(list(waiting), _LOOK_SECONDS)
            for theirs in self._gather(ready):
                check_same(mine, theirs)
            waiting = {reference: name for reference, name in waiting.items() if reference not in ready}
            if waiting and self._clock() >= deadline:
                raise ResourcesError(
                    f"{', '.join(waiting.values())} did not start within runtime.start_timeout_seconds={seconds:g}; "
                    f"the cluster has {self._backend.describe()}."
                )

    # --- sampling ---

    def sample(self, iteration: int, traversers: Sequence[int], profile: Profile) -> None:
        """See `Runtime.sample`. A player's fit begins when its rows are complete, while the other's are sampled."""
        assembly = self._assembly
        tallies = {traverser: Tally() for traverser in traversers}
        chunks = [
            c for p in traversers for c in plan(iteration, p, assembly.traversals, assembly.config.sampling.chunk)
        ]
        last = {chunk.id.player: chunk for chunk in chunks}
        self._told[0] += 1
        told = (tuple(self._told), self._backend.put(profile_message(profile)), self._baseline)
        with self._meter.timing("sampling"):
            for chunk, report, rows in self._crew.play(chunks, told):
                self._keep(chunk, rows)
                player = chunk.id.player
                tallies[player].add(report.summary)
                if chunk is last[player]:
                    self._fits[names.advantage(player)] = self._learners[names.advantage(player)].begin(iteration, None)
        for traverser, tally in tallies.items():
            self.states += tally.states
            self._meter.sampled(traverser, tally)

    def _keep(self, chunk: Chunk, rows: Sequence[Reference]) -> None:
        player = chunk.id.player
        stores = (names.advantage_rows(player), names.strategy_rows(1 - player), TRANSITIONS)
        for store, reference in zip(stores, rows, strict=True):
            if shards := self._shards.get(store):
                shard = shards[chunk.id.index % len(shards)]
                self._unconfirmed.append(self._backend.call(shard, "add", chunk.id, reference))

    # --- fitting ---

    def fit_advantages(self, iteration: int, players: Sequence[int]) -> list[Parameters]:
        """See `Runtime.fit_advantages`."""
        with self._meter.timing("fitting"):
            fitted = []
            for player in players:
                parameters, infos = self._end(names.advantage(player), f"_{player}")
                size, capacity, seen = (sum(info[key] for info in infos) for key in ("size", "capacity", "seen"))
                fill = {"buffer/fill_advantage": size / capacity, "buffer/seen_advantage": float(seen)}
                self._meter.set(fill, f"_{player}")
                fitted.append(parameters)
            return fitted

    def fit_baseline(self, iteration: int, profile: Profile) -> None:
        """See `Runtime.fit_baseline`. What it gives goes to the workers without passing here."""
        with self._meter.timing("fitting"):
            told = self._backend.put(profile_message(profile))
            self._fits[BASELINE] = self._learners[BASELINE].begin(iteration, told)
            self._baseline = self._fits[BASELINE][0]
            self._told[1] += 1
            self._end(BASELINE, "")

    def fit_averages(self, iteration: int) -> list[Parameters]:
        """See `Runtime.fit_averages`. Both at once."""
        for player in (0, 1):
            self._fits[names.average(player)] = self._learners[names.average(player)].begin(iteration, None)
        return [self._end(names.average(player), f"_{player}")[0] for player in (0, 1)]

    def _end(self, name: str, suffix: str) -> tuple[Snapshot, list[dict[str, int]]]:
        """Wait for a fit: what it gives (the baseline's stays where it is) and its shards' numbers."""
        result, *rest = self._fits.pop(name)
        wanted = rest if name == BASELINE else [result, *rest]
        values = self._gather([*wanted, *self._unconfirmed])[: len(wanted)]
        self._unconfirmed = []
        given = {} if name == BASELINE else values.pop(0)
        report, *infos = values
        self._learners[name].ended(report)
        self._meter.set(report.metrics, suffix)
        return given, infos

    # --- the rest ---

    def take_metrics(self) -> dict[str, float]:
        """See `Runtime.take_metrics`."""
        return self._meter.take() | self._crew.metrics()

    def snapshot(self) -> dict[str, Snapshot]:
        """See `Runtime.snapshot`: the same parts as of a run in one process."""
        parts: dict[str, Snapshot] = {"counters": {"states": self.states}, "chance_0": {}, "chance_1": {}}
        asked = {rows: [self._backend.call(shard, "snapshot") for shard in own] for rows, own in self._shards.items()}
        fits = {name: self._call(learner, "snapshot") for name, learner in self._kept_fits()}
        for rows, references in asked.items():
            parts[rows] = join_snapshots(self._gather(references))
        return parts | dict(zip(fits, self._gather(list(fits.values())), strict=True))

    def restore(self, parts: dict[str, Snapshot]) -> None:
        """See `Runtime.restore`."""
        self.states = parts["counters"]["states"]
        waiting = []
        for rows, shards in self._shards.items():
            for shard, part in zip(shards, split_snapshot(parts[rows], len(shards)), strict=True):
                waiting.append(self._backend.call(shard, "restore", part))
        fits = {name: self._call(learner, "restore", parts[name]) for name, learner in self._kept_fits()}
        self._gather([*waiting, *fits.values()])
        self._baseline = fits.get(BASELINE, {})

    def _kept_fits(self) -> list[tuple[str, _Learner]]:
        """Average networks are always fitted from scratch: nothing of them is kept."""
        averages = (names.average(0), names.average(1))
        return [(name, learner) for name, learner in self._learners.items() if name not in averages]

    def close(self) -> None:
        """See `Runtime.close`."""
        self._backend.close()

    def _call(self, learner: _Learner, method: str, *args: Any) -> Reference:
        return self._backend.call(learner.handle, method, *args)

    def _gather(self, references: Sequence[Reference]) -> list[Any]:
        return self._backend.get(references)
