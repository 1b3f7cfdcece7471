"""What it takes for weyl streams to help: streams that persist, or start anew (Correlated Chance Sampling, 2026)."""

from __future__ import annotations

from dream.laboratory.reproduce.budgets import stream_arms
from dream.laboratory.study import Comparison, Study

__all__ = ["STUDY"]

_GAMES = ("kuhn", "leduc")
_STREAMS = ("weyl", "weyl-iteration", "weyl-traversal")

STUDY = Study(
    name="ccs-persistence",
    summary="weyl streams that persist, start anew in every iteration, or in every traversal; Kuhn and Leduc",
    arms=stream_arms(_GAMES, ("iid", *_STREAMS)),
    comparisons=tuple(
        Comparison(f"{name}: {chance} against iid", f"{name} iid", f"{name} {chance}")
        for name in _GAMES
        for chance in _STREAMS
    ),
    seeds=100,
    notes=("The paper's figures of this ablation are not known to us; budgets are those of ccs-main.",),
)
