"""Runs of which somebody removed, copied or edited a part: named, and nothing is lost by going on."""

import json
import shutil
from pathlib import Path

import pytest
from oracles.tiny_runs import MERGED, assert_same_run, files

import dream
from dream import config, inspection
from dream.config import ConfigError
from dream.errors import UsageError
from dream.store import CheckpointError, RunFolder


def train(folder: Path, iterations: int, *changes: str) -> dream.Result:
    overrides = [*MERGED, f"iterations={iterations}", *changes]
    return dream.train("kuhn-dream-quick", run_dir=folder, overrides=overrides, progress=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 6 iterations with the commits 4 and 6, and networks in the segments 1-2, 3-4 and 5-6."""
    base = tmp_path_factory.mktemp("finished")
    train(base / "run", 6)
    return base / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


def lose(run: Path, *patterns: str) -> None:
    for pattern in patterns:
        found = list(run.glob(pattern))
        assert found, pattern
        for path in found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def edit(run: Path, old: str, new: str) -> None:
    text = (run / "config.yaml").read_text()
    assert text.count(old) >= 1, old
    (run / "config.yaml").write_text(text.replace(old, new))


def without_lock(run: Path) -> dict[str, bytes]:
    return {name: content for name, content in files(run).items() if name != "lock"}


# --- lost --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["checkpoints", "checkpoints/*/manifest.frame"])
def test_a_run_without_its_commits_is_not_begun_anew(run: Path, pattern: str) -> None:
    lose(run, pattern)
    before = without_lock(run)
    with pytest.raises(CheckpointError, match=r"checkpoints was lost\. Restore it .* delete the networks"):
        dream.resume(run, ["iterations=8"], progress=False)
    assert without_lock(run) == before


def test_metrics_of_several_commits_tell_it_too(run: Path) -> None:
    lose(run, "checkpoints", "iterations")
    with pytest.raises(CheckpointError, match="checkpoints was lost"):
        dream.resume(run, progress=False)


def test_a_run_killed_in_its_first_commit_begins_anew_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path / "whole", 2)
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    lose(tmp_path / "killed", "checkpoints/*/manifest.frame")
    dream.resume(tmp_path / "killed", progress=False)
    assert "stopped before its first one and begins anew" in capsys.readouterr().err
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


@pytest.mark.parametrize(
    ("pattern", "lacks"),
    [
        ("iterations/advantage_0/00000001-*", "advantage_0 lacks iterations 1 to 2"),
        ("iterations/advantage_1/00000003-*", "advantage_1 lacks iterations 3 to 4"),
        ("iterations/advantage_0", "advantage_0 lacks iterations 1 to 6"),
        ("iterations", "advantage_1 lacks iterations 1 to 6"),
    ],
)
def test_networks_that_a_commit_needs_are_missed_before_anything_is_cut(run: Path, pattern: str, lacks: str) -> None:
    lose(run, pattern)
    before = without_lock(run)
    with pytest.raises(CheckpointError, match=lacks):
        dream.resume(run, ["iterations=8"], progress=False)
    with pytest.raises(CheckpointError, match=lacks):
        dream.evaluate(run)
    assert without_lock(run) == before
    assert any(lacks in problem for problem in inspection.damage(run))


def test_the_last_networks_of_one_player_are_made_again(
    finished: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lose(run, "iterations/advantage_1/00000005-*")
    assert any("advantage_1 lacks iterations 5 to 6" in problem for problem in inspection.damage(run))
    assert inspection.health(run)["completed_iterations"] == 4
    dream.resume(run, progress=False)
    assert "commit of iteration 6 is not used: networks are stored up to iteration 4" in capsys.readouterr().err
    assert_same_run(run, finished)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("iterations/advantage_1", "advantage_1 lacks iterations 1 to 6"),
        ("checkpoints", "checkpoints was lost"),
        ("metrics.jsonl", "lacks 6 of the 6 committed iterations"),
    ],
)
def test_verify_finds_what_is_not_there(run: Path, pattern: str, problem: str) -> None:
    assert inspection.damage(run) == []
    lose(run, pattern)
    assert any(problem in each for each in inspection.damage(run))
    assert inspection.health(run)["completed_iterations"] == (0 if "advantage" in pattern else 6)


def test_a_gap_in_the_metrics_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:3]))
    dream.resume(run, ["iterations=7"], progress=False)
    assert "warning: " in (said := capsys.readouterr().err)
    assert "lacks 3 of the 6 committed iterations (4 to 6)" in said


# --- damaged -----------------------------------------------------------------------------------------------


def test_damage_is_named_where_progress_is_silent_and_where_nothing_is_trained(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bank = run / "checkpoints" / "00000006" / "bank.frame"
    bank.write_bytes(b"")
    named = f"warning: {bank} holds 0 bytes"
    assert [row["iteration"] for row in dream.evaluate(run)] == [4]
    assert capsys.readouterr().err.count(named) == 1
    dream.load_policy(run)
    assert named in capsys.readouterr().err
    dream.resume(run, progress=False)
    assert named in capsys.readouterr().err


# --- copied and edited -------------------------------------------------------------------------------------


def test_a_foreign_commit_is_not_evaluated(run: Path, tmp_path: Path) -> None:
    train(tmp_path / "other", 6, "seed=2")
    lose(run, "checkpoints/00000006")
    shutil.copytree(tmp_path / "other" / "checkpoints" / "00000006", run / "checkpoints" / "00000006")
    for read in (dream.evaluate, dream.load_policy):
        with pytest.raises(CheckpointError, match="belongs to a run of seed=2, this one has seed=1: "):
            read(run)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("hidden: [16, 16]", "hidden: [16, 8]", r"advantage.network.hidden=\[16, 16\].*this one has .*=\[16, 8\]"),
        ("chance: iid", "chance: weyl", "sampling.chance=iid, this one has sampling.chance=weyl"),
        ("game: kuhn", "game: leduc", "game=kuhn, this one has game=leduc"),
        ("algorithm: dream", "algorithm: os-sd-cfr", "algorithm=dream, this one has algorithm=os-sd-cfr"),
        ("seed: 1", "seed: 7", "seed=1, this one has seed=7"),
        ("reach_weight: scaled", "reach_weight: plain", "sampling.reach_weight=scaled"),
    ],
)
def test_an_edited_configuration_is_told_from_the_run_s(run: Path, old: str, new: str, words: str) -> None:
    edit(run, old, new)
    before = without_lock(run)
    for go in (lambda: dream.resume(run, progress=False), lambda: dream.evaluate(run, average="bank")):
        with pytest.raises(CheckpointError, match=f"{words}.*put the former back in config.yaml"):
            go()
    assert without_lock(run) == before
    edit(run, new, old)
    assert dream.resume(run, progress=False).iteration == 6


def test_other_reach_weights_are_refused(run: Path) -> None:
    with pytest.raises(ConfigError, match=r"sampling.reach_weight=plain cannot be set when a run goes on"):
        dream.resume(run, ["sampling.reach_weight=plain"], progress=False)


def test_fewer_iterations_than_done_are_refused_and_a_finished_run_says_so(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match="iterations=2 is less than the 6 already done"):
        dream.resume(run, ["iterations=2"], progress=False)
    assert config.load(run / "config.yaml").iterations == 6
    dream.resume(run)
    assert "all 6 planned iterations are done; extend the run with iterations=N" in capsys.readouterr().err


# --- questions without an answer ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("iterations", "average", "words"),
    [
        ([1], "foo", "unknown average 'foo'.*Allowed: bank, network"),
        ([1], "", "unknown average ''"),
        (5, None, "must be a list of whole numbers such as .*, not 5"),
        ("all", None, "not 'all'"),
        ([1.5], None, "a whole number, not 1.5"),
        ([True], None, "a whole number, not True"),
        ([0], None, "iteration 0 is not stored"),
    ],
)
def test_evaluations_of_nothing_are_refused(finished: Path, iterations: object, average: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        dream.evaluate(finished, iterations, average)  # type: ignore[arg-type]


@pytest.mark.parametrize("iteration", [1.5, True, "2"])
def test_policies_of_no_iteration_are_refused(finished: Path, iteration: object) -> None:
    with pytest.raises(UsageError, match="a whole number, not"):
        dream.load_policy(finished, iteration)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_numbers(finished: Path) -> None:
    import numpy as np

    rows = dream.evaluate(finished, np.arange(5, 7), "bank")  # type: ignore[arg-type]
    assert [row["iteration"] for row in rows] == [5, 6]
    json.dumps(rows)


def test_a_run_without_its_tree_is_not_called_too_large(tmp_path: Path) -> None:
    settings = ["sampling.backend=simulator", "advantage.buffer=reservoir", "average.buffer=reservoir"]
    train(tmp_path / "run", 1, *settings, "baseline.merge=false", "evaluation.by=none")
    with pytest.raises(UsageError, match="kuhn was trained without its tree"):
        dream.evaluate(tmp_path / "run")


def test_commits_without_the_settled_keys_are_read(run: Path) -> None:
    """As earlier versions wrote them."""
    folder = RunFolder.open(run)
    commit = folder.checkpoints.load_newest()
    kept = {key: value for key, value in commit.meta.items() if "." not in key}
    folder.checkpoints.commit(6, dict(commit.parts), kept)
    assert dream.resume(run, ["iterations=7"], progress=False).iteration == 7
