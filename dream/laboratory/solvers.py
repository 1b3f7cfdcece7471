"""The solvers: one object per run, iterated up to budgets of node touches.

A node touch is a node entered, chance and terminals included. A full-width update of one player touches every node.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from actors.sampling import lanes
from dream.laboratory.flat_game import Flat, FlatGame, Table
from dream.laboratory.kernels import arrays as kinds
from dream.laboratory.kernels import outcome, perturbed
from dream.laboratory.kernels.arrays import Paths, Rule, Streams, Tables
from dream.laboratory.kernels.external import Variate, run_external
from dream.laboratory.kernels.full_width import run_full_width
from dream.laboratory.kernels.outcome import Baseline, run_outcome
from dream.laboratory.kernels.perturbed import Leader, run_perturbed
from dream.laboratory.settings import LabSettings

_RULES = {"vanilla": kinds.VANILLA, "cfr+": kinds.PLUS, "linear": kinds.LINEAR, "discounted": kinds.DISCOUNTED}
_STREAMS = {  # kind, when they start anew, whether traversers share them
    "iid": (kinds.IID, kinds.NEVER, True),
    "antithetic": (kinds.ANTITHETIC, kinds.NEVER, True),
    "antithetic-by-traverser": (kinds.ANTITHETIC, kinds.NEVER, False),
    "weyl": (kinds.WEYL, kinds.NEVER, True),
    "weyl-by-traverser": (kinds.WEYL, kinds.NEVER, False),
    "weyl-iteration": (kinds.WEYL, kinds.EACH_ITERATION, True),
    "weyl-traversal": (kinds.WEYL, kinds.EACH_TRAVERSAL, True),
}
_BASELINES = {"none": outcome.NO_BASELINE, "history": outcome.BY_HISTORY, "information-state": outcome.BY_STATE}
_PERTURBATIONS = {"ftrl": perturbed.UNPERTURBED, "pftrl-kl": perturbed.KL, "pftrl-rkl": perturbed.REVERSE_KL}

# Purposes of the words hashed from a run's seed. The second is that of `actors.sampling.chance.Weyl`.
_ACTIONS, _PHASES, _CHANCE = 0xAC7, 0x7E71, 0xC4A
_OTHER = 0x07E2  # purpose of the word that tells traverser 1's streams from those of traverser 0
_FOREVER = np.iinfo(np.int64).max


class Solver(Protocol):
    """A run of one algorithm on one game."""

    flat: FlatGame
    settings: LabSettings
    tables: Tables
    streams: Streams

    @property
    def touches(self) -> int:
        """Node touches so far."""
        ...

    @property
    def iterations(self) -> int:
        """Iterations so far; each updates both players."""
        ...

    def run(self, touches: int, iterations: int | None = None) -> None:
        """Iterate until the run has `touches` node touches or that many iterations; the last iteration is finished."""
        ...

    def average(self) -> Table:
        """[S, A] the average strategy."""
        ...

    def current(self) -> Table:
        """[S, A] the last iterate."""
        ...

    def corrections(self) -> list[Flat]:
        """What corrects or perturbs its estimates: baselines, control variates, the anchor."""
        ...


class _Run(ABC):
    """What all solvers own: tables, streams, generators, room for a traversal, the clock."""

    def __init__(self, flat: FlatGame, settings: LabSettings, seed: int, room: int, frozen: bool = False) -> None:
        self.flat, self.settings, self.frozen = flat, settings, frozen
        self.tables = Tables(
            regret=np.zeros(flat.slots),
            strategy=flat.uniform(),
            cumulative=np.zeros(flat.slots),
            faded=np.zeros((flat.states, 2)),
            moments=np.zeros((2, flat.slots)),
            gains=np.empty(flat.most_actions),
        )
        self.streams = _streams(flat, settings.chance, seed)
        self.generator = np.array([lanes.derive(seed, _ACTIONS), lanes.derive(seed, _CHANCE)], np.uint64)
        self.clock = np.zeros(2, np.int64)
        self.faded = np.zeros(2)
        self.paths = Paths(np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room), np.empty(room))
        kind = _RULES[settings.update]
        self.rule = Rule(kind, settings.alpha, settings.beta, settings.gamma, frozen)

    @property
    def touches(self) -> int:
        return int(self.clock[kinds.TOUCHES])

    @property
    def iterations(self) -> int:
        return int(self.clock[kinds.ITERATION])

    def run(self, touches: int, iterations: int | None = None) -> None:
        self.advance(touches, _FOREVER if iterations is None else iterations, (0, 2))

    @abstractmethod
    def advance(self, budget: int, last: int, players: tuple[int, int]) -> None:
        """Iterate until `budget` touches or iteration `last`, with the traversers from first to last of `players`."""

    def corrections(self) -> list[Flat]:
        return []

    def average(self) -> Table:
        return self.flat.normalised(self.tables.cumulative)

    def current(self) -> Table:
        return self.flat.table(self.tables.strategy)


class FullWidth(_Run):
    """CFR and its relatives."""

    def __init__(self, flat: FlatGame, settings: LabSettings, seed: int, frozen: bool = False) -> None:
        super().__init__(flat, settings, seed, 0, frozen)

    def advance(self, budget: int, last: int, players: tuple[int, int]) -> None:
        """Both players' updates in every iteration."""
        run_full_width(self.flat.forest, self.tables, self.rule, self.clock, self.faded, self.flat.nodes, budget, last)


