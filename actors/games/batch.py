"""The interface between games and samplers: n live states, stepped in lockstep."""

from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from actors.games.description import GameDescription
from buffers.packing import HistoryCodec, StateCodec
from buffers.rows import Column

CHANCE: Final = -1
TERMINAL: Final = -2


class Batch(Protocol):
    """n live states as arrays. A = number of distinct actions.

    Keys name information states and histories; only the game's codecs read them.
    """

    @property
    def player(self) -> NDArray[np.int8]:
        """[n] who acts: 0, 1, `CHANCE` or `TERMINAL`."""
        ...

    def __len__(self) -> int: ...

    def information_state(self) -> NDArray[Any]:
        """[n, ...] key of the acting player's information state. Every lane must be at a decision."""
        ...

    def legal(self) -> NDArray[np.bool_]:
        """[n, A] True where the action is legal. Every lane must be at a decision."""
        ...

    def history(self) -> NDArray[Any]:
        """[n, ...] key of the history: what both players know. Every lane must be at a decision."""
        ...

    def returns(self) -> NDArray[np.float64]:
        """[n] player 0's payoff in chips at terminal lanes, 0 elsewhere."""
        ...

    def step(self, actions: NDArray[np.int64]) -> None:
        """Play `actions` [n] in place. Every lane must be at a decision."""
        ...

    def chance_nodes(self, index: NDArray[np.int64]) -> NDArray[np.uint64]:
        """[m] identities of the concrete chance nodes at lanes `index`."""
        ...

    def step_chance(self, index: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw and play an outcome at the chance lanes `index`, in place.

        The outcome is the inverse CDF of `uniforms` [m] in [0, 1) over the node's outcomes in their fixed
        order. Returns the ordinals [m] of the outcomes in that order.
        """
        ...

    def take(self, index: NDArray[np.int64]) -> "Batch":
        """Select and repeat lanes. The original must not be used afterwards."""
        ...


class Game(Protocol):
    """A game that can start batches, and the codecs that read its keys."""

    @property
    def description(self) -> GameDescription:
        """What the game is, in numbers."""
        ...

    @property
    def fingerprint(self) -> str:
        """Digest of what keys mean: rows kept under another one cannot be read."""
        ...

    @property
    def state_column(self) -> Column:
        """Schema column named "key" that holds information-state keys."""
        ...

    @property
    def history_column(self) -> Column:
        """Schema column named "history" that holds history keys."""
        ...

    def start(self, count: int) -> Batch:
        """`count` lanes at the root of the game."""
        ...

    def state_codec(self, player: int) -> StateCodec:
        """Decodes information-state keys of `player`."""
        ...

    def history_codec(self) -> HistoryCodec:
        """Decodes history keys."""
        ...
