"""A run that has started a Ray of its own is stopped: it commits, and takes everything down with it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from oracles.ray_nodes import Driver, iterations, own_folder, processes, until
from oracles.tiny_runs import ENDLESS, RESERVOIR, assert_same_in_one_process

from dream.store import RunFolder

RUN = ["kuhn-os-sd-cfr-quick", *RESERVOIR, "sampling.chunk=16", ENDLESS]
SECONDS = 240


@pytest.fixture
def folder() -> Iterator[Path]:
    """Of one Ray alone."""
    with own_folder() as path:
        yield path


pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def started(tmp_path: Path) -> Driver:
    where = ["runtime.workers=2", "--runtime", "ray", "--run-dir", tmp_path / "run"]
    return Driver(tmp_path / "log", "train", *RUN, *where)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_iteration_commits_and_leaves_no_process(
    folder: Path, tmp_path: Path, number: signal.Signals
) -> None:
    run = tmp_path / "run"
    driver = started(tmp_path)
    try:
        driver.until(lambda: iterations(run) >= 2, SECONDS)
        assert len(processes(folder)) > 5
        if number == signal.SIGINT:
            os.killpg(driver.process.pid, number)  # a terminal's Ctrl-C goes to all that it started
        else:
            driver.process.send_signal(number)
        assert driver.wait(SECONDS) == 130, driver.said
        assert f"{number.name}: finishing the iteration, then committing" in driver.said
        assert "interrupted and committed" in driver.said
        assert "lost" not in driver.said
        until(lambda: not processes(folder), 60, lambda: str(processes(folder)))
    finally:
        driver.kill()
    done = RunFolder.open(run).checkpoints.load_newest().iteration
    assert done == iterations(run)
    assert_same_in_one_process(run, RUN, tmp_path / "whole")


def test_a_run_that_is_told_twice_stops_at_once_and_leaves_no_process(folder: Path, tmp_path: Path) -> None:
    driver = started(tmp_path)
    try:
        driver.until(lambda: iterations(tmp_path / "run") >= 2, SECONDS)
        for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            driver.process.send_signal(number)  # both arrive at once: the iteration cannot end in between
        assert driver.wait(SECONDS) == 130, driver.said
        until(lambda: not processes(folder), 60, lambda: str(processes(folder)))
    finally:
        driver.kill()
    assert "the run goes on from its last commit" in driver.said
