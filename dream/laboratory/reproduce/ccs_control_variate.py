"""Chance streams and the control variate on the opponent's actions, 2 x 2 (Correlated Chance Sampling, 2026)."""

from __future__ import annotations

from dream.laboratory.reproduce.budgets import POINTS, external
from dream.laboratory.study import Comparison, Study, arm

__all__ = ["STUDY"]

_TOUCHES = 300_000


def _name(control: bool, chance: str) -> str:
    return f"{'control variate' if control else 'plain'} {chance}"


STUDY = Study(
    name="ccs-control-variate",
    summary="chance streams iid and weyl, with and without the control variate on opponent actions, on Leduc",
    arms=tuple(
        arm(_name(control, chance), external("leduc", chance, control_variate=control), _TOUCHES, POINTS)
        for control in (False, True)
        for chance in ("iid", "weyl")
    ),
    comparisons=(
        Comparison("weyl alone", "plain iid", "plain weyl"),
        Comparison("control variate alone", "plain iid", "control variate iid"),
        Comparison("both", "plain iid", "control variate weyl"),
        Comparison("weyl on top of the control variate", "control variate iid", "control variate weyl"),
    ),
    seeds=100,
    notes=("The paper's figures of this ablation are not known to us; the budget is that of ccs-composition.",),
)
