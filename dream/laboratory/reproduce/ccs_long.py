"""A long run on Leduc: whether the gain of weyl streams lasts (Correlated Chance Sampling, 2026)."""

from __future__ import annotations

from dream.laboratory.reproduce.budgets import POINTS, external
from dream.laboratory.study import Comparison, Study, arm

__all__ = ["STUDY"]

STUDY = Study(
    name="ccs-long",
    summary="weyl against iid on Leduc over 3 million node touches",
    arms=tuple(arm(chance, external("leduc", chance), 3_000_000, POINTS) for chance in ("iid", "weyl")),
    comparisons=(
        Comparison("leduc: weyl against iid", "iid", "weyl", published=24.5, published_chips=(0.09026, 0.06813)),
    ),
    seeds=200,
    notes=("The number of seeds is ours.",),
)
