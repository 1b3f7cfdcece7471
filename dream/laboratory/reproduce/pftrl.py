"""Perturbed FTRL, last iterate and average (The Power of Perturbation under Sampling)."""

from __future__ import annotations

from dream.laboratory.reproduce.budgets import GAMES
from dream.laboratory.settings import LabSettings
from dream.laboratory.study import Comparison, Study, arm

__all__ = ["STUDY"]

_POINTS = 40
_TOUCHES = {"kuhn": 2_000_000, "leduc": 10_000_000, "goofspiel-4": 10_000_000, "liars-dice": 10_000_000}
_ALGORITHMS = ("ftrl", "pftrl-kl", "pftrl-rkl")


def _settings(game: str, algorithm: str) -> LabSettings:
    return LabSettings.model_validate({"game": GAMES[game][0], "algorithm": algorithm})


STUDY = Study(
    name="pftrl",
    summary="FTRL, PFTRL-KL and PFTRL-RKL, last and average iterate, in Kuhn, Leduc, Goofspiel-4 and Liar's Dice",
    arms=tuple(
        arm(f"{game} {algorithm}", _settings(game, algorithm), touches, _POINTS, game)
        for game, touches in _TOUCHES.items()
        for algorithm in _ALGORITHMS
    ),
    comparisons=(
        *(
            Comparison(
                f"{game}: {algorithm} against ftrl",
                f"{game} ftrl",
                f"{game} {algorithm}",
                "last",
                claim="clearly helps",
            )
            for game in _TOUCHES
            for algorithm in _ALGORITHMS[1:]
        ),
        *(
            Comparison(
                f"{game}: {algorithm} against ftrl", f"{game} ftrl", f"{game} {algorithm}", claim="does not help"
            )
            for game in _TOUCHES
            for algorithm in _ALGORITHMS[1:]
        ),
        Comparison("leduc: pftrl-rkl against pftrl-kl", "leduc pftrl-kl", "leduc pftrl-rkl", "last"),
    ),
    seeds=20,
    iterates=("last", "average"),
    notes=("Budgets and the number of seeds are ours; the paper's claims are about the shape of the curves.",),
)
