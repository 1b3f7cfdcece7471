"""The minibatch loop: the same for every network, and for one process or several. No host synchronisation inside it."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim.adam import adam

from buffers.frames import Snapshot
from learners.networks import Network
from learners.ranks import ALONE, Ranks, agree

Loss = Callable[[Network], Tensor]  # draws its own minibatch, or this rank's part of it, and returns a scalar


@dataclass(frozen=True)
class FitMetrics:
    """Of one fit: the mean loss over the last tenth of its steps, the mean gradient norm before clipping."""

    loss: float
    gradient_norm: float
    steps: int


class Optimiser:
    """Adam (Kingma, Ba 2015) on a network's flat weights, with the gradient norm clipped."""

    def __init__(self, network: Network, learning_rate: float, clip: float) -> None:
        self._weights = network.flat
        self._clip = clip
        self._learning_rate = learning_rate
        self.reset()

    def reset(self) -> None:
        """Forget the moments."""
        self._first = torch.zeros_like(self._weights)
        self._second = torch.zeros_like(self._weights)
        self._step = torch.zeros((), device=self._weights.device)

    def step(self, share: float = 1.0) -> Tensor:
        """Apply the accumulated gradient and clear it; returns its norm before clipping, on the device.

        `share` of the learning rate is taken.
        """
        gradient = self._weights.grad
        assert gradient is not None
        norm: Tensor = torch.linalg.vector_norm(gradient)
        gradient.mul_(torch.clamp(self._clip / (norm + 1e-6), max=1.0))
        adam(
            [self._weights],
            [gradient],
            [self._first],
            [self._second],
            [],
            [self._step],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self._learning_rate * share,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )
        gradient.zero_()
        return norm

    def snapshot(self) -> Snapshot:
        """Moments and the step count."""
        return {
            "step": int(self._step.item()),
            "first_moment": self._first.cpu().numpy().copy(),
            "second_moment": self._second.cpu().numpy().copy(),
        }

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from `snapshot`. Raises ValueError, changing nothing, for a network of another size."""
        expected = tuple(self._weights.shape)
        for name in ("first_moment", "second_moment"):
            shape = tuple(snapshot[name].shape)
            if shape != expected:
                raise ValueError(f"{name} has shape {shape}, expected {expected}")
        self._step.fill_(snapshot["step"])
        self._first.copy_(torch.from_numpy(snapshot["first_moment"]))
        self._second.copy_(torch.from_numpy(snapshot["second_moment"]))


def network_snapshot(network: Network, optimiser: Optimiser) -> Snapshot:
    """Weights and moments in one flat snapshot."""
    weights = {f"network.{name}": value for name, value in network.export().items()}
    return weights | {f"optimiser.{name}": value for name, value in optimiser.snapshot().items()}


def restore_network(network: Network, optimiser: Optimiser, snapshot: Snapshot) -> None:
    """Take over what `network_snapshot` made."""
    network.load({k.removeprefix("network."): v for k, v in snapshot.items() if k.startswith("network.")})
    optimiser.restore({k.removeprefix("optimiser."): v for k, v in snapshot.items() if k.startswith("optimiser.")})


def fit(
    network: Network, optimiser: Optimiser, loss: Loss, steps: int, decay: bool = False, ranks: Ranks = ALONE
) -> FitMetrics:
    """`steps` optimiser steps on `loss`; with `decay` the learning rate falls linearly to 0.

    With several `ranks`, the loss is the sum of all ranks' losses, and so are gradient and metrics.
    Raises FloatingPointError, on every rank, if it ends in a loss that is not finite; ValueError if ranks end with
    different weights, since they did not start from the same.
    """
    gradient = network.flat.grad
    assert gradient is not None
    losses = torch.zeros((), device=network.flat.device)
    norms = torch.zeros((), device=network.flat.device)
    tail = max(1, steps // 10)
    for step in range(steps):
        value = loss(network)
        value.backward()  # type: ignore[no-untyped-call]
        ranks.sum(gradient)
        with torch.no_grad():
            norms += optimiser.step(1.0 - step / steps if decay else 1.0)
        if step >= steps - tail:
            losses += value.detach()
    ranks.sum(losses)
    if ranks.size > 1:
        agree(ranks, weights=zlib.crc32(network.flat.cpu().numpy().tobytes()))
    result = FitMetrics(float(losses) / tail, float(norms) / steps, steps)
    if not torch.isfinite(losses) or not torch.isfinite(network.flat).all():
        raise FloatingPointError(f"the fit diverged: loss {result.loss}, gradient norm {result.gradient_norm}")
    return result
