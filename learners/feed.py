"""Rows to minibatches on the learner's device."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from buffers.merged import Merged
from buffers.rows import Rows
from learners.draws import Draws
from learners.inputs import StateInputs, TableStateInputs
from learners.ranks import ALONE, Ranks, agree, portion
from learners.streaming import Block, DeviceRows, Gathered, Resident, Source, Streamed, column_bytes, on_host

_NOTHING = "none of the {} rows to fit to has a positive weight; more traversals must be sampled first"
_AT_ONCE = 1 << 15  # rows that are gathered or merged at once, of as many minibatches as they make
_STREAMED_AT_ONCE = 1 << 18  # the same, where they come from host memory


@dataclass(frozen=True)
class RegressionBatch:
    """A minibatch of advantage or strategy rows, or this rank's part of it.

    Weights are such that the loss, a mean over the rows here, summed over the ranks is the mean over the whole
    minibatch of rows whose weights have mean 1 over all rows of the buffer.
    """

    features: Tensor  # f4[n, F]
    legal: Tensor  # f4[n, A]
    target: Tensor  # f4[n, A]
    weight: Tensor  # f4[n]


class RegressionFeed(Protocol):
    """Gives the minibatches of one fit."""

    @property
    def ranks(self) -> Ranks:
        """Who shares the minibatches, and so fits together."""

    def draw(self, generator: torch.Generator) -> RegressionBatch:
        """A minibatch of the rows, or this rank's part; uniform over them unless it is all of them."""


class UniformFeed:
    """Minibatches drawn with replacement, uniformly over all rows ever offered. Targets are divided by `scale`.

    `shards`: each shard's rows, on the host or on `device`, and the number it has seen. A shard is drawn in
    proportion to what it has seen, a row in it uniformly. Rows of one shard that lie on the device, as all do where
    that is the CPU, are not copied: they must not change while the feed is in use.

    Host rows of more than `resident_bytes` stay in host memory, uncopied; what minibatches need is sent to the
    device while earlier ones are fitted to. The minibatches are the same. None: there is room for all.

    With several `ranks`, `numbers` says which of all shards this rank has (by default all, as all others). Every
    rank draws the same minibatches, whoever has which shard, and evaluates the rows of its own shards; those of a
    shard that several have are dealt out to them in turn.

    Where a batch has at least as many rows as the game has information states, the rows of a state are merged: its
    mean target with the sum of its weights. The gradient is the batch's own, for one forward pass over the states;
    the loss lacks the scatter of a state's targets around their mean. Ranks sum what they merged, several
    minibatches at once, and split the states.
    Raises ValueError where no row has a weight, and where the ranks' shards do not fit together.
    """

    def __init__(
        self,
        shards: Sequence[tuple[Rows | DeviceRows, int]],
        inputs: StateInputs,
        batch: int,
        scale: float,
        device: torch.device,
        ranks: Ranks = ALONE,
        numbers: Sequence[int] | None = None,
        resident_bytes: int | None = None,
    ) -> None:
        self.ranks = ranks
        draws = Draws(shards, range(len(shards)) if numbers is None else numbers, device, ranks)
        if not draws.weight > 0.0:
            raise ValueError(_NOTHING.format(draws.rows))
        source = _source([rows for rows, _ in shards], device, resident_bytes)
        scales = 1.0 / scale, draws.seen / draws.weight
        self._minibatches = _Minibatches(draws, source, inputs, batch, *scales, ranks)
        self._generator: torch.Generator | None = None
        self._drawn: Iterator[RegressionBatch] = iter(())

    def draw(self, generator: torch.Generator) -> RegressionBatch:
        """`batch` rows, or the states that they belong to; several minibatches are drawn at once where that pays."""
        if generator is not self._generator:
            self._drawn, self._generator = self._minibatches.drawn(generator), generator
        return next(self._drawn)


