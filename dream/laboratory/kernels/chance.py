"""Chance streams inside the loops: the same mathematics as `actors.sampling.chance`, one draw at a time.

A reset starts every stream anew with another phase, so that each draw stays marginally uniform; with the old phase
each first draw after a reset would be the same number.

Where both players' traversals draw from one stream, each player meets every second number at the root, and below it
whatever the other's traversals leave: the numbers that one player's regrets see are no Weyl sequence any more. Streams
by traverser keep it whole.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dream.laboratory.kernels.arrays import ANTITHETIC, IID, WEYL, Streams, Tree
from dream.laboratory.kernels.compilation import kernel
from dream.laboratory.kernels.randomness import GOLDEN, mix, to_uniform, uniform

GOLDEN_RATIO: Final = (5.0**0.5 - 1.0) / 2.0
_BELOW_ONE: Final = float(np.nextafter(1.0, 0.0))


@kernel
def phase(streams: Streams, stream: int) -> float:
    """Phi of a stream in the present epoch; epoch 0 has the phases of `actors.sampling.chance.Weyl`."""
    seed = streams.seed[0]
    if streams.epoch[0] > 0:
        seed = mix(seed + np.uint64(streams.epoch[0]) * GOLDEN)
    return to_uniform(mix((streams.node[stream] ^ seed) + GOLDEN))


@kernel
def stream_uniform(streams: Streams, row: int, traverser: int, generator: NDArray[np.uint64]) -> float:
    """The next uniform of chance row `row` in a traversal by `traverser`."""
    if streams.kind == IID:
        return uniform(generator, 1)
    stream = row + traverser * streams.stride
    if streams.since[stream] != streams.epoch[0]:
        streams.since[stream] = streams.epoch[0]
        streams.draws[stream] = 0
    n = streams.draws[stream]
    streams.draws[stream] = n + 1
    if streams.kind == WEYL:
        if n == 0:
            streams.last[stream] = phase(streams, stream)
        u = streams.last[stream] + n * GOLDEN_RATIO
        return float(u - np.floor(u))
    if streams.kind == ANTITHETIC and n % 2 == 1:
        return min(1.0 - float(streams.last[stream]), _BELOW_ONE)
    streams.last[stream] = uniform(generator, 1)
    return float(streams.last[stream])


@kernel
def draw_outcome(tree: Tree, streams: Streams, row: int, traverser: int, generator: NDArray[np.uint64]) -> int:
    """Ordinal of the outcome drawn at chance row `row`: inverse CDF over the outcomes in their fixed order."""
    u = stream_uniform(streams, row, traverser, generator)
    ordinal = 0
    while tree.cdf[row, ordinal] <= u:
        ordinal += 1
    streams.outcomes[row, ordinal] += 1
    return ordinal
