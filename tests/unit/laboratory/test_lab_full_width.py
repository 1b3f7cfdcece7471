"""CFR, CFR+, Linear and Discounted CFR are OpenSpiel's, iterate by iterate, to 1e-9."""

import numpy as np
import pyspiel
import pytest
from open_spiel.python.algorithms import cfr, discounted_cfr
from oracles.mutants import mutated

from dream.laboratory import solvers
from dream.laboratory.kernels import full_width, learning
from dream.laboratory.settings import LabSettings
from dream.laboratory.solve import flat_game
from dream.laboratory.solvers import make

TOLERANCE = 1e-9
OPENSPIEL = {"kuhn": "kuhn_poker", "leduc": "leduc_poker"}
RULES = {
    "vanilla": ({"update": "vanilla"}, cfr.CFRSolver),
    "cfr+": ({"update": "cfr+"}, cfr.CFRPlusSolver),
    "linear": ({"update": "linear"}, discounted_cfr.LCFRSolver),
    "discounted": ({"update": "discounted"}, discounted_cfr.DCFRSolver),
    "discounted 2, 0.5, 3": (
        {"update": "discounted", "alpha": 2.0, "beta": 0.5, "gamma": 3.0},
        lambda game: discounted_cfr.DCFRSolver(game, 2.0, 0.5, 3.0),
    ),
    "discounted 1, -2, 0.5": (
        {"update": "discounted", "alpha": 1.0, "beta": -2.0, "gamma": 0.5},
        lambda game: discounted_cfr.DCFRSolver(game, 1.0, -2.0, 0.5),
    ),
}


def table_of(flat, policy):
    return np.stack([policy.action_probability_array[policy.state_lookup[n]] for n in flat.game.arrays.names])


def check_iterates(name, rule, iterations):
    settings, theirs_of = RULES[rule]
    flat = flat_game(name)
    ours = make(flat, LabSettings(game=name, algorithm="cfr", **settings), seed=0)
    theirs = theirs_of(pyspiel.load_game(OPENSPIEL[name]))
    for iteration in range(1, iterations + 1):
        theirs.evaluate_and_update_policy()
        ours.run(10**9, iteration)
        assert ours.iterations == iteration
        np.testing.assert_allclose(ours.average(), table_of(flat, theirs.average_policy()), rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(ours.current(), table_of(flat, theirs.current_policy()), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("rule", RULES)
def test_kuhn_iterates_are_openspiels(rule):
    check_iterates("kuhn", rule, 40)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_leduc_iterates_are_openspiels(rule):
    check_iterates("leduc", rule, 5)


@pytest.mark.parametrize(("rule", "solver"), [("vanilla", pyspiel.CFRSolver), ("cfr+", pyspiel.CFRPlusSolver)])
def test_leduc_iterates_are_openspiels_compiled_ones(rule, solver):
    flat, theirs = flat_game("leduc"), solver(pyspiel.load_game("leduc_poker"))
    ours = make(flat, LabSettings(game="leduc", algorithm="cfr", update=rule), seed=0)
    legal = flat.game.arrays.legal
    for iteration in range(1, 5):
        theirs.evaluate_and_update_policy()
        ours.run(10**9, iteration)
        average = theirs.tabular_average_policy().policy_table()
        for state, name in enumerate(flat.game.arrays.names):
            expected = [probability for _, probability in average[name]]
            assert ours.average()[state][legal[state]] == pytest.approx(expected, abs=TOLERANCE)


MUTANTS = {
    "simultaneous updates": ("learn(tables, rule, t,", "defer(tables, rule, t,"),
    "average without own reach": ("share * plan[slot]", "share * tables.strategy[slot]"),
    "the value not passed on": ("values[forest.parent[state]] += value", "pass"),
    "the opponent's payoff not negated": (
        "values[forest.slot1[pair]] -= forest.payoff[pair]",
        "values[forest.slot1[pair]] += forest.payoff[pair]",
    ),
    "the average under the new strategies": (
        "tables.cumulative[slot] += share * plan[slot]",
        "tables.cumulative[slot] += share * plan[forest.parent[state]] / (stop - start)",
    ),
}


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m != "simultaneous updates"])
def test_broken_passes_are_noticed(mutant, monkeypatch):
    monkeypatch.setattr(solvers, "run_full_width", mutated(full_width, MUTANTS[mutant]).run_full_width)
    with pytest.raises(AssertionError):
        check_iterates("kuhn", "vanilla", 10)


