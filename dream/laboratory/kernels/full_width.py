"""CFR, CFR+, Linear CFR, Discounted CFR: every history in every iteration (Zinkevich et al. 2007; Tammelin 2014).

Computed over sequences instead of histories, with the same result: terminals weighted by the opponent's plan add up
in the traverser's last sequences, and each state passes its value on to the sequence above it.
"""

import numpy as np
from numpy.typing import NDArray

from dream.laboratory.kernels.arrays import ITERATION, TOUCHES, Forest, Rule, Tables
from dream.laboratory.kernels.compilation import kernel
from dream.laboratory.kernels.learning import average_weight, begin_iteration, learn


@kernel
def run_full_width(
    forest: Forest,
    tables: Tables,
    rule: Rule,
    clock: NDArray[np.int64],
    faded: NDArray[np.float64],
    nodes: int,
    budget: int,
    last: int,
) -> None:
    """Iterate, updates alternating, until `budget` touches or iteration `last`; a player's update touches all nodes."""
    plan = np.ones(len(tables.strategy) + 1)
    values = np.zeros(len(tables.strategy) + 1)
    while clock[TOUCHES] < budget and clock[ITERATION] < last:
        clock[ITERATION] += 1
        t = clock[ITERATION]
        begin_iteration(rule, t, faded)
        for traverser in range(2):
            clock[TOUCHES] += nodes
            realise(forest.order0, forest, tables.strategy, plan)
            realise(forest.order1, forest, tables.strategy, plan)
            _weigh_terminals(forest, plan, traverser, values)
            order = forest.order0 if traverser == 0 else forest.order1
            _update(order, forest, tables, rule, t, faded, plan, values)


@kernel
def realise(order: NDArray[np.int32], forest: Forest, strategy: NDArray[np.float64], plan: NDArray[np.float64]) -> None:
    """Each slot's probability by its own player's choices alone."""
    for state in order:
        above = plan[forest.parent[state]]
        for slot in range(forest.offset[state], forest.offset[state + 1]):
            plan[slot] = above * strategy[slot]


@kernel
def _weigh_terminals(forest: Forest, plan: NDArray[np.float64], traverser: int, values: NDArray[np.float64]) -> None:
    values[:] = 0.0
    for pair in range(len(forest.payoff)):
        if traverser == 0:
            values[forest.slot0[pair]] += forest.payoff[pair] * plan[forest.slot1[pair]]
        else:
            values[forest.slot1[pair]] -= forest.payoff[pair] * plan[forest.slot0[pair]]


@kernel
def _update(
    order: NDArray[np.int32],
    forest: Forest,
    tables: Tables,
    rule: Rule,
    t: int,
    faded: NDArray[np.float64],
    plan: NDArray[np.float64],
    values: NDArray[np.float64],
) -> None:
    """Counterfactual values from the last states up, regrets and the average."""
    share = average_weight(rule, t)
    for index in range(len(order) - 1, -1, -1):
        state = order[index]
        start, stop = forest.offset[state], forest.offset[state + 1]
        value = 0.0
        for slot in range(start, stop):
            value += tables.strategy[slot] * values[slot]
            tables.cumulative[slot] += share * plan[slot]
        for slot in range(start, stop):
            tables.gains[slot - start] = values[slot] - value
        values[forest.parent[state]] += value
        learn(tables, rule, t, faded, state, start, stop)
