"""Rows to minibatches on the learner's device."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from buffers.merged import Merged
from buffers.rows import Rows
from learners.inputs import StateInputs


@dataclass(frozen=True)
class RegressionBatch:
    """A minibatch of advantage or strategy rows; weights have mean 1 over all rows of the buffer."""

    features: Tensor  # f4[n, F]
    legal: Tensor  # f4[n, A]
    target: Tensor  # f4[n, A]
    weight: Tensor  # f4[n]


class RegressionFeed(Protocol):
    """Gives the minibatches of one fit."""

    def draw(self, generator: torch.Generator) -> RegressionBatch:
        """A minibatch of the rows; uniform over them unless it is all of them."""
        ...


class UniformFeed:
    """Minibatches drawn uniformly, with replacement, from resident rows. Targets are divided by `scale`."""

    def __init__(
        self, rows: Rows, inputs: StateInputs, batch: int, scale: float, device: torch.device
    ) -> None:
        self._inputs = inputs
        self._batch = batch
        self._keys = resident(rows["key"], device)
        self._target = resident(rows["target"], device)
        self._weight = resident(rows["weight"], device)
        self._target_scale = 1.0 / scale
        self._weight_scale = 1.0 / float(np.mean(rows["weight"], dtype=np.float64))

    def draw(self, generator: torch.Generator) -> RegressionBatch:
        """`batch` rows."""
        device = self._keys.device
        index = torch.randint(len(self._keys), (self._batch,), generator=generator, device=device)
        features, legal = self._inputs.read(self._keys.index_select(0, index))
        target = self._target.index_select(0, index) * self._target_scale
        weight = self._weight.index_select(0, index) * self._weight_scale
        return RegressionBatch(features, legal, target, weight)


class MergedFeed:
    """All rows at once, merged per information state: the exact gradient of the loss over every row ever."""

    def __init__(self, merged: Merged, inputs: StateInputs, scale: float, device: torch.device) -> None:
        means, weights = merged.means()
        seen = np.flatnonzero(weights > 0.0)
        keys = (seen + merged.offset).astype(np.int32)
        features, legal = inputs.read(keys)
        # The loss divides by the number of rows; these weights make that the sum of all weights.
        weight = weights[seen] * (len(seen) / weights[seen].sum())
        self._batch = RegressionBatch(
            features=features,
            legal=legal,
            target=torch.from_numpy((means[seen] / scale).astype(np.float32)).to(device),
            weight=torch.from_numpy(weight.astype(np.float32)).to(device),
        )

    def draw(self, generator: torch.Generator) -> RegressionBatch:
        """Every information state that has rows."""
        return self._batch


def resident(column: NDArray[Any], device: torch.device) -> Tensor:
    """A column on the device: the buffer's own memory where the device is the CPU."""
    return torch.from_numpy(column).to(device)
