"""Two ranks over gloo against one: what summing gradients costs, and what sharing a minibatch brings."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from benchmarks.learning import SETTINGS, RowByRow, leduc, regression_rows
from benchmarks.measure import Budget, Result, Work, compare
from learners.feed import UniformFeed
from learners.losses import advantage_loss
from learners.ranks import ALONE, ProcessGroup, Ranks, listen
from learners.regression import RegressionLearner

_CPU = torch.device("cpu")
_HOST = "127.0.0.1"
_SHARDS = 2
ONE = "one rank, the same rows for each"
WHOLE = "one rank, the whole minibatch"


def fits(ranks: Ranks, rows: int, batch: int, steps: int) -> Work:
    """Fits of `steps` minibatches of Leduc rows without merging; every rank has its own shards."""
    game, players = leduc()
    numbers = list(range(ranks.rank, _SHARDS, ranks.size))
    shards = [(regression_rows(game, rows // _SHARDS, 1 + number), rows) for number in numbers]
    inputs = RowByRow(players.state_inputs[0])
    feed = UniformFeed(shards, inputs, batch, game.description.payoff_scale, _CPU, ranks, numbers)
    learner = RegressionLearner(players.advantage_spec(0), advantage_loss, SETTINGS, _CPU)
    learner.fit(feed, 1, 1, True)
    return lambda: learner.fit(feed, steps, 1, False)[1].steps


def _goes_on(ranks: Ranks, wanted: bool) -> bool:
    """Whether rank 0 wants one more fit."""
    word = torch.tensor(float(wanted))
    ranks.sum(word)
    return bool(word)


def other(address: str, rows: int, batch: int, steps: int) -> None:
    """Rank 1, in a process of its own: takes part until rank 0 has enough."""
    torch.set_num_threads(1)
    with ProcessGroup(1, 2, address, _CPU) as ranks:
        work = fits(ranks, rows, batch, steps)
        while _goes_on(ranks, False):
            work()


@contextmanager
def pair(rows: int, batch: int, steps: int) -> Iterator[Work]:
    """Rank 0's part of fits that another process takes part in."""
    store, address = listen(_HOST, 2)
    process = multiprocessing.get_context("spawn").Process(target=other, args=(address, rows, batch, steps))
    process.start()
    try:
        with ProcessGroup(0, 2, store, _CPU) as ranks:
            work = fits(ranks, rows, batch, steps)

            def together() -> float:
                _goes_on(ranks, True)
                return work()

            yield together
            _goes_on(ranks, False)
    finally:
        process.join(30)
        process.kill()


def data_parallel(budget: Budget, rows: int = 1_000_000, batch: int = 2048, steps: int = 50) -> list[Result]:
    """Leduc, one forward pass per row: as many rows for each rank as for one alone, then as many for both together.

    Processor seconds are rank 0's: what it works, gloo's threads included, not what it waits for the other.
    """
    alone = fits(ALONE, rows, batch, steps)
    results = []
    for whole, limit in ((2 * batch, ONE), (batch, WHOLE)):
        with pair(rows, whole, steps) as together:
            case = f"leduc, batch {whole:,} on two ranks"
            results += compare("data_parallel", case, "steps", together, {limit: alone}, budget)
    return results
