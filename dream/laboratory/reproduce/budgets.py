"""Games and budgets of the studies."""

from __future__ import annotations

from dream.laboratory.settings import LabSettings

__all__ = ["GAMES", "POINTS", "external"]

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
