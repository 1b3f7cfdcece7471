"""Rows to minibatches on the learner's device."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from buffers.merged import Merged
from buffers.rows import Rows, concatenate, length
from learners.inputs import StateInputs, TableStateInputs

_NOTHING = "none of the {} rows to fit to has a positive weight; more traversals must be sampled first"
_AT_ONCE = 1 << 15  # rows that are merged at once, of as many minibatches as they make


@dataclass(frozen=True)
class RegressionBatch:
    """A minibatch of advantage or strategy rows; weights have mean 1 over all rows of the buffer."""

    features: Tensor  # f4[n, F]
    legal: Tensor  # f4[n, A]
    target: Tensor  # f4[n, A]
    weight: Tensor  # f4[n]


class RegressionFeed(Protocol):
    """Gives the minibatches of one fit."""

    def draw(self, generator: torch.Generator) -> RegressionBatch:
        """A minibatch of the rows; uniform over them unless it is all of them."""
        ...


class UniformFeed:
    """Minibatches drawn with replacement, uniformly over all rows ever offered. Targets are divided by `scale`.

    `shards`: each shard's rows and the number it has seen. A shard is drawn in proportion to what it has seen, a
    row in it uniformly. On the CPU the rows are not copied: they must not change while the feed is in use.

    Where a batch has at least as many rows as the game has information states, the rows of a state are merged: its
    mean target with the sum of its weights. The gradient is the batch's own, for one forward pass over the states;
    the loss lacks the scatter of a state's targets around their mean.
    Raises ValueError where no row has a weight.
    """

    def __init__(
        self,
        shards: Sequence[tuple[Rows, int]],
        inputs: StateInputs,
        batch: int,
        scale: float,
        device: torch.device,
    ) -> None:
        self._inputs = inputs
        self._batch = batch
        self._table = inputs if isinstance(inputs, TableStateInputs) and len(inputs.features) <= batch else None
        self._merged: list[RegressionBatch] = []
        self._generator: torch.Generator | None = None  # that drew them
        rows = shards[0][0] if len(shards) == 1 else concatenate([rows for rows, _ in shards])
        self._keys = resident(rows["key"], device)
        self._target = resident(rows["target"], device)
        self._weight = resident(rows["weight"], device)
        self._target_scale = 1.0 / scale
        sizes = np.array([length(rows) for rows, _ in shards])
        seen = np.array([seen for _, seen in shards], np.float64)
        means = [float(np.mean(rows["weight"], dtype=np.float64)) if length(rows) else 0.0 for rows, _ in shards]
        total = float(np.dot(seen, means))
        if not total > 0.0:
            raise ValueError(_NOTHING.format(int(sizes.sum())))
        self._weight_scale = float(seen.sum() / total)
        self._shares = None if len(shards) == 1 else torch.from_numpy(seen / seen.sum()).to(device)
        self._sizes = torch.from_numpy(sizes).to(device)
        self._first = torch.from_numpy(np.cumsum(sizes) - sizes).to(device)

    def draw(self, generator: torch.Generator) -> RegressionBatch:
        """`batch` rows, or the states that they belong to."""
        if self._table is not None:
            if not self._merged or generator is not self._generator:
                self._merged, self._generator = self._merge(self._table, generator), generator
            return self._merged.pop()
        keys, target, weight = self._rows(self._batch, generator)
        features, legal = self._inputs.read(keys)
        return RegressionBatch(features, legal, target, weight)

    def _rows(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Keys, targets and weights of `count` rows."""
        index = self._index(count, generator)
        target = self._target.index_select(0, index) * self._target_scale
        weight = self._weight.index_select(0, index) * self._weight_scale
        return self._keys.index_select(0, index), target, weight

    def _merge(self, table: TableStateInputs, generator: torch.Generator) -> list[RegressionBatch]:
        """Several minibatches at once, merged by state: one count over (minibatch, state) cells for all of them."""
        states, batches = len(table.features), max(1, _AT_ONCE // self._batch)
        keys, target, weight = self._rows(batches * self._batch, generator)
        cell = table.rows(keys).long()
        cell += torch.arange(batches, device=cell.device).repeat_interleave(self._batch) * states
        weights = torch.bincount(cell, weight, batches * states)
        sums = [torch.bincount(cell, weight * column, batches * states) for column in target.unbind(1)]
        means = torch.stack(sums, dim=1) / weights.clamp(min=1e-30)[:, None]
        # The loss divides by the number of states; these weights make that the number of rows.
        weights *= states / self._batch
        pairs = zip(torch.split(means.float(), states), torch.split(weights.float(), states), strict=True)
        drawn = [RegressionBatch(table.features, table.legal, each, own) for each, own in pairs]
        return drawn[::-1]  # to be taken from the end

    def _index(self, count: int, generator: torch.Generator) -> Tensor:
        device = self._keys.device
        if self._shares is None:
            return torch.randint(len(self._keys), (count,), generator=generator, device=device)
        shard = torch.multinomial(self._shares, count, replacement=True, generator=generator)
        place = torch.rand(count, generator=generator, device=device, dtype=torch.float64)
        return self._first[shard] + (place * self._sizes[shard]).long()


class MergedFeed:
    """All rows at once, merged per information state: the exact gradient of the loss over every row ever.

    The loss itself lacks the scatter of the targets around their means. Raises ValueError where no row has a
    weight.
    """

    def __init__(self, merged: Merged, inputs: StateInputs, scale: float, device: torch.device) -> None:
        means, weights = merged.means()
        seen = np.flatnonzero(weights > 0.0)
        if not len(seen):
            raise ValueError(_NOTHING.format(merged.seen))
        keys = (seen + merged.offset).astype(np.int32)
        features, legal = inputs.read(keys)
        # The loss divides by the number of rows; these weights make that the sum of all weights.
        weight = weights[seen] * (len(seen) / weights[seen].sum())
        self._batch = RegressionBatch(
            features=features,
            legal=legal,
            target=torch.from_numpy((means[seen] / scale).astype(np.float32)).to(device),
            weight=torch.from_numpy(weight.astype(np.float32)).to(device),
        )

    def draw(self, generator: torch.Generator) -> RegressionBatch:
        """Every information state that has rows."""
        return self._batch


def resident(column: NDArray[Any], device: torch.device) -> Tensor:
    """A column on the device: the buffer's own memory where the device is the CPU."""
    return torch.from_numpy(column).to(device)
