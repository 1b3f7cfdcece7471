"""Identity 2: outcome sampling is unbiased whatever the baseline; with the true values it has no variance.

n = 60,000 traversals per case in Kuhn and the Python game, 200,000 in Leduc; false-alarm rate 1e-6 per case. A bias of
the advantage of one state's action is detected from about 0.1 chips on in Kuhn and 1.6 chips in Leduc (medians over
the tested cells; payoffs within +-2 and +-13).
"""

import numpy as np
import pytest
from oracles import python_games, textbook
from oracles.bridge import case, random_table
from oracles.estimates import check_means

from actors.games.tree import TreeBatch
from actors.sampling import lanes
from actors.sampling.chance import Iid
from actors.sampling.outcome import OutcomeSampler
from actors.strategies.strategy import TableProfile

TRAVERSALS = {"kuhn": 60_000, "leduc": 200_000, python_games.SECRET: 60_000}
ITERATION = 3


class Setting:
    """A fixed strategy and a fixed random baseline."""

    def __init__(self, name, traverser, epsilon, scaled, pure=0.2):
        self.case, self.traverser, self.epsilon, self.scaled = case(name), traverser, epsilon, scaled
        self.n = TRAVERSALS[name]
        game, rng = self.case.game, np.random.default_rng(11)
        self.strategy = random_table(game, rng, pure)
        size = game.description.payoff_scale / 4
        self.q = rng.uniform(-size, size, (game.num_histories, self.case.num_actions))

    def sampling_reach(self):
        """[S] pi_i^xi(I), and the same times |A| at every earlier own decision."""
        game = self.case.game
        legal = game.arrays.legal
        xi = self.epsilon * legal / legal.sum(axis=1, keepdims=True) + (1 - self.epsilon) * self.strategy
        forms = game.sequences
        return forms.own_reach(xi), forms.own_reach(xi * legal.sum(axis=1, keepdims=True))

    def rows(self, baseline=True, q=None):
        sampler = OutcomeSampler(self.case.game, self.epsilon, self.scaled, keep_transitions=True)
        keys = lanes.start(5, ITERATION, self.traverser, 0, self.n)
        table = self.q if q is None else q
        values = (lambda h: table[h]) if baseline else None
        profile = TableProfile(self.strategy)
        return sampler.sample(ITERATION, self.traverser, keys, profile, Iid(), values)

    def check(self, key, target, weight):
        """Mean of weight * r~ is r(I, a), and of the weights pi_{-i}(I), both times the scaling's constant."""
        r, others, _ = self.case.regrets(self.strategy, self.traverser)
        plain, scaled = self.sampling_reach()
        constant = ITERATION * (plain / scaled if self.scaled else np.ones(len(r)))
        visits = self.n * others * plain
        weight = np.asarray(weight, np.float64)
        tested = check_means(key, weight[:, None] * target, constant[:, None] * r, self.n, visits)
        check_means(key, weight[:, None], (constant * others)[:, None], self.n, visits, "reach")
        return tested


def check_rows(setting, rows):
    return setting.check(rows["key"], rows["target"].astype(np.float64), rows["weight"])


@pytest.mark.parametrize("scaled", [True, False], ids=["scaled", "plain"])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("traverser", [0, 1])
@pytest.mark.parametrize("name", ["kuhn", "leduc", python_games.SECRET])
def test_any_baseline_is_unbiased(name, traverser, epsilon, scaled):
    setting = Setting(name, traverser, epsilon, scaled)
    tested = check_rows(setting, setting.rows().advantage)
    assert tested >= {"kuhn": 6, "leduc": 60}.get(name, 6)


@pytest.mark.parametrize("name", ["kuhn", "leduc"])
@pytest.mark.parametrize("traverser", [0, 1])
def test_no_baseline_is_unbiased(name, traverser):
    setting = Setting(name, traverser, 0.5, True)
    check_rows(setting, setting.rows(baseline=False).advantage)


def importance_in_the_label(rows):
    return rows | {"target": rows["target"] * rows["weight"][:, None], "weight": np.ones_like(rows["weight"])}


def no_reach_in_the_weight(rows):
    return rows | {"weight": np.full_like(rows["weight"], ITERATION)}


def signs_forgotten(rows):
    return rows | {"target": -rows["target"]}


