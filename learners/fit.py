"""The minibatch loop: the same for every network. No host synchronisation inside it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from buffers.frames import Snapshot
from learners.networks import Network

Loss = Callable[[Network], Tensor]  # draws its own minibatch and returns a scalar


@dataclass(frozen=True)
class FitMetrics:
    """Of one fit: the mean loss over the last tenth of its steps, the mean gradient norm before clipping."""

    loss: float
    gradient_norm: float
    steps: int


class Optimiser:
    """Adam on a network's flat weights, with the gradient norm clipped."""

    def __init__(self, network: Network, learning_rate: float, clip: float) -> None:
        self._network = network
        self._clip = clip
        self._learning_rate = learning_rate
        self.reset()

    def reset(self) -> None:
        """Forget the moments."""
        self._adam = torch.optim.Adam([self._network.flat], lr=self._learning_rate, fused=True)

    def step(self) -> Tensor:
        """Apply the accumulated gradient and clear it; returns its norm before clipping, on the device."""
        gradient = self._network.flat.grad
        assert gradient is not None
        norm = torch.linalg.vector_norm(gradient)
        gradient.mul_(torch.clamp(self._clip / (norm + 1e-6), max=1.0))
        self._adam.step()
        gradient.zero_()
        return norm

    def snapshot(self) -> Snapshot:
        """Moments and the step count; empty before the first step."""
        state = self._adam.state.get(self._network.flat)
        if not state:
            return {}
        return {
            "step": int(state["step"].item()),
            "first_moment": state["exp_avg"].cpu().numpy().copy(),
            "second_moment": state["exp_avg_sq"].cpu().numpy().copy(),
        }

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from `snapshot`."""
        self.reset()
        if not snapshot:
            return
        flat = self._network.flat
        self._adam.state[flat] = {
            "step": torch.tensor(float(snapshot["step"]), device=flat.device),
            "exp_avg": torch.as_tensor(snapshot["first_moment"], device=flat.device).clone(),
            "exp_avg_sq": torch.as_tensor(snapshot["second_moment"], device=flat.device).clone(),
        }


def network_snapshot(network: Network, optimiser: Optimiser) -> Snapshot:
    """Weights and moments in one flat snapshot."""
    weights = {f"network.{name}": value for name, value in network.export().items()}
    return weights | {f"optimiser.{name}": value for name, value in optimiser.snapshot().items()}


def restore_network(network: Network, optimiser: Optimiser, snapshot: Snapshot) -> None:
    """Take over what `network_snapshot` made."""
    network.load({k.removeprefix("network."): v for k, v in snapshot.items() if k.startswith("network.")})
    optimiser.restore(
        {k.removeprefix("optimiser."): v for k, v in snapshot.items() if k.startswith("optimiser.")}
    )


def fit(network: Network, optimiser: Optimiser, loss: Loss, steps: int) -> FitMetrics:
    """`steps` optimiser steps on `loss`. Raises FloatingPointError if it ends in a loss that is not finite."""
    losses = torch.zeros((), device=network.flat.device)
    norms = torch.zeros((), device=network.flat.device)
    tail = max(1, steps // 10)
    for step in range(steps):
        value = loss(network)
        value.backward()  # type: ignore[no-untyped-call]
        norms += optimiser.step()
        if step >= steps - tail:
            losses += value.detach()
    result = FitMetrics(float(losses) / tail, float(norms) / steps, steps)
    if not torch.isfinite(losses) or not torch.isfinite(network.flat).all():
        raise FloatingPointError(
            f"the fit diverged: loss {result.loss}, gradient norm {result.gradient_norm}"
        )
    return result
