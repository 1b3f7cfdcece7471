"""What a resume looks at before it goes on: settings that may change, and the commit that counts."""

from __future__ import annotations

from collections.abc import Sequence

from dream import config as configuration
from dream.config import RunConfig
from dream.errors import ConfigError
from dream.identity import SETTLED, refuse_foreign, settled, value
from dream.store import ADVANTAGES, CheckpointError, Commit, RunFolder
from dream.store.standing import lost_commits, metrics_gap, newest_commit
from dream.telemetry.progress import Progress

__all__ = ["changed", "find_commit", "with_overrides"]


def with_overrides(folder: RunFolder, overrides: Sequence[str]) -> RunConfig:
    """The run's configuration with `overrides` laid over it."""
    config = folder.config()
    return configuration.resolve(configuration.with_overrides(config, overrides)) if overrides else config


def changed(folder: RunFolder, new: RunConfig) -> bool:
    """Whether `new` is not the run's configuration. Raises ConfigError for what a stored run cannot follow."""
    config = folder.config()
    faults = [
        f"{key}={value(new, key)} cannot be set when a run goes on: it has been {value(config, key)} from its start."
        for key in sorted(SETTLED)
        if value(new, key) != value(config, key)
    ]
    if faults:
        raise ConfigError("\n".join(faults))
    return new != config


def find_commit(folder: RunFolder, config: RunConfig, progress: Progress) -> Commit | None:
    """The commit from which the run `config` goes on; None for a run that was killed before its first.

    Says what is damaged or missing and can be done without. Raises CheckpointError where commits or networks are
    missing, or where the commit is another run's; ConfigError where it is beyond `config.iterations`.
    """
    if not folder.checkpoints.any():
        _begin_anew(folder, progress)
        return None
    commit = newest_commit(folder)
    for sentence in commit.damaged:
        progress.warn(sentence)
    for sentence in commit.unfinished:
        progress.note(sentence)
    refuse_foreign(commit, settled(config))
    if config.iterations < commit.iteration:
        raise ConfigError(f"iterations={config.iterations} is less than the {commit.iteration} already done.")
    if gap := metrics_gap(folder, commit.iteration):
        progress.warn(gap)
    if config.iterations == commit.iteration:
        progress.note(f"all {commit.iteration} planned iterations are done; extend the run with iterations=N")
    return commit


def _begin_anew(folder: RunFolder, progress: Progress) -> None:
    # Of the configuration on disk: overrides were not in force when the run was killed.
    every = folder.config().checkpoint.every
    if lost := lost_commits(folder, every):
        raise CheckpointError(lost)
    stored = folder.metrics.read() or any(folder.networks.segments(kind) for kind in ADVANTAGES)
    say = progress.warn if stored else progress.note
    say(f"{folder.path} has no commit: the run was stopped before its first one and begins anew")