class ExternalSampling(_Run):
    """ES-MCCFR."""

    def __init__(self, flat: FlatGame, settings: LabSettings, seed: int, frozen: bool = False) -> None:
        super().__init__(flat, settings, seed, flat.nodes, frozen)
        size = flat.slots if settings.control_variate else 0
        self.variate = Variate(settings.control_variate, np.zeros(size), np.zeros(size, np.int64))

    def corrections(self) -> list[Flat]:
        """The means of the control variate."""
        return [self.variate.mean]

    def advance(self, budget: int, last: int, players: tuple[int, int]) -> None:
        """One traversal per player and iteration."""
        run_external(
            self.flat.tree,
            self.tables,
            self.rule,
            self.streams,
            self.variate,
            self.paths,
            self.clock,
            self.faded,
            self.generator,
            players,
            budget,
            last,
        )


class OutcomeSampling(_Run):
    """OS-MCCFR and VR-MCCFR."""

    def __init__(self, flat: FlatGame, settings: LabSettings, seed: int, frozen: bool = False) -> None:
        super().__init__(flat, settings, seed, flat.depth, frozen)
        learned = settings.algorithm == "vr-mccfr"
        kind = _BASELINES[settings.baseline] if learned else outcome.NO_BASELINE
        nodes = flat.nodes if kind == outcome.BY_HISTORY or settings.chance_baseline else 0
        slots = flat.slots if kind == outcome.BY_STATE else 0
        self.baseline = Baseline(
            kind,
            settings.chance_baseline,
            settings.decay,
            np.zeros(nodes),
            np.zeros(nodes, np.int64),
            np.zeros(slots),
            np.zeros(slots, np.int64),
        )

    def corrections(self) -> list[Flat]:
        """The baselines, by history and by state."""
        return [self.baseline.history, self.baseline.state]

    def advance(self, budget: int, last: int, players: tuple[int, int]) -> None:
        """One traversal per player and iteration."""
        run_outcome(
            self.flat.tree,
            self.tables,
            self.rule,
            self.streams,
            self.baseline,
            self.settings.epsilon,
            self.paths,
            self.clock,
            self.faded,
            self.generator,
            players,
            budget,
            last,
        )


class FollowTheLeader(_Run):
    """FTRL, PFTRL-KL, PFTRL-RKL. `tables.regret` holds the sums of estimates.

    Deviation: the average takes in a full table every `leader.average_every` iterations, exactly, by own reach: a
    pass over all states costs as much as many sampled paths, and strategies move little in between.
    """

    def __init__(self, flat: FlatGame, settings: LabSettings, seed: int, frozen: bool = False) -> None:
        super().__init__(flat, settings, seed, flat.depth + 1, frozen)
        self.leader = Leader(
            perturbation=_PERTURBATIONS[settings.algorithm],
            euclidean=settings.regulariser == "euclidean",
            on_policy=settings.sampling == "current",
            epsilon=settings.epsilon,
            rate=settings.learning_rate,
            strength=settings.strength,
            anchor_every=settings.anchor_every,
            average_every=max(1, flat.slots // 64),
            frozen=frozen,
            anchor=flat.uniform(),
        )
        self.plan = np.ones(flat.slots + 1)

    def corrections(self) -> list[Flat]:
        """The anchor."""
        return [self.leader.anchor]

    def advance(self, budget: int, last: int, players: tuple[int, int]) -> None:
        """One path per iteration, from which both players learn."""
        run_perturbed(
            self.flat.tree,
            self.flat.forest,
            self.tables,
            self.leader,
            self.streams,
            self.paths,
            self.clock,
            self.plan,
            self.generator,
            budget,
            last,
        )


_SOLVERS: dict[str, Callable[..., _Run]] = {
    "cfr": FullWidth,
    "es-mccfr": ExternalSampling,
    "os-mccfr": OutcomeSampling,
    "vr-mccfr": OutcomeSampling,
    "ftrl": FollowTheLeader,
    "pftrl-kl": FollowTheLeader,
    "pftrl-rkl": FollowTheLeader,
}


def make(flat: FlatGame, settings: LabSettings, seed: int) -> Any:
    """The solver of `settings` on `flat`, before its first iteration."""
    return _SOLVERS[settings.algorithm](flat, settings, seed)


def frozen(flat: FlatGame, settings: LabSettings, seed: int, strategy: Table) -> Any:
    """A solver that plays `strategy` [S, A] and learns nothing: its estimates go to `tables.moments`."""
    solver = _SOLVERS[settings.algorithm](flat, settings, seed, frozen=True)
    solver.tables.strategy[:] = flat.flat(strategy)
    return solver


def _streams(flat: FlatGame, chance: str, seed: int) -> Streams:
    kind, reset, shared = _STREAMS[chance]
    nodes = flat.chance_nodes
    count = len(nodes)
    identities = nodes if shared else np.concatenate([nodes, nodes ^ np.uint64(lanes.derive(0, _OTHER))])
    return Streams(
        kind=kind,
        reset=reset,
        stride=0 if shared else count,
        seed=np.array([lanes.derive(seed, _PHASES)], np.uint64),
        epoch=np.zeros(1, np.int64),
        node=identities,
        since=np.zeros(len(identities), np.int64),
        draws=np.zeros(len(identities), np.int64),
        last=np.zeros(len(identities)),
        outcomes=np.zeros(flat.tree.cdf.shape, np.int64),
    )
