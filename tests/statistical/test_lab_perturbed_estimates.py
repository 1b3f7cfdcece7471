"""FTRL's estimates have the exact, perturbed gradient as their mean; reverse KL's perturbation has no variance.

n = 100,000 paths per case in Kuhn and the Python game, 200,000 in Leduc; false-alarm rate 1e-6 per case. A bias of one
entry of the gradient is detected from about 0.02 chips on in Kuhn and Leduc (medians over the cells). Mutants
are run by the interpreter, n = 40,000 in Kuhn.
"""

import math

import numpy as np
import pytest
from oracles import python_games
from oracles.bridge import case, random_table
from oracles.mutants import mutated
from oracles.traversals import check_moments, single_traversals

from dream.laboratory import solvers
from dream.laboratory.flat_game import FlatGame
from dream.laboratory.kernels import perturbed
from dream.laboratory.settings import LabSettings
from dream.laboratory.solvers import frozen, make

SECRET = python_games.SECRET
PATHS = {"kuhn": 100_000, "leduc": 200_000, SECRET: 100_000}
STRENGTH = 0.5


def gradient(root, policy, anchor, num_actions, algorithm, strength):
    """{I: g(I, .)} by recursion over histories: counterfactual values of the perturbed game.

    KL: every decision of j pays -mu log(sigma(a) / anchor(a)) to j and takes it from the other. Reverse KL: the
    derivative of -mu KL(anchor, sigma) at the state itself, mu anchor(a) / sigma(a), less mu.
    """
    found = {}

    def walk(node, reach):
        """Player 0's perturbed value; `reach` [3]: player 0's, player 1's, chance's probability of the node."""
        if node.player == -2:
            return node.payoff
        if node.player == -1:
            return sum(p * walk(c, (*reach[:2], reach[2] * p)) for p, c in zip(node.law, node.children, strict=True))
        player, sigma, sign = node.player, policy[node.key], 1 - 2 * node.player
        others = reach[1 - player] * reach[2]
        row = found.setdefault(node.key, np.zeros(num_actions))
        value = 0.0
        for action, child in zip(node.actions, node.children, strict=True):
            below = [*reach]
            below[player] *= sigma[action]
            payoff = walk(child, tuple(below))
            if algorithm == "pftrl-kl":
                payoff -= sign * strength * math.log(sigma[action] / anchor[node.key][action])
            row[action] += others * sign * payoff
            if algorithm == "pftrl-rkl":
                row[action] += others * strength * (anchor[node.key][action] / sigma[action] - 1.0)
            value += sigma[action] * payoff
        return value

    walk(root, (1.0, 1.0, 1.0))
    return found


class Setting:
    """A fixed strategy and a fixed anchor in one game."""

    def __init__(self, name):
        self.name, self.case = name, case(name)
        self.flat = FlatGame.build(self.case.game)
        rng = np.random.default_rng(21)
        self.strategy, self.anchor = random_table(self.case.game, rng), random_table(self.case.game, rng)

    def solver(self, algorithm, strength=STRENGTH, seed=6, **settings):
        perturbation = {} if algorithm == "ftrl" else {"strength": strength}
        chosen = LabSettings(game=self.name, algorithm=algorithm, **perturbation, **settings)
        solver = frozen(self.flat, chosen, seed, self.strategy)
        solver.leader.anchor[:] = self.flat.flat(self.anchor)
        return solver

    def expected(self, algorithm):
        policy, anchor = self.case.policy(self.strategy), self.case.policy(self.anchor)
        return self.case.table(gradient(self.case.root, policy, anchor, self.case.num_actions, algorithm, STRENGTH))

    def visits(self, sampling, epsilon):
        """[S] probability of meeting a state."""
        legal = self.case.game.arrays.legal
        even = legal / legal.sum(axis=1, keepdims=True)
        xi = even if sampling == "uniform" else epsilon * even + (1 - epsilon) * self.strategy
        forms = self.case.game.sequences
        return forms.own_reach(xi) * forms.opponent_reach(xi)

    def check(self, algorithm, n, least, sampling="uniform", epsilon=0.6):
        solver = self.solver(algorithm, sampling=sampling, **({"epsilon": epsilon} if sampling == "current" else {}))
        solver.advance(10**12, n, (0, 2))
        mean = solver.tables.moments[0] / n
        variance = np.maximum(solver.tables.moments[1] / n - mean**2, 0.0)
        visits = n * self.visits(sampling, epsilon)
        check_moments(self.flat.table(mean), self.flat.table(variance), n, self.expected(algorithm), visits, least)


