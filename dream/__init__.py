"""dream: deep counterfactual regret minimization (DREAM, SD-CFR, OS-SD-CFR, Deep CFR).

`train`, `resume`, `evaluate` and `load_policy` are all that most programs need; `load` gives a preset's or a
file's configuration. Names are loaded when first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors.games.description import GameError
    from dream.api import evaluate, load_policy, resume, train
    from dream.config import RunConfig, load
    from dream.errors import ConfigError, DivergenceError, DreamError, UnavailableError, UsageError
    from dream.results import Result
    from dream.store.errors import (
        CheckpointError,
        MetricsError,
        NetworkStoreError,
        RunFolderError,
        StorageError,
        StoreError,
    )

__all__ = [
    "CheckpointError",
    "ConfigError",
    "DivergenceError",
    "DreamError",
    "GameError",
    "MetricsError",
    "NetworkStoreError",
    "Result",
    "RunConfig",
    "RunFolderError",
    "StorageError",
    "StoreError",
    "UnavailableError",
    "UsageError",
    "evaluate",
    "load",
    "load_policy",
    "resume",
    "train",
]
__version__ = "0.1.0"

_HOMES = {
    "CheckpointError": "dream.store.errors",
    "ConfigError": "dream.errors",
    "DivergenceError": "dream.errors",
    "DreamError": "dream.errors",
    "GameError": "actors.games.description",
    "MetricsError": "dream.store.errors",
    "NetworkStoreError": "dream.store.errors",
    "Result": "dream.results",
    "RunConfig": "dream.config",
    "RunFolderError": "dream.store.errors",
    "StorageError": "dream.store.errors",
    "StoreError": "dream.store.errors",
    "UnavailableError": "dream.errors",
    "UsageError": "dream.errors",
    "evaluate": "dream.api",
    "load": "dream.config",
    "load_policy": "dream.api",
    "resume": "dream.api",
    "train": "dream.api",
}


if not TYPE_CHECKING:  # type checkers see the imports above, and no other names

    def __getattr__(name: str) -> Any:
        """Loads a public name from its module at first use."""
        if name not in _HOMES:
            raise AttributeError(f"module 'dream' has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
