"""Which rows a minibatch has: drawn alike by all ranks, each of which keeps those that it has."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from buffers.rows import Rows
from learners.ranks import Ranks, gather
from learners.streaming import Block, DeviceRows


class Draws:
    """Draws rows with replacement, uniformly over all rows ever offered to all ranks' shards.

    A shard is drawn in proportion to what it has seen, a row in it uniformly. Which rows are drawn depends on the
    shards' numbers, not on which rank has which; every row drawn belongs to one rank: those that have its shard
    take turns in each minibatch.
    `rows`: held by all shards; `seen`: ever offered to them; `weight`: of all these, estimated from those held.
    Raises ValueError where shards are missing, or differ between ranks that have the same one.
    """

    def __init__(
        self,
        shards: Sequence[tuple[Rows | DeviceRows, int]],
        numbers: Sequence[int],
        device: torch.device,
        ranks: Ranks,
    ) -> None:
        own_sizes = np.array([len(rows["weight"]) for rows, _ in shards], np.int64)
        means = [_mean(rows["weight"]) if len(rows["weight"]) else 0.0 for rows, _ in shards]
        columns = [numbers, own_sizes, [seen for _, seen in shards], means, [ranks.rank] * len(shards)]
        everyones = gather(ranks, np.array(columns, np.float64).T.copy())
        number, _, _, _, rank = everyones.T
        _check(everyones, ranks)
        _, first, holders = np.unique(number, return_index=True, return_counts=True)
        _, sizes, seen, weights, _ = everyones[first].T
        self.rows, self.seen, self.weight = int(sizes.sum()), float(seen.sum()), float(np.dot(seen, weights))
        self._shares = None
        if len(seen) > 1:
            self._shares = torch.from_numpy(seen / max(self.seen, 1.0)).to(device)
        self._device = device
        self._sizes = torch.from_numpy(sizes.astype(np.int64)).to(device)
        # Of every shard: its first row among this rank's rows, how many ranks have it, whose turn this rank's is.
        starts, turn = np.zeros(len(sizes), np.int64), np.full(len(sizes), -1)
        own = np.asarray(numbers, np.int64)
        starts[own] = np.cumsum(own_sizes) - own_sizes
        turn[own] = [np.count_nonzero((number == each) & (rank < ranks.rank)) for each in own]
        self._first, self._holders, self._turn = (torch.from_numpy(a).to(device) for a in (starts, holders, turn))
        self._all_mine = ranks.size == 1

    def draw(self, batch: int, minibatches: int, generator: torch.Generator, together: bool = False) -> Block:
        """The rows of the next minibatches among those of this rank, its shards laid end to end.

        `together`: the numbers of all are drawn in one call, which gives others than a call for each.
        """
        calls = (1, minibatches * batch) if together else (minibatches, batch)
        drawn = [self._one(calls[1], generator) for _ in range(calls[0])]
        slot = torch.cat([slot for _, slot in drawn])
        # A number where there is one shard: a tensor of it would be waited for on a CUDA device.
        shard = 0 if self._shares is None else torch.cat([shard for shard, _ in drawn if shard is not None])
        if self._all_mine:
            return Block(self._first[shard] + slot, [batch] * minibatches)
        # By the place in the minibatch: ranks may draw different numbers of minibatches at once.
        place = torch.arange(batch, device=self._device).repeat(minibatches)
        mine = torch.nonzero(place % self._holders[shard] == self._turn[shard])[:, 0]
        counts = torch.bincount(mine // batch, minlength=minibatches).tolist()
        return Block((self._first[shard] + slot).index_select(0, mine), counts)

    def _one(self, count: int, generator: torch.Generator) -> tuple[Tensor | None, Tensor]:
        """Shards (None where there is one alone) and slots in them, i8[count] each."""
        if self._shares is None:
            slot = torch.randint(self.rows, (count,), generator=generator, device=self._device)
            return None, slot
        shard = torch.multinomial(self._shares, count, replacement=True, generator=generator)
        place = torch.rand(count, generator=generator, device=self._device, dtype=torch.float64)
        return shard, (place * self._sizes[shard]).long()


def _mean(weight: NDArray[Any] | Tensor) -> float:
    if isinstance(weight, Tensor):
        if weight.is_cuda:
            return float(weight.mean(dtype=torch.float64))
        weight = weight.numpy()
    return float(np.mean(weight, dtype=np.float64))


def _check(everyones: NDArray[np.float64], ranks: Ranks) -> None:
    """Raises ValueError unless there is one size and number of rows seen for each number from 0."""
    number = everyones[:, 0]
    present = np.unique(number)
    if not np.array_equal(present, np.arange(len(present))):
        raise ValueError(
            f"the ranks have the shards {present.astype(int).tolist()}; they must be 0, 1, ..., none left out"
        )
    if len(np.unique(everyones[:, [0, 4]], axis=0)) < len(everyones):
        raise ValueError(f"shards are numbered {number.astype(int).tolist()}; a rank may have each once")
    kinds, count = np.unique(np.unique(everyones[:, :3], axis=0)[:, 0], return_counts=True)
    if (count > 1).any():
        raise ValueError(
            f"shard {int(kinds[count > 1][0])} differs between the {ranks.size} ranks: those that have it must have "
            "its rows of the same moment"
        )
