"""The algorithms, one row each: how they sample, whether they learn a baseline, which average they play."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dream.config import Algorithm

__all__ = ["METHODS", "Method"]


@dataclass(frozen=True)
class Method:
    """One algorithm of the deep counterfactual regret family.

    `sampler` is the algorithm's own; `sampling.sampler` of the configuration may replace it. `average` is
    what is played and evaluated: the bank of all iterations' networks, or one network that was trained on
    the strategies played (at evaluation time).
    """

    name: Algorithm
    sampler: Literal["external", "outcome"]
    baseline: bool
    average: Literal["bank", "network"]
    paper: str
    summary: str


_ROWS = (
    Method(
        "dream",
        "outcome",
        True,
        "bank",
        "Steinberger, Lerer, Brown 2020",
        "outcome sampling with a learned baseline; plays the average of all iterations' networks",
    ),
    Method(
        "dream-avg",
        "outcome",
        True,
        "network",
        "Steinberger, Lerer, Brown 2020",
        "DREAM that plays an average network instead of the network bank",
    ),
    Method(
        "sd-cfr",
        "external",
        False,
        "bank",
        "Steinberger 2019",
        "external sampling; plays the average of all iterations' networks",
    ),
    Method(
        "os-sd-cfr",
        "outcome",
        False,
        "bank",
        "Steinberger 2019; Steinberger, Lerer, Brown 2020",
        "SD-CFR with outcome sampling and no baseline: DREAM's ablation, of high variance",
    ),
    Method(
        "deep-cfr",
        "external",
        False,
        "network",
        "Brown, Lerer, Gross, Sandholm 2019",
        "external sampling; plays an average network",
    ),
)

METHODS: dict[str, Method] = {row.name: row for row in _ROWS}
