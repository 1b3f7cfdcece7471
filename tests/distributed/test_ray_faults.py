"""Processes and nodes killed at random moments: the run goes on by itself, or by the same command, to the same bits.

A run suffers five faults, one per seed, each after the last one was survived, and is stopped then.
"""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from oracles.ray_nodes import Driver, Nodes, iterations
from oracles.tiny_runs import ENDLESS, RESERVOIR, assert_same_in_one_process

from dream.store import RunFolder

RUN = ["kuhn-dream-quick", *RESERVOIR, "sampling.chunk=16", "runtime.shards=2", ENDLESS]
KINDS = ["worker", "shard", "learner", "node", "driver"]
START_SECONDS = 240  # of all processes, on a busy machine


class Sufferer:
    """A run on the cluster, and what is done to it."""

    def __init__(self, nodes: Nodes, folder: Path) -> None:
        self.run = folder / "run"
        self._nodes = nodes
        self._log = folder / "log"
        where = ["--runtime", "ray", "--address", nodes.address, "--run-dir", str(self.run), "--resume"]
        self._command = ["train", *RUN, "runtime.workers=2", "runtime.recoveries=20", *where]
        self.driver = Driver(self._log, *self._command)

    def suffer(self, kind: str, rng: np.random.Generator) -> None:
        """Waits for a random moment, does it, and waits until the run goes on."""
        moment = iterations(self.run) + int(rng.integers(0, 4))
        self.driver.until(lambda: iterations(self.run) >= moment and self._parts(kind), START_SECONDS)
        time.sleep(0.3 * rng.random())
        {"driver": self._kill_driver, "node": self._lose_node}.get(kind, self._kill_part)(kind, rng)
        now = iterations(self.run)
        self.driver.until(lambda: iterations(self.run) > now, START_SECONDS)

    def _parts(self, kind: str) -> list[str]:
        """Living processes of the kind."""
        actors = self._nodes.actors()
        if kind in ("driver", "node"):
            return sorted(actors)
        kinds = {name: "worker" if name.startswith("worker") else "learner" for name in actors}
        kinds |= {name: "shard" for name in actors if re.search(r"(rows_\d|transitions)-\d+$", name)}
        return sorted(name for name in actors if kinds[name] == kind)

    def _kill_part(self, kind: str, rng: np.random.Generator) -> None:
        name = str(rng.choice(self._parts(kind)))
        os.kill(self._nodes.actors()[name][0], signal.SIGKILL)
        told = rf"{name} was lost \(.+\); going back to iteration \d+"
        if kind == "worker":
            told = rf"{name} (was lost \(.+\): \d+ chunks? given to others, \d workers left|did not start \(.+\))"
        self.driver.until(lambda: re.search(told, self.driver.said), START_SECONDS)

    def _lose_node(self, kind: str, rng: np.random.Generator) -> None:
        homes = {node for _, node in self._nodes.actors().values()} & set(self._nodes.removable)
        losses = self.driver.said.count("was lost (")
        self._nodes.remove(str(rng.choice(sorted(homes))))
        self.driver.until(lambda: self.driver.said.count("was lost (") > losses, START_SECONDS)

    def _kill_driver(self, kind: str, rng: np.random.Generator) -> None:
        self.driver.kill()
        self.driver = Driver(self._log, *self._command)


@pytest.fixture
def sufferer(nodes: Nodes, tmp_path: Path) -> Iterator[Sufferer]:
    nodes.grow_to(3)
    run = Sufferer(nodes, tmp_path)
    try:
        yield run
    finally:
        run.driver.kill()


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seeds", [range(5), range(5, 10)], ids=["seeds 0-4", "seeds 5-9"])
def test_a_run_survives_the_loss_of_anything_with_the_same_bits(
    sufferer: Sufferer, tmp_path: Path, seeds: range
) -> None:
    kinds = np.random.default_rng(seeds[0]).permutation(KINDS)  # each once
    for seed, kind in zip(seeds, kinds, strict=True):
        sufferer.suffer(str(kind), np.random.default_rng(seed))
    sufferer.driver.stop(START_SECONDS)
    undisturbed = tmp_path / "undisturbed"
    assert_same_in_one_process(sufferer.run, RUN, undisturbed)
    mine, whole = (RunFolder.open(folder).checkpoints.load_newest() for folder in (sufferer.run, undisturbed))
    assert mine.iteration == whole.iteration
    for name, part in whole.parts.items():  # rows, learners, counters: nothing lost, nothing twice
        theirs = mine.parts[name]
        assert theirs.keys() == part.keys()
        assert all(np.array_equal(theirs[key], part[key]) for key in part), name
