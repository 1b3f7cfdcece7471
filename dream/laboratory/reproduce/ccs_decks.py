"""A family of poker games without raises, by the size of the deck (Correlated Chance Sampling, 2026)."""

from __future__ import annotations

from dream.laboratory.reproduce.budgets import POINTS, external
from dream.laboratory.study import Comparison, Study, arm

__all__ = ["STUDY"]

_PUBLISHED = {6: 27.65, 10: 34.01, 12: 19.05}
_TOUCHES = 30_000


def _game(cards: int) -> str:
    return (
        "universal_poker(betting=nolimit,bettingAbstraction=fc,numPlayers=2,numRounds=2,blind=50 100,firstPlayer=1 1,"
        f"numSuits=2,numRanks={cards // 2},numHoleCards=1,numBoardCards=0 1,stack=1200 1200)"
    )


STUDY = Study(
    name="ccs-decks",
    summary="weyl against iid in universal_poker with fold and call only, decks of 6, 10 and 12 cards",
    arms=tuple(
        arm(f"{cards} cards {chance}", external(_game(cards), chance), _TOUCHES, POINTS, f"{cards} cards")
        for cards in _PUBLISHED
        for chance in ("iid", "weyl")
    ),
    comparisons=tuple(
        Comparison(f"{cards} cards", f"{cards} cards iid", f"{cards} cards weyl", published=published)
        for cards, published in _PUBLISHED.items()
    ),
    seeds=50,
    notes=(
        "Published are the family (fold and call), the decks and the budget.",
        "Two suits, one hole card, one board card and blinds of 50 and 100 are ours.",
    ),
)
