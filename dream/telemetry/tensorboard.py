"""TensorBoard event files: one curve against iterations for every scalar, the main ones also against states
and seconds.

A purge step belongs to an event file's step axis, so each axis has its own TensorBoard run in a sub-folder:
`iterations`, `states`, `seconds`. Tags carry their unit (`exploitability/mA_per_g`); against states and
seconds the group's name says so (`exploitability_by_states/mA_per_g`), or TensorBoard would draw all axes
into one chart.
"""

import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dream.telemetry.report import IterationReport

AXES = ("iterations", "states", "seconds")
"""The sub-folders, one for each step axis."""

MAIN_GROUPS = ("exploitability", "loss")
"""Groups that are also drawn against states and seconds."""

_LAYOUT = {
    "Exploitability": {
        "against iterations": ["Multiline", [r"^exploitability/"]],
        "against states": ["Multiline", [r"^exploitability_by_states/"]],
        "against seconds": ["Multiline", [r"^exploitability_by_seconds/"]],
    },
    "Learning": {
        "loss": ["Multiline", [r"^loss/"]],
        "gradient norm": ["Multiline", [r"^gradient_norm/"]],
        "target scale": ["Multiline", [r"^target_scale/"]],
    },
    "Sampling": {
        "importance weight": ["Multiline", [r"^importance_weight/"]],
        "buffer fill": ["Multiline", [r"^buffer/fill_"]],
    },
    "Speed": {
        "time of an iteration": ["Multiline", [r"^time/"]],
        "per second": ["Multiline", [r"^throughput/"]],
    },
}
_FILE_SECOND = re.compile(r"events\.out\.tfevents\.(\d+)\.")


class BoardWriter:
    """Writes a run's event files under `folder`; one writer at a time.

    On a resume the three purge steps (None: 0) are the first iteration, states and (whole) seconds from which older
    event files no longer count; what still holds from there on is written again with `replay`. `earlier` are the
    names of the run's event files that lie elsewhere than in `folder`.
    """

    def __init__(
        self,
        folder: Path,
        purge_iteration: int | None = None,
        purge_states: int | None = None,
        purge_seconds: int | None = None,
        earlier: Iterable[str] = (),
    ) -> None:
        from torch.utils.tensorboard import SummaryWriter  # imports torch and tensorboard: seconds

        _wait_for_later_second([*(path.name for path in folder.glob("*/*")), *earlier])
        steps = (purge_iteration, purge_states, purge_seconds)
        # A new run purges, too: TensorBoard takes the first purge mark of all for the start, not for a restart.
        self._purge = {axis: step or 0 for axis, step in zip(AXES, steps, strict=True)}
        self._writers: dict[str, SummaryWriter] = {
            axis: SummaryWriter(str(folder / axis), purge_step=step) for axis, step in self._purge.items()
        }
        self._writers["iterations"].add_custom_scalars(_LAYOUT)

    def write(self, report: IterationReport) -> None:
        """Adds one report to all axes."""
        for axis in AXES:
            self._write(axis, report)

    def replay(self, reports: Iterable[IterationReport]) -> None:
        """Writes again what the purge of this writer hid."""
        for report in reports:
            for axis in AXES:
                if _step(axis, report) >= self._purge[axis]:
                    self._write(axis, report)

    def hyperparameters(self, settings: Mapping[str, Any], unit: str) -> None:
        """Shows the configuration (keys of any depth) in the hparams tab, with exploitability as its metric.

        Written into the run of iterations itself: SummaryWriter.add_hparams would open a run of its own.
        """
        from torch.utils.tensorboard.summary import hparams

        flat = dict(_flatten(settings))
        writer: Any = self._writers["iterations"]
        make: Any = hparams  # untyped in torch
        for summary in make(flat, {_unit_tag(unit): 0.0}):
            writer.file_writer.add_summary(summary)

    def flush(self) -> None:
        """Hands all events to the operating system; to be called before a commit."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Flushes and closes the event files."""
        for writer in self._writers.values():
            writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, axis: str, report: IterationReport) -> None:
        step = _step(axis, report)
        for tag, value in scalars(report).items():
            group, name = tag.split("/", 1)
            if axis == "iterations":
                self._writers[axis].add_scalar(tag, value, step)
            elif group in MAIN_GROUPS:
                self._writers[axis].add_scalar(f"{group}_by_{axis}/{name}", value, step)


def scalars(report: IterationReport) -> dict[str, float]:
    """All scalars of a report by TensorBoard tag."""
    tags = dict(report.metrics)
    if report.evaluation is not None:
        unit = str(report.evaluation["unit"])
        tags[_unit_tag(unit)] = float(report.evaluation["exploitability_milli"])
        tags["exploitability/chips"] = float(report.evaluation["exploitability_chips"])
    return tags


def _unit_tag(unit: str) -> str:
    return f"exploitability/{unit.replace('/', '_per_')}"


def _step(axis: str, report: IterationReport) -> int:
    return int({"iterations": report.iteration, "states": report.states, "seconds": report.seconds}[axis])


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, bool | int | float | str]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        elif isinstance(value, bool | int | float | str):
            yield f"{prefix}{key}", value
        elif value is not None:
            yield f"{prefix}{key}", str(value)


def _wait_for_later_second(names: Iterable[str]) -> None:
    """TensorBoard orders event files by the second in their names: ours must come after all there are."""
    found = (_FILE_SECOND.match(name) for name in names)
    newest = max((int(match[1]) for match in found if match), default=0)
    if newest == int(time.time()):
        time.sleep(newest + 1 - time.time())
