"""Identity 4: over iterations, the weighted mean of a state's rows tends to D^T = R^T / sum_t t pi_{-i}.

T = 3 iterations with different strategies; n = 30,000 (Kuhn) or 40,000 (Leduc) outcome-sampled, 20,000 or 8,000
external traversals each; false-alarm rate 1e-6 per case. Tested is the residual sum of w (r~ - D^T), whose mean is 0.
"""

import numpy as np
import pytest
from oracles.bridge import case, random_table
from oracles.estimates import check_means

from actors.sampling import lanes
from actors.sampling.chance import Iid
from actors.sampling.external import ExternalSampler
from actors.sampling.outcome import OutcomeSampler
from actors.strategies.strategy import TableProfile
from buffers.merged import Merged
from buffers.rows import concatenate
from learners.table import exact_advantages

EPSILON = 0.5
ITERATIONS = 3
TRAVERSALS = {("kuhn", "outcome"): 30_000, ("leduc", "outcome"): 40_000}
TRAVERSALS |= {("kuhn", "external"): 20_000, ("leduc", "external"): 8_000}


class Run:
    """Rows of three iterations, and what their weighted means should be."""

    def __init__(self, name, kind, traverser):
        self.case, self.kind, self.traverser, self.n = case(name), kind, traverser, TRAVERSALS[name, kind]
        rng = np.random.default_rng(13)
        self.strategies = [random_table(self.case.game, rng) for _ in range(ITERATIONS)]
        regret, reach, self.visits = 0.0, 0.0, np.zeros(self.case.game.num_states)
        for t, strategy in enumerate(self.strategies, 1):
            r, others, _ = self.case.regrets(strategy, traverser)
            regret, reach = regret + t * r, reach + t * others
            self.visits += self.n * others * self._sampling_reach(strategy)
        self.expected = regret / np.where(reach > 0, reach, 1.0)[:, None]

    def _sampling_reach(self, strategy):
        if self.kind == "external":
            return 1.0
        legal = self.case.game.arrays.legal
        xi = EPSILON * legal / legal.sum(axis=1, keepdims=True) + (1 - EPSILON) * strategy
        return self.case.game.sequences.own_reach(xi)

    def rows(self, scaled=True):
        parts = []
        for t, strategy in enumerate(self.strategies, 1):
            keys = lanes.start(7, t, self.traverser, 0, self.n)
            game, profile = self.case.game, TableProfile(strategy)
            if self.kind == "external":
                result = ExternalSampler(game).sample(t, self.traverser, keys, profile, Iid())
            else:
                sampler = OutcomeSampler(game, EPSILON, scaled)
                result = sampler.sample(t, self.traverser, keys, profile, Iid())
            parts.append(result.advantage)
        return parts

    def check(self, parts):
        """Per traversal index, so that the draws are independent: the residual of each row has mean 0 in sum."""
        rows = concatenate(parts)
        residual = rows["weight"].astype(np.float64)[:, None] * (rows["target"] - self.expected[rows["key"]])
        zero = np.zeros(self.expected.shape)
        return check_means(rows["key"], residual, zero, ITERATIONS * self.n, self.visits)


@pytest.mark.parametrize("traverser", [0, 1])
@pytest.mark.parametrize("kind", ["outcome", "external"])
@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_weighted_means_are_linear_regrets(name, kind, traverser):
    run = Run(name, kind, traverser)
    assert run.check(run.rows()) >= (6 if name == "kuhn" else 150)


def test_plain_weights_serve_as_well():
    run = Run("leduc", "outcome", 0)
    run.check(run.rows(scaled=False))


def test_the_exact_table_is_that_mean():
    """Merged rows, fitted exactly, are within a few per cent of D^T in Kuhn."""
    run = Run("kuhn", "external", 0)
    game = run.case.game
    own = game.states_of(0)
    merged = Merged(game.arrays.num_states[0], run.case.num_actions, own.start)
    for rows in run.rows():
        merged.add(rows)
    np.testing.assert_allclose(exact_advantages(merged), run.expected[own], atol=0.1)


def uniform_weights(parts):
    return [rows | {"weight": rows["weight"] / t} for t, rows in enumerate(parts, 1)]


def counted_from_zero(parts):
    return [rows | {"weight": rows["weight"] * (t - 1) / t} for t, rows in enumerate(parts, 1)]


@pytest.mark.parametrize("mutant", [uniform_weights, counted_from_zero])
@pytest.mark.parametrize("kind", ["outcome", "external"])
def test_wrong_iteration_weights_are_rejected(kind, mutant):
    """Named mutants: every iteration weighs the same; weights t - 1."""
    run = Run("kuhn", kind, 1)
    with pytest.raises(AssertionError):
        run.check(mutant(run.rows()))


def label_mass(run, parts):
    return [rows | {"target": rows["target"] * rows["weight"][:, None] / t, "weight": rows["weight"] * 0 + t}
            for t, rows in enumerate(parts, 1)]  # fmt: skip


def no_reach(run, parts):
    return [rows | {"weight": np.full_like(rows["weight"], t)} for t, rows in enumerate(parts, 1)]


@pytest.mark.parametrize("mutant", [label_mass, no_reach])
def test_wrong_reach_weights_are_rejected(mutant):
    """Named mutants: importance mass in the label; no importance weight at all (xi differs between iterations)."""
    run = Run("kuhn", "outcome", 0)
    with pytest.raises(AssertionError):
        run.check(mutant(run, run.rows()))
