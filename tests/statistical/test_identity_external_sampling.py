"""Identity 3: external sampling is unbiased, and its rows appear with frequency pi_{-i}(I).

n = 60,000 traversals per case in Kuhn and the Python game, 60,000 in Leduc; false-alarm rate 1e-6 per case. A bias of
the advantage of one state's action is detected from about 0.05 chips on in Kuhn and 1 chip in Leduc (medians).
"""

import numpy as np
import pytest
from oracles import python_games
from oracles.bridge import case, random_table
from oracles.estimates import check_means

from actors.games.tree import TreeBatch
from actors.sampling import lanes
from actors.sampling.chance import Iid
from actors.sampling.external import ExternalSampler
from actors.strategies.strategy import TableProfile

TRAVERSALS = {"kuhn": 60_000, "leduc": 60_000, python_games.SECRET: 60_000}
ITERATION = 4


class Setting:
    """A fixed strategy, a fifth of its states pure."""

    def __init__(self, name, traverser):
        self.case, self.traverser, self.n = case(name), traverser, TRAVERSALS[name]
        self.strategy = random_table(self.case.game, np.random.default_rng(12), pure=0.2)

    def rows(self, strategy=None):
        table = self.strategy if strategy is None else strategy
        keys = lanes.start(6, ITERATION, self.traverser, 0, self.n)
        sampler = ExternalSampler(self.case.game, keep_strategy=True)
        return sampler.sample(ITERATION, self.traverser, keys, TableProfile(table), Iid())

    def check(self, rows):
        """Mean of weight * r~ is t * r(I, a), and of the weights t * pi_{-i}(I)."""
        r, others, _ = self.case.regrets(self.strategy, self.traverser)
        weight = rows["weight"].astype(np.float64)[:, None]
        visits = self.n * others
        tested = check_means(rows["key"], weight * rows["target"], ITERATION * r, self.n, visits)
        check_means(rows["key"], weight, ITERATION * others[:, None], self.n, visits, "reach")
        return tested

    def exploring(self):
        """The strategy with the opponent's states half uniform."""
        legal = self.case.game.arrays.legal
        table = 0.5 * self.strategy + 0.5 * legal / legal.sum(axis=1, keepdims=True)
        own = self.case.game.states_of(self.traverser)
        table[own] = self.strategy[own]
        return table


@pytest.mark.parametrize("traverser", [0, 1])
@pytest.mark.parametrize("name", ["kuhn", "leduc", python_games.SECRET])
def test_unbiased(name, traverser):
    setting = Setting(name, traverser)
    tested = setting.check(setting.rows().advantage)
    assert tested >= {"kuhn": 6, "leduc": 200}.get(name, 6)


@pytest.mark.parametrize("traverser", [0, 1])
@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_strategy_rows_appear_with_the_opponents_own_reach(name, traverser):
    """Rows of the opponent's states: target sigma(I), weight t, as often as its own choices and chance lead there."""
    setting = Setting(name, traverser)
    rows, game = setting.rows().strategy, setting.case.game
    opponent = 1 - traverser
    forms = game.sequences
    # Every traverser action is explored: a state is met once per traverser sequence that leads to it.
    everything = np.where(game.arrays.legal, 1.0, 0.0)
    own = game.states_of(opponent)
    reach = np.zeros(len(game.arrays.legal))
    reach[own] = (forms.own_reach(setting.strategy) * forms.opponent_reach(everything))[own]
    np.testing.assert_allclose(rows["target"], setting.strategy[rows["key"]], atol=1e-7)
    assert np.all(rows["weight"] == ITERATION)
    ones = np.ones((len(rows["key"]), 1))
    # A state can be met more than once in a traversal, at most once per action sequence of the traverser.
    mean = np.bincount(rows["key"], weights=ones[:, 0], minlength=len(reach)) / setting.n
    most = 1 + game.arrays.legal.shape[1] ** 3
    assert np.all(np.abs(mean - reach) <= 6.5 * np.sqrt(most * reach / setting.n) + 1e-12)


@pytest.mark.parametrize("name", ["kuhn", "leduc"])
@pytest.mark.parametrize("traverser", [0, 1])
def test_exploring_opponent_is_rejected(name, traverser):
    """Named mutant: the opponent is drawn from an exploring strategy."""
    setting = Setting(name, traverser)
    with pytest.raises(AssertionError):
        setting.check(setting.rows(setting.exploring()).advantage)


def own_reach_divided_out(setting, rows):
    reach = setting.case.game.sequences.own_reach(np.maximum(setting.strategy, 0.1))[rows["key"]]
    return rows | {"weight": rows["weight"] / reach}


def values_in_place_of_regrets(setting, rows):
    lowest = rows["target"].min(axis=1, keepdims=True)
    return rows | {"target": np.where(rows["target"] != 0, rows["target"] - lowest, 0)}


@pytest.mark.parametrize("mutant", [own_reach_divided_out, values_in_place_of_regrets])
@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_broken_rows_are_rejected(name, mutant):
    """Named mutants: an importance weight where none belongs; targets that are not centred on the state's value."""
    setting = Setting(name, 0)
    with pytest.raises(AssertionError):
        setting.check(mutant(setting, setting.rows().advantage))


def test_even_chance_is_rejected(monkeypatch):
    """Named mutant: chance drawn evenly where its law is (0.5, 0.3, 0.2)."""

    def step_chance(batch, index, uniforms):
        arrays = batch._arrays
        node = batch.node[index]
        ordinal = (uniforms * ((arrays.cdf[arrays.chance[node]] < 2.0).sum(axis=1) + 1)).astype(np.int64)
        batch.node[index] = arrays.first_child[node] + ordinal
        return ordinal

    monkeypatch.setattr(TreeBatch, "step_chance", step_chance)
    setting = Setting(python_games.SECRET, 1)
    with pytest.raises(AssertionError):
        setting.check(setting.rows().advantage)
