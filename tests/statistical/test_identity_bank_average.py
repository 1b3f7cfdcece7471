"""Identity 1: with exact tables for networks the bank's explicit average is Linear CFR's, and trajectories play it.

The explicit average is compared to 1e-9 with a recursion over OpenSpiel states. Trajectories: n = 100,000 games, one
chi-square over all states, false-alarm rate 1e-6; a shift of an action's probability is detected from about 0.02 on
in Kuhn.
"""

from functools import cache

import numpy as np
import pytest
from oracles import textbook
from oracles.bridge import case, random_table
from oracles.estimates import check_frequencies

from actors.sampling import lanes, selfplay
from actors.sampling.chance import Iid
from actors.strategies.bank import TreeBank, draw_entries, explicit_average
from dream import config as configuration
from dream.training import cfr
from dream.wiring import System

ITERATIONS = {"kuhn": 12, "leduc": 14}
GAMES = 100_000


class Bench:
    """A run without a folder: trains the real parts and keeps every sigma^t."""

    def __init__(self, name, iterations):
        values = {
            "game": name,
            "algorithm": "sd-cfr",
            "iterations": iterations,
            "sampling": {"sampler": "exact"},
            "advantage": {"learner": "table"},
            "runtime": {"device": "cpu", "threads": 1},
        }
        system = System.build(configuration.from_mapping(values))
        self.planned = system.config.iterations
        self.bank = system.bank
        self.parameters = ([], [])
        self.tables = []
        cfr.train(self, system.runtime, system.method, cfr.ALTERNATING)

    def iterations(self):
        for t in range(1, self.planned + 1):
            self.tables.append(self.bank.profile().table)
            yield t

    def append(self, player, parameters):
        self.parameters[player].append(parameters)
        self.bank.append(player, parameters)

    def finish(self, iteration):
        pass


@cache
def trained(name):
    return Bench(name, ITERATIONS[name])


@cache
def linear_cfr(name):
    """(average [S, A], [sigma^1, ...]) of the recursion."""
    here = case(name)
    oracle = textbook.LinearCFR(textbook.load(here.game.description.game_string))
    played = []
    for _ in range(ITERATIONS[name]):
        played.append(here.table(oracle.sigma))
        oracle.iterate()
    return here.table(oracle.average()), played


def check_average(name, table):
    np.testing.assert_allclose(table, linear_cfr(name)[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_explicit_average_is_linear_cfr(name):
    bench = trained(name)
    check_average(name, bench.bank.average())
    for mine, theirs in zip(bench.tables, linear_cfr(name)[1], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-9)


def test_explicit_average_stays_linear_cfr_in_a_long_run():
    here, oracle = case("kuhn"), textbook.LinearCFR(textbook.load("kuhn_poker"))
    for _ in range(300):
        oracle.iterate()
    np.testing.assert_allclose(Bench("kuhn", 300).bank.average(), here.table(oracle.average()), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_linear_cfr_approaches_equilibrium(name):
    """So that two equally wrong versions do not agree: well below uniform play's exploitability."""
    game = case(name).game
    uniform = game.arrays.legal / game.arrays.legal.sum(axis=1, keepdims=True)
    assert game.sequences.nash_conv(linear_cfr(name)[0]) < 0.3 * game.sequences.nash_conv(uniform)


def average_of(name, weights, tables):
    """The explicit average of `tables` with other weights."""
    game = case(name).game
    sums = sum(w * game.sequences.own_reach(s)[:, None] * s for w, s in zip(weights, tables, strict=True))
    return explicit_average(sums, game.arrays.legal)


def weights_shifted(name):
    tables = trained(name).tables
    return average_of(name, range(len(tables)), tables)


def uniform_weights(name):
    tables = trained(name).tables
    return average_of(name, np.ones(len(tables)), tables)


def networks_shifted(name):
    """Entry t plays the network of iteration t, not of t - 1."""
    bench = trained(name)
    game = case(name).game
    bank = TreeBank(game, trained(name).bank._tabulate)
    for t in range(1, len(bench.tables) + 1):
        for player in (0, 1):
            bank.append(player, bench.parameters[player][t - 1])
        bank.weigh(t)
    return bank.average()


def no_reach(name):
    tables = np.stack(trained(name).tables)
    return np.einsum("t,tsa->sa", np.arange(1, len(tables) + 1), tables) / np.arange(len(tables) + 1).sum()


@pytest.mark.parametrize("mutant", [weights_shifted, uniform_weights, networks_shifted, no_reach])
@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_wrong_averages_are_rejected(name, mutant):
    """Named mutants: weights t - 1; equal weights; networks one entry early; the players' own reach left out."""
    with pytest.raises(AssertionError):
        check_average(name, mutant(name))


# --- trajectory sampling ----------------------------------------------------------------------------------


@cache
def bank(name, kind):
    """(tables [T, S, A], their explicit average): the run's, or five random ones that differ at every state."""
    if kind == "trained":
        return np.stack(trained(name).tables), trained(name).bank.average()
    rng = np.random.default_rng(5)
    tables = [random_table(case(name).game, rng, pure=0.5) for _ in range(5)]
    return np.stack(tables), average_of(name, range(1, 6), tables)


def entries(count, rng):
    return np.stack([draw_entries(count, GAMES, rng) for _ in range(2)], axis=1)


def play(name, profile, average):
    games = selfplay.play(case(name).game, lanes.start(9, 1, 0, 0, GAMES), profile, Iid())
    check_frequencies(games.state, games.action, average)
    return games


@pytest.mark.parametrize("kind", ["trained", "random"])
@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_trajectories_play_the_explicit_average(name, kind):
    tables, average = bank(name, kind)
    profile = selfplay.TableEntries(tables, entries(len(tables), np.random.default_rng(1)))
    games = play(name, profile, average)
    error = games.payoff.std() / np.sqrt(GAMES)
    assert abs(games.payoff.mean() - case(name).game.sequences.value(average)) < 5 * error


class Redrawn:
    """A new entry at every decision."""

    def __init__(self, tables):
        self.tables, self.rng = tables, np.random.default_rng(2)

    def probabilities(self, batch, player, legal, lane):
        entry = draw_entries(len(self.tables), len(lane), self.rng)
        return self.tables[entry - 1, batch.information_state()]


@pytest.mark.parametrize(("name", "kind"), [("kuhn", "random"), ("leduc", "random"), ("leduc", "trained")])
def test_entries_redrawn_within_a_game_are_rejected(name, kind):
    """Named mutant: t drawn anew at each decision."""
    tables, average = bank(name, kind)
    with pytest.raises(AssertionError):
        play(name, Redrawn(tables), average)


def shifted_by_one(count, rng):
    return np.maximum(entries(count, rng) - 1, 1)


def drawn_evenly(count, rng):
    return rng.integers(1, count + 1, (GAMES, 2))


@pytest.mark.parametrize("mutant", [shifted_by_one, drawn_evenly])
@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_wrong_entries_are_rejected(name, mutant):
    """Named mutants: entries shifted by one; equal instead of linear weights."""
    tables, average = bank(name, "trained")
    with pytest.raises(AssertionError):
        play(name, selfplay.TableEntries(tables, mutant(len(tables), np.random.default_rng(3))), average)


def test_entries_are_drawn_linearly():
    drawn = draw_entries(10, 100_000, np.random.default_rng(4))
    weights = np.arange(11) / 55
    check_frequencies(np.zeros(len(drawn), np.int64), drawn, weights[None])
