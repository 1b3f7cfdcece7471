"""DREAM's baseline: Q(h, a) in player 0's payoff over full histories, by expected SARSA (Steinberger et al. 2020).

target = reward + sum_a' sigma(h', a') Q(h', a') at the next decision h', 0 when the game is over; no gradient flows
through the target. The network is never reset.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from buffers.frames import Snapshot
from buffers.merged import unique_transitions
from buffers.rows import Rows
from learners.feed import resident
from learners.fit import FitMetrics, Optimiser, fit, network_snapshot, restore_network
from learners.inputs import HistoryInputs
from learners.losses import baseline_loss
from learners.networks import Network, NetworkSpec, Parameters
from learners.regression import OptimiserSettings


@dataclass(frozen=True)
class Transitions:
    """Played transitions with the strategy at the next decision: probabilities f8[n, A] (any where terminal)."""

    rows: Rows
    next_probabilities: NDArray[np.float64]


class BaselineLearner:
    """One network for both players, in units of the largest payoff."""

    def __init__(
        self,
        spec: NetworkSpec,
        inputs: HistoryInputs,
        settings: OptimiserSettings,
        scale: float,
        device: torch.device,
    ) -> None:
        self._network = Network(spec, device)
        self._optimiser = Optimiser(self._network, settings.learning_rate, settings.clip)
        self._inputs = inputs
        self._scale = scale
        self._device = device

    def start(self, seed: int) -> None:
        """Fresh weights, once at the start of a run."""
        self._network.reset(torch.Generator().manual_seed(seed))

    def export(self) -> Parameters:
        """The weights where they stand."""
        return self._network.export()

    def fit(
        self, transitions: Transitions, steps: int, batch: int, seed: int
    ) -> tuple[Parameters, FitMetrics]:
        """`steps` minibatches of `batch` transitions."""
        rows = transitions.rows
        device = self._device
        history = resident(rows["history"], device)
        following = resident(rows["next_history"], device)
        action = resident(rows["action"], device)
        reward = resident(rows["reward"], device)
        going_on = resident(~rows["terminal"], device)
        probabilities = torch.from_numpy(transitions.next_probabilities.astype(np.float32)).to(device)
        weight = torch.ones(batch, device=device)
        generator = torch.Generator(device).manual_seed(seed)

        def loss(network: Network) -> Tensor:
            index = torch.randint(len(history), (batch,), generator=generator, device=device)
            with torch.no_grad():
                q = network(self._inputs.read(following.index_select(0, index)))
                value = (q * probabilities.index_select(0, index)).sum(dim=1)
                target = reward.index_select(0, index) / self._scale + value * going_on.index_select(0, index)
            output = network(self._inputs.read(history.index_select(0, index)))
            return baseline_loss(output, action.index_select(0, index).long(), target, weight)

        metrics = fit(self._network, self._optimiser, loss, steps)
        return self._network.export(), metrics

    def fit_merged(self, transitions: Transitions, steps: int) -> tuple[Parameters, FitMetrics]:
        """`steps` full-batch steps on transitions merged by (history, action, next history): the exact gradient.

        One forward pass over the histories gives the outputs and the targets at once.
        """
        device = self._device
        merged = unique_transitions(transitions.rows)
        going_on = ~merged.terminal
        histories = np.unique(np.concatenate([merged.history, merged.next_history[going_on]]))
        row = torch.from_numpy(np.searchsorted(histories, merged.history)).to(device)
        # Terminal rows point at row 0 and are masked out.
        following = np.where(going_on, np.searchsorted(histories, merged.next_history), 0)
        following_row = torch.from_numpy(following).to(device)
        probabilities = torch.from_numpy(
            (transitions.next_probabilities[merged.first] * going_on[:, None]).astype(np.float32)
        ).to(device)
        action = torch.from_numpy(merged.action.astype(np.int64)).to(device)
        reward = torch.from_numpy((merged.reward / self._scale).astype(np.float32)).to(device)
        weight = torch.from_numpy((merged.count / merged.count.mean()).astype(np.float32)).to(device)
        features = self._inputs.read(histories)

        def loss(network: Network) -> Tensor:
            output = network(features)
            with torch.no_grad():
                target = reward + (output.index_select(0, following_row) * probabilities).sum(dim=1)
            return baseline_loss(output.index_select(0, row), action, target, weight)

        metrics = fit(self._network, self._optimiser, loss, steps)
        return self._network.export(), metrics

    def snapshot(self) -> Snapshot:
        """Weights and moments."""
        return network_snapshot(self._network, self._optimiser)

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from `snapshot`."""
        restore_network(self._network, self._optimiser, snapshot)
