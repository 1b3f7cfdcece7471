"""Event files, read back through TensorBoard's own readers and its server."""

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

from dream.store import RunFolder
from dream.telemetry import BoardWriter, IterationReport, Recorder, make_progress
from dream.telemetry.tensorboard import AXES

# numpy deprecations inside tensorboard's readers are not ours
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard")


def report(iteration, value=None, evaluated=False):
    value = float(iteration) if value is None else value
    evaluation = {
        "nash_conv_chips": value / 500,
        "exploitability_chips": value / 1000,
        "exploitability_milli": value,
        "unit": "mA/g",
        "average": "bank",
    }
    metrics = {"loss/advantage_0": value, "buffer/fill_advantage_0": 0.5, "throughput/states_per_second": 9.0}
    return IterationReport(iteration, 1000 * iteration, 0.6 * iteration, metrics, evaluation if evaluated else None)


def curves(folder, axis):
    """All points by tag: [(step, value)]."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder / axis), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]
    }


def test_tags_and_steps_of_the_three_axes(tmp_path):
    with BoardWriter(tmp_path) as board:
        for iteration in range(1, 5):
            board.write(report(iteration, evaluated=iteration % 2 == 0))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(AXES)
    iterations = curves(tmp_path, "iterations")
    assert sorted(iterations) == [
        "buffer/fill_advantage_0",
        "exploitability/chips",
        "exploitability/mA_per_g",
        "loss/advantage_0",
        "throughput/states_per_second",
    ]
    assert iterations["exploitability/mA_per_g"] == [(2, 2.0), (4, 4.0)]
    assert iterations["loss/advantage_0"] == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    assert curves(tmp_path, "states")["exploitability_by_states/mA_per_g"] == [(2000, 2.0), (4000, 4.0)]
    seconds = curves(tmp_path, "seconds")
    assert seconds["loss_by_seconds/advantage_0"] == [(0, 1.0), (1, 2.0), (1, 3.0), (2, 4.0)]
    assert sorted(seconds) == [
        "exploitability_by_seconds/chips",
        "exploitability_by_seconds/mA_per_g",
        "loss_by_seconds/advantage_0",
    ]


def test_flushed_events_can_be_read_before_the_writer_ends(tmp_path):
    with BoardWriter(tmp_path) as board:
        board.write(report(1))
        board.flush()
        assert curves(tmp_path, "iterations")["loss/advantage_0"] == [(1, 1.0)]


def hidden_points(tmp_path, purge):
    with BoardWriter(tmp_path) as board:
        for iteration in range(1, 8):
            board.write(report(iteration, evaluated=True))
    with BoardWriter(tmp_path, **purge) as board:
        for iteration in range(4, 6):
            board.write(report(iteration, value=100.0 + iteration, evaluated=True))
    return [curves(tmp_path, axis) for axis in AXES]


def test_purge_steps_hide_what_a_resume_repeats(tmp_path):
    iterations, states, seconds = hidden_points(
        tmp_path, {"purge_iteration": 4, "purge_states": 4000, "purge_seconds": 2}
    )
    expected = [1.0, 2.0, 3.0, 104.0, 105.0]
    assert [value for _, value in iterations["exploitability/mA_per_g"]] == expected
    assert [value for _, value in states["exploitability_by_states/mA_per_g"]] == expected
    assert [value for _, value in seconds["exploitability_by_seconds/mA_per_g"]] == expected


def test_the_purge_check_finds_a_writer_that_forgets_to(tmp_path, monkeypatch):
    """Named mutant: a resume without purge marks leaves overlapping curves."""
    from torch.utils import tensorboard

    writer = tensorboard.SummaryWriter
    monkeypatch.setattr(tensorboard, "SummaryWriter", lambda folder, purge_step: writer(folder))
    iterations, _, _ = hidden_points(tmp_path, {"purge_iteration": 4})
    assert [step for step, _ in iterations["exploitability/mA_per_g"]] == [1, 2, 3, 4, 5, 6, 7, 4, 5]


def train(run, until, resume_after=None, value=0.0, evaluate_every=3):
    with run.lock(), Recorder.start(run, make_progress(quiet=True), 20, resume_after) as recorder:
        recorder.hyperparameters({"advantage": {"steps": 7, "network": None}, "game": "kuhn"}, "mA/g")
        for iteration in range(1 if resume_after is None else resume_after + 1, until + 1):
            recorder.record(report(iteration, value + iteration, evaluated=iteration % evaluate_every == 0))
        recorder.flush()


@pytest.mark.parametrize("resume_after", [0, 2, 4])
def test_a_resumed_run_has_the_curves_of_an_undisturbed_one(tmp_path, resume_after):
    whole, killed = (RunFolder.create(tmp_path / name, "") for name in ("whole", "killed"))
    train(whole, 10)
    train(killed, 8)
    train(killed, 10, resume_after=resume_after)
    for axis in AXES:
        assert curves(killed.board_folder, axis) == curves(whole.board_folder, axis)
    assert killed.metrics.path.read_bytes() == whole.metrics.path.read_bytes()


def test_hyperparameters_open_no_run_of_their_own(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata

    run = RunFolder.create(tmp_path / "run", "")
    train(run, 3)
    assert sorted(path.name for path in run.board_folder.iterdir()) == sorted(AXES)
    accumulator = EventAccumulator(str(run.board_folder / "iterations"))
    accumulator.Reload()
    content = accumulator.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    hparams = metadata.parse_session_start_info_plugin_data(content).hparams
    assert hparams["advantage.steps"].number_value == 7
    assert hparams["game"].string_value == "kuhn"
    assert "advantage.network" not in hparams


def fetch(port, route, **query):
    url = f"http://127.0.0.1:{port}/data/{route}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.loads(answer.read())


def wait_for_tags(port, server, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert server.poll() is None, "tensorboard ended"
        try:
            tags = fetch(port, "plugin/scalars/tags")
        except (urllib.error.URLError, ConnectionError):
            tags = {}
        if set(AXES) <= tags.keys() and all(tags.values()):
            return tags
        time.sleep(0.2)
    raise AssertionError("tensorboard showed no tags")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["auto", "false"])
def test_a_real_tensorboard_shows_a_resumed_run(tmp_path, reader):
    """Both of TensorBoard's readers: the fast one ignores purge marks, the other the first of them."""
    run = RunFolder.create(tmp_path / "run", "")
    train(run, 8, value=500.0)
    train(run, 5, resume_after=4, value=0.0)  # iteration 6, evaluated before the kill, has not come again yet
    port = free_port()
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(run.board_folder), "--host", "127.0.0.1"]
    server = subprocess.Popen(
        [*command, "--port", str(port), "--load_fast", reader],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        tags = wait_for_tags(port, server)
        assert "exploitability/mA_per_g" in tags["iterations"]
        assert "exploitability_by_states/mA_per_g" in tags["states"]
        assert "exploitability_by_seconds/mA_per_g" in tags["seconds"]

        def points(axis, tag):
            return [row[1:] for row in fetch(port, "plugin/scalars/scalars", run=axis, tag=tag)]

        assert points("iterations", "exploitability/mA_per_g") == [[3, 503.0]]
        assert points("states", "exploitability_by_states/mA_per_g") == [[3000, 503.0]]
        assert points("seconds", "exploitability_by_seconds/mA_per_g") == [[1, 503.0]]
        assert points("iterations", "loss/advantage_0") == [[1, 501], [2, 502], [3, 503], [4, 504], [5, 5]]
        assert "custom_scalars" in fetch(port, "plugins_listing")
    finally:
        server.terminate()
        try:
            server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
