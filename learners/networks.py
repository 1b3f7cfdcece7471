"""The fully connected network, and its parameters as plain arrays."""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Parameters = dict[str, NDArray[Any]]  # float32 weights by name; float64 for an exact table


@dataclass(frozen=True)
class NetworkSpec:
    """Sizes of a network: inputs, hidden layers, outputs; layer normalisation before each activation or not."""

    inputs: int
    outputs: int
    hidden: tuple[int, ...] = (64, 64, 64)
    layer_norm: bool = False

    def parameters(self) -> int:
        """Number of weights."""
        widths = (self.inputs, *self.hidden, self.outputs)
        weights = sum(a * b + b for a, b in itertools.pairwise(widths))
        return weights + (2 * sum(self.hidden) if self.layer_norm else 0)


class Network(nn.Module):
    """Linear layers with rectifiers; all weights and gradients lie in one flat tensor each.

    The flat layout makes clipping and the optimiser one operation each, whatever the number of layers.
    """

    def __init__(self, spec: NetworkSpec, device: torch.device) -> None:
        super().__init__()
        self.spec = spec
        self.names: list[str] = []
        shapes: list[tuple[int, ...]] = []
        for number, (fan_in, fan_out) in enumerate(itertools.pairwise((spec.inputs, *spec.hidden, spec.outputs))):
            entries = {f"weight_{number}": (fan_out, fan_in), f"bias_{number}": (fan_out,)}
            if spec.layer_norm and number < len(spec.hidden):
                entries |= {f"gain_{number}": (fan_out,), f"shift_{number}": (fan_out,)}
            self.names += entries
            shapes += entries.values()
        sizes = [math.prod(shape) for shape in shapes]
        self.flat = torch.zeros(sum(sizes), device=device)
        self.flat.grad = torch.zeros_like(self.flat)
        for name, shape, values, gradient in zip(
            self.names, shapes, torch.split(self.flat, sizes), torch.split(self.flat.grad, sizes), strict=True
        ):
            parameter = nn.Parameter(values.view(shape))
            parameter.grad = gradient.view(shape)
            self.register_parameter(name, parameter)

    @property
    def layers(self) -> int:
        """Number of linear layers."""
        return len(self.spec.hidden) + 1

    def reset(self, generator: torch.Generator) -> None:
        """Fresh weights from `generator` (a CPU one): uniform with variance 1 / (3 fan-in), as torch's own."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                kind, number = name.rsplit("_", 1)
                if kind == "gain":
                    parameter.fill_(1.0)
                elif kind == "shift":
                    parameter.zero_()
                else:
                    fan_in = self.get_parameter(f"weight_{number}").shape[1]
                    fresh = torch.rand(parameter.shape, generator=generator)
                    parameter.copy_((2.0 * fresh - 1.0) / math.sqrt(fan_in))

    def forward(self, features: Tensor) -> Tensor:
        """[n, inputs] -> [n, outputs]."""
        x = features
        for number in range(self.layers):
            x = torch.addmm(self._own(f"bias_{number}"), x, self._own(f"weight_{number}").t())
            if number < len(self.spec.hidden):
                if self.spec.layer_norm:
                    shape = (self.spec.hidden[number],)
                    x = nn.functional.layer_norm(x, shape, self._own(f"gain_{number}"), self._own(f"shift_{number}"))
                x = torch.relu_(x)
        return x

    def __call__(self, features: Tensor) -> Tensor:
        """[n, inputs] -> [n, outputs]; a typed view of Module's own call."""
        output: Tensor = super().__call__(features)
        return output

    def _own(self, name: str) -> nn.Parameter:
        parameter = self._parameters[name]
        assert parameter is not None
        return parameter

    def export(self) -> Parameters:
        """Copies of all weights as float32 arrays."""
        return {name: p.detach().cpu().numpy().copy() for name, p in self.named_parameters()}

    def load(self, parameters: Parameters) -> None:
        """Take weights from arrays made by `export`; they are copied and may be read-only.

        Raises ValueError where names or shapes differ, and then changes nothing.
        """
        if set(parameters) != set(self.names):
            raise ValueError(f"parameters are {sorted(parameters)}, this network has {sorted(self.names)}")
        for name, parameter in self.named_parameters():
            shape, expected = tuple(parameters[name].shape), tuple(parameter.shape)
            if shape != expected:
                raise ValueError(f"{name} has shape {shape}, expected {expected}")
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                # A copy, since torch warns of arrays that it cannot write to.
                parameter.copy_(torch.from_numpy(np.array(parameters[name])))
