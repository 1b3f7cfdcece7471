"""The tree backend: a game enumerated once into flat arrays. A state is an int32 node number."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from actors.games.description import GameDescription, digest
from actors.games.sequence_form import SequenceForm
from actors.games.tree_arrays import TreeArrays
from buffers.packing import TableHistoryCodec, TableStateCodec, scaled
from buffers.rows import Column


class TreeGame:
    """A game whose every history is known: exact tables, exact values."""

    def __init__(self, description: GameDescription, arrays: TreeArrays) -> None:
        self._description = description
        self.arrays = arrays
        first = arrays.num_states[0]
        self.offsets = (0, first)
        self._views = (scaled(arrays.views[0]), scaled(arrays.views[1]))
        self.sequences = SequenceForm.build(arrays)

    @property
    def description(self) -> GameDescription:
        """What the game is, in numbers."""
        return self._description

    @property
    def fingerprint(self) -> str:
        """Digest of the tree: of its shape, its information states and what they show."""
        arrays = self.arrays
        return digest(arrays.player, arrays.first_child, arrays.state, arrays.legal, *arrays.views)

    @property
    def state_column(self) -> Column:
        """An information state is one int32."""
        return Column("key", np.dtype(np.int32))

    @property
    def history_column(self) -> Column:
        """A history at a decision is one int32: its row among the decision nodes."""
        return Column("history", np.dtype(np.int32))

    @property
    def num_states(self) -> int:
        """Number of information states of both players."""
        return len(self.arrays.legal)

    @property
    def num_histories(self) -> int:
        """Number of decision nodes of both players."""
        return len(self.arrays.view)

    def states_of(self, player: int) -> slice:
        """The numbers of `player`'s information states."""
        return slice(self.offsets[player], self.offsets[player] + self.arrays.num_states[player])

    def start(self, count: int) -> "TreeBatch":
        """`count` lanes at the root."""
        return TreeBatch(self.arrays, np.zeros(count, np.int32))

    def state_codec(self, player: int) -> TableStateCodec:
        """Information-state numbers to normalised tensors [n, F] and legal masks [n, A]."""
        own = self.states_of(player)
        features = self._views[player][self.arrays.state_view[own]]
        return TableStateCodec(features=features, legal=self.arrays.legal[own], offset=own.start)

    def history_codec(self) -> TableHistoryCodec:
        """Decision rows to both players' normalised tensors [n, F0 + F1]."""
        return self._history_codec

    @cached_property
    def _history_codec(self) -> TableHistoryCodec:
        arrays = self.arrays
        at = np.flatnonzero(arrays.decision >= 0)
        return TableHistoryCodec(
            views0=self._views[0],
            views1=self._views[1],
            view=arrays.view,
            player=arrays.player[at],
            state=arrays.state[at],
            legal=arrays.legal[arrays.state[at]],
        )


class TreeBatch:
    """Lanes of a `TreeGame`: a vector of node numbers."""

    def __init__(self, arrays: TreeArrays, node: NDArray[np.int32]) -> None:
        self._arrays = arrays
        self.node = node

    @property
    def player(self) -> NDArray[np.int8]:
        """[n] who acts."""
        return self._arrays.player.take(self.node)

    def __len__(self) -> int:
        return len(self.node)

    def information_state(self) -> NDArray[np.int32]:
        """[n] numbers of the information states."""
        return self._arrays.state.take(self.node)

    def legal(self) -> NDArray[np.bool_]:
        """[n, A] legal masks."""
        return self._arrays.legal.take(self._arrays.state.take(self.node), axis=0)

    def history(self) -> NDArray[np.int32]:
        """[n] rows among the decision nodes."""
        return self._arrays.decision.take(self.node)

    def returns(self) -> NDArray[np.float64]:
        """[n] player 0's payoff in chips, 0 where not terminal."""
        return self._arrays.payoff.take(self.node)

    def step(self, actions: NDArray[np.int64]) -> None:
        """Play `actions` [n] at every lane."""
        arrays = self._arrays
        sequence = arrays.state.take(self.node) * np.int64(arrays.rank.shape[1]) + actions
        self.node = arrays.first_child.take(self.node) + arrays.rank.reshape(-1).take(sequence)

    def chance_nodes(self, index: NDArray[np.int64]) -> NDArray[np.uint64]:
        """[m] node numbers."""
        return self.node[index].astype(np.uint64)

    def step_chance(self, index: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw the outcomes of the chance lanes `index` by inverse CDF; returns their ordinals [m]."""
        arrays = self._arrays
        node = self.node.take(index)
        ordinal: NDArray[np.int64] = (arrays.cdf.take(arrays.chance.take(node), axis=0) <= uniforms[:, None]).sum(
            axis=1
        )
        self.node[index] = arrays.first_child[node] + ordinal
        return ordinal

    def take(self, index: NDArray[np.int64]) -> "TreeBatch":
        """Select and repeat lanes."""
        return TreeBatch(self._arrays, self.node.take(index))
