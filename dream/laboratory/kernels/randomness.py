"""Uniform numbers: SplitMix64 (Steele, Lea, Flood 2014), one word of state per generator."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dream.laboratory.kernels.compilation import kernel

GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_30: Final = np.uint64(30)
_27: Final = np.uint64(27)
_31: Final = np.uint64(31)
_11: Final = np.uint64(11)


@kernel
def mix(z: np.uint64) -> np.uint64:
    """SplitMix64's finaliser."""
    z = (z ^ (z >> _30)) * _FIRST
    z = (z ^ (z >> _27)) * _SECOND
    return z ^ (z >> _31)


@kernel
def to_uniform(bits: np.uint64) -> float:
    """A number in [0, 1) from the upper 53 bits."""
    return np.float64(bits >> _11) * 2.0**-53


@kernel
def uniform(generator: NDArray[np.uint64], which: int) -> float:
    """The next number in [0, 1) of generator `which`."""
    state = generator[which] + GOLDEN
    generator[which] = state
    return to_uniform(mix(state))
