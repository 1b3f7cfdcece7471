"""An enumerated game as the compiled loops read it, and their flat tables as tables [S, A]."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from actors.games.tree import TreeGame
from actors.games.tree_arrays import TreeArrays
from dream.laboratory.kernels.arrays import Forest, Tree

Flat = NDArray[np.float64]  # [K] one entry per slot
Table = NDArray[np.float64]  # [S, A]


@dataclass(frozen=True)
class FlatGame:
    """One game for many runs. `slot` [S, A] is each legal action's slot; `nodes` the number of histories."""

    game: TreeGame
    tree: Tree
    slot: NDArray[np.int64]

    @classmethod
    def build(cls, game: TreeGame) -> "FlatGame":
        """Read off the slots and the chance law."""
        arrays = game.arrays
        offset = np.r_[0, np.cumsum(arrays.legal.sum(axis=1))].astype(np.int32)
        row = np.where(arrays.player >= 0, arrays.state, arrays.chance).astype(np.int32)
        cdf = np.ascontiguousarray(arrays.cdf, np.float64)
        tree = Tree(
            player=arrays.player,
            first_child=arrays.first_child,
            row=row,
            payoff=arrays.payoff,
            offset=offset,
            cdf=cdf,
            law=_law(cdf),
        )
        return cls(game, tree, offset[:-1, None].astype(np.int64) + arrays.rank)

    @property
    def states(self) -> int:
        """Number of information states."""
        return len(self.tree.offset) - 1

    @property
    def slots(self) -> int:
        """Number of slots K."""
        return int(self.tree.offset[-1])

    @property
    def nodes(self) -> int:
        """Number of histories."""
        return len(self.tree.player)

    @cached_property
    def most_actions(self) -> int:
        """Largest number of legal actions."""
        return int(np.diff(self.tree.offset).max())

    @cached_property
    def depth(self) -> int:
        """Nodes on the longest path."""
        start, stop, levels = 0, 1, 0
        counts = _children(self.game.arrays)
        while stop > start:
            start, stop, levels = stop, stop + int(counts[start:stop].sum()), levels + 1
        return levels

    @cached_property
    def chance_nodes(self) -> NDArray[np.uint64]:
        """[C] node numbers: the identities under which `actors.sampling.chance` counts draws."""
        chance = self.game.arrays.chance
        at = np.flatnonzero(chance >= 0)
        nodes = np.empty(len(at), np.uint64)
        nodes[chance[at]] = at
        return nodes

    @cached_property
    def forest(self) -> Forest:
        """Both players' sequences, terminals merged."""
        sequences, arrays = self.game.sequences, self.game.arrays
        width = arrays.legal.shape[1]
        to_slot = np.r_[self.slot.reshape(-1), self.slots]
        ends = to_slot[sequences.terminal_sequence]
        pairs, inverse = np.unique(ends[:, 0] * (self.slots + 1) + ends[:, 1], return_inverse=True)
        payoff = np.bincount(inverse, weights=sequences.terminal_payoff, minlength=len(pairs))
        assert len(to_slot) == self.states * width + 1
        return Forest(
            offset=self.tree.offset,
            parent=to_slot[sequences.parent].astype(np.int32),
            order0=np.concatenate(sequences.levels[0]).astype(np.int32),
            order1=np.concatenate(sequences.levels[1]).astype(np.int32),
            slot0=(pairs // (self.slots + 1)).astype(np.int32),
            slot1=(pairs % (self.slots + 1)).astype(np.int32),
            payoff=payoff.astype(np.float64),
        )

    def uniform(self) -> Flat:
        """[K] the uniform strategy."""
        counts = np.diff(self.tree.offset)
        return np.repeat(1.0 / counts, counts)

    def flat(self, table: Table) -> Flat:
        """[K] the legal entries of `table` [S, A]."""
        legal = self.game.arrays.legal
        flat = np.empty(self.slots)
        flat[self.slot[legal]] = table[legal]
        return flat

    def table(self, flat: Flat) -> Table:
        """[S, A] with 0 at illegal actions."""
        legal = self.game.arrays.legal
        table = np.zeros(legal.shape)
        table[legal] = flat[self.slot[legal]]
        return table

    def normalised(self, flat: Flat) -> Table:
        """[S, A] each state's entries divided by their sum; uniform where that is 0."""
        counts = np.diff(self.tree.offset)
        sums = np.add.reduceat(flat, self.tree.offset[:-1])
        safe = np.repeat(np.where(sums > 0.0, sums, 1.0), counts)
        return self.table(np.where(np.repeat(sums > 0.0, counts), flat / safe, self.uniform()))


def _law(cdf: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities from the cumulative law, whose entries from the last outcome on are 2."""
    steps = np.diff(np.minimum(cdf, 1.0), prepend=0.0, axis=1)
    return np.ascontiguousarray(steps)


def _children(arrays: TreeArrays) -> NDArray[np.int64]:
    """[N] number of children."""
    inner = np.flatnonzero(arrays.first_child >= 0)
    counts = np.zeros(arrays.nodes, np.int64)
    counts[inner] = np.diff(np.r_[arrays.first_child[inner], arrays.nodes])
    return counts
