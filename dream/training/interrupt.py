"""Ctrl-C and SIGTERM: finish the iteration, commit, exit. A second signal stops at once."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


class Interrupt:
    """Whether somebody asked the run to stop."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        self.requested = False
        self._notify = notify

    def handle(self, number: int, frame: FrameType | None) -> None:
        """First signal: remember it. Second: raise KeyboardInterrupt where the program stands."""
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        name = signal.Signals(number).name
        self._notify(f"{name}: finishing the iteration, then committing (again: stop at once, back to the last commit)")


@contextlib.contextmanager
def listening(notify: Callable[[str], None]) -> Iterator[Interrupt]:
    """Handle SIGINT and SIGTERM inside the block; only the main thread can, elsewhere nothing is handled."""
    interrupt = Interrupt(notify)
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    previous = {number: signal.signal(number, interrupt.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
