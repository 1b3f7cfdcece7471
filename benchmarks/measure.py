"""Rates of ours and of a bare limit, measured in turn so that a busy machine slows both alike.

Seconds are processor seconds of this process, which works in one thread: on a quiet core they are the clock's; on a
busy one the time in which other jobs hold the core does not count. Where several processes work they are the wall
clock's, and a figure is worth something on a quiet machine alone.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

Work = Callable[[], float]  # does some work; returns how many units it was
Clock = Callable[[], float]  # processor seconds, or the wall clock's where several processes work


@dataclass(frozen=True)
class Budget:
    """Measuring time: `rounds` times every contestant works for at least `slice_seconds`."""

    slice_seconds: float = 0.25
    rounds: int = 5


@dataclass(frozen=True)
class Result:
    """One measured case.

    `ours`, `bare`: median rates over the rounds in `unit` per second (bare: 0 where there is no limit).
    `ratio`: the median of ours / bare within a round, NaN without a bare limit; above 1 ours is the faster one.
    `target`: what is asked for, in words; `reached`: whether the measured figures meet it, None without a target.
    """

    benchmark: str
    case: str
    unit: str
    ours: float
    bare_limit: str
    bare: float
    ratio: float
    target: str = ""
    reached: bool | None = None

    def document(self) -> dict[str, object]:
        """For JSON: NaN becomes null."""
        return asdict(self) | {"ratio": None if math.isnan(self.ratio) else self.ratio}


@dataclass(frozen=True)
class Target:
    """A ratio to reach, or a rate of ours."""

    ratio: float | None = None
    rate: float | None = None
    words: str = ""

    def __str__(self) -> str:
        return self.words or (f">= {self.ratio:.2f}" if self.ratio is not None else f">= {self.rate:,.0f}/s")

    def reached(self, ours: float, ratio: float) -> bool:
        """Whether the measured rate and ratio meet it."""
        return (self.ratio is None or ratio >= self.ratio) and (self.rate is None or ours >= self.rate)


def rates(contestants: Mapping[str, Work], budget: Budget, clock: Clock = time.process_time) -> dict[str, list[float]]:
    """Units per second of every contestant in every round, one contestant after the other within a round."""
    for work in contestants.values():
        work()  # caches, allocations, first calls
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(budget.rounds):
        for name, work in contestants.items():
            found[name].append(_rate(work, budget.slice_seconds, clock))
    return found


def _rate(work: Work, seconds: float, clock: Clock) -> float:
    units, began = 0.0, clock()
    while True:
        units += work()
        passed = clock() - began
        if passed > 0.0 and passed >= seconds:
            return units / passed


def compare(
    benchmark: str,
    case: str,
    unit: str,
    ours: Work,
    bare: Mapping[str, Work],
    budget: Budget,
    targets: Mapping[str, Target] | None = None,
    clock: Clock = time.process_time,
) -> list[Result]:
    """Ours against each bare limit, all of them in the same rounds. `targets` by the bare limit's name.

    A target under the name "" belongs to the first limit.
    """
    measured = rates({"": ours, **bare}, budget, clock)
    own = measured.pop("")
    wanted = dict(targets or {})
    if "" in wanted:
        wanted[next(iter(bare), "")] = wanted.pop("")
    results = []
    for name, limit in (measured or {"": []}).items():
        ratio = statistics.median(a / b for a, b in zip(own, limit, strict=True)) if limit else math.nan
        rate, target = statistics.median(own), wanted.get(name)
        results.append(
            Result(
                benchmark=benchmark,
                case=case,
                unit=unit,
                ours=rate,
                bare_limit=name,
                bare=statistics.median(limit) if limit else 0.0,
                ratio=ratio,
                target=str(target or ""),
                reached=target.reached(rate, ratio) if target else None,
            )
        )
    return results
