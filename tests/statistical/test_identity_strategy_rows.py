"""Strategy rows: over iterations, their weighted mean at a state tends to the linear average of what was played.

T = 3 iterations with different strategies of both players; n = 40,000 (outcome) or 20,000 (external) traversals each;
false-alarm rate 1e-6 per case. Tested is the residual sum of w (sigma^t(I) - avg^T(I)), whose mean is 0. A shift of the
average of one action by about 0.02 is detected in Kuhn.
"""

import numpy as np
import pytest
from oracles import python_games
from oracles.bridge import case, random_table
from oracles.estimates import check_means

from actors.sampling import lanes
from actors.sampling.chance import Iid
from actors.sampling.external import ExternalSampler
from actors.sampling.outcome import OutcomeSampler
from actors.strategies.strategy import TableProfile
from buffers.rows import concatenate

EPSILON = 0.5
ITERATIONS = 3
TRAVERSALS = {"outcome": 40_000, "external": 20_000}


class Run:
    """Rows of the opponent of `traverser` over three iterations."""

    def __init__(self, name, kind, traverser):
        self.case, self.kind, self.traverser, self.n = case(name), kind, traverser, TRAVERSALS[kind]
        game, rng = self.case.game, np.random.default_rng(41)
        self.strategies = [random_table(game, rng) for _ in range(ITERATIONS)]
        forms = game.sequences
        sums = sum(t * forms.own_reach(s)[:, None] * s for t, s in enumerate(self.strategies, 1))
        self.average = sums / sums.sum(axis=1, keepdims=True)
        legal = game.arrays.legal
        self.visits = np.zeros(game.num_states)
        opponent = game.states_of(1 - traverser)
        for s in self.strategies:
            xi = EPSILON * legal / legal.sum(axis=1, keepdims=True) + (1 - EPSILON) * s
            reach = forms.own_reach(s) * forms.opponent_reach(xi if kind == "outcome" else legal * 1.0)
            self.visits[opponent] += self.n * reach[opponent]

    def rows(self):
        parts = []
        for t, strategy in enumerate(self.strategies, 1):
            keys, profile = lanes.start(7, t, self.traverser, 0, self.n), TableProfile(strategy)
            if self.kind == "external":
                sampler = ExternalSampler(self.case.game, keep_strategy=True)
            else:
                sampler = OutcomeSampler(self.case.game, EPSILON, keep_strategy=True)
            parts.append(sampler.sample(t, self.traverser, keys, profile, Iid()).strategy)
        return parts

    def check(self, parts):
        """External sampling may meet a state twice in a traversal; in Kuhn it does not."""
        rows = concatenate(parts)
        residual = rows["weight"].astype(np.float64)[:, None] * (rows["target"] - self.average[rows["key"]])
        zero = np.zeros(self.average.shape)
        return check_means(rows["key"], residual, zero, ITERATIONS * self.n, self.visits)


@pytest.mark.parametrize(
    ("name", "kind", "traverser"),
    [
        ("kuhn", "external", 0),
        ("kuhn", "external", 1),
        (python_games.SECRET, "outcome", 0),
        (python_games.SECRET, "outcome", 1),
        ("kuhn", "outcome", 0),
        ("kuhn", "outcome", 1),
    ],
)
def test_weighted_means_are_the_linear_average(name, kind, traverser):
    run = Run(name, kind, traverser)
    assert run.check(run.rows()) >= 6


def uniform_weights(t, rows):
    return rows | {"weight": rows["weight"] / t}


def own_reach_again(t, rows):
    return rows | {"weight": rows["weight"] * rows["target"].max(axis=1)}


@pytest.mark.parametrize("mutant", [uniform_weights, own_reach_again])
@pytest.mark.parametrize("traverser", [0, 1])
def test_wrong_weights_are_rejected(traverser, mutant):
    """Named mutants: every iteration weighs the same; a weight by the player's own probability of acting."""
    run = Run("kuhn", "external", traverser)
    with pytest.raises(AssertionError):
        run.check([mutant(t, rows) for t, rows in enumerate(run.rows(), 1)])
