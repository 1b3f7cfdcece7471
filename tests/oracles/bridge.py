"""From the product's tables over numbered information states to the textbook's dicts by name, and back."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from oracles import python_games, textbook

from actors.games.registry import load as load_game
from actors.games.tree import TreeGame


@dataclass
class Case:
    """One game twice: the product's tree and the textbook's nodes."""

    game: TreeGame
    root: textbook.Node
    nodes: list[textbook.Node]

    @property
    def num_actions(self):
        return self.game.description.num_actions

    @property
    def keys(self):
        """(player, name) of every information state, in the product's order."""
        split = self.game.arrays.num_states[0]
        return [(int(k >= split), name) for k, name in enumerate(self.game.arrays.names)]

    def policy(self, table):
        return dict(zip(self.keys, np.asarray(table), strict=True))

    def table(self, policy):
        return np.stack([policy[key] for key in self.keys])

    def regrets(self, table, player):
        """(r [S, A], pi_{-i} [S], pi_i [S]) of `player` by the textbook; 0 at the other player's states."""
        found = textbook.regrets(self.root, self.policy(table), player, self.num_actions)
        empty = (np.zeros(self.num_actions), 0.0, 0.0)
        rows = [found.get(key, empty) for key in self.keys]
        r, others, own = zip(*rows, strict=True)
        return np.stack(r), np.array(others), np.array(own)

    def history_values(self, table):
        return textbook.history_values(self.root, self.policy(table), self.num_actions)


@cache
def case(name):
    """The game called `name`; cached, since tests share it and none changes it."""
    python_games.register()
    game = load_game(name, "tree")
    return Case(game, *textbook.game_tree(textbook.load(game.description.game_string)))


def random_table(game, rng, pure=0.0):
    """[S, A] strategies uniform on the simplex, mixed with a little of everything; a share `pure` of them pure."""
    legal = game.arrays.legal
    weights = np.where(legal, rng.exponential(size=legal.shape) + 0.1, 0.0)
    best = weights.argmax(axis=1)
    chosen = rng.random(len(legal)) < pure
    weights[chosen] = 0.0
    weights[np.flatnonzero(chosen), best[chosen]] = 1.0
    return weights / weights.sum(axis=1, keepdims=True)
