"""Advantage and average networks: both regress targets on information states, only the loss differs."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from buffers.frames import Snapshot
from learners.feed import RegressionFeed
from learners.fit import FitMetrics, Optimiser, fit, network_snapshot, restore_network
from learners.networks import Network, NetworkSpec, Parameters
from learners.ranks import agree

RegressionLoss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # output, target, legal, weight


@dataclass(frozen=True)
class OptimiserSettings:
    """Adam's step size, the largest gradient norm, and whether the step size falls to 0 within a fit."""

    learning_rate: float
    clip: float
    decay: bool = False


class RegressionLearner:
    """One network that is fitted again and again, from scratch or from where it stands."""

    def __init__(
        self, spec: NetworkSpec, loss: RegressionLoss, settings: OptimiserSettings, device: torch.device
    ) -> None:
        self._network = Network(spec, device)
        self._optimiser = Optimiser(self._network, settings.learning_rate, settings.clip)
        self._loss = loss
        self._decay = settings.decay
        self._device = device

    def fit(self, feed: RegressionFeed, steps: int, seed: int, fresh: bool) -> tuple[Parameters, FitMetrics]:
        """Fit `steps` minibatches of `feed`; `fresh`: new weights and moments first. Random numbers from `seed`.

        The feed's ranks fit together; each must call this with the same arguments, or it raises ValueError.
        """
        agree(feed.ranks, seed=seed, steps=steps, fresh=fresh)
        start = torch.Generator().manual_seed(seed)
        generator = torch.Generator(self._device).manual_seed(int(torch.randint(2**62, (), generator=start)))
        if fresh:
            self._network.reset(start)
            self._optimiser.reset()

        def loss(network: Network) -> Tensor:
            batch = feed.draw(generator)
            return self._loss(network(batch.features), batch.target, batch.legal, batch.weight)

        metrics = fit(self._network, self._optimiser, loss, steps, self._decay, feed.ranks)
        return self._network.export(), metrics

    def snapshot(self) -> Snapshot:
        """Weights and moments."""
        return network_snapshot(self._network, self._optimiser)

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from `snapshot`."""
        restore_network(self._network, self._optimiser, snapshot)
