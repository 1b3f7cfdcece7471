"""Curves of many seeds, a column for each game: mean exploitability, and how much one arm lies below another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dream.laboratory.experiments import ArmCurves
from dream.laboratory.statistics import ribbon
from dream.plotting import LINE_WIDTH, dress, panels, save

if TYPE_CHECKING:
    from dream.laboratory.study import Study

__all__ = ["draw_study"]

_Row = Mapping[str, Any]


def draw_study(study: Study, curves: Mapping[str, ArmCurves], rows: Sequence[_Row], target: Path) -> None:
    """Draws a study into `target`: for each iterate the mean curves, and below them the reductions of `rows` over x.

    Ribbons are 95 %. A label is an arm's or a comparison's name, without that of the panel before it. A comparison has
    the colour of its other arm, and a line style for each baseline.
    """
    panel_of = {arm.name: arm.panel for arm in study.arms}
    colours = _colours(study)
    games = list(dict.fromkeys(panel_of.values()))
    compared = [iterate for iterate in study.iterates if any(row["iterate"] == iterate for row in rows)]
    figure, axes = panels(len(study.iterates) + len(compared), len(games))
    places = iter(axes)
    for iterate in study.iterates:
        for game in games:
            arms = [each for each in curves.values() if each.arm.panel == game]
            _draw_curves(next(places), game, iterate, arms, colours, study.x_label)
        for game in games if iterate in compared else []:
            below = [row for row in rows if row["iterate"] == iterate and panel_of[row["baseline"]] == game]
            _draw_reductions(next(places), game, iterate, below, colours, study.x_label)
    save(figure, target)


def _colours(study: Study) -> dict[str, str]:
    """Colour of every arm: the same for the arms at the same place of their panels."""
    found: dict[str, str] = {}
    for game in {arm.panel for arm in study.arms}:
        names = (arm.name for arm in study.arms if arm.panel == game)
        found |= {name: f"C{number}" for number, name in enumerate(names)}
    return found


def _draw_curves(
    place: Any, game: str, iterate: str, arms: Sequence[ArmCurves], colours: Mapping[str, str], x_label: str
) -> None:
    for each in arms:
        grid, values = each.on_grid(iterate)
        name, floor = each.arm.name, np.finfo(np.float64).tiny
        _draw_line(place, name, game, colours[name], "-", grid, *ribbon(np.maximum(values, floor)))
    place.set_title(f"{game}, {iterate} strategy")
    dress(place, x_label, "exploitability (chips)", log=True)


def _draw_reductions(
    place: Any, game: str, iterate: str, rows: Sequence[_Row], colours: Mapping[str, str], x_label: str
) -> None:
    styles = dict(zip(dict.fromkeys(row["baseline"] for row in rows), cycle(("-", "--", ":", "-.")), strict=False))
    for row in rows:
        along = row["along"]
        line = (along["x"], along["percent"], along["low_percent"], along["high_percent"])
        _draw_line(place, row["comparison"], game, colours[row["other"]], styles[row["baseline"]], *line)
    place.axhline(0.0, color="black", linewidth=0.8)
    place.set_title(f"{game}, {iterate} strategy")
    dress(place, x_label, "lower by (%)", log=False)
    place.set_xscale("log")
    place.autoscale(axis="y")


def _draw_line(
    place: Any, name: str, game: str, colour: str, style: str, x: Any, middle: Any, low: Any, high: Any
) -> None:
    label = name.removeprefix(game).lstrip(": ") or name
    place.plot(x, middle, label=label, color=colour, linestyle=style, linewidth=LINE_WIDTH)
    place.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
