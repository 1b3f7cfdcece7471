"""OS-MCCFR and VR-MCCFR: outcome sampling (Lanctot et al. 2009), with or without baselines (Schmid et al. 2019).

The traverser draws from xi = eps / |A| + (1 - eps) sigma, opponent and chance from their law. Back along the path, at
the decisions of both players, with b the baseline and a' the action taken, xi = sigma at the opponent's:

    v(h, a) = b(h, a) + [a = a'] / xi(h, a) (v(h') - b(h, a)),      v(h) = sum_a sigma(h, a) v(h, a)

and the same at chance nodes with their law, where chance has baselines. r(I, a) = (v(h, a) - v(h)) / pi_i^xi(I), over
the traverser's earlier decisions. The opponent's strategies enter its average with weight 1 / pi_i^xi, which undoes the
traverser's exploration. A baseline moves towards the sampled v(h') of the action taken after it has been used.
"""

from typing import Final, NamedTuple

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

# Baseline.kind
NO_BASELINE: Final = 0
BY_HISTORY: Final = 1
BY_STATE: Final = 2


class Baseline(NamedTuple):
    """Learned values in player 0's payoff: of nodes entered (by history and at chance), of slots (by state)."""

    kind: int
    chance: bool
    decay: float  # weight of the newest value; 0 is the plain mean
    history: NDArray[np.float64]  # [N], or [0] where not used
    history_count: NDArray[np.int64]
    state: NDArray[np.float64]  # [K], or [0]
    state_count: NDArray[np.int64]


@kernel
def run_outcome(
    tree: Tree,
    tables: Tables,
    rule: Rule,
    streams: Streams,
    baseline: Baseline,
    epsilon: float,
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
            entered = _play(tree, tables, streams, epsilon, paths, generator, traverser)
            _learn_back(tree, tables, rule, baseline, paths, faded, traverser, t, entered)
            clock[TOUCHES] += entered
            if streams.reset == EACH_TRAVERSAL:
                streams.epoch[0] += 1


@kernel
def explored(
    strategy: NDArray[np.float64], start: int, stop: int, epsilon: float, generator: NDArray[np.uint64]
) -> tuple[int, float]:
    """A slot drawn from eps / |A| + (1 - eps) sigma, and its probability."""
    even = epsilon / (stop - start)
    left = uniform(generator, 0)
    chosen, probability = start, 0.0
    for slot in range(start, stop):
        xi = even + (1.0 - epsilon) * strategy[slot]
        if xi > 0.0:
            chosen, probability = slot, xi
            left -= xi
            if left < 0.0:
                break
    return chosen, probability


@kernel
def _play(
    tree: Tree,
    tables: Tables,
    streams: Streams,
    epsilon: float,
    paths: Paths,
    generator: NDArray[np.uint64],
    traverser: int,
) -> int:
    """Play one path: its nodes, ordinals taken, their xi, and pi_i^xi before each. Returns the number of nodes."""
    node, depth, reach = np.int32(0), 0, 1.0
    while True:
        player = tree.player[node]
        paths.node[depth] = node
        paths.reach[depth] = reach
        if player == TERMINAL:
            return depth + 1
        row = tree.row[node]
        if player == CHANCE:
            taken = draw_outcome(tree, streams, row, traverser, generator)
        else:
            start, stop = tree.offset[row], tree.offset[row + 1]
            exploration = epsilon if player == traverser else 0.0
            chosen, xi = explored(tables.strategy, start, stop, exploration, generator)
            taken = chosen - start
            paths.value[depth] = xi
            if player == traverser:
                reach *= xi
        paths.child[depth] = taken
        node = np.int32(tree.first_child[node] + taken)
        depth += 1


@kernel
def _learn_back(
    tree: Tree,
    tables: Tables,
    rule: Rule,
    baseline: Baseline,
    paths: Paths,
    faded: NDArray[np.float64],
    traverser: int,
    t: int,
    entered: int,
) -> None:
    """Values from the terminal back; regrets at the traverser's decisions, averages at the opponent's."""
    share = average_weight(rule, t)
    value = tree.payoff[paths.node[entered - 1]]  # player 0's, as are the baselines
    for depth in range(entered - 2, -1, -1):
        node = paths.node[depth]
        row, taken = tree.row[node], paths.child[depth]
        if tree.player[node] == CHANCE:
            if baseline.chance:
                value = _chance_value(tree, rule, baseline, row, tree.first_child[node], taken, value)
            continue
        start, stop = tree.offset[row], tree.offset[row + 1]
        below, value = value, 0.0
        for slot in range(start, stop):
            gain = _baseline_at(baseline, tree.first_child[node] + slot - start, slot)
            if slot - start == taken:
                gain += (below - gain) / paths.value[depth]
            tables.gains[slot - start] = gain
            value += tables.strategy[slot] * gain
        if not rule.frozen:
            _move_baseline(baseline, tree.first_child[node] + taken, start + taken, below)
        if tree.player[node] == traverser:
            scale = (1.0 - 2.0 * traverser) / paths.reach[depth]
            for slot in range(start, stop):
                tables.gains[slot - start] = scale * (tables.gains[slot - start] - value)
            learn(tables, rule, t, faded, row, start, stop)
        else:
            weight = share / paths.reach[depth]
            for slot in range(start, stop):
                tables.cumulative[slot] += weight * tables.strategy[slot]


@kernel
def _chance_value(tree: Tree, rule: Rule, baseline: Baseline, row: int, child: int, taken: int, below: float) -> float:
    """sum_o p(o) b(o) + v(o') - b(o'), the outcome drawn from its law."""
    value = below - baseline.history[child + taken]
    ordinal = 0
    while True:
        value += tree.law[row, ordinal] * baseline.history[child + ordinal]
        if tree.cdf[row, ordinal] >= 1.5:
            break
        ordinal += 1
    if not rule.frozen:
        _move(baseline.history, baseline.history_count, child + taken, below, baseline.decay)
    return float(value)


@kernel
def _baseline_at(baseline: Baseline, child: int, slot: int) -> float:
    if baseline.kind == BY_HISTORY:
        return float(baseline.history[child])
    if baseline.kind == BY_STATE:
        return float(baseline.state[slot])
    return 0.0


@kernel
def _move_baseline(baseline: Baseline, child: int, slot: int, value: float) -> None:
    if baseline.kind == BY_HISTORY:
        _move(baseline.history, baseline.history_count, child, value, baseline.decay)
    elif baseline.kind == BY_STATE:
        _move(baseline.state, baseline.state_count, slot, value, baseline.decay)


@kernel
def _move(table: NDArray[np.float64], count: NDArray[np.int64], index: int, value: float, decay: float) -> None:
    """Towards `value` by `decay`, or to the plain mean; the first value counts in full."""
    count[index] += 1
    step = decay if decay > 0.0 and count[index] > 1 else 1.0 / count[index]
    table[index] += step * (value - table[index])
