"""Streams that both players' traversals share, as published, against streams of each traverser's own; unpublished."""

from __future__ import annotations

from dream.laboratory.reproduce.budgets import GAMES, stream_arms
from dream.laboratory.study import Comparison, Study

__all__ = ["STUDY"]

_STREAMS = ("antithetic-by-traverser", "weyl-by-traverser")

STUDY = Study(
    name="ccs-own-streams",
    summary="streams that both players' traversals share, or of each traverser's own, in four games",
    arms=stream_arms(GAMES, ("iid", "weyl", *_STREAMS)),
    comparisons=tuple(
        Comparison(f"{name}: {chance} against {baseline}", f"{name} {baseline}", f"{name} {chance}")
        for name in GAMES
        for chance, baseline in (*((chance, "iid") for chance in _STREAMS), ("weyl-by-traverser", "weyl"))
    ),
    seeds=200,
    notes=("Nobody has published this. Budgets and the arms iid and weyl are those of ccs-main.",),
)
