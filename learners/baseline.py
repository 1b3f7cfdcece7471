"""DREAM's baseline: Q(h, a) in player 0's payoff over full histories, by expected SARSA (Steinberger et al. 2020).

target = reward + sum_a' sigma(h', a') Q(h', a') at the next decision h', 0 when the game is over; no gradient flows
through the target. The network is never reset.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from buffers.frames import Snapshot
from buffers.merged import UniqueTransitions, unique_transitions
from buffers.rows import Rows, length, take
from learners.fit import FitMetrics, Optimiser, fit, network_snapshot, restore_network
from learners.inputs import HistoryInputs
from learners.losses import baseline_loss
from learners.networks import Network, NetworkSpec, Parameters
from learners.ranks import ALONE, Ranks, agree, portion
from learners.regression import OptimiserSettings
from learners.streaming import on_device

_PORTION = 1 << 18  # transitions gathered at once

NextProbabilities = Callable[[NDArray[Any]], NDArray[np.float64]]


@dataclass(frozen=True)
class Transitions:
    """Played transitions, and what is played at histories `next_history` [n, ...]: probabilities f8[n, A]."""

    rows: Rows
    next_probabilities: NextProbabilities

    @cached_property
    def _every_next(self) -> NDArray[np.float64]:
        return self.next_probabilities(self.rows["next_history"])

    def drawn(self, index: NDArray[np.int64], total: int | None = None) -> tuple[Rows, NDArray[np.float64]]:
        """Rows `index` and the strategy f8[n, A] at their next histories.

        `total`: how many rows the whole fit draws; where that is more than there are rows, the strategy is computed
        once for each of them instead of once for each drawn.
        """
        rows = take(self.rows, index)
        if (total or len(index)) <= length(self.rows):
            return rows, self.next_probabilities(rows["next_history"])
        return rows, self._every_next[index]


class BaselineLearner:
    """One network for both players, in units of the largest payoff.

    Several `ranks` fit it together: all have the same transitions, and each evaluates its part of those drawn.
    """

    def __init__(
        self,
        spec: NetworkSpec,
        inputs: HistoryInputs,
        settings: OptimiserSettings,
        scale: float,
        device: torch.device,
        ranks: Ranks = ALONE,
    ) -> None:
        self._network = Network(spec, device)
        self._optimiser = Optimiser(self._network, settings.learning_rate, settings.clip)
        self._inputs = inputs
        self._scale = scale
        self._device = device
        self._ranks = ranks

    def start(self, seed: int) -> None:
        """Fresh weights, once at the start of a run."""
        self._network.reset(torch.Generator().manual_seed(seed))

    def export(self) -> Parameters:
        """The weights where they stand."""
        return self._network.export()

    def fit(self, transitions: Transitions, steps: int, batch: int, seed: int) -> tuple[Parameters, FitMetrics]:
        """`steps` minibatches of `batch` transitions. Raises ValueError where ranks differ in what they are given."""
        if batch < self._ranks.size:
            raise ValueError(f"the batch is {batch}; it must be at least the number of ranks, {self._ranks.size}")
        agree(self._ranks, seed=seed, steps=steps, batch=batch, transitions=length(transitions.rows))
        part = portion(self._ranks, batch)
        minibatches = self._minibatches(transitions, steps, batch, part, np.random.default_rng(seed))
        own = part.stop - part.start
        # The loss divides by this rank's rows; the weight makes that all ranks' rows.
        weight = torch.full((own,), own / batch, device=self._device)

        def loss(network: Network) -> Tensor:
            here, there, taken, paid, alive, sigma = next(minibatches)
            with torch.no_grad():
                q = network(self._inputs.read(there))
                target = paid + (q * sigma).sum(dim=1) * alive
            return baseline_loss(network(self._inputs.read(here)), taken, target, weight)

        metrics = fit(self._network, self._optimiser, loss, steps, ranks=self._ranks)
        return self._network.export(), metrics

    def _minibatches(
        self, transitions: Transitions, steps: int, batch: int, part: slice, rng: np.random.Generator
    ) -> Iterator[tuple[Tensor, ...]]:
        """history, next history, action, reward, 1 where the game goes on, next probabilities: `steps` times.

        Every rank draws the whole minibatches and gathers its `part` of each. Rows are gathered for many steps at
        once, but never more than a portion of bounded size.
        """
        own = part.stop - part.start
        at_once = max(1, _PORTION // batch)
        for first in range(0, steps, at_once):
            drawn = rng.integers(length(transitions.rows), size=(min(at_once, steps - first), batch))
            rows, next_probabilities = transitions.drawn(drawn[:, part].reshape(-1), steps * own)
            columns = (
                rows["history"],
                rows["next_history"],
                rows["action"].astype(np.int64),
                rows["reward"] / np.float32(self._scale),
                (~rows["terminal"]).astype(np.float32),
                next_probabilities.astype(np.float32),
            )
            yield from zip(*(torch.split(on_device(column, self._device), own) for column in columns), strict=True)

    def fit_merged(self, transitions: Transitions, steps: int) -> tuple[Parameters, FitMetrics]:
        """`steps` full-batch steps on transitions merged by (history, action, next history): the exact gradient.

        One forward pass over the histories gives the outputs and the targets at once. Ranks split the merged
        transitions; they must be given the same ones, or this raises ValueError.
        """
        agree(self._ranks, steps=steps, transitions=length(transitions.rows))
        device = self._device
        merged, share = self._part(unique_transitions(transitions.rows))
        going_on = ~merged.terminal
        histories = np.unique(np.concatenate([merged.history, merged.next_history[going_on]]))
        row = torch.from_numpy(np.searchsorted(histories, merged.history)).to(device)
        # Terminal rows point at row 0 and are masked out.
        following = np.where(going_on, np.searchsorted(histories, merged.next_history), 0)
        following_row = torch.from_numpy(following).to(device)
        probabilities = torch.from_numpy(
            (transitions.next_probabilities(merged.next_history) * going_on[:, None]).astype(np.float32)
        ).to(device)
        action = torch.from_numpy(merged.action.astype(np.int64)).to(device)
        reward = torch.from_numpy((merged.reward / self._scale).astype(np.float32)).to(device)
        weight = torch.from_numpy(share.astype(np.float32)).to(device)
        features = self._inputs.read(histories)

        def loss(network: Network) -> Tensor:
            output = network(features)
            with torch.no_grad():
                target = reward + (output.index_select(0, following_row) * probabilities).sum(dim=1)
            return baseline_loss(output.index_select(0, row), action, target, weight)

        metrics = fit(self._network, self._optimiser, loss, steps, ranks=self._ranks)
        return self._network.export(), metrics

    def _part(self, merged: UniqueTransitions) -> tuple[UniqueTransitions, NDArray[np.float64]]:
        """The merged transitions of this rank, and weights f8 that make all ranks' losses the mean over all rows."""
        part = portion(self._ranks, len(merged.count))
        own = UniqueTransitions._make(column[part] for column in merged)
        # The loss divides by this rank's number.
        return own, own.count / merged.count.mean() * (len(own.count) / len(merged.count))

    def snapshot(self) -> Snapshot:
        """Weights and moments."""
        return network_snapshot(self._network, self._optimiser)

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from `snapshot`."""
        restore_network(self._network, self._optimiser, snapshot)