@pytest.mark.parametrize("sampling", ["uniform", "current"])
@pytest.mark.parametrize("algorithm", ["ftrl", "pftrl-kl", "pftrl-rkl"])
@pytest.mark.parametrize("name", ["kuhn", pytest.param("leduc", marks=pytest.mark.slow), SECRET])
def test_the_mean_is_the_perturbed_gradient(name, algorithm, sampling):
    Setting(name).check(algorithm, PATHS[name], {"kuhn": 20, "leduc": 300}.get(name, 20), sampling)


MUTANTS = {
    "the opponent's transform forgotten": (
        "pftrl-kl",
        ("value -= sign * leader.strength", "value -= (1 - player) * leader.strength"),
    ),
    "own transform with the wrong sign": (
        "pftrl-kl",
        ("value -= sign * leader.strength", "value += sign * leader.strength"),
    ),
    "reverse KL without its constant": (
        "pftrl-rkl",
        ("tables.strategy[slot], SMALLEST) - 1.0)", "tables.strategy[slot], SMALLEST))"),
    ),
    "reverse KL of the sampled action only": (
        "pftrl-rkl",
        ("if leader.perturbation == REVERSE_KL:", "if leader.perturbation == REVERSE_KL and slot == chosen:"),
    ),
    "the opponent's reach forgotten": (
        "ftrl",
        ("reaches[1 - player, depth] / paths.reach[depth]", "1.0 / paths.reach[depth]"),
    ),
    "values not brought back to sigma": (
        "ftrl",
        ("value *= tables.strategy[chosen] / paths.value[depth]", "value *= 1.0"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_broken_estimates_are_rejected(mutant, monkeypatch):
    algorithm, change = MUTANTS[mutant]
    monkeypatch.setattr(solvers, "run_perturbed", mutated(perturbed, change).run_perturbed)
    with pytest.raises(AssertionError, match="expected"):
        Setting("kuhn").check(algorithm, 40_000, 12)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ftrl", "pftrl-kl", "pftrl-rkl"])
def test_interpreted_estimates_pass(algorithm, monkeypatch):
    monkeypatch.setattr(solvers, "run_perturbed", mutated(perturbed).run_perturbed)
    Setting("kuhn").check(algorithm, 40_000, 12)


def perturbations(setting, algorithm, n=300):
    """Per state, rows [visits, A]: what the perturbation adds to the estimate, per unit of importance weight."""
    with_it, without = setting.solver(algorithm), setting.solver(algorithm, strength=0.0)
    tree, strategy = setting.flat.tree, setting.flat.flat(setting.strategy)
    player = setting.case.game.arrays.player
    found = {}
    pairs = zip(single_traversals(with_it, 0, n), single_traversals(without, 0, n), strict=True)
    for (one, solver), (other, twin) in pairs:
        reach = [1.0, 1.0]
        assert np.array_equal(solver.paths.node[:3], twin.paths.node[:3])
        for depth, node in enumerate(solver.paths.node):
            if player[node] == -2:
                break
            if player[node] >= 0:
                state, taken = tree.row[node], solver.paths.child[depth]
                start, stop = tree.offset[state], tree.offset[state + 1]
                weight = reach[1 - player[node]] / solver.paths.reach[depth]
                found.setdefault(state, []).append((one - other)[start:stop] / weight)
                reach[player[node]] *= strategy[start + taken]
    return {state: np.stack(rows) for state, rows in found.items() if len(rows) >= 10}


def check_no_variance(setting, algorithm):
    rows = perturbations(setting, algorithm)
    assert len(rows) >= 6
    for state, values in rows.items():
        legal = setting.case.game.arrays.legal[state]
        expected = STRENGTH * (setting.anchor[state] / np.where(legal, setting.strategy[state], 1.0) - 1.0)[legal]
        np.testing.assert_allclose(values, np.tile(expected, (len(values), 1)), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_reverse_kls_perturbation_has_no_variance(name):
    """Given that a state is met, its perturbation is mu (anchor / sigma - 1), every time."""
    check_no_variance(Setting(name), "pftrl-rkl")


@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_kls_perturbation_has_variance(name):
    """Named mutant: KL, which is sampled with the actions."""
    with pytest.raises(AssertionError):
        check_no_variance(Setting(name), "pftrl-kl")


# --- following the leader -----------------------------------------------------------------------------------


def leader(sums, rate, euclidean):
    strategy = np.empty(len(sums))
    perturbed.follow(np.asarray(sums, np.float64), strategy, rate, euclidean, 0, len(sums))
    return strategy


@pytest.mark.parametrize("seed", range(20))
def test_the_leader_is_a_softmax_or_a_projection(seed):
    """The projection by its optimality: p = max(x - c, 0) for one c, summing to 1."""
    rng = np.random.default_rng(seed)
    sums = rng.normal(scale=10.0 ** rng.integers(-2, 4), size=rng.integers(1, 8))
    weights = np.exp(0.3 * (sums - sums.max()))
    np.testing.assert_allclose(leader(sums, 0.3, False), weights / weights.sum(), rtol=1e-12)
    p = leader(sums, 0.3, True)
    assert p.sum() == pytest.approx(1.0, abs=1e-9)
    level = (0.3 * sums - p)[p > 0]
    np.testing.assert_allclose(level, level[0], rtol=0, atol=1e-9 * max(1.0, np.abs(sums).max()))
    assert (p >= 0).all()
    assert (0.3 * sums[p == 0] <= level[0] + 1e-9).all()


@pytest.mark.parametrize("algorithm", ["ftrl", "pftrl-kl", "pftrl-rkl"])
@pytest.mark.parametrize("regulariser", ["entropy", "euclidean"])
def test_the_strategy_follows_the_sums(algorithm, regulariser):
    setting = Setting("leduc")
    chosen = LabSettings(game="leduc", algorithm=algorithm, learning_rate=1e-4, regulariser=regulariser)
    solver = make(setting.flat, chosen, seed=1)
    solver.run(20_000)
    offset = setting.flat.tree.offset
    met = 0
    for state in range(setting.flat.states):
        sums = solver.tables.regret[offset[state] : offset[state + 1]]
        p = leader(sums, 1e-4, regulariser == "euclidean")
        np.testing.assert_allclose(solver.tables.strategy[offset[state] : offset[state + 1]], p, rtol=0, atol=1e-12)
        met += bool(sums.any())
    assert met > 100


def test_the_average_is_by_own_reach_of_the_iterates_it_takes_in():
    setting = Setting("kuhn")
    solver = make(setting.flat, LabSettings(game="kuhn", algorithm="pftrl-rkl", learning_rate=0.02), seed=1)
    every = solver.leader.average_every
    forms, sums = setting.case.game.sequences, 0.0
    for iteration in range(1, 50 * every + 1):
        solver.run(10**12, iteration)
        if iteration % every == 0:
            sums = sums + forms.own_reach(solver.current())[:, None] * solver.current()
    np.testing.assert_allclose(solver.average(), sums / sums.sum(axis=1, keepdims=True), rtol=0, atol=1e-12)


@pytest.mark.parametrize("every", [0, 7])
def test_anchors_are_replaced_when_they_are_due(every):
    setting = Setting("kuhn")
    chosen = LabSettings(game="kuhn", algorithm="pftrl-kl", learning_rate=0.02, anchor_every=every)
    solver = make(setting.flat, chosen, seed=1)
    expected = setting.flat.uniform()
    for iteration in range(1, 40):
        solver.run(10**12, iteration)
        if every and iteration % every == 0:
            expected = solver.tables.strategy.copy()
        assert np.array_equal(solver.leader.anchor, expected)


@pytest.mark.slow
def test_perturbation_helps_the_last_iterate_and_not_the_average():
    """Kuhn, 5 seeds of 3 million touches, uniform sampling, fixed anchor: FTRL's last iterate circles."""
    setting = Setting("kuhn")

    def ends(algorithm):
        perturbation = {} if algorithm == "ftrl" else {"strength": 0.1}
        chosen = LabSettings(game="kuhn", algorithm=algorithm, learning_rate=0.003, **perturbation)
        rows = []
        for seed in range(5):
            solver = make(setting.flat, chosen, seed)
            solver.run(3_000_000)
            nash_conv = setting.case.game.sequences.nash_conv
            rows.append((nash_conv(solver.current()) / 2, nash_conv(solver.average()) / 2))
        return np.mean(rows, axis=0)

    plain = ends("ftrl")
    for algorithm in ("pftrl-kl", "pftrl-rkl"):
        last, average = ends(algorithm)
        assert last < 0.6 * plain[0]
        assert average > plain[1]
