"""What a run asks of a cluster, from its configuration: every part with its predicted memory. Pure."""

import math

from dream.runtime import assembly as names
from dream.runtime.assembly import Assembly
from dream.runtime.placement import Needs, Part

# Processes before they hold any rows: with torch and the tables of a small game; a shard's, which has neither.
PROCESS_BYTES = 350 * 2**20
SHARD_BYTES = 150 * 2**20
WORKER_CPUS = 1.0


def needs_of(assembly: Assembly) -> Needs:
    """Shards and learners with their bytes when full, and room for at least one worker.

    `most_workers` is `runtime.workers`, or how many chunks there are at once. A run starts with those that fit.
    """
    settings = assembly.config.runtime
    parts = []
    for fit in assembly.fit_names():
        rows = names.rows_of(fit)
        shards = [assembly.predicted(rows, index) for index in range(assembly.shards(rows))]
        ranks = settings.learners
        mirrored = sum(size for _, size in shards) // (ranks if len(shards) >= ranks else 1)
        size = PROCESS_BYTES + mirrored
        parts += [Part(rank_name(fit, r), "learner", size, gpus=settings.learner_gpus) for r in range(ranks)]
        for index, (count, size) in enumerate(shards):
            detail = f"{count:,} rows of {size / max(count, 1):.0f} bytes"
            reader = rank_name(fit, index % ranks)
            parts.append(Part(shard_name(rows, index), "shard", SHARD_BYTES + size, feeds=reader, detail=detail))
    chunks = math.ceil(assembly.traversals / assembly.config.sampling.chunk)
    return Needs(
        parts=tuple(parts),
        worker_cpus=WORKER_CPUS,
        worker_bytes=PROCESS_BYTES,
        most_workers=settings.workers or chunks * (2 if assembly.config.sampling.updates == "simultaneous" else 1),
    )


def rank_name(fit: str, rank: int) -> str:
    """Name of one process of a learner."""
    return fit if rank == 0 else f"{fit}-rank-{rank}"


def shard_name(rows: str, index: int) -> str:
    """Name of a shard's process."""
    return f"{rows}-{index}"
