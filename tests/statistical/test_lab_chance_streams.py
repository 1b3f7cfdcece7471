"""Chance streams inside the loops: those of the deep samplers, marginally exact, and of low discrepancy.

Level 1e-6 per test. Means over runs: 2,000 runs of 20 iterations each in Kuhn (n = 40,000, dependent within a run); a
bias of one state's regret is detected from about 0.007 chips on (external sampling, median over the cells).
"""

import numpy as np
import pytest
from oracles.bridge import case, random_table
from oracles.mutants import mutated
from oracles.traversals import check_batches
from scipy import stats

from actors.sampling.chance import Weyl
from dream.laboratory import solvers
from dream.laboratory.diagnostics import chance_diagnostics, frequency_errors
from dream.laboratory.flat_game import FlatGame
from dream.laboratory.kernels import chance, external
from dream.laboratory.kernels.randomness import to_uniform
from dream.laboratory.settings import LabSettings
from dream.laboratory.solvers import frozen, make

STREAMS = ["antithetic", "weyl", "weyl-iteration", "weyl-traversal", "antithetic-by-traverser", "weyl-by-traverser"]


def run_of(name, stream, touches, seed=7, algorithm="es-mccfr"):
    flat = FlatGame.build(case(name).game)
    solver = make(flat, LabSettings(game=name, algorithm=algorithm, chance=stream), seed)
    solver.run(touches)
    return solver


def draws(solver, rows, traverser=0):
    return np.array([chance.stream_uniform(solver.streams, row, traverser, solver.generator) for row in rows])


@pytest.mark.parametrize("seed", [0, 3, 2**63 - 1])
def test_weyl_streams_are_the_deep_samplers_bit_by_bit(seed):
    solver = run_of("leduc", "weyl", 0, seed)
    rows = np.random.default_rng(1).integers(0, 157, 2000)
    nodes = solver.flat.chance_nodes[rows]
    assert np.array_equal(draws(solver, rows), Weyl(seed).draw(nodes, np.zeros(len(rows))))


