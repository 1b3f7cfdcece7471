"""The benchmarks run and give numbers; how fast anything is, is not asked here."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pyspiel
import pytest
import torch

from actors.games import registry

sys.path.append(str(Path(__file__).parents[2]))  # benchmarks/ is not part of the wheel

from benchmarks import __main__ as command
from benchmarks import exact, keeping, learning, playing, ranks, tabular
from benchmarks.measure import Budget, Result, Target, compare, rates

TINY = Budget(slice_seconds=0.0, rounds=1)


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def check(results: list[Result], expected: int) -> None:
    assert len(results) == expected
    for result in results:
        assert math.isfinite(result.ours)
        assert result.ours > 0
        assert math.isfinite(result.bare)
        assert result.bare > 0
        assert math.isfinite(result.ratio)
        assert result.ratio > 0
        assert result.bare_limit
        assert (result.reached is None) == (not result.target)


def test_tree_sampler():
    check(playing.tree_sampler(TINY, chunks=(50,)), 3)


def test_simulator():
    results = playing.simulator(TINY, chunks=(8,))
    check(results, 8)
    assert {result.case.split(",")[1] for result in results} == {" dream", " os-sd-cfr"}


def test_learners():
    check(learning.advantage_learner(TINY, rows=5000, batch=1024, steps=2), 2)
    check(learning.baseline_learner(TINY, rows=5000, batch=64, steps=2), 1)


@pytest.mark.slow
def test_two_ranks():
    check(ranks.data_parallel(TINY, rows=5000, batch=64, steps=2), 2)


def test_exact_exploitability():
    check(exact.exact_exploitability(TINY, games=("leduc",)), 1)


def test_stored_average():
    check(exact.stored_average(TINY, iterations=12), 1)


def test_tabular_solvers():
    check(tabular.tabular_solvers(TINY, game="kuhn", touches=100), 3)


def test_buffers():
    check(keeping.buffers(TINY, chunk=64, capacity=2000), 5)


def test_openspiel_deep_cfr():
    pytest.importorskip("tree", reason="OpenSpiel's Deep CFR needs dm-tree")
    check(playing.openspiel_deep_cfr(TINY), 1)


def test_the_openspiel_policy_is_the_measured_table():
    game = registry.load("kuhn", "tree")
    table = playing.random_tables(game)[0].table
    theirs = pyspiel.nash_conv(pyspiel.load_game("kuhn_poker"), exact.openspiel_policy(game, table))
    assert theirs == pytest.approx(game.sequences.nash_conv(table), abs=1e-9)


def test_bare_stepping_counts_decisions():
    # Kuhn: 2 or 3 decisions in a game, and one terminal.
    decisions = playing.bare_stepping("kuhn", 200, by_law=True, terminals=False)()
    assert 400 < decisions < 600
    with_terminals = playing.bare_stepping("kuhn", 200, by_law=True, terminals=True)()
    assert with_terminals == decisions + 200


def test_bare_copies_copy_every_row():
    game = registry.load("kuhn", "tree")
    schema = keeping.regression_schema(game.state_column, 2)
    rows = learning.regression_rows(game, 10)
    work = keeping.bare_copies(schema, rows, capacity=25)
    assert [work() for _ in range(3)] == [10, 10, 10]


def test_rates_alternate_and_warm_up_once():
    calls: list[str] = []
    contestants = {name: (lambda name=name: calls.append(name) or 3.0) for name in "ab"}
    found = rates(contestants, Budget(slice_seconds=0.0, rounds=2))
    assert calls == list("ab" * 3)
    assert {name: len(rounds) for name, rounds in found.items()} == {"a": 2, "b": 2}
    assert np.isfinite(list(found.values())).all()


def test_targets():
    assert Target(ratio=0.8).reached(ours=1.0, ratio=0.8)
    assert not Target(ratio=0.8).reached(ours=1.0, ratio=0.79)
    assert not Target(rate=50.0).reached(ours=49.0, ratio=9.0)
    (result,) = compare("b", "c", "rows", lambda: 1.0, {}, TINY, {"": Target(rate=1e12)})
    assert math.isnan(result.ratio)
    assert result.reached is False
    assert json.loads(json.dumps(result.document()))["ratio"] is None


def test_command_prints_one_json_document(capsys: pytest.CaptureFixture[str]):
    assert command.main(["baseline_learner", "--json", "--slice", "0", "--rounds", "1"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [result["benchmark"] for result in document["results"]] == ["baseline_learner"]


def test_command_refuses_unknown_names(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        command.main(["samplers"])
    assert caught.value.code == 2
    assert "tree_sampler" in capsys.readouterr().err
