"""Array passes against recursion over histories, on every kind of small game."""

import numpy as np
import pytest
from oracles import python_games
from oracles.bridge import case, random_table

GAMES = ["kuhn", "leduc", "goofspiel-4", "liars_dice(numdice=1,dice_sides=3)", python_games.SECRET]


@pytest.fixture(params=GAMES)
def here(request):
    return case(request.param)


@pytest.fixture(params=[0.0, 0.5], ids=["mixed", "half pure"])
def table(request, here):
    return random_table(here.game, np.random.default_rng(21), pure=request.param)


def test_counterfactual_values_and_reaches(here, table):
    forms = here.game.sequences
    q, v = forms.counterfactual_values(table)
    advantages = np.where(forms.legal, q - v[:, None], 0.0)
    for player in (0, 1):
        r, others, own = here.regrets(table, player)
        at = here.game.states_of(player)
        np.testing.assert_allclose(advantages[at], r[at], atol=1e-12)
        np.testing.assert_allclose(forms.opponent_reach(table)[at], others[at], atol=1e-12)
        np.testing.assert_allclose(forms.own_reach(table)[at], own[at], atol=1e-12)


def test_value(here, table):
    assert here.game.sequences.value(table) == pytest.approx(here.history_values(table)[1], abs=1e-12)


def test_terminal_probabilities_sum_to_one(here, table):
    forms = here.game.sequences
    plan = forms.realisation(table)
    ends = here.game.arrays.player == -2
    chance = here.game.arrays.chance_reach[ends]
    total = (chance * plan[forms.terminal_sequence].prod(axis=1)).sum()
    assert total == pytest.approx(1.0, abs=1e-12)


def test_a_best_response_wins_no_less_than_any_strategy(here, table):
    forms = here.game.sequences
    for player in (0, 1):
        best = forms.best_response_value(player, table)
        for seed in range(5):
            mixed = table.copy()
            own = here.game.states_of(player)
            mixed[own] = random_table(here.game, np.random.default_rng(seed), pure=0.5)[own]
            assert forms.value(mixed) * (1 - 2 * player) <= best + 1e-12


def test_the_best_response_is_reached_by_a_pure_strategy(here, table):
    """Play the largest counterfactual value at every state, deepest first: its value is the bound."""
    forms = here.game.sequences
    for player in (0, 1):
        reply = table.copy()
        for level in reversed(forms.levels[player]):
            q = forms.counterfactual_values(reply)[0][level]
            reply[level] = 0.0
            reply[level, np.where(forms.legal[level], q, -np.inf).argmax(axis=1)] = 1.0
        value = forms.value(reply) * (1 - 2 * player)
        assert value == pytest.approx(forms.best_response_value(player, table), abs=1e-12)
