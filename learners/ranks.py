"""Processes that fit one network together: every rank evaluates its part of a minibatch, the gradients are summed.

All ranks start from the same weights, draw the same minibatches and take the same steps, so that one sum per step
keeps their weights equal bit for bit.
"""

from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed import FileStore, Store, TCPStore  # type: ignore[attr-defined]

TIMEOUT_SECONDS: Final = 300.0


class LostRankError(RuntimeError):
    """Another rank ended, or did not come to a sum in time: the fit cannot go on."""


class Ranks(Protocol):
    """Who fits together; this process is number `rank` of `size`."""

    @property
    def rank(self) -> int:
        """0 to size - 1."""

    @property
    def size(self) -> int:
        """Number of processes."""

    @property
    def device(self) -> torch.device:
        """Where tensors lie that are summed."""

    def sum(self, tensor: Tensor) -> None:
        """Replaces `tensor`, of the same shape on every rank, by its sum over the ranks: everywhere the same bits.

        Raises LostRankError.
        """


class Alone:
    """One process: it has the whole minibatch, and nothing to sum."""

    rank: int = 0
    size: int = 1
    device = torch.device("cpu")

    def sum(self, tensor: Tensor) -> None:
        """Nothing to do."""


ALONE: Final = Alone()


def listen(host: str, size: int, timeout_seconds: float = TIMEOUT_SECONDS) -> tuple[TCPStore, str]:
    """Rank 0 opens a meeting place on a free port of `host`: what it joins with, and the others' `tcp://host:port`."""
    wait = timedelta(seconds=timeout_seconds)
    store = TCPStore(host, 0, size, is_master=True, timeout=wait, wait_for_workers=False)
    return store, f"tcp://{f'[{host}]' if ':' in host else host}:{store.port}"


class ProcessGroup:
    """Ranks joined by torch.distributed: NCCL where `device` is a CUDA device, else gloo. Close it, or use `with`.

    `rendezvous`: a store, or where all ranks meet, `tcp://host:port` (rank 0 listens there) or `file:///path` (a
    file that all can write and that is not there yet). Waits for the others, `timeout_seconds` at most, as does
    every sum. A process belongs to one group at a time. Gloo listens at the address of the host's own name; where that
    is not one that others reach, GLOO_SOCKET_IFNAME names the network interface to use.
    Raises ValueError for a rank or rendezvous that cannot be, LostRankError where the others do not come.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        rendezvous: str | Store,
        device: torch.device,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"rank is {rank} of {size}; it must be 0 to {size - 1}")
        if dist.is_initialized():
            raise ValueError("this process belongs to a group of ranks already; close that one first")
        self.rank, self.size, self.device = rank, size, device
        self._timeout_seconds = timeout_seconds
        wait = timedelta(seconds=timeout_seconds)
        backend = "nccl" if device.type == "cuda" else "gloo"
        try:
            store = _store(rank, size, rendezvous, wait) if isinstance(rendezvous, str) else rendezvous
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=wait)
        except RuntimeError as error:
            raise self._lost(error) from error
        self._joined = True

    def sum(self, tensor: Tensor) -> None:
        """One all-reduce."""
        try:
            dist.all_reduce(tensor)
        except RuntimeError as error:
            raise self._lost(error) from error

    def close(self) -> None:
        """Leaves the group; ranks that still wait for this one get a LostRankError."""
        if self._joined:
            self._joined = False
            dist.destroy_process_group()

    def __enter__(self) -> "ProcessGroup":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lost(self, error: RuntimeError) -> LostRankError:
        first = str(error).strip().splitlines()[0]
        return LostRankError(
            f"rank {self.rank} of {self.size}: another rank ended or did not come within "
            f"{self._timeout_seconds:g} seconds ({first})"
        )


def _store(rank: int, size: int, rendezvous: str, wait: timedelta) -> Store:
    parts = urlsplit(rendezvous)
    if parts.scheme == "tcp" and parts.hostname and parts.port:
        return TCPStore(parts.hostname, parts.port, size, is_master=rank == 0, timeout=wait)
    if parts.scheme == "file" and parts.path and not parts.netloc:
        store = FileStore(parts.path, size)
        store.set_timeout(wait)
        return store
    raise ValueError(f"rendezvous is {rendezvous!r}; it must be tcp://host:port or file:///path")


def portion(ranks: Ranks, count: int) -> slice:
    """The part of this rank of `count` things that all ranks have in the same order: equal to within one."""
    return slice(ranks.rank * count // ranks.size, (ranks.rank + 1) * count // ranks.size)


def shards_of(rank: int, size: int, shards: int) -> list[int]:
    """The shards that a rank should have, so that all ranks have equally much to do.

    Each has its own, as many as others; those left over, fewer than ranks, are everyone's, who take turns in them.
    """
    shared = shards - shards % size
    return [*range(rank, shared, size), *range(shared, shards)]


def gather(ranks: Ranks, values: NDArray[Any]) -> NDArray[Any]:
    """Everyone's `values` [n, ...], n each rank's own, one rank after the other; the same on every rank."""
    if ranks.size == 1:
        return values
    counts = np.zeros(ranks.size, np.int64)
    counts[ranks.rank] = len(values)
    ends = np.cumsum(_summed(ranks, counts))
    everyones = np.zeros((ends[-1], *values.shape[1:]), values.dtype)
    everyones[ends[ranks.rank] - len(values) : ends[ranks.rank]] = values
    return _summed(ranks, everyones)


def _summed(ranks: Ranks, values: NDArray[Any]) -> NDArray[Any]:
    tensor = torch.from_numpy(values).to(ranks.device)
    ranks.sum(tensor)
    return tensor.cpu().numpy()


def agree(ranks: Ranks, **values: int) -> None:
    """Raises ValueError unless every rank calls this with the same values, by whose names it says what differs."""
    if ranks.size == 1:
        return
    everyones = gather(ranks, np.array([list(values.values())], np.int64))
    for name, given in zip(values, everyones.T, strict=True):
        if (given != given[0]).any():
            raise ValueError(
                f"{name} must be the same on every rank; ranks 0 to {ranks.size - 1} have {given.tolist()}"
            )
