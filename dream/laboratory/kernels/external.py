"""ES-MCCFR: external sampling (Lanctot et al. 2009), with any update rule and chance stream.

A traversal lists the nodes that it enters, children behind their parents, and then values them from the end of the list
to its beginning: no recursion, no allocation. Restricted control variate (Correlated Chance Sampling, 2026): at an
opponent's information state, a* sampled, value = sum_a sigma(a) b(a) + v(a*) - b(a*), with b(a) the mean of the earlier
values of a there.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dream.laboratory.kernels.arrays import (
    CHANCE,
    EACH_ITERATION,
    EACH_TRAVERSAL,
    ITERATION,
    TERMINAL,
    TOUCHES,
    Paths,
    Rule,
    Streams,
    Tables,
    Tree,
)
from dream.laboratory.kernels.chance import draw_outcome
from dream.laboratory.kernels.compilation import kernel
from dream.laboratory.kernels.learning import average_weight, begin_iteration, learn
from dream.laboratory.kernels.randomness import uniform


class Variate(NamedTuple):
    """The control variate: means and numbers of the values seen at the opponent's slots, for the traverser."""

    used: bool
    mean: NDArray[np.float64]  # [K], or [0] where not used
    seen: NDArray[np.int64]


@kernel
def run_external(
    tree: Tree,
    tables: Tables,
    rule: Rule,
    streams: Streams,
    variate: Variate,
    paths: Paths,
    clock: NDArray[np.int64],
    faded: NDArray[np.float64],
    generator: NDArray[np.uint64],
    players: tuple[int, int],
    budget: int,
    last: int,
) -> None:
    """One traversal per player, from first to last of `players`, until `budget` touches or iteration `last`."""
    while clock[TOUCHES] < budget and clock[ITERATION] < last:
        clock[ITERATION] += 1
        t = clock[ITERATION]
        begin_iteration(rule, t, faded)
        if streams.reset == EACH_ITERATION and t > 1:
            streams.epoch[0] += 1
        for traverser in range(players[0], players[1]):
            entered = _descend(tree, tables, rule, streams, paths, generator, traverser, t)
            _ascend(tree, tables, rule, variate, paths, faded, traverser, t, entered)
            clock[TOUCHES] += entered
            if streams.reset == EACH_TRAVERSAL:
                streams.epoch[0] += 1


@kernel
def sample_slot(strategy: NDArray[np.float64], start: int, stop: int, u: float) -> int:
    """The slot drawn by `u`; a last slot of probability 0 is not drawn by rounding."""
    chosen = start
    for slot in range(start, stop):
        if strategy[slot] > 0.0:
            chosen = slot
            u -= strategy[slot]
            if u < 0.0:
                break
    return chosen


@kernel
def _descend(
    tree: Tree,
    tables: Tables,
    rule: Rule,
    streams: Streams,
    paths: Paths,
    generator: NDArray[np.uint64],
    traverser: int,
    t: int,
) -> int:
    """List the nodes of a traversal; the opponent's strategies enter its average. Returns their number."""
    share = average_weight(rule, t)
    paths.node[0] = 0
    entered = 1
    entry = 0
    while entry < entered:
        node = paths.node[entry]
        player = tree.player[node]
        if player != TERMINAL:
            paths.child[entry] = entered
            row, child = tree.row[node], tree.first_child[node]
            if player == CHANCE:
                paths.node[entered] = child + draw_outcome(tree, streams, row, traverser, generator)
                entered += 1
            elif player == traverser:
                for ordinal in range(tree.offset[row + 1] - tree.offset[row]):
                    paths.node[entered] = child + ordinal
                    entered += 1
            else:
                start, stop = tree.offset[row], tree.offset[row + 1]
                chosen = sample_slot(tables.strategy, start, stop, uniform(generator, 0))
                paths.node[entered] = child + chosen - start
                entered += 1
                for slot in range(start, stop):
                    tables.cumulative[slot] += share * tables.strategy[slot]
        entry += 1
    return entered


@kernel
def _ascend(
    tree: Tree,
    tables: Tables,
    rule: Rule,
    variate: Variate,
    paths: Paths,
    faded: NDArray[np.float64],
    traverser: int,
    t: int,
    entered: int,
) -> None:
    """Value the nodes listed, last to first; learn at the traverser's."""
    sign = 1.0 - 2.0 * traverser
    for entry in range(entered - 1, -1, -1):
        node = paths.node[entry]
        player = tree.player[node]
        if player == TERMINAL:
            paths.value[entry] = sign * tree.payoff[node]
            continue
        below = paths.child[entry]
        if player == traverser:
            state = tree.row[node]
            start, stop = tree.offset[state], tree.offset[state + 1]
            value = 0.0
            for slot in range(start, stop):
                value += tables.strategy[slot] * paths.value[below + slot - start]
            for slot in range(start, stop):
                tables.gains[slot - start] = paths.value[below + slot - start] - value
            learn(tables, rule, t, faded, state, start, stop)
            paths.value[entry] = value
        elif variate.used and player != CHANCE:
            taken = paths.node[below] - tree.first_child[node]
            paths.value[entry] = _corrected(tree, tables, rule, variate, tree.row[node], taken, paths.value[below])
        else:
            paths.value[entry] = paths.value[below]


@kernel
def _corrected(
    tree: Tree, tables: Tables, rule: Rule, variate: Variate, state: int, taken: int, sampled: float
) -> float:
    """The control variate's value of an opponent's node, whose child `taken` has the value `sampled`."""
    start = tree.offset[state]
    chosen = start + taken
    value = sampled - variate.mean[chosen]
    for slot in range(start, tree.offset[state + 1]):
        value += tables.strategy[slot] * variate.mean[slot]
    if not rule.frozen:
        variate.seen[chosen] += 1
        variate.mean[chosen] += (sampled - variate.mean[chosen]) / variate.seen[chosen]
    return float(value)
