"""FTRL with outcome sampling, and its perturbed forms (Perolat et al. 2021; Abe et al. 2022, 2023; The Power of
Perturbation under Sampling).

Both players play one path per iteration under xi and learn from it. At a decision h of player i in I, a' taken:

    w = pi_{-i}^sigma(h) / pi^xi(h)                   (chance cancels; pi^xi over both players' decisions before h)
    FTRL       g(I, a) = w [a = a'] / xi(a) v_i(h')
    KL         g(I, a) = w [a = a'] / xi(a) (v_i(h') - mu log(sigma(a) / anchor(a)))
    RKL        g(I, a) = w ([a = a'] / xi(a) v_i(h') + mu (anchor(a) / sigma(a) - 1))
    v(h) = sigma(a') / xi(a') (v(h') + the acting player's KL term, against the other player)

RKL's perturbation has expectation 0 under sigma at every state, so that it adds nothing to the values above: what a
visited state gets is known without sampling. The strategy maximises eta <sum of g, p> - psi(p).
"""

import math
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
    Forest,
    Paths,
    Streams,
    Tables,
    Tree,
)
from dream.laboratory.kernels.chance import draw_outcome
from dream.laboratory.kernels.compilation import kernel
from dream.laboratory.kernels.full_width import realise
from dream.laboratory.kernels.outcome import explored

# Leader.perturbation
UNPERTURBED: Final = 0
KL: Final = 1
REVERSE_KL: Final = 2

# Deviation: a probability in a logarithm or denominator is at least this. A Euclidean regulariser reaches 0.
SMALLEST: Final = 1e-12


class Leader(NamedTuple):
    """The rule by which the leader is followed."""

    perturbation: int
    euclidean: bool
    on_policy: bool
    epsilon: float
    rate: float  # eta
    strength: float  # mu
    anchor_every: int  # iterations; 0 is never
    average_every: int  # iterations between entries into the average
    frozen: bool
    anchor: NDArray[np.float64]  # [K]


@kernel
def run_perturbed(
    tree: Tree,
    forest: Forest,
    tables: Tables,
    leader: Leader,
    streams: Streams,
    paths: Paths,
    clock: NDArray[np.int64],
    plan: NDArray[np.float64],
    generator: NDArray[np.uint64],
    budget: int,
    last: int,
) -> None:
    """One path per iteration until `budget` touches or iteration `last`; `tables.regret` holds the sums of g."""
    reaches = np.ones((2, len(paths.node)))
    while clock[TOUCHES] < budget and clock[ITERATION] < last:
        clock[ITERATION] += 1
        t = clock[ITERATION]
        if (streams.reset == EACH_ITERATION and t > 1) or streams.reset == EACH_TRAVERSAL:
            streams.epoch[0] += 1
        entered = _play(tree, tables, leader, streams, paths, reaches, generator)
        _learn_back(tree, tables, leader, paths, reaches, entered)
        clock[TOUCHES] += entered
        if not leader.frozen:
            if t % leader.average_every == 0:
                _enter_average(forest, tables, plan)
            if leader.anchor_every > 0 and t % leader.anchor_every == 0:
                leader.anchor[:] = tables.strategy


@kernel
def _enter_average(forest: Forest, tables: Tables, plan: NDArray[np.float64]) -> None:
    realise(forest.order0, forest, tables.strategy, plan)
    realise(forest.order1, forest, tables.strategy, plan)
    for slot in range(len(tables.cumulative)):
        tables.cumulative[slot] += plan[slot]


