"""The sections of a configuration: every key with its meaning, unit, bounds and default, and what goes together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import field_validator, model_validator

from dream.config.sections import Section, setting

__all__ = [
    "AdvantageConfig",
    "Algorithm",
    "AverageConfig",
    "BaselineConfig",
    "CheckpointConfig",
    "EvaluationConfig",
    "NetworkConfig",
    "RunConfig",
    "RuntimeConfig",
    "SamplingConfig",
    "tree_settings",
]

Algorithm = Literal["dream", "dream-avg", "sd-cfr", "os-sd-cfr", "deep-cfr"]

# Algorithms with a learned baseline, and with an average network (as in dream.methods; a test keeps them in step).
_WITH_BASELINE = frozenset({"dream", "dream-avg"})
_WITH_AVERAGE = frozenset({"deep-cfr", "dream-avg"})
_ROWS_MAX = 1_000_000_000
_STEPS_MAX = 10_000_000


class SamplingConfig(Section):
    """How traversals are played."""

    traversals: int = setting(1000, "traversals per player and iteration", "traversals", ge=1, le=100_000_000)
    epsilon: float = setting(0.5, "uniform exploration by the traverser (outcome sampling)", gt=0, le=1)
    chance: Literal["iid", "antithetic", "weyl"] = setting("iid", "how chance is drawn")
    chunk: int = setting(4096, "traversals played in lockstep as one batch", "traversals", ge=1, le=10_000_000)
    updates: Literal["alternating", "simultaneous"] = setting(
        "alternating", "whether the second player already meets the first one's new strategy"
    )
    reach_weight: Literal["scaled", "plain"] = setting(
        "scaled", "importance weight of a row: xi times the number of actions at earlier own decisions, or xi"
    )
    sampler: Literal["auto", "external", "outcome", "exact"] = setting(
        "auto", "auto is the algorithm's own; exact is full-width and needs a tree game"
    )
    backend: Literal["auto", "tree", "simulator"] = setting("auto", "auto is the tree if the game is small enough")
    enumerate_limit: int = setting(2_000_000, "largest game tree that is enumerated", "histories", ge=1, le=_ROWS_MAX)


class NetworkConfig(Section):
    """A fully connected network."""

    hidden: tuple[int, ...] = setting(
        (64, 64, 64), "width of each hidden layer, 1 to 65,536", "units", min_length=1, max_length=16
    )
    layer_norm: bool = setting(False, "normalise each hidden layer")

    @field_validator("hidden")
    @classmethod
    def _widths(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        bad = [width for width in value if not 1 <= width <= 65_536]
        if bad:
            raise ValueError(f"a width of {bad[0]} is out of range: from 1 to 65536 units")
        return value


class AdvantageConfig(Section):
    """The advantage networks, one per player: what they learn from and how."""

    learner: Literal["network", "table"] = setting(
        "network", "table is the exact fit in place of a network and needs a tree game"
    )
    network: NetworkConfig = setting(NetworkConfig(), "the advantage network")
    buffer: Literal["reservoir", "merged"] = setting(
        "reservoir",
        "merged: exact sums per information state, full-batch steps; needs a tree game",
    )
    capacity: int = setting(2_000_000, "size of each player's reservoir", "rows", ge=1, le=_ROWS_MAX)
    steps: int = setting(3000, "optimiser steps of a fit from scratch", "steps", ge=1, le=_STEPS_MAX)
    fine_tune_steps: int | None = setting(
        None,
        "optimiser steps of the fits in between; null means the same as steps",
        "steps",
        ge=1,
        le=_STEPS_MAX,
    )
    batch: int = setting(2048, "rows per optimiser step (reservoir)", "rows", ge=1, le=100_000_000)
    learning_rate: float = setting(1e-3, "Adam's step size", gt=0, le=1)
    clip: float = setting(1.0, "largest gradient norm", gt=0, le=1e9)
    reset_every: int = setting(
        1,
        "fit from scratch every that many iterations; 1 is always, 0 is never",
        "iterations",
        ge=0,
        le=_ROWS_MAX,
    )

    def steps_in(self, iteration: int) -> int:
        """Optimiser steps of the fit of `iteration` (from 1)."""
        if self.fine_tune_steps is None or self.starts_afresh(iteration):
            return self.steps
        return self.fine_tune_steps

    def starts_afresh(self, iteration: int) -> bool:
        """Whether the fit of `iteration` (from 1) starts from new weights; the first one always does."""
        return iteration == 1 or (self.reset_every > 0 and (iteration - 1) % self.reset_every == 0)


class BaselineConfig(Section):
    """DREAM's baseline: one network in player 0's payoff over full histories, never reset."""

    learner: Literal["network", "table"] = setting(
        "network", "table is the exact fit in place of a network and needs a tree game"
    )
    network: NetworkConfig = setting(NetworkConfig(), "the baseline network")
    capacity: int = setting(200_000, "size of the circular buffer", "transitions", ge=1, le=_ROWS_MAX)
    steps: int = setting(1000, "optimiser steps per iteration", "steps", ge=1, le=_STEPS_MAX)
    batch: int = setting(512, "transitions per optimiser step", "transitions", ge=1, le=100_000_000)
    learning_rate: float = setting(1e-3, "Adam's step size", gt=0, le=1)
    clip: float = setting(1.0, "largest gradient norm", gt=0, le=1e9)
    merge: bool = setting(False, "merge equal transitions and take full-batch steps; needs a tree game")


class AverageConfig(Section):
    """The average network (deep-cfr and dream-avg), trained when the run is evaluated."""

    network: NetworkConfig = setting(NetworkConfig(), "the average network")
    buffer: Literal["reservoir", "merged"] = setting(
        "reservoir",
        "merged: exact sums per information state, full-batch steps; needs a tree game",
    )
    capacity: int = setting(2_000_000, "size of each player's reservoir", "rows", ge=1, le=_ROWS_MAX)
    steps: int = setting(4000, "optimiser steps per fit", "steps", ge=1, le=_STEPS_MAX)
    batch: int = setting(2048, "rows per optimiser step (reservoir)", "rows", ge=1, le=100_000_000)
    learning_rate: float = setting(1e-3, "Adam's step size", gt=0, le=1)
    decay: Literal["none", "linear"] = setting(
        "linear", "course of the step size within a fit; linear falls to 0, so that the fit does not end in a jump"
    )
    clip: float = setting(1.0, "largest gradient norm", gt=0, le=1e9)
    loss: Literal["mse", "cross-entropy"] = setting("cross-entropy", "distance to the strategies that were played")


class EvaluationConfig(Section):
    """When and how the run's average strategy is measured."""

    every: int = setting(
        0, "evaluate every that many iterations; 0 is only at the end", "iterations", ge=0, le=_ROWS_MAX
    )
    by: Literal["auto", "exploitability", "none"] = setting(
        "auto", "auto is exact exploitability where the game is small enough, else none"
    )


