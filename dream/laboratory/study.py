"""A study: settings run on the same seeds, what is compared with what, and what was published about it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dream.laboratory import pictures
from dream.laboratory.experiments import Arm, ArmCurves, on_common_grid, run_seeds
from dream.laboratory.seed_progress import SeedProgress
from dream.laboratory.seed_task import SOLVE, TOUCHES, solve_job, warm_up_job
from dream.laboratory.settings import LabSettings
from dream.laboratory.statistics import reduction, reduction_ribbon, ribbon
from dream.store import atomic

__all__ = ["Comparison", "Iterate", "Study", "arm", "run_study", "table_row"]

Iterate = Literal["average", "last"]


@dataclass(frozen=True)
class Comparison:
    """One line of a study's table: how much lower `other` is than `baseline`, both names of arms.

    `published` is the reduction in percent, or the range of it, that the paper gives; `published_chips` its two
    exploitabilities. `claim` says in words what was published without a number.
    """

    label: str
    baseline: str
    other: str
    iterate: Iterate = "average"
    published: float | tuple[float, float] | None = None
    published_chips: tuple[float, float] | None = None
    claim: str = ""

    @property
    def published_range(self) -> tuple[float, float] | None:
        """(low, high) of the published reduction in percent."""
        if self.published is None:
            return None
        return self.published if isinstance(self.published, tuple) else (self.published, self.published)


@dataclass(frozen=True)
class Study:
    """An experiment under a name. `task` is what a worker runs (`module:function`), `x_label` what its x counts."""

    name: str
    summary: str
    arms: tuple[Arm, ...]
    comparisons: tuple[Comparison, ...]
    seeds: int
    notes: tuple[str, ...] = ()
    iterates: tuple[Iterate, ...] = ("average",)
    task: str = SOLVE
    x_label: str = "node touches"
    counted: str = TOUCHES


def arm(name: str, settings: LabSettings, touches: int, points: int, panel: str | None = None) -> Arm:
    """A tabular setting as an arm of a study; its game is its panel, unless given."""
    job = solve_job(settings, touches, points)
    return Arm(name, panel or settings.game, job, warm_up_job(job))


def run_study(
    study: Study, seeds: int, folder: Path, *, workers: int | None = None, progress: SeedProgress | None = None
) -> dict[str, Any]:
    """Runs what is missing of `study` on the seeds 1 to `seeds`; writes `<name>.json` and `<name>.png` in `folder`.

    Returns the document that was written: the table's rows, and each arm with its seeds. Raises as `run_seeds`.
    """
    numbers = range(1, seeds + 1)
    curves = run_seeds(study.arms, numbers, folder, study.task, workers=workers, progress=progress)
    picture = folder / f"{study.name}.png"
    rows = [table_row(each, curves) for each in study.comparisons]
    pictures.draw_study(study, curves, rows, picture)
    document = {
        "name": study.name,
        "summary": study.summary,
        "seeds": seeds,
        "planned_seeds": study.seeds,
        "counted": study.counted,
        "unit": "chips (NashConv / 2)",
        "rows": rows,
        "arms": {name: _arm_document(each, study.iterates) for name, each in curves.items()},
        "notes": list(study.notes),
        "picture": str(picture),
    }
    text = json.dumps(document, allow_nan=False, indent=1) + "\n"
    atomic.write_atomic(folder / f"{study.name}.json", [text.encode()])
    return document


def table_row(comparison: Comparison, curves: Mapping[str, ArmCurves]) -> dict[str, Any]:
    """A comparison in numbers: ours, the 95 % interval, the published value, their difference, the tests.

    `excludes_published` is None where nothing was published or one seed gives no interval; `difference_percent` is
    0 inside a published range, `difference_z` that over the standard error of the difference of two experiments like
    ours, since the published value has an error of its own.
    """
    iterate = comparison.iterate
    ours = reduction(curves[comparison.baseline].final(iterate), curves[comparison.other].final(iterate))
    published = comparison.published_range
    excluded = difference = z = None
    if published is not None:
        excluded = ours.excludes(*published)
        difference = ours.percent - float(np.clip(ours.percent, *published))
        z = difference / (math.sqrt(2.0) * ours.error_percent) if ours.error_percent else None
    chips = comparison.published_chips or (None, None)
    return {
        "comparison": comparison.label,
        "iterate": iterate,
        "baseline": comparison.baseline,
        "other": comparison.other,
        "seeds": ours.seeds,
        "baseline_chips": ours.baseline_chips,
        "other_chips": ours.other_chips,
        "reduction_percent": ours.percent,
        "low_percent": ours.low_percent,
        "high_percent": ours.high_percent,
        "significant": ours.significant,
        "along": _along(comparison, curves),
        "published_percent": list(comparison.published)
        if isinstance(comparison.published, tuple)
        else comparison.published,
        "difference_percent": difference,
        "difference_z": z,
        "excludes_published": excluded,
        "published_baseline_chips": chips[0],
        "published_other_chips": chips[1],
        "claim": comparison.claim,
        "cohen_d": ours.cohen_d,
        "t_test_p": ours.t_test_p,
        "wilcoxon_p": ours.wilcoxon_p,
    }


def _along(comparison: Comparison, curves: Mapping[str, ArmCurves]) -> dict[str, list[float]]:
    """The reduction at every point of the budget, with the 95 % interval; what a picture draws."""
    both = curves[comparison.baseline], curves[comparison.other]
    grid, values = on_common_grid(comparison.iterate, *both)
    percent, low, high = reduction_ribbon(*values)
    found = {"x": grid, "percent": percent, "low_percent": low, "high_percent": high}
    return {name: each.tolist() for name, each in found.items()}


def _arm_document(curves: ArmCurves, iterates: Sequence[Iterate]) -> dict[str, Any]:
    document: dict[str, Any] = {"job": dict(curves.arm.job), "seeds": [curve.seed for curve in curves.seeds]}
    document["x"] = [int(curve.x[-1]) for curve in curves.seeds]
    document["diagnostics"] = _mean_diagnostics(curves)
    for iterate in iterates:
        grid, values = curves.on_grid(iterate)
        mean, low, high = ribbon(values)
        document[iterate] = {
            "exploitability_chips": curves.final(iterate).tolist(),
            "curve": {"x": grid.tolist(), "mean": mean.tolist(), "low": low.tolist(), "high": high.tolist()},
        }
    return document


def _mean_diagnostics(curves: ArmCurves) -> dict[str, Any]:
    """What chance was like, as means over the seeds that know it; quartiles stay lists."""
    found: dict[str, Any] = {}
    for name in curves.seeds[0].diagnostics:
        values = [each for curve in curves.seeds if (each := curve.diagnostics.get(name)) is not None]
        known = [each for each in values if not isinstance(each, list) or None not in each]
        if known:
            found[name] = np.mean(known, axis=0).tolist()
    return found
