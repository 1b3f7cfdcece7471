"""Exploitability curves of runs, as one picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dream.errors import UsageError
from dream.store.places import Location
from dream.store.run_folder import RunFolder

__all__ = ["LINE_WIDTH", "X_LABELS", "Curve", "XAxis", "draw", "dress", "panels", "read_curve", "save"]

XAxis = Literal["states", "iterations", "seconds"]

X_LABELS: dict[str, str] = {
    "states": "states visited",
    "iterations": "iterations",
    "seconds": "training time (seconds)",
}
_RECORD_KEYS = {"states": "states", "iterations": "iteration", "seconds": "seconds"}
LINE_WIDTH = 1.3
_FORMATS = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Curve:
    """Exploitability of one run in thousandths of `unit`, at increasing `x`."""

    name: str
    unit: str
    x: list[float]
    exploitability_milli: list[float]


def read_curve(run: str | Location, x: XAxis) -> Curve:
    """The evaluations of a run from its metrics.jsonl.

    Raises RunFolderError where there is no run, MetricsError for a damaged file, UsageError where nothing was
    evaluated yet.
    """
    folder = RunFolder.open(run)
    records = [each for each in folder.metrics.read() if each.get("exploitability_milli") is not None]
    if not records:
        raise UsageError(
            f"{run} has no evaluations to plot: train with evaluation.every above 0 and evaluation.by other than none."
        )
    return Curve(
        name=folder.name,
        unit=str(records[0]["unit"]),
        x=[float(each[_RECORD_KEYS[x]]) for each in records],
        exploitability_milli=[float(each["exploitability_milli"]) for each in records],
    )


def draw(runs: Sequence[str | Location], output: str | Path, *, x: XAxis = "states", log: bool = False) -> list[Curve]:
    """Draws one curve a run into `output` (.png, .svg or .pdf) and returns the curves.

    `log` makes both axes logarithmic. Raises UsageError for another file type or for runs in different units.
    """
    target = Path(output)
    if target.suffix.lower() not in _FORMATS:
        raise UsageError(f"cannot draw {str(output)!r}: the file must end in {', '.join(_FORMATS)}.")
    curves = [read_curve(run, x) for run in runs]
    units = sorted({curve.unit for curve in curves})
    if len(units) > 1:
        raise UsageError(f"runs in different units do not share an axis: {', '.join(units)}.")
    _save(_distinct(curves, runs), target, X_LABELS[x], log)
    return curves


def _distinct(curves: list[Curve], runs: Sequence[str | Location]) -> list[tuple[str, Curve]]:
    """Each curve with its name, or with the path given where two names are equal."""
    names = [curve.name for curve in curves]
    return [
        (str(run) if names.count(curve.name) > 1 else curve.name, curve)
        for run, curve in zip(runs, curves, strict=True)
    ]


def _save(curves: list[tuple[str, Curve]], target: Path, x_label: str, log: bool) -> None:
    figure, [axes] = panels(1, 1)
    for name, curve in curves:
        marker = "." if len(curve.x) < 30 else None
        axes.plot(curve.x, curve.exploitability_milli, label=name, marker=marker, linewidth=LINE_WIDTH)
    dress(axes, x_label, f"exploitability ({curves[0][1].unit})", log)
    save(figure, target)


def panels(rows: int, columns: int) -> tuple[Any, list[Any]]:
    """A matplotlib figure without a display, and its rows * columns axes, row by row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5) if rows * columns == 1 else (5 * columns, 4 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def dress(axes: Any, x_label: str, y_label: str, log: bool) -> None:
    """What all pictures share: labels, scales, grid, legend. To be called after the curves are drawn."""
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()


def save(figure: Any, target: Path) -> None:
    """Writes the picture, in the format of the file's ending."""
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=150)