@kernel
def _play(
    tree: Tree,
    tables: Tables,
    leader: Leader,
    streams: Streams,
    paths: Paths,
    reaches: NDArray[np.float64],
    generator: NDArray[np.uint64],
) -> int:
    """Play one path under xi; `reaches` [2, depth] get both players' pi^sigma, `paths.reach` pi^xi before each node."""
    node, depth = np.int32(0), 0
    reaches[0, 0] = reaches[1, 0] = paths.reach[0] = 1.0
    exploration = leader.epsilon if leader.on_policy else 1.0
    while True:
        player = tree.player[node]
        paths.node[depth] = node
        if player == TERMINAL:
            return depth + 1
        row = tree.row[node]
        reaches[0, depth + 1] = reaches[0, depth]
        reaches[1, depth + 1] = reaches[1, depth]
        paths.reach[depth + 1] = paths.reach[depth]
        if player == CHANCE:
            taken = draw_outcome(tree, streams, row, 0, generator)
        else:
            start, stop = tree.offset[row], tree.offset[row + 1]
            chosen, xi = explored(tables.strategy, start, stop, exploration, generator)
            taken = chosen - start
            paths.value[depth] = xi
            reaches[player, depth + 1] *= tables.strategy[chosen]
            paths.reach[depth + 1] *= xi
        paths.child[depth] = taken
        node = np.int32(tree.first_child[node] + taken)
        depth += 1


@kernel
def _learn_back(
    tree: Tree, tables: Tables, leader: Leader, paths: Paths, reaches: NDArray[np.float64], entered: int
) -> None:
    """Values from the terminal back; g at every decision, and the strategies that follow."""
    value = tree.payoff[paths.node[entered - 1]]  # player 0's
    for depth in range(entered - 2, -1, -1):
        node = paths.node[depth]
        player = tree.player[node]
        if player == CHANCE:
            continue
        sign = 1.0 - 2.0 * player
        start, stop = tree.offset[tree.row[node]], tree.offset[tree.row[node] + 1]
        chosen = start + paths.child[depth]
        if leader.perturbation == KL:
            value -= sign * leader.strength * _log_ratio(tables.strategy[chosen], leader.anchor[chosen])
        weight = reaches[1 - player, depth] / paths.reach[depth]
        for slot in range(start, stop):
            gain = sign * value / paths.value[depth] if slot == chosen else 0.0
            if leader.perturbation == REVERSE_KL:
                gain += leader.strength * (leader.anchor[slot] / max(tables.strategy[slot], SMALLEST) - 1.0)
            tables.gains[slot - start] = weight * gain
        value *= tables.strategy[chosen] / paths.value[depth]
        if leader.frozen:
            for slot in range(start, stop):
                tables.moments[0, slot] += tables.gains[slot - start]
                tables.moments[1, slot] += tables.gains[slot - start] ** 2
        else:
            for slot in range(start, stop):
                tables.regret[slot] += tables.gains[slot - start]
            follow(tables.regret, tables.strategy, leader.rate, leader.euclidean, start, stop)


@kernel
def _log_ratio(probability: float, anchor: float) -> float:
    return math.log(max(probability, SMALLEST)) - math.log(max(anchor, SMALLEST))


@kernel
def follow(
    sums: NDArray[np.float64], strategy: NDArray[np.float64], rate: float, euclidean: bool, start: int, stop: int
) -> None:
    """Argmax of rate <sums, p> - psi(p): a softmax for negative entropy, a projection for ||p||^2 / 2."""
    highest = -np.inf
    for slot in range(start, stop):
        highest = max(highest, sums[slot])
    if euclidean:
        _project(sums, strategy, rate, highest, start, stop)
        return
    total = 0.0
    for slot in range(start, stop):
        strategy[slot] = math.exp(rate * (sums[slot] - highest))
        total += strategy[slot]
    for slot in range(start, stop):
        strategy[slot] /= total


@kernel
def _project(
    sums: NDArray[np.float64], strategy: NDArray[np.float64], rate: float, highest: float, start: int, stop: int
) -> None:
    """The point of the simplex nearest to rate * sums: max(x - c, 0), c found by leaving out what falls below it."""
    inside, total = stop - start, 0.0
    for slot in range(start, stop):
        strategy[slot] = rate * (sums[slot] - highest)
        total += strategy[slot]
    level = (total - 1.0) / inside
    while True:
        count, total = 0, 0.0
        for slot in range(start, stop):
            if strategy[slot] > level:
                count += 1
                total += strategy[slot]
        if count == inside:
            break
        inside = count
        level = (total - 1.0) / inside
    for slot in range(start, stop):
        strategy[slot] = max(strategy[slot] - level, 0.0)