class CheckpointConfig(Section):
    """When the run is committed to disk."""

    every: int = setting(10, "commit every that many iterations", "iterations", ge=1, le=_ROWS_MAX)
    keep: int = setting(2, "newest commits kept (networks are kept for ever)", "commits", ge=1, le=1_000_000)


class RuntimeConfig(Section):
    """Where the work is done."""

    kind: Literal["auto", "local", "ray"] = setting(
        "auto", "local is this process; auto is ray inside a Ray job or where an address is given, else local"
    )
    address: str | None = setting(
        None, "Ray cluster to join: auto, HOST:PORT or ray://HOST:PORT; null starts one on this machine", min_length=1
    )
    workers: int = setting(
        0,
        "sampling processes on the cluster; 0, or auto, is one for each free CPU that has memory for it, also of nodes "
        "that join later",
        "workers",
        ge=0,
        le=1_000_000,
    )
    in_flight: int = setting(2, "chunks that a worker holds: one runs, the others wait", "chunks", ge=1, le=1000)
    learners: int = setting(
        1,
        "processes that fit one network together on the cluster, minibatches split between them",
        "processes",
        ge=1,
        le=1024,
    )
    learner_gpus: float = setting(
        0, "GPUs of each such process on the cluster; below 1 several share one", "GPUs", ge=0, le=1024
    )
    start_timeout_seconds: float = setting(
        300, "how long the first worker and the learners may take to start", "seconds", gt=0, le=1e7
    )
    chunk_timeout_seconds: float = setting(
        600, "a worker that runs one chunk for longer is ended and its chunks given to others", "seconds", gt=0, le=1e7
    )
    silence_timeout_seconds: float = setting(
        3600,
        "a learner or shard that gives no answer for so long, its fit included, is taken for lost",
        "seconds",
        gt=0,
        le=1e7,
    )
    recoveries: int = setting(
        3, "how often in a row, without a new commit, the run goes back to its last one by itself", ge=0, le=1_000_000
    )
    device: Literal["auto", "cpu", "cuda"] = setting("auto", "auto is a CUDA device where there is one")
    threads: int = setting(
        1, "torch threads; 0 is the number of cores (small networks are fastest on 1)", "threads", ge=0, le=4096
    )
    shards: int = setting(1, "shards of each reservoir", "shards", ge=1, le=65_536)
    parallel_learners: bool = setting(True, "fit both players side by side (simultaneous updates only)")

    @field_validator("workers", mode="before")
    @classmethod
    def _auto_workers(cls, value: Any) -> Any:
        return 0 if value == "auto" else value

    @field_validator("learner_gpus")
    @classmethod
    def _part_of_one_or_whole(cls, value: float) -> float:
        if value > 1 and value % 1:
            raise ValueError(f"{value:g} is neither whole nor below 1; use {int(value)} or {int(value) + 1}")
        return value


