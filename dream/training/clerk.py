"""Who evaluates, reports and commits: the run itself, or a thread beside it while the next iterations train."""

import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

Task = Callable[[], None]


class Clerk(Protocol):
    """Carries tasks out in the order in which they were given."""

    def do(self, task: Task) -> None:
        """Take a task. Raises what an earlier one raised."""
        ...

    def wait(self) -> float:
        """Until all tasks are done: the seconds that took. Raises what one of them raised."""
        ...

    def close(self) -> None:
        """Finish what was taken, and take no more; what fails now is dropped."""
        ...


class AtOnce:
    """Does a task when it is given: for a run in one process, where nothing is gained by waiting."""

    def do(self, task: Task) -> None:
        """See `Clerk.do`."""
        task()

    def wait(self) -> float:
        """Nothing is ever left to do."""
        return 0.0

    def close(self) -> None:
        """See `Clerk.close`."""


class Beside:
    """A thread. After a task failed, those behind it are not done: a commit never comes after a lost record."""

    def __init__(self) -> None:
        self._tasks: queue.Queue[Task | None] = queue.Queue()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="clerk", daemon=True)
        self._thread.start()

    def do(self, task: Task) -> None:
        """See `Clerk.do`."""
        self._raise()
        self._tasks.put(task)

    def wait(self) -> float:
        """See `Clerk.wait`."""
        began = time.perf_counter()
        self._tasks.join()
        self._raise()
        return time.perf_counter() - began

    def close(self) -> None:
        """See `Clerk.close`."""
        self._tasks.put(None)
        self._thread.join()

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            if self._failure is None:
                try:
                    task()
                except BaseException as failure:  # noqa: BLE001 - raised in the run's own thread
                    self._failure = failure
            self._tasks.task_done()
