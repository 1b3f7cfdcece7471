"""Chunks: the unit of sampling work. Their identity, not who did them, decides what happens to their rows."""

from typing import NamedTuple


class ChunkId(NamedTuple):
    """Identity of a chunk: iteration from 1, traversing player, index from 0 within both."""

    iteration: int
    player: int
    index: int  # type: ignore[assignment]  # hides a method of tuple that nobody needs


class Chunk(NamedTuple):
    """Traversals `first` to `first + count - 1` of an iteration and player."""

    id: ChunkId
    first: int
    count: int  # type: ignore[assignment]  # hides a method of tuple that nobody needs


def plan(iteration: int, player: int, traversals: int, chunk: int) -> list[Chunk]:
    """Cuts `traversals` into chunks of `chunk` (the last may be smaller); raises ValueError when below 1."""
    if traversals < 1 or chunk < 1:
        raise ValueError(f"traversals is {traversals} and chunk is {chunk}; both must be 1 or more")
    return [
        Chunk(ChunkId(iteration, player, index), first, min(chunk, traversals - first))
        for index, first in enumerate(range(0, traversals, chunk))
    ]
