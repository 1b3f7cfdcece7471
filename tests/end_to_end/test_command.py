"""The `dream` command as users start it: documents, exit status, signals. Training is real and small."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from oracles.tiny_runs import ENDLESS, MERGED, assert_same_run, command, dream, environment, exploitabilities, files

from dream.results import EVALUATION_KEYS
from dream.store import RunFolder

KUHN = ["kuhn-dream-quick", *MERGED]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained by the command to iteration 6, then extended to 10."""
    folder = tmp_path_factory.mktemp("end-to-end") / "run"
    done = dream("train", *KUHN, "iterations=6", "--run-dir", folder, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)  # one document and nothing else
    assert set(document) == {"run_dir", "completed_iterations", "interrupted", "evaluations", *EVALUATION_KEYS}
    assert document["completed_iterations"] == document["iteration"] == 6
    assert document["interrupted"] is False
    assert (document["unit"], document["average"]) == ("mA/g", "bank")
    assert document["exploitability_chips"] == document["nash_conv_chips"] / 2
    assert document["exploitability_milli"] == pytest.approx(1000 * document["exploitability_chips"])
    assert [row["iteration"] for row in document["evaluations"]] == [1, 2, 3, 4, 5, 6]
    assert all(set(row) == set(EVALUATION_KEYS) for row in document["evaluations"])
    assert "iteration 6/6" in done.stderr

    extended = dream("resume", folder, "iterations=10", "--json")
    assert extended.returncode == 0, extended.stderr
    document = json.loads(extended.stdout)
    assert [row["iteration"] for row in document["evaluations"]] == list(range(1, 11))
    return folder


@pytest.mark.slow
def test_extending_gives_the_longer_run(run: Path, tmp_path: Path) -> None:
    done = dream("train", *KUHN, "iterations=10", "--run-dir", tmp_path / "whole", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("10 iterations, ")
    assert done.stderr == ""
    assert_same_run(run, tmp_path / "whole")


@pytest.mark.slow
def test_eval_recomputes_what_training_reported(run: Path) -> None:
    done = dream("eval", run, "--iterations", "1,5,10", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    reported = exploitabilities(RunFolder.open(run).metrics.read())
    assert exploitabilities(document["evaluations"]) == pytest.approx({t: reported[t] for t in (1, 5, 10)}, abs=1e-9)
    assert document["iteration"] == 10
    table = dream("eval", run, "--iterations", "all")
    assert table.returncode == 0
    assert len(table.stdout.splitlines()) == 11


@pytest.mark.slow
def test_inspect_and_plot_a_real_run(run: Path, tmp_path: Path) -> None:
    health = dream("inspect", run, "--verify", "--json")
    assert health.returncode == 0, health.stderr
    document = json.loads(health.stdout)
    assert (document["completed_iterations"], document["newest_commit"], document["damaged"]) == (10, 10, [])
    state = dream("inspect", run, "--state", "0pb", "--json")
    assert state.returncode == 0, state.stderr
    actions = json.loads(state.stdout)["actions"]
    assert sum(action["probability"] for action in actions) == pytest.approx(1)
    picture = tmp_path / "curve.png"
    plot = dream("plot", run, "--x", "iterations", "-o", picture)
    assert plot.returncode == 0, plot.stderr
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert picture.stat().st_size > 5000


@pytest.mark.slow
def test_lists_and_the_configuration_that_they_offer(tmp_path: Path) -> None:
    presets = json.loads(dream("presets", "--json").stdout)
    assert {"leduc-dream", "kuhn-deep-cfr-quick"} <= {row["preset"] for row in presets}
    games = json.loads(dream("games", "--json").stdout)
    assert {row["game"]: row["unit"] for row in games}["fhp"] == "mbb/g"
    written = dream("config", "kuhn-dream-quick", *MERGED, "iterations=1")
    (tmp_path / "mine.yaml").write_text(written.stdout)
    done = dream("train", "mine.yaml", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / json.loads(done.stdout)["run_dir"]
    assert folder.parent == tmp_path / "runs"
    assert folder.name.startswith("mine-")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["train", "kuhn-draem"], 2, "kuhn-dream"),
        (["train", "kuhn-dream-quick", "sampling.epsilon=2"], 2, "at most 1"),
        (["train", "kuhn-dream-quick", "game=kuhn_pokr"], 2, "kuhn_poker"),
        (["train", "kuhn-dream-quick", "game=kuhn_poker(players=3)"], 2, "only two-player games"),
        (["resume", "nowhere"], 2, "no run at nowhere"),
        (["eval", "nowhere"], 2, "no run at nowhere"),
        (["train", "kuhn-dream-quick", "--run-dir", "/proc/none"], 2, "cannot make the folder"),
    ],
)
def test_bad_requests_are_one_message_and_leave_nothing(
    tmp_path: Path, arguments: list[str], status: int, message: str
) -> None:
    done = dream(*arguments, "--json", folder=tmp_path)
    assert done.returncode == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.slow
