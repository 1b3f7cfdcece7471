"""Deep CFR, SD-CFR, OS-SD-CFR and DREAM: one loop. What differs is in the method's sampler, baseline and average.

Brown et al. 2019 (Algorithm 1), Steinberger 2019, Steinberger et al. 2020 (Algorithm 1). An iteration updates both
players: one after the other by default, so that the second already meets the first one's new strategy.
"""

from collections.abc import Sequence

from dream.methods import Method
from dream.runtime.runtime import Runtime
from dream.training.run import Run

ALTERNATING: Sequence[Sequence[int]] = ((0,), (1,))
SIMULTANEOUS: Sequence[Sequence[int]] = ((0, 1),)


def train(run: Run, runtime: Runtime, method: Method, updates: Sequence[Sequence[int]]) -> None:
    """Train until the run says that it is over."""
    for t in run.iterations():
        run.bank.weigh(t)  # sigma^t enters the average with weight t
        for players in updates:
            runtime.sample(t, players, run.bank.profile())  # each of them as the traverser
            for player, parameters in zip(players, runtime.fit_advantages(t, players), strict=True):
                run.append(player, parameters)  # from here on the player's strategy is sigma^{t+1}
        if method.baseline:
            runtime.fit_baseline(t, run.bank.profile())
        run.finish(t)
