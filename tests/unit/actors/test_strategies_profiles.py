"""Strategies, profiles and banks at hand-made and at real information states."""

import numpy as np
import pytest
from oracles.bridge import case, random_table

from actors.strategies.bank import SimulatorBank, TreeBank, explicit_average
from actors.strategies.regret_matching import regret_matching
from actors.strategies.strategy import (
    FromAdvantages,
    FromProbabilities,
    StrategyProfile,
    Table,
    TableProfile,
    Uniform,
)

LEGAL = np.array([[True, True, False], [False, False, True], [True, True, True]])
KEYS = np.array([0, 1, 2], np.int32)


def test_uniform():
    expected = [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [1 / 3, 1 / 3, 1 / 3]]
    np.testing.assert_allclose(Uniform().probabilities(KEYS, LEGAL), expected)


def test_from_advantages_matches_what_was_predicted():
    outputs = np.array([[1, 3, 9], [5, 5, -1], [-1, -2, -3]], np.float32)
    p = FromAdvantages(lambda keys: outputs[keys]).probabilities(KEYS, LEGAL)
    assert p.tolist() == [[0.25, 0.75, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]


def test_from_probabilities_masks_and_normalises():
    outputs = np.array([[0.2, 0.2, 0.6], [0.1, 0.1, 0.8], [0.5, 0.25, 0.25]], np.float32)
    p = FromProbabilities(lambda keys: outputs[keys]).probabilities(KEYS, LEGAL)
    np.testing.assert_allclose(p, [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.5, 0.25, 0.25]])
    assert p.dtype == np.float64


def test_tables_count_from_their_offset():
    table = np.eye(3)
    assert np.array_equal(Table(table, offset=10).probabilities(KEYS[::-1] + 10, LEGAL), table[::-1])


def batch_at_decisions(game, lanes=50):
    """A batch of Leduc in which both players are to act."""
    batch, rng = game.start(lanes), np.random.default_rng(1)
    index = np.arange(lanes)
    for _ in range(2):
        batch.step_chance(index, rng.random(lanes))
    first = batch.take(index[: lanes // 2])
    second = batch.take(index[lanes // 2 :])
    second.step(np.ones(len(second), np.int64))
    batch.node = np.concatenate([first.node, second.node])
    return batch


def test_both_kinds_of_profile_agree():
    game = case("leduc").game
    table = random_table(game, np.random.default_rng(2))
    batch = batch_at_decisions(game)
    assert set(batch.player.tolist()) == {0, 1}
    split = [table[game.states_of(p)] for p in (0, 1)]
    pair = StrategyProfile((Table(split[0], game.offsets[0]), Table(split[1], game.offsets[1])))
    one = TableProfile(table).probabilities(batch, batch.player, batch.legal())
    assert np.array_equal(pair.probabilities(batch, batch.player, batch.legal()), one)


def test_a_profile_asks_each_player_once_a_step():
    game = case("leduc").game
    batch, asked = batch_at_decisions(game), []

    class Counting(Uniform):
        def probabilities(self, keys, legal):
            asked.append(len(keys))
            return super().probabilities(keys, legal)

    StrategyProfile((Counting(), Counting())).probabilities(batch, batch.player, batch.legal())
    assert asked == [25, 25]


def tree_bank(game):
    """A bank whose parameters are advantages [S_p, A]."""
    return TreeBank(game, lambda p, q: regret_matching(q["table"], game.arrays.legal[game.states_of(p)]))


def advantages(game, rng):
    return [{"table": rng.normal(size=game.arrays.legal[game.states_of(p)].shape)} for p in (0, 1)]


def test_entry_one_of_the_bank_is_uniform():
    game = case("kuhn").game
    bank = tree_bank(game)
    assert np.array_equal(bank.profile().table, np.full((12, 2), 0.5))
    bank.weigh(1)
    assert np.array_equal(bank.average(), np.full((12, 2), 0.5))


def test_the_average_by_hand():
    """Avg = sum_t t pi_i sigma^t / sum_t t pi_i over the entries played; the newest network is not among them."""
    game, rng = case("leduc").game, np.random.default_rng(3)
    bank, played = tree_bank(game), []
    for t in range(1, 5):
        played.append(bank.profile().table)
        bank.weigh(t)
        for p, parameters in enumerate(advantages(game, rng)):
            bank.append(p, parameters)
    sums = sum(t * game.sequences.own_reach(s)[:, None] * s for t, s in enumerate(played, 1))
    np.testing.assert_allclose(bank.average(), sums / sums.sum(axis=1, keepdims=True), atol=1e-14)


def test_a_profile_handed_out_does_not_change():
    game = case("kuhn").game
    bank = tree_bank(game)
    before = bank.profile()
    bank.append(0, advantages(game, np.random.default_rng(4))[0])
    assert np.array_equal(before.table, np.full((12, 2), 0.5))
    assert not np.array_equal(bank.profile().table, before.table)


def test_a_restored_bank_goes_on_identically():
    game = case("leduc").game
    rng = np.random.default_rng(5)
    bank, other = tree_bank(game), tree_bank(game)
    for t in (1, 2):
        bank.weigh(t)
        bank.append(0, advantages(game, rng)[0])
    kept = bank.snapshot()
    bank.weigh(3)
    other.restore(kept, [])
    other.weigh(3)
    assert np.array_equal(other.average(), bank.average())
    bank.weigh(4)
    assert not np.array_equal(other.average(), bank.average())


def test_states_without_weight_are_played_uniformly():
    average = explicit_average(np.array([[0.0, 0, 0], [0, 0, 2], [0, 0, 0]]), LEGAL)
    np.testing.assert_allclose(average, [[0.5, 0.5, 0], [0, 0, 1], [1 / 3, 1 / 3, 1 / 3]])


def test_the_simulators_bank_plays_the_newest():
    bank = SimulatorBank(lambda player, parameters: Table(parameters["table"]))
    first, second = np.eye(3), np.eye(3)[::-1].copy()
    assert isinstance(bank.profile().strategies[1], Uniform)
    bank.append(1, {"table": first})
    bank.weigh(2)
    bank.append(1, {"table": second})
    assert bank.profile().strategies[1].table is second
    assert isinstance(bank.profile().strategies[0], Uniform)
    resumed = SimulatorBank(lambda player, parameters: Table(parameters["table"]))
    resumed.restore(bank.snapshot(), [{"table": first}, {"table": second}])
    assert resumed.profile().strategies[0].table is first
    assert resumed.profile().strategies[1].table is second


@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_numbers_of_states_are_disjoint(name):
    game = case(name).game
    first, second = game.states_of(0), game.states_of(1)
    assert (first.start, first.stop, second.stop) == (0, second.start, game.num_states)
