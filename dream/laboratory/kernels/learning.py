"""Regret matching and the update rules: vanilla, CFR+, Linear CFR, Discounted CFR.

Iteration t adds the regrets r^t, then all regrets of that player are discounted (Brown, Sandholm 2019): positive ones
by t^a / (t^a + 1), negative ones by t^b / (t^b + 1), whether their state was met or not. A discount changes no sign,
and regret matching only sees the ratios of positive regrets, so a state that is not met can wait: when it is met again,
all the discounts since then are applied at once. Linear CFR is a = b = g = 1; its discounts multiply up to 1/t, which
is the same as weighting r^t by t. Averages discounted by (t / (t + 1))^g are sums weighted by t^g. CFR+ floors regrets
at 0 and weights the average by t (Tammelin 2014).
"""

import math

import numpy as np
from numpy.typing import NDArray

from dream.laboratory.kernels.arrays import DISCOUNTED, LINEAR, PLUS, VANILLA, Rule, Tables
from dream.laboratory.kernels.compilation import kernel


@kernel
def discount(t: int, exponent: float) -> float:
    """log(t^x / (t^x + 1))."""
    return -math.log1p(math.pow(t, -exponent))


@kernel
def begin_iteration(rule: Rule, t: int, faded: NDArray[np.float64]) -> None:
    """Add the discounts of iteration t - 1 to the logarithms `faded` [2]."""
    if rule.kind == DISCOUNTED and t > 1:
        faded[0] += discount(t - 1, rule.alpha)
        faded[1] += discount(t - 1, rule.beta)


@kernel
def average_weight(rule: Rule, t: int) -> float:
    """Weight of iteration t in the average strategy: 1, t (CFR+, Linear), t^g (Discounted)."""
    if rule.kind == VANILLA:
        return 1.0
    if rule.kind == DISCOUNTED:
        return math.pow(t, rule.gamma)
    return float(t)


@kernel
def learn(tables: Tables, rule: Rule, t: int, faded: NDArray[np.float64], state: int, start: int, stop: int) -> None:
    """Add `tables.gains`, the instantaneous regrets of iteration t, to a state's regrets; match them again."""
    if rule.frozen:
        _record(tables, start, stop)
        return
    regret, strategy = tables.regret, tables.strategy
    weight = float(t) if rule.kind == LINEAR else 1.0
    positive = negative = 1.0
    if rule.kind == DISCOUNTED:
        positive = math.exp(faded[0] - tables.faded[state, 0])
        negative = math.exp(faded[1] - tables.faded[state, 1])
        tables.faded[state, 0] = faded[0]
        tables.faded[state, 1] = faded[1]
    total = 0.0
    for slot in range(start, stop):
        old = regret[slot]
        new = old * (positive if old > 0.0 else negative) + weight * tables.gains[slot - start]
        if rule.kind == PLUS and new < 0.0:
            new = 0.0
        regret[slot] = new
        if new > 0.0:
            total += new
    for slot in range(start, stop):
        if total > 0.0:
            strategy[slot] = max(regret[slot], 0.0) / total
        else:
            strategy[slot] = 1.0 / (stop - start)


@kernel
def _record(tables: Tables, start: int, stop: int) -> None:
    for slot in range(start, stop):
        gain = tables.gains[slot - start]
        tables.moments[0, slot] += gain
        tables.moments[1, slot] += gain * gain
