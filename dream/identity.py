"""Whose a commit is: what every commit says of its run, and what a run keeps for life."""

from __future__ import annotations

import functools
import json
from typing import Any, Final

from dream.config import RunConfig
from dream.store import CheckpointError, Commit

__all__ = ["SETTLED", "identity", "refuse_foreign", "settled", "value"]

# Keys that buffers, networks and streams on disk were made for: a run keeps them for life.
SETTLED: Final = frozenset(
    {"game", "algorithm", "seed", "runtime.shards", "average.capacity", "average.buffer"}
    | {f"sampling.{key}" for key in ("chance", "backend", "enumerate_limit", "sampler", "reach_weight")}
    | {f"advantage.{key}" for key in ("learner", "network.hidden", "network.layer_norm", "buffer", "capacity")}
    | {f"baseline.{key}" for key in ("learner", "network.hidden", "network.layer_norm", "capacity")}
)

_PUT_BACK: Final = (
    "put the former back in config.yaml if that file was edited, "
    "or move this commit's folder away if it was copied here"
)
_CHANGED: Final = "OpenSpiel or the game's code has changed; resume with the version that the run began with"


def value(config: RunConfig, key: str) -> Any:
    """The value of a dotted key."""
    return functools.reduce(getattr, key.split("."), config)


def settled(config: RunConfig) -> dict[str, Any]:
    """The settled keys with their values, as plain values that a frame can hold."""
    document = config.model_dump(mode="json")
    return {key: functools.reduce(dict.__getitem__, key.split("."), document) for key in sorted(SETTLED)}


def identity(config: RunConfig, fingerprint: str) -> dict[str, Any]:
    """What every commit of a run says about it, so that a commit of another run or another game is noticed.

    `fingerprint` is the game's: OpenSpiel of another version, or a changed game in Python, may have another one.
    """
    return settled(config) | {"fingerprint": fingerprint}


def refuse_foreign(commit: Commit, expected: dict[str, Any]) -> None:
    """Raise CheckpointError, naming every difference, where a sound commit is not of the run `expected`.

    It was copied here from another run, or config.yaml was edited. Keys that the commit does not name do not count.
    """
    differ = {key: own for key, own in expected.items() if commit.meta.get(key, own) != own}
    if not differ:
        return
    if len(differ) > 1:
        differ.pop("fingerprint", None)  # another game or backend has another one: no news
    theirs = ", ".join(f"{key}={_text(commit.meta[key])}" for key in differ)
    ours = ", ".join(f"{key}={_text(own)}" for key, own in differ.items())
    remedy = _CHANGED if "fingerprint" in differ else _PUT_BACK
    raise CheckpointError(f"{commit.path} belongs to a run of {theirs}, this one has {ours}: {remedy}")


def _text(entry: Any) -> str:
    return entry if isinstance(entry, str) else json.dumps(entry)
