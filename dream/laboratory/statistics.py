"""What many seeds say: paired reductions with bootstrap intervals, effect sizes, tests; ribbons around curves.

Seeds are paired: the same seed number in two settings starts the same game with the same randomness where both
use it, so differences are taken seed by seed (Correlated Chance Sampling for MCCFR, 2026, does the same).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

__all__ = ["RESAMPLES", "Reduction", "cohen_d", "paired_bootstrap", "reduction", "reduction_ribbon", "ribbon"]

Floats = NDArray[np.float64]

RESAMPLES = 10_000
_RIBBON_RESAMPLES = 1000
_BOOTSTRAP_SEED = 20_260_101
_LEVEL = 95.0


@dataclass(frozen=True)
class Reduction:
    """By how much `other` lies below `baseline` over paired seeds, in percent of the baseline's mean.

    `low_percent` and `high_percent` bound the 95 % percentile interval of the paired bootstrap. `cohen_d` is the
    mean difference over the differences' standard deviation; `t_test_p` and `wilcoxon_p` are two-sided. What a
    single seed cannot tell is None.
    """

    seeds: int
    baseline_chips: float
    other_chips: float
    percent: float
    low_percent: float | None
    high_percent: float | None
    cohen_d: float | None
    t_test_p: float | None
    wilcoxon_p: float | None

    @property
    def error_percent(self) -> float | None:
        """The standard error of `percent`, from the width of the interval; None without one."""
        if self.low_percent is None or self.high_percent is None:
            return None
        return (self.high_percent - self.low_percent) / (2.0 * float(stats.norm.ppf(0.5 + _LEVEL / 200.0)))

    @property
    def significant(self) -> bool | None:
        """Whether the interval clears 0; None without an interval."""
        return self.excludes(0.0, 0.0)

    def excludes(self, low: float, high: float) -> bool | None:
        """Whether the interval has no point in common with [low, high] percent; None without an interval."""
        if self.low_percent is None or self.high_percent is None:
            return None
        return bool(self.low_percent > high or self.high_percent < low)


def reduction(baseline: Floats, other: Floats, *, resamples: int = RESAMPLES) -> Reduction:
    """The reduction of `other` [n] against `baseline` [n], positive values in chips, entry by entry of one seed.

    Raises ValueError for arrays of different lengths, without entries, or where the baseline's mean is not above 0.
    """
    if baseline.shape != other.shape or baseline.ndim != 1 or not len(baseline):
        raise ValueError(f"paired seeds need two equally long arrays, not shapes {baseline.shape} and {other.shape}")
    if not baseline.mean() > 0.0:
        raise ValueError(f"a reduction needs a baseline whose mean is above 0, not {baseline.mean()}")
    difference = baseline - other
    low = high = t_test = wilcoxon = None
    if len(baseline) > 1:
        sample = paired_bootstrap(baseline, other, resamples, np.random.default_rng(_BOOTSTRAP_SEED))
        low, high = (float(edge) for edge in np.percentile(sample, [50.0 - _LEVEL / 2, 50.0 + _LEVEL / 2]))
        t_test, wilcoxon = _p_values(difference)
    return Reduction(
        seeds=len(baseline),
        baseline_chips=float(baseline.mean()),
        other_chips=float(other.mean()),
        percent=float(100.0 * difference.mean() / baseline.mean()),
        low_percent=low,
        high_percent=high,
        cohen_d=cohen_d(difference),
        t_test_p=t_test,
        wilcoxon_p=wilcoxon,
    )


def paired_bootstrap(baseline: Floats, other: Floats, resamples: int, rng: np.random.Generator) -> Floats:
    """[resamples] reductions in percent, each of n seeds drawn with replacement, both settings of a seed together.

    Each is the mean of the per-seed absolute differences over the baseline's mean in the same resample, so that
    the interval also carries the uncertainty of that mean; it clears 0 exactly where that of the differences does.
    """
    n = len(baseline)
    drawn = rng.integers(n, size=(resamples, n))
    return np.asarray(100.0 * (baseline - other)[drawn].sum(axis=1) / baseline[drawn].sum(axis=1), np.float64)


def cohen_d(difference: Floats) -> float | None:
    """Cohen's d for paired data: mean over standard deviation (n - 1) of the differences [n].

    None for a single seed, and where all differences are equal but not 0 (the effect has no finite size).
    """
    if len(difference) < 2:
        return None
    deviation = float(difference.std(ddof=1))
    if deviation == 0.0:
        return 0.0 if not difference.any() else None
    return float(difference.mean()) / deviation


def _p_values(difference: Floats) -> tuple[float, float]:
    """Two-sided p of the paired t-test and of Wilcoxon's signed-rank test; 1 where nothing differs."""
    if not difference.any():
        return 1.0, 1.0
    if difference.std() == 0.0:
        t_test = 0.0
    else:
        t = difference.mean() / (difference.std(ddof=1) / math.sqrt(len(difference)))
        t_test = float(2.0 * stats.t.sf(abs(t), len(difference) - 1))
    return t_test, float(stats.wilcoxon(difference).pvalue)


def ribbon(values: Floats) -> tuple[Floats, Floats, Floats]:
    """(mean, low, high), each [k], of `values` [n seeds, k points]: 95 % bootstrap interval of the mean.

    Never below the smallest value, so that it can be drawn on a logarithmic axis; without width for one seed.
    """
    return values.mean(axis=0), *_interval(_resampling(len(values)) @ values)


def reduction_ribbon(baseline: Floats, other: Floats) -> tuple[Floats, Floats, Floats]:
    """(percent, low, high), each [k]: `reduction` along the budget, of `baseline` and `other` [n seeds, k points]."""
    weights = np.vstack([np.full(len(baseline), 1.0 / len(baseline)), _resampling(len(baseline))])
    percent = 100.0 * (weights @ (baseline - other)) / (weights @ baseline)
    return percent[0], *_interval(percent[1:])


def _resampling(n: int) -> Floats:
    """[resamples, n] share of each seed in resamples of n seeds."""
    rng = np.random.default_rng(_BOOTSTRAP_SEED)
    return np.asarray(rng.multinomial(n, np.full(n, 1.0 / n), size=_RIBBON_RESAMPLES) / n)


def _interval(sample: Floats) -> tuple[Floats, Floats]:
    """95 % percentile interval over the first axis of `sample`."""
    low, high = np.percentile(sample, [50.0 - _LEVEL / 2, 50.0 + _LEVEL / 2], axis=0)
    return low, high
