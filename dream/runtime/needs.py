"""What a run asks of a cluster, from its configuration: every part with its predicted memory. Pure."""

import math

from dream.runtime import assembly as names
from dream.runtime.assembly import Assembly
from dream.runtime.backend import Asked
from dream.runtime.placement import Needs, Part

# Processes before they hold any rows, as measured (docs/cluster.md, Memory) and some more: up to 398 MiB with torch and
# a game, of which 123 or more are libraries that the processes of a node share; up to 111 for a shard, with neither.
PROCESS_BYTES = 400 * 2**20
SHARD_BYTES = 150 * 2**20
# Rows count twice: a learner that starts anew is sent a copy of all, with where they stand; what grows is copied.
_COPIES = 2
_SLOT_BYTES = 16
WORKER = Asked(cpus=1.0, bytes=PROCESS_BYTES)


def needs_of(assembly: Assembly) -> Needs:
    """Shards and learners with their bytes when full; as many workers as `runtime.workers`, or chunks at once."""
    settings = assembly.config.runtime
    parts = []
    for fit in assembly.fit_names():
        rows = names.rows_of(fit)
        shards = [assembly.predicted(rows, index) for index in range(assembly.shards(rows))]
        ranks = settings.learners
        mirrored = sum(size for _, size in shards) // (ranks if len(shards) >= ranks else 1)
        learner = Asked(gpus=settings.learner_gpus, bytes=PROCESS_BYTES + _COPIES * mirrored)
        parts += [Part(rank_name(fit, rank), learner) for rank in range(ranks)]
        for index, (count, size) in enumerate(shards):
            detail = f"{count:,} rows of {size / max(count, 1):.0f} bytes, and a copy"
            shard = Asked(bytes=SHARD_BYTES + _COPIES * size + _SLOT_BYTES * count)
            reader = rank_name(fit, index % ranks)
            parts.append(Part(shard_name(rows, index), shard, reader, detail))
    chunks = math.ceil(assembly.traversals / assembly.config.sampling.chunk)
    at_once = chunks * (2 if assembly.config.sampling.updates == "simultaneous" else 1)
    return Needs(tuple(parts), WORKER, settings.workers or at_once)


def rank_name(fit: str, rank: int) -> str:
    """Name of one process of a learner."""
    return fit if rank == 0 else f"{fit}-rank-{rank}"


def shard_name(rows: str, index: int) -> str:
    """Name of a shard's process."""
    return f"{rows}-{index}"
