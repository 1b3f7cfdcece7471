"""Identity 8 through the runtime: buffers, fits and averages are the same bits for any chunk size."""

import numpy as np
import pytest

from dream import config as configuration
from dream.training import cfr
from dream.wiring import System

ITERATIONS = 3


class Bench:
    """A run without a folder."""

    def __init__(self, system):
        self.system, self.bank = system, system.bank
        cfr.train(self, system.runtime, system.method, cfr.ALTERNATING)

    def iterations(self):
        yield from range(1, ITERATIONS + 1)

    def append(self, player, parameters):
        self.bank.append(player, parameters)

    def finish(self, iteration):
        self.system.runtime.take_metrics()


def trained(algorithm, chunk, buffer, chance="iid"):
    values = {
        "game": "leduc",
        "algorithm": algorithm,
        "iterations": ITERATIONS,
        "sampling": {"traversals": 200, "chunk": chunk, "chance": chance},
        "advantage": {"network": {"hidden": (8,)}, "steps": 3, "batch": 64, "buffer": buffer, "capacity": 500},
        "baseline": {"network": {"hidden": (8,)}, "steps": 3, "batch": 64, "capacity": 1000},
        "average": {"network": {"hidden": (8,)}, "steps": 3, "batch": 64, "buffer": buffer, "capacity": 500},
        "runtime": {"device": "cpu", "threads": 1},
    }
    return Bench(System.build(configuration.from_mapping(values))).system


def check_same(mine, theirs):
    assert np.array_equal(mine.bank.average(), theirs.bank.average())
    assert mine.runtime.states == theirs.runtime.states
    parts, others = mine.runtime.begin_snapshot()(), theirs.runtime.begin_snapshot()()
    assert parts.keys() == others.keys()
    for name in ("advantage_0", "advantage_1", "chance_0", "chance_1", "baseline"):
        for key, value in parts.get(name, {}).items():
            assert np.array_equal(value, others[name][key]), f"{name}: {key}"


@pytest.mark.parametrize(
    ("algorithm", "buffer"),
    [
        ("dream", "merged"),
        ("dream", "reservoir"),
        ("sd-cfr", "reservoir"),
        ("os-sd-cfr", "merged"),
        ("deep-cfr", "reservoir"),
        ("dream-avg", "merged"),
    ],
)
def test_chunk_size_changes_no_bit(algorithm, buffer):
    check_same(trained(algorithm, 37, buffer), trained(algorithm, 1000, buffer))


@pytest.mark.parametrize("chance", ["antithetic", "weyl"])
def test_nor_with_chance_streams(chance):
    check_same(trained("sd-cfr", 37, "merged", chance), trained("sd-cfr", 1000, "merged", chance))


def test_other_chance_is_other_bits():
    with pytest.raises(AssertionError):
        check_same(trained("sd-cfr", 1000, "merged", "weyl"), trained("sd-cfr", 1000, "merged", "iid"))
