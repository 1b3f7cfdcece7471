"""TensorBoard started against a real run: the groups and curves that the documentation promises are there."""

import json
import math
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oracles.tiny_runs import RESERVOIR

import dream
from dream.store import RunFolder

# numpy deprecations inside tensorboard's readers are not ours
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard")

ITERATIONS = 6
EVERY_ITERATION = [
    *(f"{group}/advantage_{p}" for group in ("loss", "gradient_norm", "target_scale") for p in (0, 1)),
    *(f"importance_weight/{what}_{p}" for what in ("mean", "max", "p99") for p in (0, 1)),
    *(f"buffer/{what}_advantage_{p}" for what in ("fill", "seen") for p in (0, 1)),
    *(f"throughput/{what}_per_second" for what in ("states", "rows")),
    *(f"time/{what}_seconds" for what in ("sampling", "fitting", "committing")),
    "loss/baseline",
    "gradient_norm/baseline",
]
EVALUATED = ["exploitability/mA_per_g", "exploitability/chips", "time/evaluating_seconds"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stopped and resumed in between; evaluated at every second iteration."""
    folder = tmp_path_factory.mktemp("board") / "run"
    settings = [*RESERVOIR, "evaluation.every=2"]
    dream.train("kuhn-dream-quick", run_dir=folder, overrides=[*settings, "iterations=4"], progress=False)
    dream.resume(folder, [f"iterations={ITERATIONS}"], progress=False)
    return folder


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """All points by tag, through TensorBoard's own reader."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]
    }


def test_every_promised_curve_is_there_once(run: Path) -> None:
    found = curves(run / "tensorboard" / "iterations")
    records = {record["iteration"]: record for record in RunFolder.open(run).metrics.read()}
    for tag in EVERY_ITERATION:
        assert [step for step, _ in found[tag]] == list(range(1, ITERATIONS + 1)), tag
        assert all(math.isfinite(value) for _, value in found[tag]), tag
    for tag in EVALUATED:
        assert [step for step, _ in found[tag]] == [2, 4, 6], tag
    reported = [(t, records[t]["exploitability_milli"]) for t in (2, 4, 6)]
    assert found["exploitability/mA_per_g"] == [(t, pytest.approx(value)) for t, value in reported]


def test_exploitability_and_loss_stand_against_states_and_seconds(run: Path) -> None:
    records = RunFolder.open(run).metrics.read()
    by_states = curves(run / "tensorboard" / "states")
    assert [step for step, _ in by_states["exploitability_by_states/mA_per_g"]] == [
        record["states"] for record in records if record["iteration"] % 2 == 0
    ]
    assert "loss_by_states/advantage_0" in by_states
    assert "exploitability_by_seconds/mA_per_g" in curves(run / "tensorboard" / "seconds")


@pytest.fixture
def server(run: Path, tmp_path: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (tmp_path / "messages.txt").open("w") as messages:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tensorboard.main", "--logdir", str(run)),
                *("--host", "127.0.0.1", "--port", str(port), "--load_fast=false"),
            ],
            stdout=messages,
            stderr=messages,
        )
        try:
            yield f"http://127.0.0.1:{port}/data"
        finally:
            process.terminate()
            process.wait(timeout=30)


def ask(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


@pytest.mark.slow
def test_tensorboard_shows_a_run_folder_as_it_is(server: str) -> None:
    """`tensorboard --logdir RUN`, as the command prints it at the end of a run."""
    limit = time.monotonic() + 300
    tags: dict[str, Any] = {}
    while "tensorboard/iterations" not in tags and time.monotonic() < limit:
        try:
            tags = ask(f"{server}/plugin/scalars/tags")
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    assert set(tags) >= {"tensorboard/iterations", "tensorboard/states", "tensorboard/seconds"}
    assert set(tags["tensorboard/iterations"]) >= {*EVERY_ITERATION, *EVALUATED}
    assert ask(f"{server}/plugin/custom_scalars/layout")["category"]
