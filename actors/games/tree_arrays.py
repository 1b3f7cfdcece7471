"""An enumerated game as flat arrays, breadth first."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TreeArrays:
    """The enumerated game. N nodes, S information states (player 0's first), H decision nodes, C chance nodes.

    Node arrays are in breadth-first order, the children of a node are consecutive.
    """

    player: NDArray[np.int8]  # [N] 0, 1, CHANCE, TERMINAL
    first_child: NDArray[np.int32]  # [N] node of the first child, -1 at terminals
    state: NDArray[np.int32]  # [N] information state at decisions, -1 elsewhere
    payoff: NDArray[np.float64]  # [N] player 0's payoff at terminals, 0 elsewhere
    chance_reach: NDArray[np.float64]  # [N] product of the chance probabilities on the way
    sequence: NDArray[np.int32]  # [N, 2] each player's last own (state, action) as state * A + action, or -1
    decision: NDArray[np.int32]  # [N] row among the decision nodes, -1 elsewhere
    chance: NDArray[np.int32]  # [N] row among the chance nodes, -1 elsewhere
    cdf: NDArray[np.float64]  # [C, O] cumulative chance law, padded with 2
    legal: NDArray[np.bool_]  # [S, A]
    rank: NDArray[np.int32]  # [S, A] number of the child that an action leads to
    view: NDArray[np.int32]  # [H, 2] what each player knows at a decision node: rows of `views`
    views: tuple[NDArray[np.float32], NDArray[np.float32]]  # [V_p, F_p] information-state tensors, raw
    state_view: NDArray[np.int32]  # [S] row in the acting player's `views`
    num_states: tuple[int, int]
    names: tuple[str, ...] = field(repr=False, default=())  # [S] OpenSpiel's information-state strings

    @property
    def nodes(self) -> int:
        """Number of histories, chance and terminal ones included."""
        return len(self.player)
