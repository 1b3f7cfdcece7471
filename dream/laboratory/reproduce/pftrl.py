"""Perturbed FTRL, last iterate and average (The Power of Perturbation under Sampling)."""

from __future__ import annotations

from typing import NamedTuple

from dream.laboratory.reproduce.budgets import GAMES
from dream.laboratory.settings import LabSettings
from dream.laboratory.study import Comparison, Iterate, Study, arm

__all__ = ["STUDY"]

_POINTS = 40


class _Plan(NamedTuple):
    """What a game is run with: budget in node touches, eta, mu, iterations between moving anchors."""

    touches: int
    learning_rate: float
    strength: float
    anchor_every: int


_PLANS = {
    "kuhn": _Plan(5_000_000, 3e-4, 0.1, 150_000),
    "leduc": _Plan(40_000_000, 1e-4, 0.2, 1_000_000),
    "goofspiel-4": _Plan(20_000_000, 5e-4, 0.1, 300_000),
    "liars-dice": _Plan(40_000_000, 1e-4, 0.1, 1_000_000),
}
_PERTURBED = ("pftrl-kl", "pftrl-rkl")
_VARIANTS = (*_PERTURBED, *(f"{algorithm} moving" for algorithm in _PERTURBED))
_CLAIMS: dict[Iterate, str] = {"last": "clearly helps", "average": "does not help"}


def _settings(game: str, variant: str) -> LabSettings:
    plan, (algorithm, *moving) = _PLANS[game], variant.split()
    values = {"game": GAMES[game][0], "algorithm": algorithm, "learning_rate": plan.learning_rate}
    if algorithm in _PERTURBED:
        values |= {"strength": plan.strength, "anchor_every": plan.anchor_every if moving else 0}
    return LabSettings.model_validate(values)


def _compared(game: str, baseline: str, other: str, iterate: Iterate, claim: str = "") -> Comparison:
    return Comparison(
        f"{game}: {other} against {baseline}", f"{game} {baseline}", f"{game} {other}", iterate, claim=claim
    )


STUDY = Study(
    name="pftrl",
    summary="FTRL, PFTRL-KL and PFTRL-RKL, last and average iterate, in Kuhn, Leduc, Goofspiel-4 and Liar's Dice",
    arms=tuple(
        arm(f"{game} {variant}", _settings(game, variant), plan.touches, _POINTS, game)
        for game, plan in _PLANS.items()
        for variant in ("ftrl", *_VARIANTS)
    ),
    comparisons=(
        *(
            _compared(game, "ftrl", variant, iterate, claim)
            for iterate, claim in _CLAIMS.items()
            for game in _PLANS
            for variant in _VARIANTS
        ),
        _compared("leduc", "pftrl-kl", "pftrl-rkl", "last"),
        _compared("leduc", "pftrl-kl moving", "pftrl-rkl moving", "last"),
    ),
    seeds=10,
    iterates=("last", "average"),
    notes=(
        "The paper's claims are about the shape of the curves; budgets, number of seeds and settings are ours.",
        "Settings come from a coarse grid on seed 1.",
        "The anchor is uniform or, where called moving, replaced by the current strategy every so many iterations.",
    ),
)
