"""The optimiser against torch's Adam and clipping; the loop's metrics; bit-exact continuation; divergence."""

import math

import numpy as np
import pytest
import torch

from buffers import frames
from learners.fit import Optimiser, fit, network_snapshot, restore_network
from learners.networks import Network, NetworkSpec

CPU = torch.device("cpu")
SPEC = NetworkSpec(5, 3, (8, 6), layer_norm=True)
RATE, CLIP = 1e-2, 1.0


def network(seed=1, spec=SPEC):
    fresh = Network(spec, CPU)
    fresh.reset(torch.Generator().manual_seed(seed))
    return fresh


def gradients(steps, size, seed=2):
    """Random gradients; norms spread from 0.1 to 10, so that about half of them are clipped at 1."""
    generator = torch.Generator().manual_seed(seed)
    norms = 10.0 ** (2 * torch.rand(steps, 1, generator=generator) - 1)
    return norms * torch.nn.functional.normalize(torch.randn(steps, size, generator=generator))


def check_against_torch(own, optimiser):
    """50 steps; largest weight difference 1e-6 = 1e-4 of a step of 1e-2: both round in single precision."""
    reference = [torch.nn.Parameter(p.detach().clone()) for p in own.parameters()]
    adam = torch.optim.Adam(reference, lr=RATE, foreach=False)
    sizes = [p.numel() for p in reference]
    for gradient in gradients(50, len(own.flat)):
        own.flat.grad.copy_(gradient)
        for parameter, part in zip(reference, gradient.split(sizes), strict=True):
            parameter.grad = part.reshape(parameter.shape).clone()
        expected_norm = torch.nn.utils.clip_grad_norm_(reference, CLIP)
        adam.step()
        norm = optimiser.step()
        assert norm.item() == pytest.approx(expected_norm.item(), rel=1e-5)
        assert (own.flat.grad == 0).all()
        expected = torch.cat([p.detach().reshape(-1) for p in reference])
        np.testing.assert_allclose(own.flat, expected, rtol=0, atol=1e-6)


def test_equals_torch_adam_and_clipping():
    own = network()
    check_against_torch(own, Optimiser(own, RATE, CLIP))


@pytest.mark.parametrize(("rate", "clip"), [(RATE, math.inf), (RATE * 1.01, CLIP), (RATE, CLIP / 2)])
def test_other_settings_are_rejected(rate, clip):
    """Named mutants: clipping left out, a step size 1 % off, another bound."""
    own = network()
    with pytest.raises(AssertionError):
        check_against_torch(own, Optimiser(own, rate, clip))


def test_moments_that_never_forget_are_rejected():
    """Named mutant: the step count stands still, so that the early bias is corrected again and again."""

    class Forgetful(Optimiser):
        def step(self):
            norm = super().step()
            self._step.zero_()
            return norm

    own = network()
    with pytest.raises(AssertionError):
        check_against_torch(own, Forgetful(own, RATE, CLIP))


def test_reset_forgets_the_moments():
    own, other = network(), network()
    used, new = Optimiser(own, RATE, CLIP), Optimiser(other, RATE, CLIP)
    own.flat.grad.fill_(1.0)
    used.step()
    used.reset()
    own.flat.copy_(other.flat)
    for gradient in gradients(5, len(own.flat)):
        for each, optimiser in ((own, used), (other, new)):
            each.flat.grad.copy_(gradient)
            optimiser.step()
    assert torch.equal(own.flat, other.flat)


def steps(own, optimiser, count, seed):
    for gradient in gradients(count, len(own.flat), seed):
        own.flat.grad.copy_(gradient)
        optimiser.step()


def check_continues(restore):
    """20 steps, a snapshot through a frame, 20 more: the same bits in a new network that takes the snapshot over."""
    own = network()
    optimiser = Optimiser(own, RATE, CLIP)
    steps(own, optimiser, 20, seed=3)
    snapshot = network_snapshot(own, optimiser)
    steps(own, optimiser, 20, seed=4)  # must not change the snapshot
    other = network(seed=9)
    continued = Optimiser(other, RATE, CLIP)
    steps(other, continued, 3, seed=5)
    restore(other, continued, frames.decode(b"".join(frames.encode(snapshot))))
    steps(other, continued, 20, seed=4)
    assert torch.equal(own.flat, other.flat)
    again = network_snapshot(other, continued)
    for name, value in network_snapshot(own, optimiser).items():
        np.testing.assert_array_equal(again[name], value)


