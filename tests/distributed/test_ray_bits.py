"""On Ray, with any number of workers on two nodes, a run has the networks that it has in one process."""

from pathlib import Path

import pytest
from oracles.ray_nodes import Driver, Nodes
from oracles.tiny_runs import MERGED, RESERVOIR, assert_same_run, networks

import dream

CHUNKS = ["sampling.chunk=16", "runtime.shards=2", "checkpoint.every=2"]
RUNS = {
    "kuhn": ["kuhn-dream-quick", *RESERVOIR, *CHUNKS, "iterations=4"],
    "leduc": ["leduc-deep-cfr-quick", *RESERVOIR, *CHUNKS, "iterations=2"],
    "merged": ["kuhn-dream-quick", *MERGED, "sampling.chunk=16", "iterations=4"],
}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each run in one process."""
    base = tmp_path_factory.mktemp("local")
    for name, (preset, *overrides) in RUNS.items():
        dream.train(preset, run_dir=base / name, overrides=[*overrides, "runtime.kind=local"], progress=False)
    return {name: base / name for name in RUNS}


def check(nodes: Nodes, local: dict[str, Path], tmp_path: Path, name: str, workers: int) -> None:
    driver = Driver(
        tmp_path / "log",
        "train",
        *RUNS[name],
        f"runtime.workers={workers}",
        *("--runtime", "ray", "--address", nodes.address, "--run-dir", tmp_path / "run"),
    )
    try:
        assert driver.wait(240) == 0, driver.said
    finally:
        driver.kill()
    assert_same_run(tmp_path / "run", local[name])
    assert networks(tmp_path / "run")


@pytest.mark.timeout(300)
def test_ray_gives_the_bits_of_one_process(nodes: Nodes, local: dict[str, Path], tmp_path: Path) -> None:
    """The smoke test: quick enough to run always."""
    check(nodes, local, tmp_path, "kuhn", 2)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "workers"), [("kuhn", 1), ("kuhn", 4), ("leduc", 1), ("leduc", 4), ("merged", 2)])
def test_any_number_of_workers_on_ray_gives_the_same_bits(
    nodes: Nodes, local: dict[str, Path], tmp_path: Path, name: str, workers: int
) -> None:
    check(nodes, local, tmp_path, name, workers)
