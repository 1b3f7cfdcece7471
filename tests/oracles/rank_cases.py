"""Fits that one rank or several do together: in threads of one process, or as real processes."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from buffers.merged import Merged
from buffers.packing import TableHistoryCodec, TableStateCodec
from buffers.rows import take
from learners import losses
from learners.baseline import BaselineLearner, Transitions
from learners.draws import Draws
from learners.feed import MergedFeed, UniformFeed
from learners.inputs import history_inputs, state_inputs
from learners.networks import NetworkSpec
from learners.ranks import ALONE, LostRankError, ProcessGroup
from learners.regression import OptimiserSettings, RegressionLearner

CPU = torch.device("cpu")
STATES, ACTIONS, OFFSET, FEATURES, ROWS, HISTORIES = 30, 3, 10, 8, 3000, 40
ENDS, SEEN = (0, 1400, 1400, 1700, ROWS), (9000, 0, 500, 4000)  # four shards, one of them empty
FEW, MANY = 60, 300  # steps


class Member:
    """A rank that is a thread."""

    device = CPU

    def __init__(self, rank, size, tensors, barrier):
        self.rank, self.size, self._tensors, self._barrier = rank, size, tensors, barrier

    def sum(self, tensor):
        self._tensors[self.rank] = tensor.clone()
        self._barrier.wait(60)
        total = sum(self._tensors[1:], start=self._tensors[0])
        self._barrier.wait(60)
        assert tensor.shape == total.shape
        tensor.copy_(total)


def in_threads(size, work):
    """What `work(ranks)` returns on every rank; the first error is raised."""
    tensors, barrier = [None] * size, threading.Barrier(size)

    def one(rank):
        torch.set_num_threads(1)
        try:
            return work(Member(rank, size, tensors, barrier))
        except threading.BrokenBarrierError as error:
            raise LostRankError("another rank ended") from error
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(one, rank) for rank in range(size)]
        errors = [error for f in futures if (error := f.exception()) is not None]
        for error in sorted(errors, key=lambda e: isinstance(e, LostRankError)):
            raise error
        return [future.result() for future in futures]


def in_a_process(rank, size, rendezvous, work, *arguments):
    """To be sent to a process of its own: `work(ranks, *arguments)` there."""
    torch.set_num_threads(1)
    with ProcessGroup(rank, size, rendezvous, CPU, timeout_seconds=60) as ranks:
        return work(ranks, *arguments)


def state_rows():
    rng = np.random.default_rng(3)
    legal = rng.random((STATES, ACTIONS)) < 0.7
    legal[:, 0] = True
    codec = TableStateCodec(rng.standard_normal((STATES, FEATURES)).astype(np.float32), legal, OFFSET)
    state = rng.integers(STATES - 1, size=ROWS)
    target = np.where(legal[state], rng.exponential(size=(ROWS, ACTIONS)), 0.0)
    rows = {
        "key": (state + OFFSET).astype(np.int32),
        "target": (target / target.sum(axis=1, keepdims=True)).astype(np.float32),
        "weight": rng.integers(1, 30, size=ROWS).astype(np.float32),
        "priority": np.zeros(ROWS, np.uint32),
    }
    return codec, rows


def own_shards(rows, layout, ranks):
    """Shards of this rank, and their numbers."""
    if layout == "one shard":
        return [(rows, 5 * ROWS)], [0]
    shards = [(take(rows, slice(a, b)), seen) for a, b, seen in zip(ENDS, ENDS[1:], SEEN, strict=False)]
    numbers = list(range(len(shards)))
    if layout == "own shards":
        numbers = numbers[ranks.rank :: ranks.size]
    elif layout == "overlapping":
        numbers = [n for n in numbers if n == 0 or n % ranks.size == ranks.rank]
    return [shards[n] for n in numbers], numbers


LAYOUTS = ["one shard", "all shards", "own shards", "overlapping"]
BATCHES = {"rows": STATES - 1, "merged minibatches": 64}


def regression_feed(ranks, kind, layout):
    codec, rows = state_rows()
    inputs = state_inputs(codec, CPU)
    if kind == "merged":
        merged = Merged(STATES, ACTIONS, OFFSET)
        merged.add(rows)
        return MergedFeed(merged, inputs, 2.0, CPU, ranks)
    shards, numbers = own_shards(rows, layout, ranks)
    return UniformFeed(shards, inputs, BATCHES[kind], 2.0, CPU, ranks, numbers)


def regression_learner(loss):
    settings = OptimiserSettings(1e-3, 1.0, decay=True)
    return RegressionLearner(NetworkSpec(FEATURES, ACTIONS, (32, 32), True), getattr(losses, loss), settings, CPU)


def regression(ranks, kind, layout, loss, steps, faulty=lambda feed: feed):
    """Two fits, the second from where the first stands: parameters and metrics."""
    learner, feed = regression_learner(loss), faulty(regression_feed(ranks, kind, layout))
    learner.fit(feed, 20, 4, fresh=True)
    return learner.fit(feed, steps, 5, fresh=False)


def transitions():
    rng = np.random.default_rng(4)
    views = [rng.standard_normal((n, 4)).astype(np.float32) for n in (6, 9)]
    view = np.stack([rng.integers(len(v), size=HISTORIES) for v in views], axis=1).astype(np.int32)
    player, state = np.zeros(HISTORIES, np.int8), np.arange(HISTORIES, dtype=np.int32)
    codec = TableHistoryCodec(*views, view, player, state, np.ones((HISTORIES, ACTIONS), np.bool_))
    rows = {
        "history": rng.integers(HISTORIES, size=ROWS).astype(np.int32),
        "action": rng.integers(ACTIONS, size=ROWS).astype(np.int16),
        "reward": rng.standard_normal(ROWS).astype(np.float32),
        "next_history": rng.integers(HISTORIES, size=ROWS).astype(np.int32),
        "terminal": rng.random(ROWS) < 0.5,
    }
    strategy = rng.dirichlet(np.ones(ACTIONS), size=HISTORIES)
    return codec, Transitions(rows, lambda keys: strategy[keys])


def baseline(ranks, kind, steps, seed=7):
    """A fit of the baseline: parameters and metrics."""
    codec, played = transitions()
    spec = NetworkSpec(8, ACTIONS, (32, 32))
    learner = BaselineLearner(spec, history_inputs(codec, CPU), OptimiserSettings(1e-3, 1.0), 2.0, CPU, ranks)
    learner.start(1)
    return learner.fit_merged(played, steps) if kind == "merged" else learner.fit(played, steps, 31, seed)


def every_fit(ranks):
    """All that real processes are asked for, in one go."""
    found = {
        f"{kind}, {layout}, {loss}": regression(ranks, kind, layout, loss, MANY)
        for kind, layout, loss in (
            ("rows", "own shards", "advantage_loss"),
            ("rows", "one shard", "average_mse_loss"),
            ("merged minibatches", "own shards", "average_mse_loss"),
            ("merged", "one shard", "average_cross_entropy_loss"),
        )
    }
    return found | {f"baseline, {kind}": baseline(ranks, kind, MANY) for kind in ("rows", "merged")}


def whole(layout):
    """The layout that gives one rank the same shards."""
    return layout if layout == "one shard" else "all shards"


def drawn_rows(layout, size, device):
    """Rows by the number in their weight, of ten minibatches of every rank."""
    _, rows = state_rows()
    numbered = rows | {"weight": np.arange(1, ROWS + 1, dtype=np.float32)}

    def numbers(ranks):
        shards, mine = own_shards(numbered, layout, ranks)
        draws, generator = Draws(shards, mine, device, ranks), torch.Generator(device).manual_seed(2)
        block = draws.draw(50, 10, generator)
        weights = np.concatenate([rows["weight"] for rows, _ in shards])[block.index.cpu()]
        return np.split(weights, np.cumsum(block.counts)[:-1])

    return in_threads(size, numbers) if size > 1 else [numbers(ALONE)]


def check_drawn_once(layout, size, device):
    """Each minibatch of one rank is that of the others together, row by row, as often as it was drawn."""
    (expected,) = drawn_rows(whole(layout), 1, device)
    parts = drawn_rows(layout, size, device)
    for number, minibatch in enumerate(expected):
        assert len(minibatch) == 50
        together = np.concatenate([part[number] for part in parts])
        np.testing.assert_array_equal(np.sort(together), np.sort(minibatch))
