"""What a sampler returns: rows for the buffers, and what the sampling cost."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.games.batch import CHANCE, Batch
from actors.sampling import lanes
from actors.sampling.chance import ChanceStreams
from buffers.rows import Rows


@dataclass(frozen=True)
class Traversals:
    """Rows of a chunk of traversals. `states`: decision nodes and terminals entered, chance not counted."""

    advantage: Rows
    strategy: Rows | None
    transitions: Rows | None
    states: int
    metrics: dict[str, float] = field(default_factory=dict)


def regression_rows(
    keys: NDArray[Any], targets: NDArray[np.float64], weights: NDArray[np.float64], lane_keys: lanes.Keys
) -> Rows:
    """Advantage or strategy rows in the order given: targets [n, A], weights [n]."""
    return {
        "key": keys,
        "target": targets.astype(np.float32),
        "weight": weights.astype(np.float32),
        "priority": lanes.priority(lane_keys),
    }


def resolve_chance(batch: Batch, keys: lanes.Keys, streams: ChanceStreams) -> lanes.Keys:
    """Draw until no lane waits for chance; returns the lanes' new keys [n]."""
    while True:
        at = np.flatnonzero(batch.player == CHANCE)
        if not len(at):
            return keys
        uniforms = streams.draw(batch.chance_nodes(at), lanes.uniform(keys[at]))
        ordinals = batch.step_chance(at, uniforms)
        if len(at) == len(keys):
            keys = lanes.child(keys, ordinals)
        else:
            keys = keys.copy()
            keys[at] = lanes.child(keys[at], ordinals)


def inverse_cdf(probabilities: NDArray[np.float64], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
    """[n] actions drawn from rows [n, A]; an action of probability 0 is never drawn."""
    # Actions are few and rows many: numpy is several times faster along the long axis.
    cumulative = np.ascontiguousarray(probabilities.T).cumsum(axis=0)
    action: NDArray[np.int64] = (cumulative <= uniforms * cumulative[-1]).sum(axis=0)
    return action