def test_a_used_folder_is_refused_untouched(run: Path) -> None:
    before = files(run)
    done = dream("train", *KUHN, "--run-dir", run)
    assert done.returncode == 2
    assert "already holds a run" in done.stderr
    assert files(run) == before


class Training:
    """A training command in its own process that a test sends signals to."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        self._messages: IO[str] = (folder.parent / f"{folder.name}.txt").open("w+")
        self.process = subprocess.Popen(
            command("train", *KUHN, *settings, "--run-dir", folder, "--json"),
            env=environment(),
            text=True,
            stdout=subprocess.PIPE,
            stderr=self._messages,
        )

    def wait_until(self, done: Callable[[], bool]) -> None:
        limit = time.monotonic() + 300
        while not done():
            assert self.process.poll() is None, self.messages()
            assert time.monotonic() < limit, self.messages()
            time.sleep(0.01)

    def records(self) -> int:
        path = self.folder / "metrics.jsonl"
        return path.read_text().count("\n") if path.exists() else 0

    def messages(self) -> str:
        self._messages.seek(0)
        return self._messages.read()

    def end(self) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=300)
        return self.process.returncode, output

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        self._messages.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Training]]:
    started: list[Training] = []

    def begin(*settings: str) -> Training:
        started.append(Training(tmp_path / f"run-{len(started)}", *settings))
        return started[-1]

    yield begin
    for training in started:
        training.close()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_commits_and_exits_with_130(
    start: Callable[..., Training], number: signal.Signals, tmp_path: Path
) -> None:
    training = start(ENDLESS, "checkpoint.every=100000")
    training.wait_until(lambda: training.records() >= 3)
    os.kill(training.process.pid, number)
    status, output = training.end()
    assert status == 130, training.messages()
    document = json.loads(output)
    assert document["interrupted"] is True
    done = document["completed_iterations"]
    assert done >= 3
    assert RunFolder.open(training.folder).checkpoints.load_newest().iteration == done
    assert f"{number.name}: finishing the iteration" in training.messages()
    assert f"dream resume {training.folder}" in training.messages()
    assert "Traceback" not in training.messages()

    resumed = dream("resume", training.folder, f"iterations={done + 2}", "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["completed_iterations"] == done + 2


@pytest.mark.slow
def test_a_second_signal_stops_at_once_with_the_last_commit_intact(start: Callable[..., Training]) -> None:
    training = start("iterations=3", "checkpoint.every=1")
    assert training.end()[0] == 0, training.messages()
    boards = len(list(training.folder.rglob("events.*")))
    # Iteration 4 takes hours: the run cannot end by itself.
    going = command("resume", training.folder, "iterations=4", "advantage.steps=10000000")
    with subprocess.Popen(
        going, env=environment(), text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as resumed:
        try:
            while len(list(training.folder.rglob("events.*"))) < boards + 3:  # the last thing before iteration 4
                assert resumed.poll() is None
                time.sleep(0.1)
            os.kill(resumed.pid, signal.SIGINT)
            assert resumed.stderr is not None
            assert any("SIGINT: finishing the iteration" in line for line in resumed.stderr)
            time.sleep(0.5)
            assert resumed.poll() is None, "the first signal waits for the iteration"
            os.kill(resumed.pid, signal.SIGTERM)
            _, rest = resumed.communicate(timeout=300)
        finally:
            resumed.kill()
    assert resumed.returncode == 130, rest
    assert "Traceback" not in rest
    commit = RunFolder.open(training.folder).checkpoints.load_newest()
    assert (commit.iteration, list(commit.damaged)) == (3, [])
    assert RunFolder.open(training.folder).checkpoints.verify() == []
