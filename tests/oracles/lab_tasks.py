"""Tasks for the laboratory's workers: fast, slow, failing and dying ones with known results."""

import os
import signal
import time
import zlib
from pathlib import Path
from typing import Any


def result(job: dict[str, Any], seed: int) -> dict[str, Any]:
    """A curve of two points that names the job and the seed."""
    end = job["level"] + seed / 1000
    return {"x": [10, 100 + seed], "iterations": [1, 10], "average": [2 * end, end], "last": [None, None]}


def note(folder: Path, text: str) -> None:
    """Appends a line to the tasks' own record of what they did."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / "ran", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)


def quick(job: dict[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    """Ends at once, prints to standard output as libraries do, and notes who ran what."""
    print("a library talks", flush=True)
    note(folder, f"{job['level']} {seed} {os.getpid()}")
    return result(job, seed)


def curve(job: dict[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    """What a solver might answer: curves that fall with the budget, shifted by the settings."""
    level = 0.3 + 0.01 * (zlib.crc32(str(job).encode()) % 10) + 0.001 * seed
    points = job.get("points", [10, 100])
    average = [level / point**0.5 for point in points]
    return {
        "x": [point + seed for point in points],
        "iterations": points,
        "average": average,
        "last": [2 * value for value in average],
        "diagnostics": {"chance_nodes": 4},
    }


def slow(job: dict[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    """Takes some milliseconds."""
    time.sleep(0.02)
    return quick(job, seed, folder)


def endless(job: dict[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    """Notes its process and never ends."""
    note(folder, str(os.getpid()))
    while True:
        time.sleep(0.01)


def failing(job: dict[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    """Seed 3 raises what the job says."""
    if seed == 3:
        raise {"value": ValueError, "runtime": RuntimeError}[job["raises"]]("seed three is no good")
    return result({"level": 1.0}, seed)


def dying(job: dict[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    """Seed 3 is killed, as by a system without memory."""
    if seed == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return result({"level": 1.0}, seed)
