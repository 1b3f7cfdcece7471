"""Sampled regrets of the laboratory have the exact counterfactual regrets as their mean, whatever corrects them.

n = 100,000 traversals per case in Kuhn and the Python game, 200,000 in Leduc; false-alarm rate 1e-6 per case. A bias of
one state's regret is detected from about 0.006 chips on in Kuhn and 0.004 in Leduc (external sampling; medians over the
cells), 0.016 and 0.026 (outcome sampling, eps 0.5).
Mutants are run by the interpreter, with n = 40,000 traversals in Kuhn.
"""

import numpy as np
import pytest
from oracles import python_games
from oracles.bridge import case, random_table
from oracles.mutants import mutated
from oracles.traversals import check_batches, check_moments, single_traversals
from scipy import stats

from dream.laboratory import solvers
from dream.laboratory.diagnostics import regret_moments, regret_scatter
from dream.laboratory.flat_game import FlatGame
from dream.laboratory.kernels import external, outcome
from dream.laboratory.settings import LabSettings
from dream.laboratory.solvers import frozen, make

SECRET = python_games.SECRET
TRAVERSALS = {"kuhn": 100_000, "leduc": 200_000, SECRET: 100_000}
CELLS = {"kuhn": 8, "leduc": 100, SECRET: 6}
MUTANT_TRAVERSALS = 40_000


class Setting:
    """A fixed strategy in one game."""

    def __init__(self, name, traverser, pure=0.2):
        self.name, self.traverser, self.case = name, traverser, case(name)
        self.flat = FlatGame.build(self.case.game)
        self.rng = np.random.default_rng(11)
        self.strategy = random_table(self.case.game, self.rng, pure)

    def settings(self, algorithm, **settings):
        return LabSettings(game=self.name, algorithm=algorithm, **settings)

    def solver(self, settings, seed=5):
        """Learns nothing; baselines and control variates hold random numbers."""
        solver = frozen(self.flat, settings, seed, self.strategy)
        self.fill(solver.corrections())
        return solver

    def fill(self, tables):
        size = self.case.game.description.payoff_scale / 4
        for table in tables:
            table[:] = self.rng.uniform(-size, size, len(table))

    def check(self, settings, n=None, least=None):
        n = n or TRAVERSALS[self.name]
        solver = self.solver(settings)
        solver.advance(10**12, n, (self.traverser, self.traverser + 1))
        assert solver.iterations == n
        mean = solver.tables.moments[0] / n
        variance = np.maximum(solver.tables.moments[1] / n - mean**2, 0.0)
        r, others, _ = self.case.regrets(self.strategy, self.traverser)
        visits = n * others * self.sampling_reach(settings)
        least = CELLS[self.name] if least is None else least
        check_moments(self.flat.table(mean), self.flat.table(variance), n, r, visits, least)

    def sampling_reach(self, settings):
        """[S] what the traverser contributes to the frequency of its states."""
        if settings.algorithm == "es-mccfr":
            return 1.0
        legal = self.case.game.arrays.legal
        xi = settings.epsilon * legal / legal.sum(axis=1, keepdims=True) + (1 - settings.epsilon) * self.strategy
        return self.case.game.sequences.own_reach(xi)


OUTCOME = {
    "no baseline": {"algorithm": "os-mccfr"},
    "by history": {"algorithm": "vr-mccfr", "baseline": "history"},
    "by state": {"algorithm": "vr-mccfr", "baseline": "information-state"},
    "at chance only": {"algorithm": "vr-mccfr", "baseline": "none", "chance_baseline": True},
    "by history and at chance": {"algorithm": "vr-mccfr", "baseline": "history", "chance_baseline": True},
    "by state and at chance": {"algorithm": "vr-mccfr", "baseline": "information-state", "chance_baseline": True},
}


GAMES = [("kuhn", 0.5), (SECRET, 0.5)]
GAMES += [pytest.param("leduc", epsilon, marks=pytest.mark.slow) for epsilon in (0.1, 0.5, 1.0)]
GAMES += [pytest.param(name, epsilon, marks=pytest.mark.slow) for name in ("kuhn", SECRET) for epsilon in (0.1, 1.0)]


@pytest.mark.parametrize("variate", [False, True], ids=["plain", "control variate"])
@pytest.mark.parametrize("traverser", [0, 1])
@pytest.mark.parametrize("name", ["kuhn", "leduc", SECRET])
def test_external_sampling_is_unbiased(name, traverser, variate):
    setting = Setting(name, traverser)
    setting.check(setting.settings("es-mccfr", control_variate=variate))


