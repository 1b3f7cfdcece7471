"""Curves of many seeds: means with 95 % ribbons, a panel for each game and iterate, logarithmic axes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dream.laboratory.experiments import ArmCurves
from dream.laboratory.statistics import ribbon
from dream.plotting import LINE_WIDTH, dress, panels, save

if TYPE_CHECKING:
    from dream.laboratory.study import Study

__all__ = ["draw_study"]


def draw_study(study: Study, curves: Mapping[str, ArmCurves], target: Path) -> None:
    """Draws every arm of a study into `target`: a row of panels for each iterate, a column for each game.

    A curve's label is its arm's name, without that of the panel before it.
    """
    games = list(dict.fromkeys(arm.panel for arm in study.arms))
    figure, axes = panels(len(study.iterates), len(games))
    places = [(iterate, game) for iterate in study.iterates for game in games]
    for (iterate, game), place in zip(places, axes, strict=True):
        for arm in study.arms:
            if arm.panel == game:
                grid, values = curves[arm.name].on_grid(iterate)
                mean, low, high = ribbon(np.maximum(values, np.finfo(np.float64).tiny))
                (line,) = place.plot(grid, mean, label=arm.name.removeprefix(f"{arm.panel} "), linewidth=LINE_WIDTH)
                place.fill_between(grid, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        place.set_title(f"{game}, {iterate} strategy")
        dress(place, study.x_label, "exploitability (chips)", log=True)
    save(figure, target)
