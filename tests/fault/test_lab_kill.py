"""An experiment that is killed loses no finished seed, runs none of them again, and leaves no process behind."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from oracles import lab_tasks

from dream.laboratory.experiments import Arm, run_seeds

SEEDS = range(1, 10_001)  # with a fiftieth of a second for each, killed long before they end
ARMS = (Arm("low", "game", {"level": 1.0}), Arm("high", "game", {"level": 2.0}))
PROGRAM = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
import test_lab_kill as me
me.run(Path(sys.argv[1]), sys.argv[2])
"""


def run(folder: Path, task: str) -> None:
    run_seeds(ARMS, SEEDS, folder, f"oracles.lab_tasks:{task}", workers=2)


def start(folder: Path, task: str) -> subprocess.Popen[str]:
    program = PROGRAM.format(path=[str(Path(__file__).parent), *sys.path])
    return subprocess.Popen([sys.executable, "-c", program, str(folder), task], stderr=subprocess.PIPE, text=True)


def ran(folder: Path) -> list[str]:
    path = folder / "runs" / "ran"
    return path.read_text().splitlines() if path.exists() else []


def kept(folder: Path) -> set[tuple[str, int]]:
    """(arm, seed) of every line that is whole."""
    found = set()
    for file in (folder / "seeds").glob("*.jsonl"):
        for line in file.read_bytes().split(b"\n")[1:-1]:
            found.add((file.name.split("-")[0], int(line.split(b'"seed": ')[1].split(b",")[0])))
    return found


def until(condition, process: subprocess.Popen[str] | None = None) -> None:
    limit = time.monotonic() + 300
    while not condition():
        assert process is None or process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < limit
        time.sleep(0.002)


def kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def gone(pid: str) -> bool:
    """Whether a process has ended, be it not waited for yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.slow
def test_kills_at_random_moments_lose_no_finished_seed(tmp_path: Path) -> None:
    rng = random.Random(5)
    finished: set[tuple[str, int]] = set()
    started: list[str] = []
    for _ in range(5):
        process, target = start(tmp_path, "slow"), len(finished) + 12
        until(lambda target=target: len(kept(tmp_path)) >= target, process)
        time.sleep(rng.uniform(0.0, 0.03))
        kill(process)
        before, finished = finished, kept(tmp_path)
        assert before < finished
        runs_since = {(line.split()[0], int(line.split()[1])) for line in ran(tmp_path)[len(started) :]}
        started = ran(tmp_path)
        levels = {"low": "1.0", "high": "2.0"}
        assert not {(levels[arm], seed) for arm, seed in before} & runs_since, "a finished seed was run again"
        until(lambda: all(gone(line.split()[2]) for line in ran(tmp_path)))
    seeds = SEEDS[: max(seed for _, seed in finished) + 5]
    curves = run_seeds(ARMS, seeds, tmp_path, "oracles.lab_tasks:slow", workers=2)
    for arm in ARMS:
        expected = [lab_tasks.result(dict(arm.job), seed)["average"][-1] for seed in seeds]
        assert curves[arm.name].final("average") == pytest.approx(expected, abs=0)


def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    """Also in the middle of a seed that never ends."""
    process = start(tmp_path, "endless")
    until(lambda: len(ran(tmp_path)) == 2, process)
    kill(process)
    until(lambda: all(map(gone, ran(tmp_path))))
