"""What a worker does with one seed of a tabular solver."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dream.laboratory.settings import LabSettings
from dream.laboratory.solve import solve

__all__ = ["SOLVE", "TOUCHES", "solve_job", "solve_seed", "warm_up_job"]

SOLVE = "dream.laboratory.seed_task:solve_seed"
TOUCHES = "node touches: every node entered, decisions of both players, chance nodes and terminals alike"


def solve_job(settings: LabSettings, touches: int, points: int) -> dict[str, Any]:
    """The job of `solve_seed`: settings, budget in node touches, and where the curve has points.

    These are `points` budgets in equal ratios over the last two decades, fewer where the whole numbers coincide.
    """
    budgets = np.unique(np.geomspace(max(1.0, touches / 100), touches, points).round().astype(np.int64))
    budgets[-1] = touches
    return {"settings": settings.model_dump(mode="json"), "touches": touches, "points": budgets.tolist()}


def warm_up_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """The shortest run that compiles what `job` needs."""
    return {**job, "touches": 1, "points": [1]}


def solve_seed(job: dict[str, Any], seed: int, _folder: Path) -> dict[str, Any]:
    """Runs one seed; its curve as plain values: `x` in node touches, exploitabilities in chips."""
    settings = LabSettings.model_validate(job["settings"])
    curve = solve(settings, seed, job["touches"], job["points"])
    return {
        "x": curve.touches.tolist(),
        "iterations": curve.iterations.tolist(),
        "average": curve.average.tolist(),
        "last": _plain(curve.last),
        "value_chips": curve.value,
        "diagnostics": _plain(curve.diagnostics),
    }


def _plain(value: Any) -> Any:
    """Arrays and numpy's numbers as lists and Python's; what is not finite as None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(each) for each in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