def test_antithetic_streams_come_in_pairs_per_node():
    solver = run_of("leduc", "antithetic", 0)
    rows = np.random.default_rng(1).integers(0, 3, 600)
    u = draws(solver, rows)
    for row in range(3):
        mine = u[rows == row]
        pairs = mine[: len(mine) // 2 * 2].reshape(-1, 2)
        np.testing.assert_allclose(pairs.sum(axis=1), 1.0, atol=1e-15)
        assert len(np.unique(pairs[:, 0])) == len(pairs)


@pytest.mark.parametrize("algorithm", ["es-mccfr", "os-mccfr", "ftrl"])
def test_weyl_frequencies_keep_their_bound(algorithm):
    """Every chance node of Leduc: frequency error below 3 log(N + 1) / N."""
    found = run_of("leduc", "weyl", 1_000_000, algorithm=algorithm)
    diagnostics = chance_diagnostics(found.flat, found.streams)
    assert diagnostics["frequency_error_scaled"] < 3.0
    assert diagnostics["chance_nodes_visited"] == diagnostics["chance_nodes"] == 157


@pytest.mark.parametrize("stream", ["iid", "antithetic", "weyl-iteration", "weyl-traversal"])
def test_other_streams_break_the_bound(stream):
    """Named mutants: every stream but the persistent one."""
    found = run_of("leduc", stream, 1_000_000)
    assert chance_diagnostics(found.flat, found.streams)["frequency_error_scaled"] > 3.0


def test_streams_by_traverser_do_not_disturb_each_other():
    """Traverser 0's are the streams of a solver with nobody else; traverser 1's have other phases."""
    solver = run_of("leduc", "weyl-by-traverser", 0)
    rng = np.random.default_rng(1)
    rows, traversers = rng.integers(0, 157, 2000), rng.integers(0, 2, 2000)
    u = np.array([draws(solver, [row], traverser)[0] for row, traverser in zip(rows, traversers, strict=True)])
    alone = run_of("leduc", "weyl", 0)
    assert np.array_equal(u[traversers == 0], draws(alone, rows[traversers == 0]))
    phases = np.array([chance.phase(solver.streams, stream) for stream in range(2 * 157)])
    assert len(np.unique(phases)) == 2 * 157


@pytest.mark.parametrize("traverser", [0, 1])
def test_every_traverser_sees_its_own_low_discrepancy(traverser):
    """Pairs of cards that player i's traversals of Leduc deal: far more even than with streams that both share.

    Below the root the other's traversals leave a player no Weyl sequence: that is the mutant.
    """
    spread = {}
    for stream in ("weyl", "weyl-by-traverser"):
        solver = run_of("leduc", stream, 0)
        pairs = np.zeros(30)
        for turn in range(6000):
            first = chance.draw_outcome(solver.flat.tree, solver.streams, 0, turn % 2, solver.generator)
            second = chance.draw_outcome(solver.flat.tree, solver.streams, 1 + first, turn % 2, solver.generator)
            pairs[5 * first + second] += turn % 2 == traverser
        spread[stream] = np.abs(pairs / 3000 - 1 / 30).max() * 3000
    assert spread["weyl-by-traverser"] < 4.0  # of 100 expected in each cell
    assert spread["weyl"] > 2.0 * spread["weyl-by-traverser"]


def check_law(solver):
    """Outcomes of Kuhn's chance nodes against their law, one chi-square; for draws that are independent."""
    seen, law = solver.streams.outcomes, solver.flat.tree.law
    expected = seen.sum(axis=1, keepdims=True) * law
    possible = expected > 0
    statistic = ((seen - expected) ** 2)[possible] / expected[possible]
    assert statistic.sum() < stats.chi2.isf(1e-6, possible.sum() - possible.any(axis=1).sum())


@pytest.mark.parametrize("stream", ["iid", "weyl-traversal"])
@pytest.mark.parametrize("algorithm", ["es-mccfr", "os-mccfr", "ftrl"])
def test_streams_started_anew_keep_the_law(algorithm, stream):
    check_law(run_of("kuhn", stream, 200_000, algorithm=algorithm))


def test_streams_started_anew_with_their_old_phase_are_rejected(monkeypatch):
    """Named mutant: a reset that keeps the phase makes every first draw the same number."""
    broken = mutated(external)
    streams = mutated(chance, ("if streams.epoch[0] > 0:", "if False:"))
    streams.to_uniform = lambda bits: to_uniform(np.uint64(bits))
    broken.draw_outcome = streams.draw_outcome
    monkeypatch.setattr(solvers, "run_external", broken.run_external)
    with np.errstate(over="ignore"), pytest.raises(AssertionError):
        check_law(run_of("kuhn", "weyl-traversal", 5_000))


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("index", [0, 1, 5])
def test_every_fixed_draw_is_uniform(stream, index):
    """The index-th draw of a node over 500 seeds; for reset streams with a reset before it."""
    found = []
    for seed in range(500):
        solver = run_of("kuhn", stream, 0, seed)
        solver.streams.epoch[0] = 3 if stream in ("weyl-iteration", "weyl-traversal") else 0
        found.append(draws(solver, [1] * (index + 1))[-1])
    assert stats.kstest(found, "uniform").pvalue > 1e-6


def run_means(algorithm, stream, runs=2000, traversals=20):
    """[runs, K] mean regrets of both players under a fixed strategy in Kuhn, each run with its own seed."""
    kuhn = case("kuhn")
    flat = FlatGame.build(kuhn.game)
    strategy = random_table(kuhn.game, np.random.default_rng(4))
    settings = LabSettings(game="kuhn", algorithm=algorithm, chance=stream)
    rows = []
    for seed in range(runs):
        solver = frozen(flat, settings, seed, strategy)
        solver.run(10**12, traversals)
        rows.append(solver.tables.moments[0] / traversals)
    r, _ = zip(*[kuhn.regrets(strategy, player)[:2] for player in (0, 1)], strict=True)
    return np.stack(rows), flat.flat(r[0] + r[1])


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("algorithm", ["es-mccfr", "os-mccfr"])
def test_no_stream_biases_the_regrets(algorithm, stream):
    means, expected = run_means(algorithm, stream)
    check_batches(means, expected, least=20)


def test_weyl_streams_lower_the_scatter_of_mean_regrets():
    """2,000 iterations of external sampling in Kuhn, whose other randomness is the opponent's; summed over entries."""
    scatter = {stream: run_means("es-mccfr", stream, 200, 2000)[0].var(axis=0).sum() for stream in ("iid", "weyl")}
    assert scatter["weyl"] < 0.85 * scatter["iid"]


def test_diagnostics_count_what_was_drawn():
    """Kuhn: a root of three outcomes, then two; each traversal draws at both."""
    solver = run_of("kuhn", "iid", 50_000)
    visits = solver.streams.outcomes.sum(axis=1)
    assert visits[0] == visits[1:].sum() == 2 * solver.iterations
    found = chance_diagnostics(solver.flat, solver.streams)
    assert (found["chance_nodes"], found["visited_once"]) == (4, 0.0)
    assert list(found["visits_quartiles"]) == list(np.quantile(visits, [0.25, 0.5, 0.75]))
    shares = solver.streams.outcomes[0] / visits[0]
    assert frequency_errors(solver.flat, solver.streams)[0] == pytest.approx(np.abs(shares - 1 / 3).max())
    once = run_of("leduc", "iid", 1)
    assert 0 < chance_diagnostics(once.flat, once.streams)["visited_once"] < 1
