"""External sampling under three chance streams in four games (Correlated Chance Sampling, 2026, main table)."""

from __future__ import annotations

from dream.laboratory.reproduce.budgets import GAMES, stream_arms
from dream.laboratory.study import Comparison, Study

__all__ = ["STUDY"]

_WEYL = {"kuhn": 27.64, "leduc": 24.59, "goofspiel-4": 4.27, "liars-dice": -0.19}
_ANTITHETIC = {"kuhn": -0.5}

STUDY = Study(
    name="ccs-main",
    summary="chance streams iid, antithetic and weyl in Kuhn, Leduc, Goofspiel-4 and Liar's Dice",
    arms=stream_arms(GAMES, ("iid", "antithetic", "weyl")),
    comparisons=tuple(
        Comparison(
            f"{name}: {chance} against iid",
            f"{name} iid",
            f"{name} {chance}",
            published=published.get(name),
            claim="" if name in published else "about 0",
        )
        for chance, published in (("weyl", _WEYL), ("antithetic", _ANTITHETIC))
        for name in GAMES
    ),
    seeds=200,
    notes=(
        "The budgets are ours, since the paper's are not known to us.",
        "Goofspiel-4 has its prizes in random order (with a fixed order it has no chance at all) and hidden bids.",
    ),
)
