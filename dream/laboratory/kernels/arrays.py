"""What the compiled loops read and write: named tuples of arrays.

A *slot* is one (information state, legal action): the slots of state s are offset[s] to offset[s + 1], in the order of
its children. N nodes, S states, K slots, C chance nodes with at most O outcomes.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

TERMINAL: Final = -2
CHANCE: Final = -1

# Rule.kind
VANILLA: Final = 0
PLUS: Final = 1
LINEAR: Final = 2
DISCOUNTED: Final = 3

# Streams.kind and Streams.reset
IID: Final = 0
ANTITHETIC: Final = 1
WEYL: Final = 2
NEVER: Final = 0
EACH_ITERATION: Final = 1
EACH_TRAVERSAL: Final = 2

# Entries of `clock`
ITERATION: Final = 0
TOUCHES: Final = 1


class Tree(NamedTuple):
    """The game, breadth first; the children of a node are consecutive."""

    player: NDArray[np.int8]  # [N] 0, 1, CHANCE, TERMINAL
    first_child: NDArray[np.int32]  # [N]
    row: NDArray[np.int32]  # [N] information state at decisions, chance row at chance nodes
    payoff: NDArray[np.float64]  # [N] player 0's, in chips
    offset: NDArray[np.int32]  # [S + 1]
    cdf: NDArray[np.float64]  # [C, O] cumulative chance law, 2 from the last outcome on
    law: NDArray[np.float64]  # [C, O] chance probabilities, 0 where there is no outcome


class Forest(NamedTuple):
    """Both players' sequences. The empty sequence is slot K; terminals with the same two sequences are one pair."""

    offset: NDArray[np.int32]  # [S + 1]
    parent: NDArray[np.int32]  # [S] slot that leads to a state, or K
    order0: NDArray[np.int32]  # player 0's states, each after the states above it
    order1: NDArray[np.int32]
    slot0: NDArray[np.int32]  # [P] player 0's last slot
    slot1: NDArray[np.int32]  # [P]
    payoff: NDArray[np.float64]  # [P] player 0's payoff times chance reach, summed


class Tables(NamedTuple):
    """What the counterfactual regret methods learn."""

    regret: NDArray[np.float64]  # [K] cumulative
    strategy: NDArray[np.float64]  # [K] current: regret matching on `regret`, always up to date
    cumulative: NDArray[np.float64]  # [K] numerators of the average strategy
    faded: NDArray[np.float64]  # [S, 2] logarithms of the discounts that a state's regrets have met: positive, negative
    moments: NDArray[np.float64]  # [2, K] sums of estimates and of their squares, while `Rule.frozen`
    gains: NDArray[np.float64]  # [A] room for one state's instantaneous regrets


class Rule(NamedTuple):
    """How regrets and averages are weighted. Frozen: strategies stay, estimates go to `Tables.moments`."""

    kind: int
    alpha: float
    beta: float
    gamma: float
    frozen: bool


class Streams(NamedTuple):
    """Where the uniforms of chance nodes come from, and what was drawn. D = C, or 2 C where traversers do not share."""

    kind: int
    reset: int
    stride: int  # first stream of traverser 1: C, or 0 where both draw from the same
    seed: NDArray[np.uint64]  # [1] fixes all phases
    epoch: NDArray[np.int64]  # [1] number of resets so far
    node: NDArray[np.uint64]  # [D] identities of the streams: those of the chance nodes, for traverser 0
    since: NDArray[np.int64]  # [D] epoch in which `draws` starts
    draws: NDArray[np.int64]  # [D] of this epoch
    last: NDArray[np.float64]  # [D] number that waits for its mirror; the phase of a Weyl stream
    outcomes: NDArray[np.int64]  # [C, O] how often each outcome was drawn, over all epochs


class Paths(NamedTuple):
    """Room for one traversal."""

    node: NDArray[np.int32]  # nodes entered
    child: NDArray[np.int32]  # entry of a node's (first) child, or the ordinal of the child taken
    value: NDArray[np.float64]  # sampled values, or probabilities
    reach: NDArray[np.float64]
