"""Identity 6: numbers from theory and from OpenSpiel's own algorithms."""

import numpy as np
import pyspiel
import pytest
from open_spiel.python import policy as openspiel_policy
from open_spiel.python.algorithms import exploitability as openspiel_exploitability
from oracles import python_games, textbook
from oracles.bridge import case, random_table

from dream.evaluation.exploitability import exploitability

SMALL_POKER = (
    "universal_poker(betting=limit,numPlayers=2,numRounds=2,blind=5 10,firstPlayer=1 1,numSuits=2,numRanks=3,"
    "numHoleCards=1,numBoardCards=0 1,raiseSize=10 20,maxRaises=2 2)"
)
SMALL_DICE = "liars_dice(numdice=1,dice_sides=4)"
KUHN_VALUE = -1 / 18
LEDUC_VALUE = -0.0856  # chips, player 0; known to four places


def uniform(game):
    legal = game.arrays.legal
    return legal / legal.sum(axis=1, keepdims=True)


def cfr_plus(game, iterations):
    """The linear average of CFR+ (Tammelin 2014): regrets floored at 0, alternating; uniform where all are 0."""
    forms, sigma = game.sequences, uniform(game)
    regret, sums = np.zeros(sigma.shape), np.zeros(sigma.shape)
    for t in range(1, iterations + 1):
        for player in (0, 1):
            own = game.states_of(player)
            q, v = forms.counterfactual_values(sigma)
            sums[own] += t * (forms.own_reach(sigma)[:, None] * sigma)[own]
            gain = np.where(forms.legal, q - v[:, None], 0.0)
            regret[own] = np.maximum(regret[own] + gain[own], 0.0)
            total = regret[own].sum(axis=1, keepdims=True)
            sigma[own] = np.where(total > 0, regret[own] / np.where(total > 0, total, 1.0), uniform(game)[own])
    return sums / sums.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("name", "iterations", "value", "bound"), [("kuhn", 1000, KUHN_VALUE, 2.5e-4), ("leduc", 500, LEDUC_VALUE, 5e-3)]
)
def test_cfr_plus_reaches_the_value(name, iterations, value, bound):
    game = case(name).game
    strategy = cfr_plus(game, iterations)
    forms = game.sequences
    assert forms.nash_conv(strategy) < bound
    # The value lies between what each player can be held to.
    assert -forms.best_response_value(1, strategy) - 1e-4 <= value <= forms.best_response_value(0, strategy) + 1e-4
    assert forms.value(strategy) == pytest.approx(value, abs=bound / 4)


@pytest.mark.parametrize(
    ("name", "chips", "milli", "unit"), [("kuhn", 0.4583333, 458.3333, "mA/g"), ("leduc", 2.37361, 2373.61, "mA/g")]
)
def test_exploitability_of_uniform_play(name, chips, milli, unit):
    game = case(name).game
    found = exploitability(game, uniform(game))
    assert found["exploitability_chips"] == pytest.approx(chips, abs=1e-5)
    assert found["exploitability_milli"] == pytest.approx(milli, abs=1e-2)
    assert found["nash_conv_chips"] == 2 * found["exploitability_chips"]
    assert found["unit"] == unit


def test_poker_is_reported_in_big_blinds():
    game = case(SMALL_POKER).game
    found = exploitability(game, uniform(game))
    assert found["unit"] == "mbb/g"
    assert found["exploitability_milli"] == pytest.approx(100 * found["exploitability_chips"])


class TableAsPolicy(openspiel_policy.Policy):
    """Probabilities by information-state string."""

    def __init__(self, game, rows):
        super().__init__(game, [0, 1])
        self._rows = rows

    def action_probabilities(self, state, player_id=None):
        return dict(self._rows[state.information_state_string()])


def openspiel_rows(here, table):
    legal = here.game.arrays.legal
    names = here.game.arrays.names
    assert len(set(names)) == len(names)
    return {name: [(int(a), float(table[k, a])) for a in np.flatnonzero(legal[k])] for k, name in enumerate(names)}


GAMES = ["kuhn", "leduc", SMALL_DICE, "goofspiel-4", SMALL_POKER, python_games.SECRET]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", GAMES)
def test_exploitability_is_openspiels(name, seed):
    here = case(name)
    table = random_table(here.game, np.random.default_rng(seed), pure=0.2 * seed)
    game = textbook.load(here.game.description.game_string)
    policy = TableAsPolicy(game, openspiel_rows(here, table))
    expected = openspiel_exploitability.nash_conv(game, policy, use_cpp_br=False)
    assert here.game.sequences.nash_conv(table) == pytest.approx(expected, abs=1e-9)
    assert exploitability(here.game, table)["exploitability_chips"] == pytest.approx(expected / 2, abs=1e-9)


@pytest.mark.slow
def test_exploitability_of_liars_dice_is_openspiels():
    here = case("liars-dice")
    table = random_table(here.game, np.random.default_rng(2), pure=0.2)
    expected = pyspiel.nash_conv(textbook.load(here.game.description.game_string), openspiel_rows(here, table))
    assert here.game.sequences.nash_conv(table) == pytest.approx(expected, abs=1e-9)


def other_players_response(game, table):
    """One player's strategy evaluated as the profile: both best responses against player 0's side."""
    return 2 * game.sequences.best_response_value(1, table)


def history_wise_maximum(here, table):
    """The best response that sees the opponent's cards: the maximum in every history."""

    def walk(node, player):
        if node.player == -2:
            return node.payoff * (1 - 2 * player)
        values = [walk(child, player) for child in node.children]
        if node.player == player:
            return max(values)
        law = node.law if node.player == -1 else policy[node.key][node.actions]
        return sum(p * v for p, v in zip(law, values, strict=True))

    policy = here.policy(table)
    return walk(here.root, 0) + walk(here.root, 1)


@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_wrong_exploitabilities_are_told_apart(name):
    """Named mutants: one player's response counted twice; a response that sees the histories."""
    here = case(name)
    table = random_table(here.game, np.random.default_rng(3))
    right = here.game.sequences.nash_conv(table)
    assert abs(other_players_response(here.game, table) - right) > 1e-3
    assert abs(history_wise_maximum(here, table) - right) > 1e-3