class RunConfig(Section):
    """Everything that decides a run: the same configuration and seed give the same networks."""

    game: str = setting(..., "alias (`dream games`) or OpenSpiel game string", min_length=1)
    algorithm: Algorithm = setting(..., "training algorithm")
    iterations: int = setting(..., "iterations; each updates both players", "iterations", ge=1, le=_ROWS_MAX)
    seed: int = setting(1, "the run's only source of randomness", ge=0, le=2**63 - 1)
    sampling: SamplingConfig = setting(SamplingConfig(), "traversals")
    advantage: AdvantageConfig = setting(AdvantageConfig(), "advantage networks")
    baseline: BaselineConfig = setting(BaselineConfig(), "baseline (dream and dream-avg)")
    average: AverageConfig = setting(AverageConfig(), "average network (deep-cfr and dream-avg)")
    evaluation: EvaluationConfig = setting(EvaluationConfig(), "evaluation")
    checkpoint: CheckpointConfig = setting(CheckpointConfig(), "commits")
    runtime: RuntimeConfig = setting(RuntimeConfig(), "runtime")

    @model_validator(mode="after")
    def _coherent(self) -> RunConfig:
        faults = list(_conflicts(self))
        if faults:
            raise ValueError("\n".join(faults))
        return self


def _conflicts(config: RunConfig) -> Iterator[str]:
    """What single fields cannot see, one sentence each."""
    if config.runtime.kind == "local" and config.runtime.address is not None:
        yield f"runtime.address={config.runtime.address} does not go with runtime.kind=local; use runtime.kind=ray."
    if config.runtime.kind == "ray" and config.sampling.chance != "iid":
        yield (
            f"sampling.chance={config.sampling.chance} does not go with runtime.kind=ray: its streams tie every chunk "
            "to the one before; use runtime.kind=local, or sampling.chance=iid."
        )
    sampling, sampler = config.sampling, config.sampling.sampler
    if config.algorithm in _WITH_BASELINE and sampler in ("external", "exact"):
        yield (
            f"sampling.sampler={sampler} does not go with algorithm={config.algorithm}, whose baseline "
            f"corrects outcome sampling; use sampling.sampler=auto, or algorithm=sd-cfr."
        )
    if sampler == "exact" and sampling.chance != "iid":
        yield f"sampling.chance={sampling.chance} does not go with sampling.sampler=exact, which draws none."
    if sampling.backend == "simulator":
        for setting in _tree_settings(config):
            yield f"{setting} needs the game tree; it does not go with sampling.backend=simulator."
    if config.advantage.buffer == "reservoir" and config.advantage.capacity < config.advantage.batch:
        yield _too_small("advantage", config.advantage.capacity, config.advantage.batch, "rows")
    if not config.baseline.merge and config.baseline.capacity < config.baseline.batch:
        yield _too_small("baseline", config.baseline.capacity, config.baseline.batch, "transitions")
    if config.average.buffer == "reservoir" and config.average.capacity < config.average.batch:
        yield _too_small("average", config.average.capacity, config.average.batch, "rows")
    for key, capacity in _sharded(config):
        if capacity < config.runtime.shards:
            yield f"runtime.shards={config.runtime.shards} is more than {key}={capacity} rows: a shard needs a row."


def _sharded(config: RunConfig) -> Iterator[tuple[str, int]]:
    """The reservoirs in use, which `runtime.shards` divides: (key, rows)."""
    if config.advantage.buffer == "reservoir" and config.advantage.learner == "network":
        yield "advantage.capacity", config.advantage.capacity
    if config.algorithm in _WITH_AVERAGE and config.average.buffer == "reservoir":
        yield "average.capacity", config.average.capacity


def _too_small(section: str, capacity: int, batch: int, unit: str) -> str:
    return f"{section}.capacity={capacity} {unit} is less than one batch ({section}.batch={batch})."


def _tree_settings(config: RunConfig) -> Iterator[str]:
    """The settings of `config` that only an enumerated game can serve, as `key=value`."""
    if config.sampling.sampler == "exact":
        yield "sampling.sampler=exact"
    if config.advantage.learner == "table":
        yield "advantage.learner=table"
    if config.advantage.buffer == "merged":
        yield "advantage.buffer=merged"
    if config.algorithm in _WITH_BASELINE:
        if config.baseline.learner == "table":
            yield "baseline.learner=table"
        if config.baseline.merge:
            yield "baseline.merge=true"
    if config.algorithm in _WITH_AVERAGE and config.average.buffer == "merged":
        yield "average.buffer=merged"
    if config.evaluation.by == "exploitability":
        yield "evaluation.by=exploitability"


def tree_settings(config: RunConfig) -> list[str]:
    """The settings of `config` that need an enumerated game, as `key=value`; empty when any game will do."""
    return list(_tree_settings(config))
