"""Seeds over the cores: processes of one thread each, fed one seed at a time and kept until all is done."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dream.errors import DreamError

__all__ = ["Finished", "Job", "SeedError", "cores", "run_jobs"]

_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


class SeedError(DreamError):
    """A seed failed; those finished before are kept."""


@dataclass(frozen=True)
class Job:
    """One seed of one setting: `arm` says whose, `payload` is what the worker's task is given."""

    arm: str
    payload: dict[str, Any]
    seed: int


@dataclass(frozen=True)
class Finished:
    """A job with its result."""

    job: Job
    result: dict[str, Any]


@dataclass(frozen=True)
class _Failed:
    job: Job
    message: str


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_jobs(
    task: str, jobs: Sequence[Job], folder: Path, workers: int, warm_ups: Sequence[Job] = ()
) -> Generator[Finished, None, None]:
    """Runs `task` (`module:function`) on every job in `workers` processes, results in the order in which they end.

    `folder` is where a task may keep unfinished work. `warm_ups` are run first, in one process, so that compiled
    code is in the cache before the others need it. Closing the generator ends the processes, whatever they do. Raises
    SeedError for a seed that fails, after which no further seeds are started.
    """
    if not jobs:
        return
    answers: queue.SimpleQueue[Finished | _Failed] = queue.SimpleQueue()
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    processes: list[subprocess.Popen[str]] = []
    try:
        processes.append(_start(task, folder))
        for job in warm_ups:
            _taken(_ask(processes[0], job))
        while len(processes) < min(workers, len(jobs)):
            processes.append(_start(task, folder))
        for process in processes:
            threading.Thread(target=_feed, args=(process, waiting, answers.put), daemon=True).start()
        for _ in jobs:
            yield _taken(answers.get())
    finally:
        _end(processes)


def _start(task: str, folder: Path) -> subprocess.Popen[str]:
    """A worker in a process group of its own: Ctrl-C reaches only the parent, which ends it."""
    return subprocess.Popen(
        [sys.executable, "-m", "dream.laboratory.worker", task, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, **_ONE_THREAD, "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)},
        process_group=0,
    )


def _end(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # unwritten input of a process that is gone
                    pipe.close()


def _feed(
    process: subprocess.Popen[str], waiting: queue.SimpleQueue[Job], report: Callable[[Finished | _Failed], None]
) -> None:
    """Gives one process job after job, until none waits or one fails."""
    while True:
        try:
            job = waiting.get_nowait()
        except queue.Empty:
            return
        answer = _ask(process, job)
        report(answer)
        if isinstance(answer, _Failed):
            return


def _ask(process: subprocess.Popen[str], job: Job) -> Finished | _Failed:
    assert process.stdin is not None
    assert process.stdout is not None
    line = ""
    with suppress(OSError, ValueError):  # a process that ended, or that this one is ending
        process.stdin.write(json.dumps({"job": job.payload, "seed": job.seed}, allow_nan=False) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
    if not line.endswith("\n"):
        return _Failed(job, f"its process ended with status {process.wait()}")
    answer = json.loads(line)
    if "error" in answer:
        return _Failed(job, answer["error"])
    return Finished(job, answer["result"])


def _taken(answer: Finished | _Failed) -> Finished:
    if isinstance(answer, _Failed):
        raise SeedError(f"seed {answer.job.seed} of {answer.job.arm} failed: {answer.message}")
    return answer
