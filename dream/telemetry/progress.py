"""Progress on standard error: a bar on a terminal, lines elsewhere, or nothing."""

import sys
import time
from collections.abc import Callable
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as RichProgress

from dream.telemetry.report import IterationReport

Clock = Callable[[], float]
_LINE_SECONDS = 1.0


class Progress(Protocol):
    """Shows how far a run is."""

    def start(self, total: int, done: int = 0, states: int = 0, seconds: float = 0.0) -> None:
        """The run goes from iteration `done` (0: anew) to `total`; `states` and `seconds` are behind it."""

    def update(self, report: IterationReport) -> None:
        """One iteration more."""

    def note(self, text: str) -> None:
        """Shows a line for good (a warning, a commit)."""

    def warn(self, text: str) -> None:
        """Shows a line of which the person must know, also where progress is silent."""

    def close(self) -> None:
        """Ends the display."""


def warn(text: str) -> None:
    """A warning on standard error, where no progress is shown."""
    sys.stderr.write(f"warning: {text}\n")
    sys.stderr.flush()


def make_progress(quiet: bool = False, stream: TextIO | None = None) -> Progress:
    """A bar where `stream` (default: standard error) is a terminal, lines elsewhere; silent if `quiet`."""
    out = sys.stderr if stream is None else stream
    if quiet:
        return SilentProgress()
    return BarProgress(Console(file=out)) if out.isatty() else LineProgress(out)


class Status:
    """The words of a progress display: iteration, states, exploitability, speed, time left."""

    def __init__(self, total: int, done: int, states: int, seconds: float) -> None:
        self.total = total
        self._done, self._states, self._seconds = done, states, seconds
        self._evaluation = "not evaluated yet"

    def words(self, report: IterationReport) -> str:
        """The status after `report`, without the iteration."""
        if report.evaluation is not None:
            milli, unit = float(report.evaluation["exploitability_milli"]), report.evaluation["unit"]
            self._evaluation = f"exploitability {milli:.1f} {unit} at iteration {report.iteration}"
        seconds = report.seconds - self._seconds
        speed = (report.states - self._states) / seconds if seconds > 0 else 0.0
        iterations = report.iteration - self._done
        left = seconds / iterations * (self.total - report.iteration) if iterations > 0 else 0.0
        return f"{report.states:,} states  {self._evaluation}  {speed:,.0f} states/s  ETA {_clock_text(left)}"


class SilentProgress:
    """Shows nothing but warnings."""

    def start(self, total: int, done: int = 0, states: int = 0, seconds: float = 0.0) -> None:
        """Nothing."""

    def update(self, report: IterationReport) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def warn(self, text: str) -> None:
        """See Progress."""
        warn(text)

    def close(self) -> None:
        """Nothing."""


class LineProgress:
    """One line per iteration, at most one a second, but always one for an evaluation and the last."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._status = Status(0, 0, 0, 0.0)
        self._last = float("-inf")

    def start(self, total: int, done: int = 0, states: int = 0, seconds: float = 0.0) -> None:
        """See Progress."""
        self._status = Status(total, done, states, seconds)

    def update(self, report: IterationReport) -> None:
        """See Progress."""
        words = self._status.words(report)
        now = self._clock()
        due = now - self._last >= _LINE_SECONDS
        if due or report.evaluation is not None or report.iteration == self._status.total:
            self._last = now
            self.note(f"iteration {report.iteration}/{self._status.total}  {words}")

    def note(self, text: str) -> None:
        """See Progress."""
        self._stream.write(text + "\n")
        self._stream.flush()

    def warn(self, text: str) -> None:
        """See Progress."""
        self.note(f"warning: {text}")

    def close(self) -> None:
        """Nothing to end."""


class BarProgress:
    """A bar that is redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._bar = RichProgress(
            TextColumn("iteration"),
            MofNCompleteColumn(),
            BarColumn(bar_width=20),
            TextColumn("{task.description}"),
            console=console,
            refresh_per_second=4,
        )
        self._task = self._bar.add_task("starting", total=None)
        self._status = Status(0, 0, 0, 0.0)

    def start(self, total: int, done: int = 0, states: int = 0, seconds: float = 0.0) -> None:
        """See Progress."""
        self._status = Status(total, done, states, seconds)
        self._bar.update(self._task, total=total, completed=done)
        self._bar.start()

    def update(self, report: IterationReport) -> None:
        """See Progress."""
        self._bar.update(self._task, completed=report.iteration, description=self._status.words(report))

    def note(self, text: str) -> None:
        """See Progress."""
        self._bar.console.print(text, markup=False, highlight=False)

    def warn(self, text: str) -> None:
        """See Progress."""
        self.note(f"warning: {text}")

    def close(self) -> None:
        """Leaves the last state of the bar on the screen."""
        self._bar.stop()


def _clock_text(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
