"""The flat network: one storage, the same function as torch's own layers, weights from the generator alone."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from learners.networks import Network, NetworkSpec

CPU = torch.device("cpu")
SPECS = [
    NetworkSpec(5, 3, (8, 6)),
    NetworkSpec(5, 3, (8, 6), layer_norm=True),
    NetworkSpec(5, 3, ()),
    NetworkSpec(4, 2, (7,)),
]
PLAIN, NORMED = SPECS[:2]


def fresh(spec, seed=1):
    network = Network(spec, CPU)
    network.reset(torch.Generator().manual_seed(seed))
    return network


def features(spec, rows=11):
    return torch.randn(rows, spec.inputs, generator=torch.Generator().manual_seed(3))


def torch_layers(network):
    """The same function by nn.Sequential with the same weights; its parameters in the network's order."""
    spec, weights = network.spec, {k: torch.from_numpy(v) for k, v in network.export().items()}
    modules, widths = [], (spec.inputs, *spec.hidden, spec.outputs)
    for k in range(len(widths) - 1):
        linear = nn.Linear(widths[k], widths[k + 1])
        parts = [(linear, "weight", "bias")]
        modules.append(linear)
        if k < len(spec.hidden):
            if spec.layer_norm:
                modules.append(nn.LayerNorm(widths[k + 1]))
                parts.append((modules[-1], "gain", "shift"))
            modules.append(nn.ReLU())
        with torch.no_grad():
            for module, scale, offset in parts:
                module.weight.copy_(weights[f"{scale}_{k}"])
                module.bias.copy_(weights[f"{offset}_{k}"])
    return nn.Sequential(*modules)


@pytest.mark.parametrize("spec", SPECS)
def test_weights_and_gradients_are_views_of_one_tensor(spec):
    network = fresh(spec)
    assert network.flat.shape == (spec.parameters(),)
    offset = 0
    for parameter in network.parameters():
        for view, whole in ((parameter, network.flat), (parameter.grad, network.flat.grad)):
            assert view.data_ptr() == whole.data_ptr() + 4 * offset
        offset += parameter.numel()
    assert offset == spec.parameters()
    network.flat.fill_(0.25)
    assert all((parameter == 0.25).all() for parameter in network.parameters())


def check_gradients_arrive(clear):
    """After `clear`, a backward pass leaves its gradient, and two leave their sum, in the flat tensor."""
    network = fresh(NORMED)
    x = features(NORMED)
    expected = torch.autograd.grad(network(x).square().sum(), list(network.parameters()))
    expected = torch.cat([g.reshape(-1) for g in expected])
    network.flat.grad.fill_(5.0)
    clear(network)
    for passes in (1, 2):
        network(x).square().sum().backward()
        np.testing.assert_allclose(network.flat.grad, passes * expected, rtol=1e-6, atol=1e-7)


def test_autograd_accumulates_into_the_flat_gradient():
    check_gradients_arrive(lambda network: network.flat.grad.zero_())


def test_clearing_by_forgetting_is_rejected():
    """Named mutant: gradients set to None, so that autograd makes new ones outside of the flat tensor."""
    with pytest.raises(AssertionError):
        check_gradients_arrive(lambda network: network.zero_grad(set_to_none=True))


@pytest.mark.parametrize("spec", SPECS)
def test_same_outputs_and_gradients_as_torch_layers(spec):
    network = fresh(spec)
    with torch.no_grad():  # gains and shifts that do something
        network.flat.add_(0.1 * torch.randn(network.flat.shape, generator=torch.Generator().manual_seed(8)))
    reference = torch_layers(network)
    x = features(spec)
    np.testing.assert_allclose(network(x).detach(), reference(x).detach(), rtol=1e-5, atol=1e-6)
    for model in (network, reference):
        model(x).square().mean().backward()
    expected = torch.cat([p.grad.reshape(-1) for p in reference.parameters()])
    np.testing.assert_allclose(network.flat.grad, expected, rtol=1e-4, atol=1e-6)


def test_layer_norm_changes_the_function():
    plain, normed = fresh(PLAIN), fresh(NORMED)
    normed.load(normed.export() | plain.export())
    x = features(PLAIN)
    assert (plain(x) - normed(x)).abs().max() > 0.01


@pytest.mark.parametrize("spec", SPECS)
def test_reset_depends_on_the_generator_alone(spec, untouched_global_rng):
    network = fresh(spec, seed=4)
    first = network.flat.clone()
    network.flat.fill_(9.0)
    with untouched_global_rng():
        network.reset(torch.Generator().manual_seed(4))
    assert torch.equal(network.flat, first)
    assert not torch.equal(fresh(spec, seed=5).flat, first)


def test_reset_draws_as_torch_does():
    """Uniform in +-1/sqrt(fan-in): n = 64 * 64 and 64 * 100 weights; the deviation allowed is 5 standard errors."""
    spec = NetworkSpec(100, 64, (64,), layer_norm=True)
    weights = fresh(spec).export()
    for number, fan_in in ((0, 100), (1, 64)):
        bound = 1 / math.sqrt(fan_in)
        for name in (f"weight_{number}", f"bias_{number}"):
            values = weights[name].reshape(-1) / bound
            assert np.abs(values).max() <= 1.0
            # x^2 of a uniform x has mean 1/3 and variance 4/45.
            assert abs((values**2).mean() - 1 / 3) < 5 * math.sqrt(4 / 45 / len(values))
            assert abs(values.mean()) < 5 * math.sqrt(1 / 3 / len(values))
    assert (weights["gain_0"] == 1).all()
    assert (weights["shift_0"] == 0).all()


@pytest.mark.parametrize("spec", SPECS)
def test_export_and_load_round_trip(spec):
    network, other = fresh(spec), fresh(spec, seed=2)
    exported = network.export()
    assert {value.dtype for value in exported.values()} == {np.dtype(np.float32)}
    other.load(exported)
    assert torch.equal(network.flat, other.flat)
    network.flat.zero_()
    other.flat.zero_()
    assert all(np.abs(value).max() > 0 for value in exported.values() if value.any())
    assert np.abs(exported["weight_0"]).max() > 0


def test_load_takes_read_only_arrays():
    """Stored networks are read-only views of their file; torch would warn, and warnings are errors here."""
    exported = fresh(PLAIN).export()
    for value in exported.values():
        value.setflags(write=False)
    other = fresh(PLAIN, seed=2)
    other.load(exported)
    np.testing.assert_array_equal(other.export()["bias_2"], exported["bias_2"])


def renamed(parameters):
    return {k.replace("bias", "offset"): v for k, v in parameters.items()}


def without_last(parameters):
    return {k: v for k, v in parameters.items() if k != "bias_2"}


def with_gain(parameters):
    return parameters | {"gain_0": np.ones(8, np.float32)}


@pytest.mark.parametrize("change", [renamed, without_last, with_gain])
def test_wrong_names_are_refused(change):
    network = fresh(PLAIN)
    with pytest.raises(ValueError, match="this network has"):
        network.load(change(network.export()))


def test_wrong_shapes_are_refused_and_nothing_changes():
    """The last parameter is the wrong one: those before it must not have been taken over."""
    network = fresh(PLAIN)
    before = network.flat.clone()
    other = fresh(PLAIN, seed=2).export() | {"bias_2": np.zeros((3, 1), np.float32)}
    with pytest.raises(ValueError, match=r"bias_2 has shape \(3, 1\), expected \(3,\)"):
        network.load(other)
    assert torch.equal(network.flat, before)