def test_simultaneous_updates_are_noticed(monkeypatch):
    """Named mutant: player 1 meets player 0's old strategy."""
    broken = mutated(full_width, MUTANTS["simultaneous updates"])
    waiting = []

    def defer(tables, *arguments):
        waiting.append((tables._replace(gains=tables.gains.copy()), arguments))

    def run(forest, tables, rule, clock, faded, nodes, budget, last):
        while clock[0] < last:
            broken.run_full_width(forest, tables, rule, clock, faded, nodes, budget, clock[0] + 1)
            for frozen, arguments in waiting:
                learning.learn(frozen, *arguments)
            waiting.clear()

    broken.defer = defer
    monkeypatch.setattr(solvers, "run_full_width", run)
    with pytest.raises(AssertionError):
        check_iterates("kuhn", "vanilla", 10)


RULE_MUTANTS = {
    "regrets not floored": ("cfr+", ("new < 0.0", "new < -1e9")),
    "discounts swapped": ("discounted", ("positive if old > 0.0 else negative", "negative if old > 0.0 else positive")),
    "linear regrets unweighted": ("linear", ("float(t) if rule.kind == LINEAR else 1.0", "1.0")),
    "average weighted by t": ("discounted", ("math.pow(t, rule.gamma)", "float(t)")),
    "discount one iteration late": ("discounted", ("discount(t - 1, rule.alpha)", "discount(t, rule.alpha)")),
}


@pytest.mark.parametrize("mutant", RULE_MUTANTS)
def test_broken_rules_are_noticed(mutant, monkeypatch):
    rule, change = RULE_MUTANTS[mutant]
    rules = mutated(learning, change)
    passes = mutated(full_width)
    for name in ("learn", "begin_iteration", "average_weight"):
        setattr(passes, name, getattr(rules, name))
    monkeypatch.setattr(solvers, "run_full_width", passes.run_full_width)
    with pytest.raises(AssertionError):
        check_iterates("kuhn", rule, 20)


@pytest.mark.parametrize("rule", RULES)
def test_interpreted_kernels_agree(rule, monkeypatch):
    """The mutants fail for their mutation, not for being interpreted."""
    monkeypatch.setattr(solvers, "run_full_width", mutated(full_width).run_full_width)
    check_iterates("kuhn", rule, 10)


@pytest.mark.parametrize(("name", "value", "within"), [("kuhn", -1 / 18, 1e-4), ("leduc", -0.0856, 1e-4)])
def test_cfr_plus_reaches_the_value_of_the_game(name, value, within):
    flat = flat_game(name)
    solver = make(flat, LabSettings(game=name, algorithm="cfr", update="cfr+"), seed=0)
    solver.run(10**12, 1000)
    average = solver.average()
    assert flat.game.sequences.value(average) == pytest.approx(value, abs=within)
    assert flat.game.sequences.nash_conv(average) < 4e-3
    assert solver.touches == 2 * 1000 * flat.nodes


@pytest.mark.parametrize("name", ["kuhn", "leduc", "goofspiel-4"])
def test_flat_tables_go_back_and_forth(name):
    flat = flat_game(name)
    legal = flat.game.arrays.legal
    table = np.where(legal, np.random.default_rng(2).random(legal.shape), 0.0)
    assert np.array_equal(flat.table(flat.flat(table)), table)
    assert np.array_equal(flat.normalised(np.zeros(flat.slots)), flat.table(flat.uniform()))
    np.testing.assert_allclose(flat.normalised(flat.flat(table)).sum(axis=1), 1.0)