@pytest.mark.parametrize(
    ("mutant", "traverser"), [(importance_in_the_label, 0), (no_reach_in_the_weight, 0), (signs_forgotten, 1)]
)
@pytest.mark.parametrize("scaled", [True, False], ids=["scaled", "plain"])
@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_broken_rows_are_rejected(name, scaled, mutant, traverser):
    """Named mutants: importance mass put into the label; no own reach in the weight; player 1 paid as player 0."""
    setting = Setting(name, traverser, 0.5, scaled)
    with pytest.raises(AssertionError):
        check_rows(setting, mutant(setting.rows().advantage))


def even_chance(monkeypatch):
    """Chance drawn evenly where its law is not."""

    def step_chance(batch, index, uniforms):
        arrays = batch._arrays
        node = batch.node[index]
        count = (arrays.cdf[arrays.chance[node]] < 2.0).sum(axis=1) + 1
        ordinal = (uniforms * count).astype(np.int64)
        batch.node[index] = arrays.first_child[node] + ordinal
        return ordinal

    monkeypatch.setattr(TreeBatch, "step_chance", step_chance)


def test_even_chance_is_rejected(monkeypatch):
    """Named mutant: chance drawn evenly where its law is (0.5, 0.3, 0.2)."""
    even_chance(monkeypatch)
    setting = Setting(python_games.SECRET, 0, 0.5, True)
    with pytest.raises(AssertionError):
        check_rows(setting, setting.rows().advantage)


def textbook_rows(setting, fault):
    """The papers' recursion, traversal by traversal, with one of its steps broken."""
    number = {key: state for state, key in enumerate(setting.case.keys)}
    visits = textbook.outcome_samples(
        setting.case.root,
        setting.case.policy(setting.strategy),
        setting.traverser,
        setting.epsilon,
        setting.q,
        setting.n,
        np.random.default_rng(4),
        fault,
    )
    key = np.concatenate([np.full(len(target), number[name]) for name, target, _ in visits])
    weight = np.concatenate([np.full(len(target), ITERATION / reach) for _, target, reach in visits])
    return key, np.concatenate([target for _, target, _ in visits]), weight


@pytest.mark.parametrize("traverser", [0, 1])
def test_the_textbook_recursion_passes(traverser):
    setting = Setting("kuhn", traverser, 0.5, scaled=False)
    setting.check(*textbook_rows(setting, None))


@pytest.mark.parametrize("fault", textbook.OUTCOME_FAULTS)
@pytest.mark.parametrize("traverser", [0, 1])
def test_broken_recursions_are_rejected(traverser, fault):
    """Named mutants: no subtraction of the baseline; v~(h) under xi; no division by xi of the action taken."""
    setting = Setting("kuhn", traverser, 0.5, scaled=False)
    with pytest.raises(AssertionError):
        setting.check(*textbook_rows(setting, fault))


# --- no variance with the true values ---------------------------------------------------------------------


def check_no_variance(setting, q):
    """Every single row is the exact advantage v(h, a) - v(h) of its own history."""
    result = setting.rows(q=q)
    game, true = setting.case.game, setting.case.history_values(setting.strategy)[0]
    codec = game.history_codec()
    history = result.transitions["history"]
    mine = history[codec.player[history] == setting.traverser]
    state = codec.state[mine]
    assert np.array_equal(state, result.advantage["key"])
    value = (setting.strategy[state] * true[mine]).sum(axis=1)
    expected = np.where(codec.legal[mine], true[mine] - value[:, None], 0.0) * (1 - 2 * setting.traverser)
    np.testing.assert_allclose(result.advantage["target"], expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("traverser", [0, 1])
def test_true_values_leave_no_variance_in_kuhn(traverser, epsilon):
    setting = Setting("kuhn", traverser, epsilon, True)
    check_no_variance(setting, setting.case.history_values(setting.strategy)[0])


def negated(setting, q):
    return -q


def at_the_traverser_only(setting, q):
    codec = setting.case.game.history_codec()
    return np.where((codec.player == setting.traverser)[:, None], q, 0.0)


def at_the_opponent_only(setting, q):
    codec = setting.case.game.history_codec()
    return np.where((codec.player != setting.traverser)[:, None], q, 0.0)


@pytest.mark.parametrize("mutant", [negated, at_the_traverser_only, at_the_opponent_only])
@pytest.mark.parametrize("traverser", [0, 1])
def test_wrong_use_of_the_baseline_is_rejected(traverser, mutant):
    """Named mutants (unbiased, so only this test sees them): wrong sign; one player's decisions left out."""
    setting = Setting("kuhn", traverser, 0.5, True, pure=0.0)
    with pytest.raises(AssertionError):
        check_no_variance(setting, mutant(setting, setting.case.history_values(setting.strategy)[0]))
