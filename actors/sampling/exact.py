"""Full-width traversals of an enumerated game: the rows that sampling estimates, without the noise.

One row per information state that the others reach: target v(h, a) - v(h) averaged over its histories, weight
t * pi_{-i}(I). A table fitted to them is Linear CFR; a network fitted to them shows the network's faults alone.
"""

from dataclasses import dataclass

import numpy as np

from actors.games.tree import TreeGame
from actors.sampling import lanes
from actors.sampling.chance import ChanceStreams
from actors.sampling.traversals import Traversals, regression_rows
from actors.strategies.strategy import Profile, TableProfile


@dataclass(frozen=True)
class ExactSampler:
    """Every history once, whatever the number of traversals asked for.

    `double`: advantage rows hold float64, for buffers that add rows up (`buffers.merged`); a reservoir takes float32.
    """

    game: TreeGame
    keep_strategy: bool = False
    double: bool = False

    def sample(
        self, iteration: int, traverser: int, keys: lanes.Keys, profile: Profile, streams: ChanceStreams
    ) -> Traversals:
        """Rows of all reachable information states of `traverser` under `profile` (a `TableProfile`)."""
        if not isinstance(profile, TableProfile):
            raise TypeError("exact sampling needs a table profile of an enumerated game")
        game, forms = self.game, self.game.sequences
        q, v = forms.counterfactual_values(profile.table)
        reach = forms.opponent_reach(profile.table)
        own = np.arange(game.num_states)[game.states_of(traverser)]
        own = own[reach[own] > 0.0]
        advantages = np.where(forms.legal[own], q[own] - v[own, None], 0.0) / reach[own, None]
        # Priorities of rows made in one piece: the first traversal's key, a child per information state.
        row_keys = lanes.child(np.repeat(keys[:1], len(own)), own)
        strategy = None
        if self.keep_strategy:
            other = np.arange(game.num_states)[game.states_of(1 - traverser)]
            weight = iteration * forms.own_reach(profile.table)[other]
            other_keys = lanes.child(np.repeat(keys[:1], len(other)), other)
            strategy = regression_rows(other.astype(np.int32), profile.table[other], weight, other_keys)
        rows = regression_rows(own.astype(np.int32), advantages, iteration * reach[own], row_keys)
        if self.double:
            rows |= {"target": advantages, "weight": iteration * reach[own]}
        return Traversals(
            advantage=rows,
            strategy=strategy,
            transitions=None,
            states=int((game.arrays.player != -1).sum()),
        )
