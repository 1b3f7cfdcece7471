"""Randomness that belongs to a history, not to a process.

Every lane of a batch carries one 64-bit key. The key is the lane's random number at the present node; taking
action a replaces it by `child(key, a)`. A traversal's first key is a hash of (seed, iteration, player, index). A
traversal therefore sees the same random numbers whatever chunk, batch, worker or game backend it is played in.
The hash is the finaliser of SplitMix64 (Steele, Lea, Flood 2014), vectorised.
"""

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_PRIORITY = np.uint64(0xD1B54A32D192ED03)
_MASK = (1 << 64) - 1


def _mix(z: Keys) -> Keys:
    """SplitMix64's finaliser, in place on a fresh array: a bijection that spreads every input bit."""
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def derive(seed: int, *words: int) -> int:
    """One 64-bit seed from a run's seed and any number of integers (purpose, iteration, player, ...)."""
    key = seed & _MASK
    for word in words:
        key = (key * 0x9E3779B97F4A7C15 + word + 1) & _MASK
        key = int(_mix(np.array([key], np.uint64))[0])
    return key


def start(seed: int, iteration: int, player: int, first: int, count: int) -> Keys:
    """[count] keys of the traversals first, first + 1, ... of `player` in `iteration`."""
    base = np.uint64(derive(seed, iteration, player))
    index = np.arange(first, first + count, dtype=np.uint64)
    return _mix(_mix(index * _GOLDEN + base) + base)


def child(keys: Keys, actions: NDArray[np.int64]) -> Keys:
    """[n] keys of the successors after `actions` [n] (chance: the outcome's ordinal)."""
    return _mix(keys + (actions.astype(np.uint64) + np.uint64(1)) * _GOLDEN)


def uniform(keys: Keys) -> NDArray[np.float64]:
    """[n] numbers in [0, 1) with 53 random bits."""
    return (keys >> np.uint64(11)).astype(np.float64) * 2.0**-53


def priority(keys: Keys) -> NDArray[np.uint32]:
    """[n] reservoir priorities: independent of `uniform` of the same keys."""
    return (_mix(keys ^ _PRIORITY) >> np.uint64(32)).astype(np.uint32)
