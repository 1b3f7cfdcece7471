"""Workers that are slow or hang, nodes that join, an object store that fills up, and clusters that have too little.

Runs go on until a test has seen what it waits for, and stops them.
"""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from oracles.ray_nodes import Driver, Nodes, gone, iterations, until
from oracles.tiny_runs import ENDLESS, RESERVOIR, assert_same_in_one_process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RUN = ["kuhn-os-sd-cfr-quick", *RESERVOIR, "sampling.chunk=16", ENDLESS]
SECONDS = 240

Start = Callable[..., Driver]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts runs in `tmp_path / "run"`, and ends what is left of them."""
    drivers = []

    def begin(cluster: Nodes, *settings: str) -> Driver:
        where = ["--runtime", "ray", "--address", cluster.address, "--run-dir", tmp_path / "run"]
        drivers.append(Driver(tmp_path / "log", "train", *RUN, *settings, *where))
        return drivers[-1]

    yield begin
    for driver in drivers:
        driver.kill()


def recorded(folder: Path, name: str) -> list[float]:
    """A scalar of the run over its iterations."""
    *lines, _ = (folder / "metrics.jsonl").read_text().split("\n")  # behind the last line, one may be growing
    return [json.loads(line)[name] for line in lines]


# --- slow and hung -----------------------------------------------------------------------------------------


def test_a_slow_worker_holds_nobody_up(nodes: Nodes, start: Start, tmp_path: Path) -> None:
    run = tmp_path / "run"
    driver = start(nodes, "runtime.workers=2")
    driver.until(lambda: iterations(run) >= 2, SECONDS)
    process, _ = nodes.actors()["worker-1"]
    os.kill(process, signal.SIGSTOP)
    try:
        stopped = iterations(run)
        driver.until(lambda: iterations(run) >= stopped + 5, SECONDS)
    finally:
        os.kill(process, signal.SIGCONT)
    driver.stop(SECONDS)
    assert "worker-1" not in driver.said
    assert_same_in_one_process(run, RUN, tmp_path / "whole")
    assert recorded(run, "cluster/chunks_reissued")[-1] >= 1
    assert recorded(run, "cluster/workers_lost")[-1] == 0


def test_a_hung_worker_is_replaced(nodes: Nodes, start: Start, tmp_path: Path) -> None:
    run = tmp_path / "run"
    driver = start(nodes, "runtime.workers=2", "runtime.chunk_timeout_seconds=5")
    driver.until(lambda: iterations(run) >= 2, SECONDS)
    process, _ = nodes.actors()["worker-1"]
    os.kill(process, signal.SIGSTOP)
    driver.until(lambda: "worker-1 ran a chunk for more than 5 s: " in driver.said, SECONDS)
    lost = iterations(run)
    driver.until(lambda: iterations(run) > lost + 1 and recorded(run, "cluster/workers")[-1] == 2, SECONDS)
    driver.stop(SECONDS)
    assert_same_in_one_process(run, RUN, tmp_path / "whole")
    assert recorded(run, "cluster/workers_lost")[-1] >= 1
    until(lambda: gone(process), 60)  # a stopped process ends too


# --- joining -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["auto", "4"])
def test_a_node_that_joins_gets_work(start: Start, tmp_path: Path, workers: str) -> None:
    run = tmp_path / "run"

    def at_work() -> dict[str, int]:
        """Each worker's node, and its process."""
        return {node: process for name, (process, node) in cluster.actors().items() if name.startswith("worker")}

    cluster = Nodes()
    try:
        first = cluster.add(1)
        driver = start(cluster, f"runtime.workers={workers}")
        driver.until(lambda: iterations(run) >= 1, SECONDS)
        joined = cluster.add(1)
        driver.until(lambda: joined in at_work() and recorded(run, "cluster/workers")[-1] == 2, SECONDS)
        os.kill(at_work()[first], signal.SIGSTOP)  # what goes on now, goes on at the new node
        reached = iterations(run)
        driver.until(lambda: iterations(run) >= reached + 3, SECONDS)
        os.kill(at_work()[first], signal.SIGCONT)
        driver.stop(SECONDS)
    finally:
        cluster.close()
    assert recorded(run, "cluster/workers")[0] == 1
    assert_same_in_one_process(run, RUN, tmp_path / "whole")


# --- a full object store -----------------------------------------------------------------------------------


def test_rows_that_do_not_fit_the_object_store_go_to_disk_and_back(
    ray_folder: Path, start: Start, tmp_path: Path
) -> None:
    """Eight chunks of 10 MB wait for a shard that is stopped, in a store of 75 MB.

    The shard has the rows of the player whose turn comes second: it is stopped while the first one's are made.
    """
    large = ["sampling.traversals=3200000", "sampling.chunk=400000", "runtime.in_flight=8"]
    cluster = Nodes(75 * 2**20)
    try:
        cluster.add(2)
        driver = start(cluster, *large, "runtime.workers=2")
        driver.until(lambda: iterations(tmp_path / "run"), SECONDS)
        shard, _ = cluster.actors()["advantage_rows_1-0"]
        os.kill(shard, signal.SIGSTOP)
        try:
            driver.until(lambda: list(ray_folder.glob("ray/session_*/ray_spilled_objects*/*")), SECONDS)
        finally:
            os.kill(shard, signal.SIGCONT)
        driver.stop(SECONDS)
    finally:
        cluster.close()
    assert_same_in_one_process(tmp_path / "run", [*RUN, *large], tmp_path / "whole")


# --- too little --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bare(ray_folder: Path) -> Iterator[Nodes]:
    """A head without CPUs, alone."""
    cluster = Nodes()
    yield cluster
    cluster.close()


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("runtime.workers=3", ["1 CPU", "0 CPUs"]),
        ("runtime.learner_gpus=1", ["advantage_0", "1 GPU"]),
    ],
)
def test_what_never_fits_is_an_error_that_says_what_there_is(
    bare: Nodes, start: Start, setting: str, words: list[str]
) -> None:
    driver = start(bare, setting, "runtime.start_timeout_seconds=10")
    assert driver.wait(SECONDS) == 1, driver.said
    (error,) = (line for line in driver.said.splitlines() if line.startswith("error: "))
    assert not [word for word in words if word not in error], error
    assert "Traceback" not in driver.said
    until(lambda: not bare.unfinished(), 60)


def test_a_cluster_that_is_not_there_is_an_error(start: Start, tmp_path: Path) -> None:
    driver = Driver(tmp_path / "log", "train", *RUN, "--address", "127.0.0.1:1", "--run-dir", tmp_path / "run")
    try:
        assert driver.wait(SECONDS) == 1, driver.said
    finally:
        driver.kill()
    assert "no Ray cluster at 127.0.0.1:1" in driver.said
    assert "Traceback" not in driver.said
