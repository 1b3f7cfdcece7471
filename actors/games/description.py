"""What a game is, in numbers: read once by the probe, before any worker starts."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


class GameError(ValueError):
    """A game that cannot be trained; the message says why in one sentence."""


@dataclass(frozen=True)
class GameDescription:
    """Facts about a two-player zero-sum game of perfect recall.

    `game_string` is what OpenSpiel loads, after conversion to turn-based play if the game is simultaneous.
    Payoffs are in the game's own unit (chips in poker). `milli_unit` names exploitability * 1000 / `unit_chips`:
    "mA/g" (milli-antes per game) or "mbb/g" (milli-big-blinds), "m/g" where the game has neither.
    """

    name: str
    game_string: str
    num_actions: int
    state_features: tuple[int, int]
    min_payoff: float
    max_payoff: float
    horizon: int
    max_chance_outcomes: int
    milli_unit: str = "m/g"
    unit_chips: float = 1.0

    @property
    def payoff_scale(self) -> float:
        """Largest absolute payoff, in chips: networks learn targets divided by it."""
        return max(abs(self.min_payoff), abs(self.max_payoff), 1e-9)

    def milli(self, chips: float) -> float:
        """Exploitability in thousandths of the unit, e.g. 2.37361 chips -> 2373.61 mA/g in Leduc."""
        return chips * 1000.0 / self.unit_chips


def digest(*arrays: NDArray[Any]) -> str:
    """A short name for the contents of arrays: equal contents, shapes and dtypes give equal names."""
    hashed = hashlib.blake2b(digest_size=8)
    for array in arrays:
        hashed.update(f"{array.dtype.str}{array.shape}".encode())
        hashed.update(np.ascontiguousarray(array).data)
    return hashed.hexdigest()
