"""One call per iteration, three readers: metrics.jsonl, TensorBoard and the person who watches."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from dream.telemetry.progress import Progress, SilentProgress
from dream.telemetry.report import IterationReport
from dream.telemetry.tensorboard import BoardWriter


class Log(Protocol):
    """The file of records (dream.store.MetricsLog)."""

    def append(self, record: Mapping[str, Any]) -> None:
        """Adds one record."""

    def truncate_after(self, iteration: int) -> list[dict[str, Any]]:
        """Drops what is later than `iteration`; returns what stays."""

    def sync(self) -> None:
        """Makes it durable."""

    def close(self) -> None:
        """Closes it."""


class Events(Protocol):
    """The run's event files (dream.store.events.EventFiles)."""

    @property
    def folder(self) -> Path:
        """The folder of this machine in which they are written."""

    def names(self) -> list[str]:
        """Names of all that there are."""

    def publish(self) -> None:
        """Brings what was written to where the run lies."""

    def close(self) -> None:
        """The same for the last time."""


class Run(Protocol):
    """Where a run's records and event files go (dream.store.RunFolder)."""

    @property
    def metrics(self) -> Log:
        """metrics.jsonl."""

    @property
    def events(self) -> Events:
        """TensorBoard's event files."""


class Recorder:
    """Takes reports. `record` each iteration's, then `flush`, then commit: no commit is ahead of them.

    Made by `start`, or from its parts in tests. Closing it closes all three.
    """

    def __init__(
        self, log: Log, board: BoardWriter | None, progress: Progress | None = None, events: Events | None = None
    ) -> None:
        self._log = log
        self._board = board
        self._events = events
        self.progress: Progress = SilentProgress() if progress is None else progress

    @classmethod
    def start(cls, run: Run, progress: Progress, total: int, resume_after: int | None = None) -> "Recorder":
        """Begins to record a run that goes to iteration `total`.

        A resume gives the iteration of its commit as `resume_after` (0 where it begins anew in an old
        folder): later records are dropped, later points of the curves purged. The caller holds the run's
        lock.
        """
        if resume_after is None:
            progress.start(total)
            return cls(run.metrics, BoardWriter(run.events.folder), progress, run.events)
        kept = [IterationReport.from_record(record) for record in run.metrics.truncate_after(resume_after)]
        board = _resumed_board(run.events, kept)
        last = kept[-1] if kept else IterationReport(0, 0, 0.0)
        progress.start(total, last.iteration, last.states, last.seconds)
        return cls(run.metrics, board, progress, run.events)

    def record(self, report: IterationReport) -> None:
        """Adds one iteration everywhere."""
        self._log.append(report.record())
        if self._board is not None:
            self._board.write(report)
        self.progress.update(report)

    def hyperparameters(self, settings: Mapping[str, Any], unit: str) -> None:
        """Shows the run's configuration in TensorBoard; `unit` is that of its exploitability."""
        if self._board is not None:
            self._board.hyperparameters(settings, unit)

    def flush(self) -> None:
        """Makes all records durable; to be called before each commit."""
        self._log.sync()
        if self._board is not None:
            self._board.flush()
        if self._events is not None:
            self._events.publish()

    def close(self) -> None:
        """Ends all three, the others too where one of them fails."""
        with ExitStack() as last:  # called from the last to the first
            if self._events is not None:
                last.callback(self._events.close)
            if self._board is not None:
                last.callback(self._board.close)
            last.callback(self._log.close)
            last.callback(self.progress.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _resumed_board(events: Events, kept: list[IterationReport]) -> BoardWriter:
    """A board that hides everything from the last kept evaluation on, and has written the kept part again.

    Purging right behind the commit would not do: TensorBoard's fast reader ignores purge marks and hides
    stale points only from the step of a tag's next point on, which for an evaluation may lie beyond them.
    """
    evaluated = [report for report in kept if report.evaluation is not None]
    first = evaluated[-1] if evaluated else IterationReport(0, 0, 0.0)
    steps = (first.iteration, first.states, int(first.seconds))
    board = BoardWriter(events.folder, *steps, earlier=events.names())
    board.replay(kept)
    return board
