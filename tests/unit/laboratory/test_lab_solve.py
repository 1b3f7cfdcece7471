"""One run of every solver: points, budgets, seeds, and what is refused."""

import numpy as np
import pytest
from pydantic import ValidationError

from dream.laboratory.settings import LabSettings
from dream.laboratory.solve import flat_game, solve

SAMPLED = ["es-mccfr", "os-mccfr", "vr-mccfr", "ftrl", "pftrl-kl", "pftrl-rkl"]


def kuhn(algorithm, **settings):
    return LabSettings(game="kuhn", algorithm=algorithm, **settings)


@pytest.mark.parametrize("algorithm", ["cfr", *SAMPLED])
def test_a_run_is_measured_at_its_points(algorithm):
    curve = solve(kuhn(algorithm), seed=3, touches=3000, points=[1, 500, 2900])
    longest = 2 * len(flat_game("kuhn").game.arrays.player)  # touches of an iteration
    assert (curve.touches >= [1, 500, 2900]).all()
    assert (curve.touches < np.array([1, 500, 2900]) + longest).all()
    assert curve.iterations[0] == 1
    assert (np.diff(curve.iterations) > 0).all()
    assert ((curve.average > 0) & (curve.average <= 2)).all()
    assert ((curve.last >= 0) & (curve.last <= 2)).all()
    assert -0.5 < curve.value < 0.5


@pytest.mark.parametrize("chance", ["iid", "antithetic", "weyl", "weyl-iteration", "weyl-traversal"])
@pytest.mark.parametrize("algorithm", SAMPLED)
def test_a_seed_is_a_run(algorithm, chance):
    settings = kuhn(algorithm, chance=chance)
    one = solve(settings, seed=3, touches=2000, points=[2000])
    same = solve(settings, seed=3, touches=2000, points=[100, 1300, 2000])
    other = solve(settings, seed=4, touches=2000, points=[2000])
    assert (one.average[-1], one.last[-1], one.value) == (same.average[-1], same.last[-1], same.value)
    assert one.average[-1] != other.average[-1]


@pytest.mark.parametrize("points", [[], [0, 10], [10, 10], [20, 10], [10, 101]])
def test_points_must_ascend_within_the_budget(points):
    with pytest.raises(ValueError, match=r"must ascend, from 1 to touches=100"):
        solve(kuhn("cfr"), seed=1, touches=100, points=points)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"algorithm": "cfr", "chance": "weyl"}, "chance=weyl does not go with algorithm=cfr"),
        ({"algorithm": "ftrl", "chance": "weyl-by-traverser"}, "both players learn from one path"),
        ({"algorithm": "ftrl", "update": "linear"}, "update=linear does not go with algorithm=ftrl"),
        ({"algorithm": "ftrl", "strength": 0.5}, "strength=0.5 does not go with algorithm=ftrl"),
        ({"algorithm": "os-mccfr", "control_variate": True}, "control_variate=True does not go"),
        ({"algorithm": "es-mccfr", "update": "linear", "alpha": 2.0}, "goes with update=discounted only"),
        ({"algorithm": "cfr", "epsilom": 0.5}, "Extra inputs"),
        ({"algorithm": "es-mccfr", "learning_rate": True}, "must be a number, not true"),
    ],
)
def test_settings_that_would_be_ignored_are_refused(settings, words):
    with pytest.raises(ValidationError, match=words):
        LabSettings(game="kuhn", **settings)


def test_defaults_may_be_written_out():
    plain = kuhn("cfr")
    assert LabSettings(**plain.model_dump()) == plain


def test_a_game_without_chance():
    curve = solve(LabSettings(game="goofspiel-4", algorithm="es-mccfr"), seed=1, touches=20_000, points=[20_000])
    assert curve.average[-1] < 0.5
    assert curve.diagnostics["chance_nodes_visited"] == 0
    assert np.isnan(curve.diagnostics["frequency_error"])
