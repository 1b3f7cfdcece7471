"""Where the rows of minibatches come from: tensors on the device, or host memory through which blocks are streamed."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from buffers.rows import Rows

COLUMNS = ("key", "target", "weight")
"""What a fit reads of advantage and strategy rows."""

DeviceRows = dict[str, Tensor]
"""Rows that lie on a device already: columns by name."""


@dataclass(frozen=True)
class Block:
    """Rows to be gathered for several minibatches: their index i8[n] into all rows, and how many for each."""

    index: Tensor
    counts: list[int]


@dataclass(frozen=True)
class Gathered:
    """A block's rows on the device: keys, targets f4[n, A], weights f4[n]."""

    keys: Tensor
    target: Tensor
    weight: Tensor
    counts: list[int]


class Source(Protocol):
    """Rows of a rank's shards, laid end to end."""

    def gathered(self, blocks: Iterator[Block]) -> Iterator[Gathered]:
        """The rows of `blocks`, which has no end, one block after the other."""
        ...


class Resident:
    """Rows on the device: gathered there. Several shards are joined, one is used where it lies."""

    def __init__(self, shards: Sequence[Rows | DeviceRows], device: torch.device) -> None:
        columns = ([on_device(rows[name], device) for rows in shards] for name in COLUMNS)
        self.keys, self.target, self.weight = (one[0] if len(one) == 1 else torch.cat(one) for one in columns)

    def gathered(self, blocks: Iterator[Block]) -> Iterator[Gathered]:
        """Block by block, as asked for."""
        for block in blocks:
            keys, target, weight = (c.index_select(0, block.index) for c in (self.keys, self.target, self.weight))
            yield Gathered(keys, target, weight, block.counts)


class Streamed:
    """Rows in host memory, never joined. While one block is used, a thread gathers the next and sends it after.

    To a CUDA device it goes from pinned memory, on a stream of its own: the copy runs beside the steps.
    """

    def __init__(self, shards: Sequence[Rows], device: torch.device) -> None:
        self._shards = [{name: torch.from_numpy(rows[name]) for name in COLUMNS} for rows in shards]
        ends = np.cumsum([len(rows["weight"]) for rows in shards])
        self._ends = torch.from_numpy(ends)
        self._starts = [0, *ends[:-1].tolist()]
        self._device = device
        self._copying = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def gathered(self, blocks: Iterator[Block]) -> Iterator[Gathered]:
        """One block ahead of what is asked for."""
        with ThreadPoolExecutor(1) as ahead:

            def start() -> "Future[tuple[Gathered, torch.cuda.Event | None]]":
                block = next(blocks)
                return ahead.submit(self._send, block.index.cpu(), block.counts)

            following = start()
            while True:
                current, following = following, start()
                rows, sent = current.result()
                if sent is not None:
                    here = torch.cuda.current_stream(self._device)
                    here.wait_event(sent)
                    for column in (rows.keys, rows.target, rows.weight):
                        column.record_stream(here)  # not to be used again before the steps are done with it
                yield rows

    def _send(self, index: Tensor, counts: list[int]) -> "tuple[Gathered, torch.cuda.Event | None]":
        shard = torch.bucketize(index, self._ends, right=True)
        places = [torch.nonzero(shard == number)[:, 0] for number in range(len(self._shards))]
        slots = [index[place] - start for place, start in zip(places, self._starts, strict=True)]
        host = [self._gather(name, places, slots, len(index)) for name in COLUMNS]
        with torch.cuda.stream(self._copying):  # none on a CPU: then this does nothing, and so do the copies
            keys, target, weight = (column.to(self._device, non_blocking=True) for column in host)
            sent = None if self._copying is None else self._copying.record_event()
        return Gathered(keys, target, weight, counts), sent

    def _gather(self, name: str, places: list[Tensor], slots: list[Tensor], count: int) -> Tensor:
        first = self._shards[0][name]
        found = torch.empty((count, *first.shape[1:]), dtype=first.dtype, pin_memory=self._copying is not None)
        for rows, place, slot in zip(self._shards, places, slots, strict=True):
            found.index_copy_(0, place, rows[name].index_select(0, slot))
        return found


def on_device(column: NDArray[Any] | Tensor, device: torch.device) -> Tensor:
    """A column on the device: the buffer's own memory where it lies there already."""
    return (column if isinstance(column, Tensor) else torch.from_numpy(column)).to(device)


def on_host(shards: Sequence[Rows | DeviceRows]) -> TypeGuard[Sequence[Rows]]:
    """Whether none of the rows lies on a device already."""
    return all(isinstance(rows["weight"], np.ndarray) for rows in shards)


def column_bytes(shards: Sequence[Rows | DeviceRows]) -> int:
    """Bytes of what a fit reads of `shards`."""
    return sum(rows[name].nbytes for rows in shards for name in COLUMNS)


def free_bytes(device: torch.device, reserve_bytes: int) -> int | None:
    """Bytes that rows may take on a device now, `reserve_bytes` left for networks and steps; None: no limit (CPU)."""
    if device.type != "cuda":
        return None
    return max(0, torch.cuda.mem_get_info(device)[0] - reserve_bytes)
