"""A process that runs seeds: `python -m dream.laboratory.worker MODULE:FUNCTION FOLDER`.

Reads one JSON object a line, `{"job": ..., "seed": ...}`, and answers each with `{"result": ...}` or
`{"error": text}` on a line. It ends with its input, at once: when the process that started it dies, whatever way,
no seed is run for nobody.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from dream.errors import DreamError

__all__ = ["Task", "main", "task_called"]

Task = Callable[[dict[str, Any], int, Path], dict[str, Any]]
"""(job, seed, folder) -> result, plain JSON values; unfinished work may wait in the folder to be gone on with."""


def task_called(name: str) -> Task:
    """The function of `module:function`."""
    module, _, function = name.partition(":")
    task: Task = getattr(import_module(module), function)
    return task


def main(name: str, folder: Path) -> None:
    """Answers jobs until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    jobs: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin, jobs), daemon=True).start()
    task = task_called(name)
    while True:
        request = json.loads(jobs.get())
        answers.write(json.dumps(_answer(task, request, folder), allow_nan=False) + "\n")
        answers.flush()


def _listen(source: IO[str], jobs: queue.SimpleQueue[str]) -> None:
    """Passes lines on; ends the process with the input, also in the middle of a seed."""
    for line in source:
        jobs.put(line)
    os._exit(0)


def _answer(task: Task, request: dict[str, Any], folder: Path) -> dict[str, Any]:
    try:
        return {"result": task(request["job"], request["seed"], folder)}
    except (DreamError, ValueError, OSError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    except Exception:  # noqa: BLE001  (reported by the process that asked, with its traceback)
        return {"error": traceback.format_exc().rstrip()}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
