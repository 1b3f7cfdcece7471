"""Games and budgets of the studies."""

from __future__ import annotations

from collections.abc import Iterable

from dream.laboratory.experiments import Arm
from dream.laboratory.settings import LabSettings
from dream.laboratory.study import arm

__all__ = ["GAMES", "POINTS", "external", "stream_arms"]

POINTS = 20

# Game string and node touches. A fixed order of prizes would leave Goofspiel without chance.
GAMES: dict[str, tuple[str, int]] = {
    "kuhn": ("kuhn", 500_000),
    "leduc": ("leduc", 1_500_000),
    "goofspiel-4": ("goofspiel(imp_info=True,num_cards=4,points_order=random)", 1_500_000),
    "liars-dice": ("liars-dice", 3_000_000),
}


def external(game: str, chance: str, **changes: object) -> LabSettings:
    """External sampling with the vanilla update, unless changed."""
    return LabSettings.model_validate({"game": game, "algorithm": "es-mccfr", "chance": chance, **changes})


def stream_arms(games: Iterable[str], streams: Iterable[str]) -> tuple[Arm, ...]:
    """An arm "GAME STREAM" of external sampling for every game of `GAMES` that is named, at its budget, and stream."""
    kinds = tuple(streams)
    return tuple(
        arm(f"{name} {chance}", external(GAMES[name][0], chance), GAMES[name][1], POINTS, name)
        for name in games
        for chance in kinds
    )
