"""Chance streams combined with update rules on Leduc (Correlated Chance Sampling, 2026)."""

from __future__ import annotations

from dream.laboratory.reproduce.budgets import POINTS, external
from dream.laboratory.study import Comparison, Study, arm

__all__ = ["STUDY"]

_TOUCHES = 300_000
_UPDATES = ("vanilla", "discounted", "linear")

STUDY = Study(
    name="ccs-composition",
    summary="update rules vanilla, discounted and linear with chance streams iid and weyl, on Leduc",
    arms=tuple(
        arm(f"{update} {chance}", external("leduc", chance, update=update), _TOUCHES, POINTS)
        for update in _UPDATES
        for chance in ("iid", "weyl")
    ),
    comparisons=(
        *(
            Comparison(f"{update}: weyl against iid", f"{update} iid", f"{update} weyl", published=(17.5, 24.3))
            for update in _UPDATES
        ),
        Comparison("linear iid against vanilla iid", "vanilla iid", "linear iid", published=24.16),
        Comparison("linear weyl against vanilla iid", "vanilla iid", "linear weyl", published=42.59),
        Comparison("discounted weyl against vanilla iid", "vanilla iid", "discounted weyl"),
    ),
    seeds=100,
    notes=("The paper gives 17.5 to 24.3 % as the range over the update rules, not which rule has which.",),
)