@dataclass(frozen=True)
class _Minibatches:
    """What minibatches are made of. Apart from the feed: an iterator that the feed holds must not hold the feed."""

    draws: Draws
    source: Source
    inputs: StateInputs
    batch: int
    target_scale: float
    weight_scale: float
    ranks: Ranks

    def drawn(self, generator: torch.Generator) -> Iterator[RegressionBatch]:
        """One after the other, without end."""
        inputs = self.inputs
        table = inputs if isinstance(inputs, TableStateInputs) and len(inputs.features) <= self.batch else None
        for rows in self.source.gathered(self._blocks(generator, table is not None)):
            yield from self._apart(rows) if table is None else self._merge(table, rows)

    def _blocks(self, generator: torch.Generator, merging: bool) -> Iterator[Block]:
        """Many minibatches at once, unless one process has its rows at hand."""
        if merging:
            at_once = _AT_ONCE
        elif isinstance(self.source, Streamed):
            at_once = _STREAMED_AT_ONCE
        else:
            at_once = 1 if self.ranks.size == 1 else _AT_ONCE
        while True:
            yield self.draws.draw(self.batch, max(1, at_once // self.batch), generator, together=merging)

    def _apart(self, rows: Gathered) -> Iterator[RegressionBatch]:
        """Minibatches of single rows."""
        target, weight = rows.target * self.target_scale, rows.weight * self.weight_scale
        for own in zip(*(torch.split(column, rows.counts) for column in (rows.keys, target, weight)), strict=True):
            features, legal = self.inputs.read(own[0])
            # The loss divides by this rank's rows; the weights make that the whole minibatch's.
            yield RegressionBatch(features, legal, own[1], own[2] * (len(own[2]) / self.batch))

    def _merge(self, table: TableStateInputs, rows: Gathered) -> Iterator[RegressionBatch]:
        """Minibatches of states: one count over (minibatch, state) cells for all of them."""
        target, weight = rows.target * self.target_scale, rows.weight * self.weight_scale
        states, batches = len(table.features), len(rows.counts)
        cell = table.rows(rows.keys).long()
        number = torch.arange(batches, device=cell.device)
        cell += number.repeat_interleave(torch.tensor(rows.counts, device=cell.device), output_size=len(cell)) * states
        columns = weight, *(weight * column for column in target.unbind(1))
        # Of no rows at all, counts are integers.
        sums = torch.stack([torch.bincount(cell, each, batches * states).to(weight.dtype) for each in columns], dim=1)
        self.ranks.sum(sums)
        part = portion(self.ranks, states)
        features, legal = table.features[part], table.legal[part]
        own = sums.view(batches, states, -1)[:, part]
        means = own[:, :, 1:] / own[:, :, :1].clamp(min=1e-30)
        # The loss divides by this rank's states; the weights make that the whole minibatch's rows.
        weights = own[:, :, 0] * (len(features) / self.batch)
        for mean, each in zip(means.unbind(0), weights.unbind(0), strict=True):
            yield RegressionBatch(features, legal, mean, each)


class MergedFeed:
    """All rows at once, merged per information state: the exact gradient of the loss over every row ever.

    The loss itself lacks the scatter of the targets around their means. With several `ranks`, all have the same
    `merged` rows and split the information states. Raises ValueError where no row has a weight.
    """

    def __init__(
        self, merged: Merged, inputs: StateInputs, scale: float, device: torch.device, ranks: Ranks = ALONE
    ) -> None:
        self.ranks = ranks
        agree(ranks, rows=merged.seen)
        means, weights = merged.means()
        seen = np.flatnonzero(weights > 0.0)
        if not len(seen):
            raise ValueError(_NOTHING.format(merged.seen))
        total = weights[seen].sum()
        seen = seen[portion(ranks, len(seen))]
        keys = (seen + merged.offset).astype(np.int32)
        features, legal = inputs.read(keys)
        # The loss divides by this rank's rows; these weights make that the sum of all weights.
        weight = weights[seen] * (len(seen) / total)
        self._batch = RegressionBatch(
            features=features,
            legal=legal,
            target=torch.from_numpy((means[seen] / scale).astype(np.float32)).to(device),
            weight=torch.from_numpy(weight.astype(np.float32)).to(device),
        )

    def draw(self, generator: torch.Generator) -> RegressionBatch:
        """Every information state that has rows, of this rank's part."""
        return self._batch


def _source(shards: Sequence[Rows | DeviceRows], device: torch.device, resident_bytes: int | None) -> Source:
    if resident_bytes is None or column_bytes(shards) <= resident_bytes or not on_host(shards):
        return Resident(shards, device)
    return Streamed(shards, device)
