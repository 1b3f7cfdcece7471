"""Runs that die: SIGKILL by pid at random moments, damaged and foreign commits, a full disk.

The measure is always the same: resumed, the run ends with the same networks and metrics, bit by bit, as one
that nothing ever happened to.
"""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from oracles.tiny_runs import (
    ENDLESS,
    MERGED,
    RESERVOIR,
    assert_same_in_one_process,
    assert_same_run,
    command,
    environment,
    files,
)

import dream
from dream.store import CheckpointError, RunFolder

KILLS = 10

CONFIGURATIONS = {
    "dream": ["kuhn-dream-quick", *RESERVOIR, "sampling.chance=weyl", "runtime.shards=2"],
    "dream-avg": ["kuhn-dream-avg-quick", *MERGED, "advantage.reset_every=5", "sampling.updates=simultaneous"],
}


def record_count(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def start_and_kill(arguments: list[str], folder: Path, wait_for: int, delay_seconds: float) -> None:
    """Starts `dream ARGUMENTS`; some time after the run's record `wait_for` was written, SIGKILL."""
    process = subprocess.Popen(
        command(*arguments), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        limit = time.monotonic() + 300
        while record_count(folder) < wait_for:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < limit
            time.sleep(0.002)
        time.sleep(delay_seconds)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.timeout(1800)  # twelve starts of the command
@pytest.mark.parametrize("arguments", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_ten_kills_at_random_moments_change_nothing(tmp_path: Path, arguments: list[str]) -> None:
    rng = random.Random(len(arguments))
    settings = [*arguments, ENDLESS, "evaluation.every=10"]
    killed = tmp_path / "killed"
    start_and_kill(["train", *settings, "--run-dir", str(killed)], killed, 0, rng.uniform(0, 3))  # in its start
    for _ in range(KILLS):
        target = record_count(killed) + rng.randint(1, 10)
        begun = (killed / "config.yaml").exists()
        again = ["resume", str(killed)] if begun else ["train", *settings, "--run-dir", str(killed)]
        start_and_kill(again, killed, target, rng.uniform(0.0, 0.05))

    last = record_count(killed) + 3
    assert dream.resume(killed, [f"iterations={last}"], progress=False).iteration == last
    assert_same_in_one_process(killed, settings, tmp_path / "whole")
    assert RunFolder.open(killed).checkpoints.verify() == []


def train(folder: Path, iterations: int, *changes: str) -> dream.Result:
    overrides = [*MERGED, f"iterations={iterations}", *changes]
    return dream.train("kuhn-dream-quick", run_dir=folder, overrides=overrides, progress=False)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of 4 iterations with the commits 2 and 4, and the same run taken to 6."""
    base = tmp_path_factory.mktemp("damage")
    train(base / "run", 4)
    train(base / "whole", 6)
    return base / "run", base / "whole"


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def replace_by_foreign(path: Path) -> None:
    """The same part of an earlier commit: a sound frame, but not this one."""
    shutil.copyfile(path.parent.parent / "00000002" / path.name, path)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("harm", "name"),
    [
        (flip, "advantage_rows_0.frame"),
        (truncate, "bank.frame"),
        (replace_by_foreign, "baseline.frame"),
        (empty, "chance_1.frame"),
        (Path.unlink, "transitions.frame"),
        (truncate, "manifest.frame"),
        (replace_by_foreign, "manifest.frame"),
        (Path.unlink, "manifest.frame"),
    ],
)
def test_a_damaged_commit_is_named_and_the_one_before_is_used(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], harm, name: str
) -> None:
    run = shutil.copytree(runs[0], tmp_path / "run")
    broken = run / "checkpoints" / "00000004"
    harm(broken / name)
    before = files(run)
    assert [row["iteration"] for row in dream.evaluate(run)] == [2]
    assert files(run) == before, "reading deletes and changes nothing"
    result = dream.resume(run, ["iterations=6"])
    messages = capsys.readouterr().err
    assert str(broken / name) in messages or f"{broken} has no {name}" in messages
    assert result.iteration == 6
    assert_same_run(run, runs[1])
    assert RunFolder.open(run).checkpoints.verify() == [], "iteration 4 was committed again, in its place"


def test_nothing_is_deleted_when_no_commit_is_sound(runs: tuple[Path, Path], tmp_path: Path) -> None:
    run = shutil.copytree(runs[0], tmp_path / "run")
    for commit in ("00000002", "00000004"):
        flip(run / "checkpoints" / commit / "manifest.frame")
    before = files(run)
    with pytest.raises(CheckpointError, match="no usable commit") as caught:
        dream.resume(run, ["iterations=6"], progress=False)
    for commit in ("00000002", "00000004"):
        assert str(run / "checkpoints" / commit / "manifest.frame") in str(caught.value)
    after = files(run)
    assert {name: content for name, content in after.items() if name != "lock"} == {
        name: content for name, content in before.items() if name != "lock"
    }


def test_a_commit_of_another_run_is_refused(runs: tuple[Path, Path], tmp_path: Path) -> None:
    run = shutil.copytree(runs[0], tmp_path / "run")
    train(tmp_path / "other", 4, "seed=2")
    shutil.rmtree(run / "checkpoints" / "00000004")
    foreign = shutil.copytree(tmp_path / "other" / "checkpoints" / "00000004", run / "checkpoints" / "00000004")
    with pytest.raises(CheckpointError, match=r"belongs to a run of seed=2, this one has seed=1") as caught:
        dream.resume(run, progress=False)
    assert str(foreign) in str(caught.value)
    shutil.move(foreign, tmp_path / "moved-away")  # as the message says
    dream.resume(run, ["iterations=6"], progress=False)
    assert_same_run(run, runs[1])


@pytest.mark.slow
def test_a_full_disk_stops_the_run_with_the_last_commit_intact(tmp_path: Path) -> None:
    """The limit on a file's size stands for the full disk: writing beyond it fails in the same place."""
    folder = tmp_path / "run"
    settings = [*RESERVOIR, "advantage.capacity=100000", "sampling.traversals=200", "evaluation.every=0"]
    limit = 40_000  # the reservoirs outgrow it after a few iterations

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    stopped = subprocess.run(
        command("train", "kuhn-dream-quick", *settings, "iterations=60", "--run-dir", folder, "--json"),
        env=environment(),
        preexec_fn=limited,
        text=True,
        capture_output=True,
        timeout=300,
    )
    assert stopped.returncode == 1, stopped.stderr
    assert stopped.stdout == ""
    assert "error: cannot write" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    run = RunFolder.open(folder)
    commit = run.checkpoints.load_newest()
    assert commit.damaged == []
    assert 2 <= commit.iteration < 60

    target = commit.iteration + 4
    dream.resume(folder, [f"iterations={target}"], progress=False)  # there is room again
    whole = ["kuhn-dream-quick", *settings, f"iterations={target}"]
    dream.train(whole[0], run_dir=tmp_path / "whole", overrides=whole[1:], progress=False)
    assert_same_run(folder, tmp_path / "whole")
    json.dumps(run.metrics.read())
