"""dream: deep counterfactual regret minimization (DREAM, SD-CFR, OS-SD-CFR, Deep CFR).

`train`, `resume`, `evaluate` and `load_policy` are all that most programs need; `load` gives a preset's or a
file's configuration. Names are loaded when first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dream.api import evaluate, load_policy, resume, train
    from dream.config import RunConfig, load
    from dream.errors import ConfigError, DreamError
    from dream.results import Result

__all__ = [
    "ConfigError",
    "DreamError",
    "Result",
    "RunConfig",
    "evaluate",
    "load",
    "load_policy",
    "resume",
    "train",
]
__version__ = "0.1.0"

_HOMES = {
    "ConfigError": "errors",
    "DreamError": "errors",
    "Result": "results",
    "RunConfig": "config",
    "evaluate": "api",
    "load": "config",
    "load_policy": "api",
    "resume": "api",
    "train": "api",
}


if not TYPE_CHECKING:  # type checkers see the imports above, and no other names

    def __getattr__(name: str) -> Any:
        """Loads a public name from its module at first use."""
        if name not in _HOMES:
            raise AttributeError(f"module 'dream' has no attribute {name!r}")
        value = getattr(import_module(f"dream.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
