"""Parameters to callables: what strategies and baselines ask of a network, without knowing torch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from learners.inputs import HistoryInputs, StateInputs
from learners.networks import Network, NetworkSpec, Parameters

# Rows of one forward pass. They bound the memory of a large batch; on a CPU they keep its layers in the cache.
_ROWS = 1 << 16
_ROWS_CPU = 1 << 10
# Matrix products of few rows take other kernels, with other roundings: small batches are filled up.
_FEWEST = 64


class Predictor:
    """A network of fixed sizes whose weights are exchanged: keys [n] -> outputs f4[n, A] as numpy."""

    def __init__(self, spec: NetworkSpec, device: torch.device) -> None:
        self._network = Network(spec, device)
        self._rows = _ROWS_CPU if device.type == "cpu" else _ROWS

    def load(self, parameters: Parameters) -> None:
        """Exchange the weights."""
        self._network.load(parameters)

    def advantages(self, inputs: StateInputs, keys: NDArray[Any]) -> NDArray[np.float32]:
        """[n, A] network outputs at information states."""
        return self._blocks(keys, lambda block: self._network(inputs.read(block)[0]))

    def probabilities(self, inputs: StateInputs, keys: NDArray[Any]) -> NDArray[np.float32]:
        """[n, A] softmax of the outputs over the legal actions."""

        def block_probabilities(block: NDArray[Any]) -> torch.Tensor:
            features, legal = inputs.read(block)
            return torch.softmax(self._network(features).masked_fill(legal == 0, -torch.inf), dim=1)

        return self._blocks(keys, block_probabilities)

    def values(self, inputs: HistoryInputs, keys: NDArray[Any]) -> NDArray[np.float32]:
        """[n, A] network outputs at histories."""
        return self._blocks(keys, lambda block: self._network(inputs.read(block)))

    def _blocks(self, keys: NDArray[Any], evaluate: Callable[[NDArray[Any]], torch.Tensor]) -> NDArray[np.float32]:
        rows = self._rows
        with torch.inference_mode():
            if len(keys) < _FEWEST:
                padded = np.concatenate([keys, np.repeat(keys[:1], _FEWEST - len(keys), axis=0)])
                return evaluate(padded)[: len(keys)].cpu().numpy()
            if len(keys) <= rows:
                return evaluate(keys).cpu().numpy()
            blocks = [evaluate(keys[at : at + rows]).cpu().numpy() for at in range(0, len(keys), rows)]
        return np.concatenate(blocks)
