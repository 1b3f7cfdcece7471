"""What a worker does with one seed of a deep method: a whole training run, gone on with where a kill left it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from dream import api
from dream.laboratory.seeds_store import digest
from dream.results import Result
from dream.store.errors import StoreError

__all__ = ["train_seed"]


def train_seed(job: dict[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    """Trains the preset `job["preset"]` with `job["overrides"]` and this seed; its evaluations as plain values.

    `x` counts states visited, exploitabilities are the average strategy's in chips; the last iterate is not
    measured. The run lies in `folder` while it lasts and is removed when its curve is known: what a few hundred
    runs keep of every iteration fills a disk. A run that cannot be gone on with is started again, to the same end.
    """
    run = folder / f"{job['preset']}-{digest(job)}-seed-{seed}"
    result = _going_on(run) or api.train(
        job["preset"], run_dir=run, overrides=[*job["overrides"], f"seed={seed}"], progress=False
    )
    rows = result.evaluations
    shutil.rmtree(run)
    return {
        "x": [row["states"] for row in rows],
        "iterations": [row["iteration"] for row in rows],
        "average": [row["exploitability_chips"] for row in rows],
        "last": [None for _ in rows],
    }


def _going_on(run: Path) -> Result | None:
    """The run that a kill left unfinished, brought to its end; None, and nothing on disk, where that cannot be."""
    if not run.exists():
        return None
    try:
        return api.resume(run, progress=False)
    except StoreError:
        shutil.rmtree(run)
        return None
