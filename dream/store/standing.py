"""Where a run on disk stands: the commit that counts, and whether all that it needs is there.

A kill leaves networks and metrics ahead of the newest commit, never behind it. What is behind was lost otherwise
(removed, not copied), and is named here before anything is cut back or written.
"""

from dream.store.checkpoint import Commit
from dream.store.errors import CheckpointError
from dream.store.iterations import ADVANTAGES
from dream.store.run_folder import RunFolder

_RESTORE = "restore what is missing from a copy of the run"


def newest_commit(folder: RunFolder) -> Commit:
    """The newest sound commit whose networks are all stored; `damaged` says why newer ones are not used.

    A commit whose networks were already cut back (a damaged one that somebody repaired) does not count. Raises
    CheckpointError where no commit is sound, or where networks that it needs are missing.
    """
    committed = folder.checkpoints.iterations()  # before the networks: a run may be training
    stored = min(folder.networks.newest(kind) or 0 for kind in ADVANTAGES)
    ahead = [iteration for iteration in committed if iteration > stored]
    try:
        commit = folder.checkpoints.load_newest(before=stored + 1 if ahead else None)
    except CheckpointError:
        unusable = folder.checkpoints.load_newest()  # where none is sound this names every problem
        raise CheckpointError("; ".join(lacking(folder, unusable.iteration)) + f": {_RESTORE}") from None
    if missing := lacking(folder, commit.iteration):
        raise CheckpointError("; ".join(missing) + f": {_RESTORE}")
    commit.damaged.extend(
        f"the commit of iteration {iteration} is not used: networks are stored up to iteration {stored} only"
        for iteration in ahead
    )
    return commit


def lacking(folder: RunFolder, iteration: int) -> list[str]:
    """A sentence for each kind of network of which some iteration from 1 to `iteration` is not stored."""
    sentences = []
    for kind in ADVANTAGES:
        if gaps := folder.networks.gaps(kind, iteration):
            spans = ", ".join(f"{first} to {last}" for first, last in gaps)
            sentences.append(f"{folder.networks.path / kind} lacks iterations {spans}, which the commits need")
    return sentences


def lost_commits(folder: RunFolder, every: int) -> str | None:
    """A sentence where there is no commit at all, but more than a run leaves that was killed before its first.

    That leaves one segment of networks at most, and metrics of at most `every` iterations, after which it commits.
    """
    segments = max(folder.networks.segments(kind) for kind in ADVANTAGES)
    records = folder.metrics.read()
    if (segments <= 1 and len(records) <= every) or folder.checkpoints.any():  # looked for last: a run may be training
        return None
    return (
        f"{folder.path} has networks or metrics of several commits but no commit: {folder.checkpoints.path} was lost. "
        "Restore it from a copy of the run; going on without it would begin anew and delete the networks"
    )


def metrics_gap(folder: RunFolder, iteration: int) -> str | None:
    """A sentence where metrics.jsonl lacks iterations up to the commit's."""
    recorded = {record["iteration"] for record in folder.metrics.read()}
    missing = [t for t in range(1, iteration + 1) if t not in recorded]
    if not missing:
        return None
    span = f"{missing[0]}" if len(missing) == 1 else f"{missing[0]} to {missing[-1]}"
    return (
        f"{folder.metrics.path} lacks {len(missing)} of the {iteration} committed iterations ({span}): "
        "the networks are complete, but curves and evaluations have a gap there"
    )
