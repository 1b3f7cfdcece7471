"""Reports, records and progress."""

import io
import json
import math

import numpy as np
import pytest
from rich.console import Console

from dream.store import MetricsLog
from dream.telemetry import IterationReport, Recorder, deterministic_view, make_progress
from dream.telemetry.progress import BarProgress, LineProgress, SilentProgress

EVALUATION = {
    "nash_conv_chips": 0.5,
    "exploitability_chips": 0.25,
    "exploitability_milli": 250.04,
    "unit": "mA/g",
    "average": "bank",
}


def report(iteration, evaluated=False, **metrics):
    metrics = {name.replace("__", "/"): value for name, value in metrics.items()}
    return IterationReport(iteration, 1000 * iteration, 2.0 * iteration, metrics, EVALUATION if evaluated else None)


def test_the_record_of_an_evaluated_iteration():
    got = report(3, True, loss__advantage_0=np.float32(0.5), buffer__seen_advantage_0=np.int64(12)).record()
    assert got == {
        "iteration": 3,
        "states": 3000,
        "seconds": 6.0,
        **EVALUATION,
        "loss/advantage_0": 0.5,
        "buffer/seen_advantage_0": 12,
    }
    assert json.loads(json.dumps(got, allow_nan=False)) == got


def test_an_iteration_without_evaluation_has_none_of_its_keys():
    assert report(3).record() == {"iteration": 3, "states": 3000, "seconds": 6.0}


def test_a_report_comes_back_from_its_record():
    made = report(3, True, loss__advantage_0=0.5, loss__baseline=math.inf)
    got = IterationReport.from_record(json.loads(json.dumps(made.record())))
    assert (got.iteration, got.states, got.seconds, got.evaluation) == (3, 3000, 6.0, EVALUATION)
    assert got.metrics["loss/advantage_0"] == 0.5
    assert math.isnan(got.metrics["loss/baseline"]), "what is not finite is null in JSON"


def test_the_deterministic_view_drops_the_clock_and_nothing_else():
    record = report(
        1,
        True,
        loss__advantage_0=1.0,
        time__sampling_seconds=2.0,
        throughput__rows_per_second=3.0,
        throughput__states_per_second=4.0,
    ).record()
    kept = {"iteration": 1, "states": 1000, **EVALUATION, "loss/advantage_0": 1.0}
    assert deterministic_view(record) == kept


@pytest.mark.parametrize(
    ("metrics", "evaluation", "message"),
    [({"loss": 1.0}, None, "group/name"), ({}, {"unit": "mA/g"}, "lacks nash_conv_chips, exploitability_chips")],
)
def test_reports_are_checked_when_they_are_made(metrics, evaluation, message):
    with pytest.raises(ValueError, match=message):
        IterationReport(1, 1, 1.0, metrics, evaluation)


class Board:
    def __init__(self):
        self.calls = []

    def write(self, report):
        self.calls.append(report.iteration)

    def flush(self):
        self.calls.append("flush")

    def close(self):
        self.calls.append("close")


def test_one_call_reaches_all_three(tmp_path):
    board, stream, log = Board(), io.StringIO(), MetricsLog(tmp_path / "metrics.jsonl")
    progress = LineProgress(stream)
    progress.start(total=2)
    with Recorder(log, board, progress) as recorder:
        recorder.record(report(1))
        recorder.record(report(2, True))
        recorder.flush()
    assert [record["iteration"] for record in log.read()] == [1, 2]
    assert board.calls == [1, 2, "flush", "close"]
    assert len(stream.getvalue().splitlines()) == 2


def test_lines_tell_iteration_states_exploitability_speed_and_time_left():
    stream = io.StringIO()
    progress = LineProgress(stream)
    progress.start(total=400, done=100, states=100_000, seconds=200.0)
    progress.update(report(101, True))
    progress.note("committed")
    assert stream.getvalue().splitlines() == [
        "iteration 101/400  101,000 states  exploitability 250.0 mA/g at iteration 101  500 states/s  ETA 9:58",
        "committed",
    ]


def test_fast_iterations_print_one_line_a_second_and_every_evaluation():
    now = 0.0
    stream = io.StringIO()
    progress = LineProgress(stream, clock=lambda: now)
    progress.start(total=45)
    for iteration in range(1, 46):
        now += 0.125
        progress.update(report(iteration, iteration == 4))
    shown = [int(line.split()[1].split("/")[0]) for line in stream.getvalue().splitlines()]
    assert shown == [1, 4, 12, 20, 28, 36, 44, 45]


def test_the_bar_shows_the_same_words():
    stream = io.StringIO()
    progress = BarProgress(Console(file=stream, force_terminal=True, width=150))
    progress.start(total=4)
    progress.update(report(1, True))
    progress.note("a [bracketed] note")
    progress.close()
    shown = stream.getvalue()
    assert "1/4" in shown
    assert "exploitability 250.0 mA/g at iteration 1" in shown
    assert "a [bracketed] note" in shown


def test_warnings_are_shown_by_every_kind_of_progress(capsys):
    lines, bar = io.StringIO(), io.StringIO()
    for progress in (LineProgress(lines), BarProgress(Console(file=bar, width=150)), SilentProgress()):
        progress.warn("a [damaged] commit")
    shown = (lines.getvalue(), bar.getvalue(), capsys.readouterr().err)
    assert shown == ("warning: a [damaged] commit\n",) * 3


def test_the_kind_of_progress_fits_the_stream():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    assert isinstance(make_progress(stream=io.StringIO()), LineProgress)
    assert isinstance(make_progress(stream=Terminal()), BarProgress)
    assert isinstance(make_progress(quiet=True, stream=Terminal()), SilentProgress)
