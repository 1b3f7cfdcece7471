"""The run on a cluster: the same parts as in one process, each in a process of its own.

Rows go from worker to shard and from shard to learner; here pass reports, and each iteration's networks. Chunks are
applied in their order, so that the bits do not depend on the workers. A lost worker costs its chunks; whatever else is
lost raises PartLostError, and the run goes back to its last commit.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from actors.strategies.strategy import Profile
from buffers.chunks import Chunk, plan
from buffers.frames import Snapshot
from buffers.sharded import join_snapshots, split_snapshot
from dream.runtime import assembly as names
from dream.runtime.assembly import BASELINE, TRANSITIONS, Assembly
from dream.runtime.backend import Backend, Handle, Reference, ResourcesError
from dream.runtime.crew import Crew, check_same, real_clock
from dream.runtime.fitting import Fitted, Learner
from dream.runtime.needs import needs_of, rank_name, shard_name
from dream.runtime.placement import Needs, PlacementError, Plan
from dream.runtime.placement import plan as plan_for
from dream.runtime.players import profile_message
from dream.runtime.services import Introduction, LearnerService, Look
from dream.runtime.shard_service import ShardService
from dream.runtime.tally import Meter, Tally, of_players
from learners.networks import Parameters

_LOOK_SECONDS = 1.0  # between two looks at what has started
_USAGE_SECONDS = 10.0  # between two looks at the cluster's use


class ClusterRuntime:
    """Workers, shards and learners in processes of a cluster."""

    def __init__(
        self,
        assembly: Assembly,
        backend: Backend,
        notify: Callable[[str], None],
        clock: Callable[[], float] = real_clock,
        look: Look | None = None,
    ) -> None:
        self.states = 0
        self._assembly = assembly
        self._backend = backend
        self._clock = clock
        self._meter = Meter()
        self._unconfirmed: list[Reference] = []
        self._told = [0, 0]
        self._baseline: Any = {}
        self._usage: dict[str, float] = {}
        self._asked_usage = -_USAGE_SECONDS
        needs, mine = needs_of(assembly), Introduction.of(assembly)
        plan = self._planned(needs)
        for node in plan.nodes:
            notify(node)
        self._places = plan.places
        self._shards = {rows: self._spawn_shards(rows) for rows in assembly.row_names()}
        self._learners = {name: self._spawn_learner(name) for name in assembly.fit_names()}
        self._crew = Crew(assembly.config, needs, plan.places.values(), backend, mine, notify, clock)
        self._crew.start()
        self._await_learners(mine, look, notify)

    def _planned(self, needs: Needs) -> Plan:
        """Where everything goes; asks for nodes that lack and waits for them, but not for ever: then PlacementError."""
        deadline = self._clock() + self._assembly.config.runtime.start_timeout_seconds
        asked = False
        while True:
            try:
                plan = plan_for(self._backend.nodes(), needs)
            except PlacementError:
                if self._clock() >= deadline:
                    raise
                if not asked:
                    self._backend.ask([*(part.asked for part in needs.parts), needs.worker])
                asked = True
                self._backend.wait([], _LOOK_SECONDS)
            else:
                if asked:
                    self._backend.ask([])
                return plan

    def _spawn_shards(self, rows: str) -> list[Handle]:
        assembly, handles = self._assembly, []
        for index in range(assembly.shards(rows)):
            name = shard_name(rows, index)
            handles.append(self._backend.spawn(name, ShardService, (assembly.shard(rows, index),), self._places[name]))
        return handles

    def _spawn_learner(self, name: str) -> Learner:
        config, handles = self._assembly.config, []
        size = config.runtime.learners
        for rank in range(size):
            label = rank_name(name, rank)
            arguments = (config, name, rank, size)
            handles.append(self._backend.spawn(label, LearnerService, arguments, self._places[label]))
        return Learner(self._backend, handles, self._shards[names.rows_of(name)])

    def _await_learners(self, mine: Introduction, look: Look | None, notify: Callable[[str], None]) -> None:
        seconds = self._assembly.config.runtime.start_timeout_seconds
        waiting = {
            self._backend.call(handle, "introduce", look): name
            for name, learner in self._learners.items()
            for handle in learner.handles
        }
        deadline = self._clock() + seconds
        blind: set[Any] = set()
        while waiting:
            ready = self._backend.wait(list(waiting), _LOOK_SECONDS)
            for theirs in self._backend.get(ready):
                check_same(mine, theirs)
                blind |= {theirs.blind} - {None}
            waiting = {reference: name for reference, name in waiting.items() if reference not in ready}
            if waiting and self._clock() >= deadline:
                raise ResourcesError(
                    f"{', '.join(waiting.values())} did not start within runtime.start_timeout_seconds={seconds:g}; "
                    f"the cluster has {self._backend.describe()}."
                )
        for sentence in sorted(blind):
            notify(f"{sentence}; a driver that starts again there cannot go on with this run")
        for learner in self._learners.values():
            learner.join()

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
                    self._learners[names.advantage(player)].begin(iteration, None)
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
            fits = [self._end(names.advantage(player), f"_{player}") for player in players]
        for player, fitted in zip(players, fits, strict=True):
            size, capacity, seen = (sum(info[key] for info in fitted.shards) for key in ("size", "capacity", "seen"))
            self._meter.filled(player, size, capacity, seen)
        return [fitted.result for fitted in fits]

    def fit_baseline(self, iteration: int, profile: Profile) -> None:
        """See `Runtime.fit_baseline`. What it gives goes to the workers without passing here."""
        with self._meter.timing("fitting"):
            told = self._backend.put(profile_message(profile))
            self._baseline = self._learners[BASELINE].begin(iteration, told)
            self._told[1] += 1
            self._end(BASELINE, "", take=False)

    def begin_averages(self, iteration: int) -> Callable[[], tuple[list[Parameters], dict[str, float]]]:
        """See `Runtime.begin_averages`. Both at once; the call may be another thread's, while training goes on."""
        learners = [self._learners[names.average(player)] for player in (0, 1)]
        for learner in learners:
            learner.begin(iteration, None)

        def end() -> tuple[list[Parameters], dict[str, float]]:
            fits = [learner.end((), take=True) for learner in learners]
            return [fitted.result for fitted in fits], of_players([fitted.report.metrics for fitted in fits])

        return end

    def _end(self, name: str, suffix: str, take: bool = True) -> Fitted:
        """Wait for a fit, and for the shards to have taken all rows sent so far."""
        sent, self._unconfirmed = self._unconfirmed, []
        fitted = self._learners[name].end(sent, take)
        report, shards = fitted.report, sum(info["rss_bytes"] for info in fitted.shards)
        self._meter.set(report.metrics, suffix)
        self._meter.set(
            {
                f"cluster/fit_{name}_seconds": report.seconds,
                f"cluster/learner_peak_bytes_{name}": float(report.rss_bytes),
                f"cluster/shards_peak_bytes_{name}": float(shards),
            }
        )
        return fitted

    # --- the rest ---

    def take_metrics(self) -> dict[str, float]:
        """See `Runtime.take_metrics`."""
        now = self._clock()
        if now - self._asked_usage >= _USAGE_SECONDS:
            self._asked_usage, self._usage = now, self._backend.usage()
        return self._meter.take() | self._crew.take_metrics() | self._usage

    def begin_snapshot(self) -> Callable[[], dict[str, Snapshot]]:
        """See `Runtime.begin_snapshot`: the parts of a run in one process.

        Shards and learners copy themselves into the object store now; the call may be another thread's, later.
        """
        parts: dict[str, Snapshot] = {"counters": {"states": self.states}, "chance_0": {}, "chance_1": {}}
        asked = {rows: [self._backend.call(shard, "snapshot") for shard in own] for rows, own in self._shards.items()}
        fits = {name: learner.snapshot() for name, learner in self._kept_fits()}

        def gathered() -> dict[str, Snapshot]:
            for rows, references in asked.items():
                parts[rows] = join_snapshots(self._backend.get(references))
            return parts | dict(zip(fits, self._backend.get(list(fits.values())), strict=True))

        return gathered

    def restore(self, parts: Mapping[str, Snapshot]) -> None:
        """See `Runtime.restore`."""
        self.states = parts["counters"]["states"]
        waiting = []
        for rows, shards in self._shards.items():
            for shard, part in zip(shards, split_snapshot(parts[rows], len(shards)), strict=True):
                waiting.append(self._backend.call(shard, "restore", part))
        fits = {name: learner.restore(parts[name]) for name, learner in self._kept_fits()}
        self._backend.get([*waiting, *(reference for references in fits.values() for reference in references)])
        self._baseline = fits[BASELINE][0] if BASELINE in fits else {}

    def _kept_fits(self) -> list[tuple[str, Learner]]:
        """Average networks are always fitted from scratch: nothing of them is kept."""
        averages = (names.average(0), names.average(1))
        return [(name, learner) for name, learner in self._learners.items() if name not in averages]

    def close(self) -> None:
        """See `Runtime.close`."""
        self._backend.close()
