"""Losses as pure functions of tensors. n rows, A actions; weights have mean 1 over all rows.

The mean over no rows is 0: a rank may have none of a minibatch.
"""

import torch
from torch import Tensor


def advantage_loss(output: Tensor, target: Tensor, legal: Tensor, weight: Tensor) -> Tensor:
    """Mean over rows of weight * || legal * (D(I) - r~) ||^2 (Brown et al. 2019, Algorithm 1; illegal actions out).

    output, target, legal (0 or 1) [n, A]; weight [n].
    """
    error = (output - target) * legal
    return torch.dot(weight, (error * error).sum(dim=1)) / max(1, len(weight))


def baseline_loss(output: Tensor, action: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Mean over transitions of weight * (Q(h, a) - target)^2, a the action played; output [n, A]."""
    error = output.gather(1, action[:, None])[:, 0] - target
    return torch.dot(weight, error * error) / max(1, len(weight))


def average_mse_loss(output: Tensor, target: Tensor, legal: Tensor, weight: Tensor) -> Tensor:
    """Mean over rows of weight * || softmax(logits) - sigma ||^2 (Brown et al. 2019, Algorithm 1)."""
    error = torch.softmax(output.masked_fill(legal == 0, -torch.inf), dim=1) - target
    return torch.dot(weight, (error * error).sum(dim=1)) / max(1, len(weight))


def average_cross_entropy_loss(output: Tensor, target: Tensor, legal: Tensor, weight: Tensor) -> Tensor:
    """Mean over rows of weight * cross-entropy(sigma, softmax(logits)): same minimiser as the squared loss.

    Deviation: Deep CFR's paper fits the squared error. Cross-entropy weighs errors on rare actions in
    proportion, and an exploiter finds just those.
    """
    log_probability = torch.log_softmax(output.masked_fill(legal == 0, -torch.inf), dim=1)
    return -torch.dot(weight, (target * log_probability.masked_fill(legal == 0, 0.0)).sum(dim=1)) / max(1, len(weight))
