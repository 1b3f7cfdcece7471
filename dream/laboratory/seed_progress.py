"""Progress over many seeds, on standard error: a bar on a terminal, lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

__all__ = ["Lines", "SeedProgress", "Silent", "make_seed_progress"]

_LINE_SECONDS = 5.0


class SeedProgress(Protocol):
    """Shows how many seeds are finished."""

    def start(self, total: int, done: int) -> None:
        """`done` of `total` seeds were finished earlier."""

    def update(self, words: str) -> None:
        """One seed more; `words` say which."""

    def note(self, text: str) -> None:
        """Shows a line for good."""

    def close(self) -> None:
        """Ends the display."""


def make_seed_progress(quiet: bool = False, stream: TextIO | None = None) -> SeedProgress:
    """A bar where `stream` (default: standard error) is a terminal, lines elsewhere; nothing if `quiet`."""
    out = sys.stderr if stream is None else stream
    if quiet:
        return Silent()
    return Bar(Console(file=out)) if out.isatty() else Lines(out)


class Silent:
    """Shows nothing."""

    def start(self, total: int, done: int) -> None:
        """Nothing."""

    def update(self, words: str) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Lines:
    """A line every few seconds, and for the last seed."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._total = self._done = self._before = 0
        self._began = self._last = clock()

    def start(self, total: int, done: int) -> None:
        """See SeedProgress."""
        self._total, self._done, self._before = total, done, done
        self._began = self._last = self._clock()

    def update(self, words: str) -> None:
        """See SeedProgress."""
        self._done += 1
        now = self._clock()
        if self._done < self._total and now - self._last < _LINE_SECONDS:
            return
        self._last = now
        left = (now - self._began) / (self._done - self._before) * (self._total - self._done)
        self.note(f"seeds {self._done:,}/{self._total:,}  {words}  {left:,.0f} s left")

    def note(self, text: str) -> None:
        """See SeedProgress."""
        self._stream.write(text + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Nothing to end."""


class Bar:
    """A bar that is redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._bar = RichProgress(
            TextColumn("seeds"),
            MofNCompleteColumn(),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=console,
            refresh_per_second=4,
        )
        self._task = self._bar.add_task("", total=None)

    def start(self, total: int, done: int) -> None:
        """See SeedProgress."""
        self._bar.update(self._task, total=total, completed=done)
        self._bar.start()

    def update(self, words: str) -> None:
        """See SeedProgress."""
        self._bar.update(self._task, advance=1, description=words)

    def note(self, text: str) -> None:
        """See SeedProgress."""
        self._bar.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """Leaves the last state of the bar on the screen."""
        self._bar.stop()
