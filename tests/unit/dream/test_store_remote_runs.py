"""Whole runs on object storage: the same networks, metrics and answers as on a disk, also after SIGKILL."""

import os
import signal
import subprocess
import time

import numpy as np
import pytest
from oracles.tiny_runs import RESERVOIR, assert_same_run, command, environment

import dream
from dream import inspection, plotting
from dream.results import Result
from dream.store import RunFolder, RunFolderError
from dream.store.places import at

SETTINGS = [*RESERVOIR, "evaluation.every=2"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A run of 6 iterations on a disk."""
    folder = tmp_path_factory.mktemp("disk") / "run"
    dream.train("kuhn-dream-avg-quick", run_dir=folder, overrides=[*SETTINGS, "iterations=6"], progress=False)
    return folder


@pytest.mark.parametrize("where", ["in_memory", pytest.param("bucket", marks=pytest.mark.slow)])
def test_a_run_on_objects_is_the_run_on_a_disk(where, request, undisturbed, tmp_path):
    url = request.getfixturevalue(where) + "/runs/x"
    settings = {"overrides": SETTINGS, "progress": False, "go_on": True}
    dream.train("kuhn-dream-avg-quick", run_dir=url, iterations=2, **settings)
    result = dream.train("kuhn-dream-avg-quick", run_dir=url, iterations=4, **settings)
    assert isinstance(result, Result)
    assert str(result.run_dir) == result.as_json()["run_dir"] == url
    result = dream.resume(result.run_dir, ["iterations=6"], progress=False)
    assert result.iteration == 6
    assert_same_run(url, undisturbed)
    assert dream.evaluate(url, [6])[0]["nash_conv_chips"] == dream.evaluate(undisturbed, [6])[0]["nash_conv_chips"]
    assert inspection.damage(url) == []
    health = inspection.health(url)
    assert (health["run_dir"], health["completed_iterations"], health["commits"]) == (url, 6, [4, 6])
    assert health["disk_bytes"]["total"] == sum(health["disk_bytes"].values()) / 2
    assert plotting.read_curve(url, "states").exploitability_milli[-1] > 0
    stored, local = dream.load_policy(url), dream.load_policy(undisturbed)
    state = stored.game.new_initial_state().child(0).child(1)
    assert stored.action_probabilities(state) == local.action_probabilities(state)


def test_event_files_of_a_run_on_objects_hold_its_curves(in_memory, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    dream.train("kuhn-dream-quick", run_dir=in_memory, overrides=[*SETTINGS, "iterations=3"], progress=False)
    dream.resume(in_memory, ["iterations=5"], progress=False)
    run = RunFolder.open(in_memory)
    events = run.path / "tensorboard" / "iterations"
    names = at(events).names()
    assert len(names) == 2, "one of each sitting"
    for name in names:
        (tmp_path / name).write_bytes(at(events / name).read())
    curves = EventAccumulator(str(tmp_path)).Reload()
    assert [point.step for point in curves.Scalars("loss/advantage_0")] == [1, 2, 3, 4, 5]
    stored = [record["exploitability_chips"] for record in run.metrics.read() if "exploitability_chips" in record]
    drawn = [point.value for point in curves.Scalars("exploitability/chips")]
    np.testing.assert_allclose(drawn, stored, rtol=1e-6)


def records(url):
    try:
        return len(RunFolder.open(url).metrics.read())
    except RunFolderError:
        return 0


def start(*arguments):
    return subprocess.Popen(
        command(*arguments), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def kill_after(process, url, wanted):
    """SIGKILL as soon as `wanted` records are stored."""
    try:
        limit = time.monotonic() + 300
        while records(url) < wanted:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < limit
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_killed_runs_on_s3_go_on_to_the_same_networks(bucket, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # killed runs leave their temporary event files
    url, local = f"{bucket}/runs/killed", tmp_path / "whole"
    settings = ["kuhn-dream-quick", *SETTINGS, "iterations=40"]
    dream.train(settings[0], run_dir=local, overrides=settings[1:], progress=False)
    process = start("train", *settings, "--run-dir", url)
    try:
        while records(url) < 4:
            assert process.poll() is None, process.communicate()[1]
        refused = subprocess.run(
            command("resume", url), env=environment(), text=True, capture_output=True, timeout=300, check=False
        )
    finally:
        kill_after(process, url, 5)
    assert refused.returncode == 2
    assert f"{url} is being trained by process {process.pid} on" in refused.stderr
    kill_after(start("resume", url), url, 20)
    result = dream.resume(url, progress=True)
    assert "is gone; its lock is taken over" in capsys.readouterr().err
    assert result.iteration == 40
    assert_same_run(url, local)
    assert inspection.damage(url) == []
    assert "lock" not in at(RunFolder.open(url).path).names()