def test_restored_optimiser_continues_to_the_same_bits():
    check_continues(restore_network)


def without_moments(own, optimiser, snapshot):
    own.load({k.removeprefix("network."): v for k, v in snapshot.items() if k.startswith("network.")})


def without_step(own, optimiser, snapshot):
    restore_network(own, optimiser, snapshot | {"optimiser.step": 0})


@pytest.mark.parametrize("mutant", [without_moments, without_step])
def test_incomplete_restore_is_rejected(mutant):
    """Named mutants: weights without moments; the step count forgotten."""
    with pytest.raises(AssertionError):
        check_continues(mutant)


@pytest.mark.parametrize("name", ["first_moment", "second_moment"])
def test_moments_of_another_size_are_refused(name):
    """Size 1 would be spread over all weights without a word."""
    own = network()
    optimiser = Optimiser(own, RATE, CLIP)
    snapshot = optimiser.snapshot() | {name: np.ones(1, np.float32), "step": 7}
    with pytest.raises(ValueError, match=rf"{name} has shape \(1,\), expected"):
        optimiser.restore(snapshot)
    assert optimiser.snapshot()["step"] == 0


def scripted(values, norms):
    """A loss of given value and gradient norm in each step, whatever the weights are."""
    script = iter(zip(values, norms, strict=True))

    def loss(own):
        value, norm = next(script)
        bias = own.get_parameter("bias_2")
        return value + norm * (bias - bias.detach()).sum() / math.sqrt(len(bias))

    return loss


@pytest.mark.parametrize(("count", "tail"), [(40, 4), (9, 1), (25, 2), (1, 1)])
def test_metrics_are_the_tail_loss_and_the_mean_norm_before_clipping(count, tail, rng):
    values, norms = rng.uniform(1, 2, count), rng.uniform(2, 50, count)
    own = network()
    metrics = fit(own, Optimiser(own, RATE, CLIP), scripted(values, norms), count)
    assert metrics.loss == pytest.approx(values[-tail:].mean(), rel=1e-5)
    assert metrics.gradient_norm == pytest.approx(norms.mean(), rel=1e-5)
    assert metrics.steps == count


def test_divergence_is_raised_with_numbers():
    own = network()
    x = torch.randn(7, SPEC.inputs, generator=torch.Generator().manual_seed(1))
    with pytest.raises(FloatingPointError, match=r"the fit diverged: loss (nan|inf), gradient norm (nan|inf|\d)"):
        fit(own, Optimiser(own, 1e30, CLIP), lambda n: n(x).square().mean(), 20)


def test_finite_loss_with_broken_weights_is_divergence():
    """The last step's loss is finite, its gradient is not: the weights it leaves must not be handed out."""

    def root_of_zero(own):
        bias = own.get_parameter("bias_2")
        return torch.sqrt((bias - bias.detach()).sum())

    own = network()
    with pytest.raises(FloatingPointError, match=r"loss 0\.0, gradient norm inf"):
        fit(own, Optimiser(own, RATE, CLIP), root_of_zero, 1)


def test_same_seed_same_bits_whatever_the_global_state(untouched_global_rng):
    def run(seed):
        own = network(seed)
        generator = torch.Generator().manual_seed(seed)
        loss = lambda n: n(torch.randn(16, SPEC.inputs, generator=generator)).square().mean()  # noqa: E731
        metrics = fit(own, Optimiser(own, RATE, CLIP), loss, 15)
        return own.flat, metrics

    with untouched_global_rng():
        first, second, other = run(1), run(1), run(2)
    assert torch.equal(first[0], second[0])
    assert first[1] == second[1]
    assert not torch.equal(first[0], other[0])


def test_decay_takes_ever_smaller_steps_down_to_zero():
    """A constant gradient moves Adam by the learning rate each step: the moves show the schedule."""
    network = Network(NetworkSpec(1, 1, (1,)), CPU)
    optimiser = Optimiser(network, 0.1, 1e9)
    places = []

    def slope(current):
        places.append(current.flat.clone())
        return sum(parameter.sum() for parameter in current.parameters())

    fit(network, optimiser, slope, 10, decay=True)
    moves = (torch.stack(places[:-1]) - torch.stack(places[1:])).mean(dim=1)
    np.testing.assert_allclose(moves, 0.1 * (1 - np.arange(9) / 10), rtol=1e-4)
