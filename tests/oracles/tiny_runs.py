"""Runs so small that they take a second: settings, the command in a subprocess, and comparing two runs."""

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dream.api import train
from dream.store import RunFolder
from dream.telemetry.report import deterministic_view

_BOTH_BUFFERS = [
    "sampling.traversals=60",
    "advantage.network.hidden=[16,16]",
    "advantage.steps=10",
    "advantage.batch=32",
    "advantage.capacity=300",
    "baseline.network.hidden=[16,16]",
    "baseline.steps=10",
    "baseline.batch=32",
    "baseline.capacity=300",
    "average.network.hidden=[16,16]",
    "average.steps=30",
    "average.batch=32",
    "average.capacity=300",
    "evaluation.every=1",
    "checkpoint.every=2",
    "runtime.threads=1",
]
RESERVOIR = [
    *_BOTH_BUFFERS,
    "advantage.buffer=reservoir",
    "average.buffer=reservoir",
    "baseline.merge=false",
]
# A run that a test ends, when it has seen what it waited for: on no machine is it over before.
ENDLESS = "iterations=1000000000"
MERGED = [*_BOTH_BUFFERS, "advantage.buffer=merged", "average.buffer=merged", "baseline.merge=true"]


def command(*arguments: str | Path) -> list[str]:
    """The `dream` command of this environment."""
    return [sys.executable, "-m", "dream.cli", *map(str, arguments)]


def dream(*arguments: str | Path, folder: Path | None = None, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Runs `dream ARGUMENTS` to its end in the working directory `folder`."""
    return subprocess.run(
        command(*arguments), cwd=folder, timeout=timeout, text=True, capture_output=True, env=environment()
    )


def environment() -> dict[str, str]:
    """Variables of this process, without colours and with a fixed width."""
    return {**os.environ, "COLUMNS": "110", "NO_COLOR": "1"}


def networks(folder: Path) -> dict[tuple[str, str], bytes]:
    """All stored weights of a run as bytes, [iterations, ...] by kind and name."""
    store = RunFolder.open(folder).networks
    return {
        (kind, name): array.tobytes()
        for kind in store.kinds()
        for name, array in store.stack(kind, 1, store.newest(kind) or 0).items()
    }


def metrics(folder: Path) -> list[dict[str, Any]]:
    """What metrics.jsonl holds, without what depends on the clock or on the cluster."""
    views = (deterministic_view(record) for record in RunFolder.open(folder).metrics.read())
    return [{name: value for name, value in view.items() if not name.startswith("cluster/")} for view in views]


def assert_same_run(folder: Path, undisturbed: Path) -> None:
    """Every iteration's networks and metrics are the same, bit by bit."""
    assert metrics(folder) == metrics(undisturbed)
    theirs, own = networks(undisturbed), networks(folder)
    assert own.keys() == theirs.keys()
    assert not [name for name in own if own[name] != theirs[name]]


def assert_same_in_one_process(folder: Path, settings: Sequence[str], whole: Path) -> None:
    """The run in `folder`, a preset with overrides, is the same as one that is trained here, in the folder `whole`.

    It has as many iterations as the other has committed: that one may have been stopped anywhere.
    """
    done = RunFolder.open(folder).checkpoints.load_newest().iteration
    preset, *overrides = settings
    train(preset, run_dir=whole, overrides=[*overrides, f"iterations={done}", "runtime.kind=local"], progress=False)
    assert_same_run(folder, whole)


def files(folder: Path) -> dict[str, bytes]:
    """Every file below `folder` with its content."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def exploitabilities(rows: Iterable[Any]) -> dict[int, float]:
    """Chips by iteration, of evaluations or of metrics records."""
    return {
        row["iteration"]: row["exploitability_chips"] for row in rows if row.get("exploitability_chips") is not None
    }
