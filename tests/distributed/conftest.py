"""One cluster per module, in a folder and on ports of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from oracles import ray_nodes


@pytest.fixture(scope="session", autouse=True)
def ray_folder() -> Iterator[Path]:
    with ray_nodes.own_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def nodes(ray_folder: Path) -> Iterator[ray_nodes.Nodes]:
    """A head and two nodes of two CPUs."""
    cluster = ray_nodes.Nodes()
    try:
        cluster.add(2)
        cluster.add(2)
        yield cluster
    finally:
        cluster.close()