@pytest.mark.parametrize("kind", OUTCOME)
@pytest.mark.parametrize("traverser", [0, 1])
@pytest.mark.parametrize(("name", "epsilon"), GAMES)
def test_any_baseline_is_unbiased(name, traverser, epsilon, kind):
    setting = Setting(name, traverser)
    setting.check(setting.settings(**OUTCOME[kind], epsilon=epsilon), least=CELLS[name] // 2)


EXTERNAL_MUTANTS = {
    "the mean not taken off": (
        True,
        ("value = sampled - variate.mean[chosen]", "value = sampled"),
    ),
    "the value under the sampled action": (
        False,
        ("tables.strategy[slot] * paths.value[below + slot - start]", "paths.value[below + slot - start] / 2"),
    ),
    "player 1 paid as player 0": (False, ("sign * tree.payoff[node]", "tree.payoff[node]")),
    "the opponent plays evenly": (
        False,
        ("sample_slot(tables.strategy, start, stop,", "sample_slot(np.full(stop, 1 / (stop - start)), start, stop,"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", EXTERNAL_MUTANTS)
def test_broken_external_sampling_is_rejected(mutant, monkeypatch):
    variate, change = EXTERNAL_MUTANTS[mutant]
    monkeypatch.setattr(solvers, "run_external", mutated(external, change).run_external)
    setting = Setting("kuhn", 1, pure=0.0)
    with pytest.raises(AssertionError, match="expected"):
        setting.check(setting.settings("es-mccfr", control_variate=variate), MUTANT_TRAVERSALS, 4)


OUTCOME_MUTANTS = {
    "baseline kept in the sampled value": ("gain += (below - gain) /", "gain += below /"),
    "importance of the action forgotten": ("(below - gain) / paths.value[depth]", "(below - gain)"),
    "value under xi": (
        "value += tables.strategy[slot] * gain",
        "value += (epsilon / (stop - start) + (1 - epsilon) * tables.strategy[slot]) * gain",
    ),
    "own exploration not undone": ("(1.0 - 2.0 * traverser) / paths.reach[depth]", "(1.0 - 2.0 * traverser)"),
    "the opponent explores": ("epsilon if player == traverser else 0.0", "epsilon"),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [None, *OUTCOME_MUTANTS])
def test_broken_outcome_sampling_is_rejected(mutant, monkeypatch):
    """Without a mutation the interpreted kernel passes the same check."""
    broken = mutated(outcome, *([OUTCOME_MUTANTS[mutant]] if mutant else []))
    broken.epsilon = 0.5
    monkeypatch.setattr(solvers, "run_outcome", broken.run_outcome)
    setting = Setting("kuhn", 0, pure=0.0)
    settings = setting.settings(**OUTCOME["by history and at chance"], epsilon=0.5)
    if mutant is None:
        setting.check(settings, MUTANT_TRAVERSALS, 4)
        return
    with pytest.raises(AssertionError, match="expected"):
        setting.check(settings, MUTANT_TRAVERSALS, 4)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [False, True])
def test_a_chance_baseline_not_taken_off_is_rejected(mutant, monkeypatch):
    """In Leduc, whose second chance node has decisions above it; n = 10,000, a baseline of 8 chips everywhere."""
    change = ("value = below - baseline.history[child + taken]", "value = below")
    monkeypatch.setattr(solvers, "run_outcome", mutated(outcome, *([change] if mutant else [])).run_outcome)
    monkeypatch.setattr(Setting, "fill", lambda setting, tables: [table.fill(8.0) for table in tables])
    setting = Setting("leduc", 0, pure=0.0)
    settings = setting.settings(**OUTCOME["at chance only"], epsilon=0.5)
    if not mutant:
        setting.check(settings, 10_000, 20)
        return
    with pytest.raises(AssertionError, match="expected"):
        setting.check(settings, 10_000, 20)


# --- no variance with the true values -----------------------------------------------------------------------


def true_values(setting):
    """[N] player 0's value of every history."""
    arrays, strategy = setting.case.game.arrays, setting.flat.flat(setting.strategy)
    tree, value = setting.flat.tree, arrays.payoff.copy()
    for node in range(arrays.nodes - 1, -1, -1):
        row, child = tree.row[node], tree.first_child[node]
        if arrays.player[node] >= 0:
            start, stop = tree.offset[row], tree.offset[row + 1]
            value[node] = strategy[start:stop] @ value[child : child + stop - start]
        elif child >= 0:
            law = tree.law[row][tree.law[row] > 0]
            value[node] = law @ value[child : child + len(law)]
    return value


def check_no_variance(setting, settings, changes=lambda values: values, n=300):
    """In every single sample the regrets are (v(h, a) - v(h)) / pi_i^xi of the histories that were visited."""
    tree, arrays, true = setting.flat.tree, setting.case.game.arrays, true_values(setting)
    solver = setting.solver(settings)
    solver.baseline.history[:] = changes(true)
    seen = 0
    for entries, _ in single_traversals(solver, setting.traverser, n):
        expected = np.zeros(setting.flat.slots)
        for depth, node in enumerate(solver.paths.node):
            if arrays.player[node] == setting.traverser:
                start, stop = tree.offset[tree.row[node]], tree.offset[tree.row[node] + 1]
                child = tree.first_child[node]
                gains = (true[child : child + stop - start] - true[node]) * (1 - 2 * setting.traverser)
                expected[start:stop] = gains / solver.paths.reach[depth]
                seen += 1
            if arrays.player[node] == -2:
                break
        np.testing.assert_allclose(entries, expected, rtol=0, atol=1e-9)
    assert seen >= n / 4


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("traverser", [0, 1])
@pytest.mark.parametrize(("name", "kind"), [("kuhn", "by history"), ("leduc", "by history and at chance")])
def test_true_values_leave_no_variance(name, kind, traverser, epsilon):
    """Kuhn draws chance at the root only; elsewhere chance needs its baseline."""
    setting = Setting(name, traverser)
    check_no_variance(setting, setting.settings(**OUTCOME[kind], epsilon=epsilon))


@pytest.mark.parametrize(("kind", "changes"), [("by history and at chance", np.negative), ("by history", np.copy)])
@pytest.mark.parametrize("traverser", [0, 1])
def test_wrong_use_of_true_values_is_rejected(kind, changes, traverser):
    """Named mutants (unbiased, so only this test sees them): wrong sign; chance without its baseline."""
    setting = Setting("leduc", traverser, pure=0.0)
    with pytest.raises(AssertionError):
        check_no_variance(setting, setting.settings(**OUTCOME[kind], epsilon=0.5), changes)


def test_learned_baselines_lower_the_variance():
    """A baseline learned by history for 20,000 iterations; the strategy is random."""
    setting = Setting("leduc", 0)
    settings = setting.settings("vr-mccfr", chance_baseline=True, decay=0.0)
    learner = make(setting.flat, settings, seed=4)
    learner.tables.strategy[:] = setting.flat.flat(setting.strategy)
    before = learner.tables.strategy.copy()
    for iteration in range(1, 20_001):
        learner.run(10**12, iteration)
        learner.tables.strategy[:] = before
    unlearned = frozen(setting.flat, settings, 3, setting.strategy)
    assert regret_scatter(learner, 3, 20_000) < 0.6 * regret_scatter(unlearned, 3, 20_000)


# --- averages -----------------------------------------------------------------------------------------------


def test_scatter_is_the_mean_variance_of_both_players_estimates():
    """The moments of each player, measured separately; the solver goes on as if nothing had been measured."""
    setting = Setting("kuhn", 0)
    solver, twin = (make(setting.flat, setting.settings("es-mccfr"), seed=4) for _ in range(2))
    solver.run(2000)
    strategy, legal = solver.current(), setting.case.game.arrays.legal
    moments = [regret_moments(setting.flat, solver.settings, strategy, player, 50_000, seed=3) for player in (0, 1)]
    variance = sum(variance for _, variance in moments)
    assert regret_scatter(solver, 5, 50_000) == pytest.approx(variance[legal].mean(), rel=0.05)
    solver.run(5000)
    twin.run(5000)
    assert np.array_equal(solver.tables.regret, twin.tables.regret)


def average_numerators(setting, settings, batches, per_batch):
    """[B, K] the opponent's numerators of batches of traversals under the fixed strategy."""
    solver = frozen(setting.flat, settings, 8, setting.strategy)
    rows = []
    for batch in range(1, batches + 1):
        solver.tables.cumulative[:] = 0.0
        solver.advance(10**12, batch * per_batch, (setting.traverser, setting.traverser + 1))
        rows.append(solver.tables.cumulative / per_batch)
    return np.stack(rows)


def check_average(setting, settings, batches=200, per_batch=1000):
    """Numerators are pi_i(I) sigma(I, a) times the chance probability of I's histories: n = 200,000 traversals."""
    game = setting.case.game
    forms = game.sequences
    chance = np.bincount(forms.decision_state, weights=forms.decision_chance, minlength=setting.flat.states)
    expected = (chance * forms.own_reach(setting.strategy))[:, None] * setting.strategy
    mine = np.zeros(setting.flat.states, bool)
    mine[game.states_of(1 - setting.traverser)] = True
    expected[~mine] = 0.0
    numerators = average_numerators(setting, settings, batches, per_batch)
    check_batches(numerators, setting.flat.flat(expected), least=5)


@pytest.mark.parametrize("algorithm", ["es-mccfr", "os-mccfr"])
@pytest.mark.parametrize("traverser", [0, 1])
@pytest.mark.parametrize("name", ["kuhn", "leduc", SECRET])
def test_averages_are_weighted_by_own_reach(name, traverser, algorithm):
    setting = Setting(name, traverser)
    check_average(setting, setting.settings(algorithm))


@pytest.mark.slow
def test_averages_that_keep_the_exploration_are_rejected(monkeypatch):
    """Named mutant: no division by the traverser's pi^xi; n = 40,000."""
    change = ("weight = share / paths.reach[depth]", "weight = share")
    monkeypatch.setattr(solvers, "run_outcome", mutated(outcome, change).run_outcome)
    setting = Setting("kuhn", 1, pure=0.0)
    with pytest.raises(AssertionError, match="beyond"):
        check_average(setting, setting.settings("os-mccfr"), batches=40, per_batch=1000)


# --- whole runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["es-mccfr", "os-mccfr"])
@pytest.mark.parametrize("update", ["discounted", "linear"])
def test_waiting_discounts_are_the_discounts_of_the_whole_table(algorithm, update):
    """Discounts applied to every regret after every iteration give the same run, from the same seed."""
    setting = Setting("kuhn", 0)
    settings = setting.settings(algorithm, update=update)
    waiting = make(setting.flat, settings, seed=9)
    eager = make(setting.flat, setting.settings(algorithm), seed=9)
    alpha, beta = (1.5, 0.0) if update == "discounted" else (1.0, 1.0)
    for t in range(1, 401):
        waiting.run(10**12, t)
        eager.run(10**12, t)
        regret = eager.tables.regret
        regret *= np.where(regret > 0, t**alpha / (t**alpha + 1), t**beta / (t**beta + 1))
        np.testing.assert_allclose(waiting.current(), eager.current(), rtol=0, atol=1e-9)


def openspiel_exploitabilities(runs, iterations):
    import pyspiel

    game = pyspiel.load_game("kuhn_poker")
    found = []
    for seed in range(runs):
        solver = pyspiel.ExternalSamplingMCCFRSolver(game, seed, pyspiel.MCCFRAverageType.SIMPLE)
        for _ in range(iterations):
            solver.run_iteration()
        found.append(pyspiel.nash_conv(game, solver.average_policy()) / 2)
    return np.array(found)


def our_exploitabilities(setting, runs, iterations, **settings):
    found = []
    for seed in range(runs):
        solver = make(setting.flat, setting.settings("es-mccfr", **settings), seed)
        solver.run(10**12, iterations)
        found.append(setting.case.game.sequences.nash_conv(solver.average()) / 2)
    return np.array(found)


def same_distribution(ours, theirs):
    assert stats.ks_2samp(ours, theirs).pvalue > 1e-6


@pytest.mark.slow
def test_external_sampling_ends_where_openspiels_does():
    """Exploitability after 200 iterations: Kolmogorov-Smirnov on 600 runs of each, level 1e-6.

    Detects a shift of the mean by 0.4 standard deviations. Named mutant: Linear CFR's weights.
    """
    setting = Setting("kuhn", 0)
    theirs = openspiel_exploitabilities(600, 200)
    same_distribution(our_exploitabilities(setting, 600, 200), theirs)
    with pytest.raises(AssertionError):
        same_distribution(our_exploitabilities(setting, 600, 200, update="linear"), theirs)


@pytest.mark.parametrize("update", ["vanilla", "cfr+", "linear", "discounted"])
@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm": "es-mccfr"},
        {"algorithm": "es-mccfr", "control_variate": True},
        {"algorithm": "os-mccfr"},
        {"algorithm": "vr-mccfr"},
        {"algorithm": "vr-mccfr", "baseline": "information-state", "decay": 0.0, "chance_baseline": True},
    ],
    ids=["es", "es-variate", "os", "vr", "vr-state"],
)
def test_every_combination_approaches_an_equilibrium(settings, update):
    setting = Setting("kuhn", 0)
    solver = make(setting.flat, setting.settings(**settings, update=update), seed=2)
    solver.run(500_000)
    assert setting.case.game.sequences.nash_conv(solver.average()) / 2 < 0.05
