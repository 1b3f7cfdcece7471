"""Small runs of every method in this process: training, going on, evaluating from the store."""

import json
from pathlib import Path

import numpy as np
import pytest
from oracles.tiny_runs import MERGED, RESERVOIR, assert_same_run, exploitabilities, metrics

import dream
from actors.games.tree import TreeGame
from dream import config, wiring
from dream.config import Algorithm
from dream.errors import ConfigError, UsageError
from dream.identity import SETTLED
from dream.store import RunFolder
from dream.store.errors import CheckpointError, RunFolderError

ALGORITHMS = ("dream", "dream-avg", "sd-cfr", "os-sd-cfr", "deep-cfr")


def train(folder: Path, settings: list[str], algorithm: str = "dream", iterations: int = 4) -> dream.Result:
    overrides = [*settings, f"iterations={iterations}"]
    return dream.train(f"kuhn-{algorithm}-quick", run_dir=folder, overrides=overrides, progress=False)


@pytest.mark.parametrize("settings", [MERGED, RESERVOIR], ids=["merged", "reservoir"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_stored_networks_evaluate_to_what_the_run_reported(
    tmp_path: Path, algorithm: Algorithm, settings: list[str]
) -> None:
    result = train(tmp_path / "run", settings, algorithm)
    reported = exploitabilities(result.evaluations)
    assert list(reported) == [1, 2, 3, 4]
    if algorithm in ("dream", "sd-cfr", "os-sd-cfr"):
        stored = exploitabilities(dream.evaluate(result.run_dir, [1, 2, 3, 4]))
        assert reported[1] == pytest.approx(0.4583333, abs=1e-6)  # sigma^1 is uniform
    else:
        stored = exploitabilities(dream.evaluate(result.run_dir))
        reported = {4: reported[4]}
    assert stored == pytest.approx(reported, abs=1e-9)
    assert result.average == ("network" if algorithm in ("dream-avg", "deep-cfr") else "bank")


VARIANTS = {
    "weyl, two shards": ("sd-cfr", [*RESERVOIR, "sampling.chance=weyl", "runtime.shards=2"]),
    "antithetic, plain weights": (
        "os-sd-cfr",
        [*RESERVOIR, "sampling.chance=antithetic", "sampling.reach_weight=plain"],
    ),
    "tables": ("dream", [*MERGED, "advantage.learner=table", "baseline.learner=table"]),
    "simultaneous": ("dream", [*RESERVOIR, "sampling.updates=simultaneous"]),
    "fine-tuned": ("dream", [*MERGED, "advantage.reset_every=3", "advantage.fine_tune_steps=5"]),
    "normalised layers": (
        "dream-avg",
        [*RESERVOIR, "advantage.network.layer_norm=true", "average.loss=mse"],
    ),
    "exact sampler": ("deep-cfr", [*MERGED, "sampling.sampler=exact"]),
    "simulator": (
        "dream-avg",
        [*RESERVOIR, "sampling.backend=simulator", "sampling.chance=weyl", "evaluation.by=none"],
    ),
    "small chunks": ("dream", [*RESERVOIR, "sampling.chunk=7"]),
}


@pytest.mark.parametrize(("algorithm", "settings"), VARIANTS.values(), ids=VARIANTS)
def test_a_resumed_run_is_the_run_that_never_stopped(tmp_path: Path, algorithm: str, settings: list[str]) -> None:
    whole = train(tmp_path / "whole", settings, algorithm, iterations=4)
    part = train(tmp_path / "part", settings, algorithm, iterations=2)
    assert part.iteration == 2
    result = dream.resume(tmp_path / "part", ["iterations=4"], progress=False)
    assert (result.iteration, result.states) == (4, whole.states)
    assert_same_run(tmp_path / "part", tmp_path / "whole")


@pytest.mark.slow  # two threads that fit and two that help them crawl on a busy machine
def test_learners_side_by_side_resume_to_the_same_bits(tmp_path: Path) -> None:
    settings = [*RESERVOIR, "sampling.updates=simultaneous", "runtime.threads=2"]
    train(tmp_path / "whole", settings, iterations=4)
    train(tmp_path / "part", settings, iterations=2)
    dream.resume(tmp_path / "part", ["iterations=4"], progress=False)
    assert_same_run(tmp_path / "part", tmp_path / "whole")


def test_a_different_seed_is_a_different_run(tmp_path: Path) -> None:
    """The comparison above can fail."""
    train(tmp_path / "one", RESERVOIR, iterations=2)
    train(tmp_path / "two", [*RESERVOIR, "seed=2"], iterations=2)
    with pytest.raises(AssertionError):
        assert_same_run(tmp_path / "one", tmp_path / "two")


def test_chunks_do_not_change_the_rows_nor_what_is_said_of_them(tmp_path: Path) -> None:
    one = train(tmp_path / "one", [*MERGED, "advantage.learner=table"], "sd-cfr", iterations=3)
    many = train(tmp_path / "many", [*MERGED, "advantage.learner=table", "sampling.chunk=7"], "sd-cfr", iterations=3)
    assert one.states == many.states
    values = exploitabilities(one.evaluations)
    assert exploitabilities(many.evaluations) == pytest.approx(values, abs=1e-6)


@pytest.mark.parametrize("algorithm", ["sd-cfr", "dream"])
def test_the_simulator_plays_the_tree_s_traversals(tmp_path: Path, algorithm: str) -> None:
    """Same random numbers, same rows; networks differ by rounding alone (batches of other sizes)."""
    settings = [*RESERVOIR, "evaluation.by=none"]
    tree = train(tmp_path / "tree", settings, algorithm)
    simulator = train(tmp_path / "simulator", [*settings, "sampling.backend=simulator"], algorithm)
    assert tree.states == simulator.states
    assert tree.exploitability_chips is simulator.exploitability_chips is None
    folders = [RunFolder.open(run.run_dir) for run in (tree, simulator)]
    commits = [folder.checkpoints.load_newest().parts for folder in folders]
    for name in ("advantage_rows_0", "advantage_rows_1"):
        first, second = (commit[name] for commit in commits)
        assert np.array_equal(first["buffer.rows.priority"], second["buffer.rows.priority"])
        for column in ("target", "weight"):
            column = f"buffer.rows.{column}"
            np.testing.assert_allclose(first[column], second[column], atol=1e-4)
    for kind in ("advantage_0", "advantage_1"):
        first, second = (folder.networks.stack(kind, 1, 4) for folder in folders)
        for name in first:
            np.testing.assert_allclose(first[name], second[name], atol=1e-4)


def test_a_run_killed_before_its_first_commit_starts_again(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", MERGED, iterations=3)
    settings = config.load("kuhn-dream-quick", [*MERGED, "iterations=3"])
    RunFolder.create(tmp_path / "begun", config.to_yaml(config.resolve(settings)))
    result = dream.resume(tmp_path / "begun", progress=False)
    assert result.iteration == whole.iteration
    assert_same_run(tmp_path / "begun", tmp_path / "whole")


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    train(tmp_path, MERGED, iterations=2)
    before = metrics(tmp_path)
    result = dream.resume(tmp_path, progress=False)
    assert result.iteration == 2
    assert metrics(tmp_path) == before


def test_only_newest_commits_are_kept(tmp_path: Path) -> None:
    train(tmp_path, [*MERGED, "checkpoint.every=1", "checkpoint.keep=2"], iterations=4)
    assert RunFolder.open(tmp_path).checkpoints.iterations() == [3, 4]


def test_what_cannot_be_evaluated_is_said(tmp_path: Path) -> None:
    result = train(tmp_path / "avg", MERGED, "dream-avg", iterations=2)
    with pytest.raises(UsageError, match="average network of iteration 1 cannot be fitted any more"):
        dream.evaluate(result.run_dir, [1])
    with pytest.raises(UsageError, match="iteration 3 is not stored; allowed are 1 to 2"):
        dream.evaluate(result.run_dir, [3], "bank")
    assert len(dream.evaluate(result.run_dir, [1, 2], "bank")) == 2
    result = train(tmp_path / "sd", MERGED, "sd-cfr", iterations=2)
    with pytest.raises(UsageError, match="sd-cfr keeps no strategy rows"):
        dream.evaluate(result.run_dir, average="network")
    settings = [*RESERVOIR, "sampling.backend=simulator"]
    result = train(tmp_path / "simulator", settings, "sd-cfr", iterations=1)
    assert result.evaluations == []
    with pytest.raises(UsageError, match="kuhn"):
        dream.evaluate(result.run_dir)


def test_a_used_folder_is_refused_and_left_alone(tmp_path: Path) -> None:
    train(tmp_path / "run", MERGED, iterations=1)
    before = metrics(tmp_path / "run")
    with pytest.raises(RunFolderError, match="already holds a run"):
        train(tmp_path / "run", MERGED, iterations=1)
    assert metrics(tmp_path / "run") == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match=r"is not empty \(it holds notes.txt\)"):
        train(tmp_path / "other", MERGED, iterations=1)


def test_tree_settings_are_refused_where_the_tree_is_too_large(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"advantage.buffer=merged.* needs the game tree"):
        train(tmp_path, [*MERGED, "sampling.enumerate_limit=10"])


def test_predicted_sizes_name_every_buffer() -> None:
    settings = config.load("leduc-dream-avg-quick", [*RESERVOIR, "average.capacity=4000"])
    rows = {row["part"]: row for row in wiring.predict_sizes(settings)}
    assert set(rows) == {
        "advantage rows, player 0",
        "advantage rows, player 1",
        "strategy rows, player 0",
        "strategy rows, player 1",
        "transitions",
    }
    strategy = rows["strategy rows, player 0"]
    assert strategy["rows"] == 4000
    assert strategy["bytes"] >= 4000 * 24  # a Leduc row
    json.dumps(list(rows.values()))


def test_games_are_described_with_units_and_sizes() -> None:
    kuhn = wiring.describe_game("kuhn")
    assert (kuhn["backend"], kuhn["unit"], kuhn["information_states"]) == ("tree", "mA/g", [6, 6])
    assert (kuhn["min_payoff_chips"], kuhn["max_payoff_chips"]) == (-2.0, 2.0)
    assert kuhn["histories"] == 58


def test_what_a_run_is_made_of_cannot_change_when_it_goes_on(tmp_path: Path) -> None:
    train(tmp_path, MERGED, iterations=1)
    before = (tmp_path / "config.yaml").read_text()
    with pytest.raises(ConfigError, match="game=leduc cannot be set when a run goes on: it has been kuhn") as caught:
        dream.resume(tmp_path, ["game=leduc", "seed=7", "iterations=2"], progress=False)
    assert "seed=7 cannot be set" in str(caught.value)
    assert (tmp_path / "config.yaml").read_text() == before
    result = dream.resume(tmp_path, ["iterations=2", "evaluation.every=0"], progress=False)
    assert result.iteration == 2
    assert config.load(tmp_path / "config.yaml").iterations == 2


def test_settled_keys_exist() -> None:
    assert set(config.keys()) >= SETTLED


def test_scalars_of_the_rows_are_of_all_chunks(tmp_path: Path) -> None:
    """Not of the last one alone, which may hold a single traversal."""
    train(tmp_path / "one", RESERVOIR, "os-sd-cfr", iterations=1)
    train(tmp_path / "many", [*RESERVOIR, "sampling.chunk=59"], "os-sd-cfr", iterations=1)
    (one,), (many,) = metrics(tmp_path / "one"), metrics(tmp_path / "many")
    for name in ("importance_weight/mean_0", "importance_weight/max_0", "target_scale/advantage_1"):
        assert many[name] == pytest.approx(one[name]), name
    assert 0 < one["target_scale/advantage_0"] < 10


def test_a_commit_of_a_game_that_has_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(tmp_path / "run", MERGED, iterations=2)
    monkeypatch.setattr(TreeGame, "fingerprint", "another")
    with pytest.raises(CheckpointError, match="fingerprint=another: OpenSpiel or the game's code has changed"):
        dream.resume(tmp_path / "run", ["iterations=4"], progress=False)
