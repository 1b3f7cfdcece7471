"""Losses against loops over rows and actions in plain Python; what is illegal is out; what they minimise."""

import math

import numpy as np
import pytest
import torch

from learners.losses import advantage_loss, average_cross_entropy_loss, average_mse_loss, baseline_loss

ROWS, ACTIONS = 40, 4


def softmax_of_legal(output, legal):
    top = max(o for o, ok in zip(output, legal, strict=True) if ok)
    powers = [math.exp(o - top) if ok else 0.0 for o, ok in zip(output, legal, strict=True)]
    return [p / sum(powers) for p in powers]


def slow_advantage(output, target, legal):
    return sum((o - t) ** 2 for o, t, ok in zip(output, target, legal, strict=True) if ok)


def slow_mse(output, target, legal):
    return sum((p - t) ** 2 for p, t in zip(softmax_of_legal(output, legal), target, strict=True))


def slow_cross_entropy(output, target, legal):
    played = softmax_of_legal(output, legal)
    return -sum(t * math.log(p) for p, t, ok in zip(played, target, legal, strict=True) if ok)


LOSSES = {
    advantage_loss: slow_advantage,
    average_mse_loss: slow_mse,
    average_cross_entropy_loss: slow_cross_entropy,
}
AVERAGES = [average_mse_loss, average_cross_entropy_loss]


@pytest.fixture
def rows(rng):
    """output, target, legal f8[ROWS, ACTIONS], weight f8[ROWS]; targets are strategies, which suits every loss."""
    legal = rng.random((ROWS, ACTIONS)) < 0.6
    legal[np.arange(ROWS), rng.integers(ACTIONS, size=ROWS)] = True
    target = np.where(legal, rng.exponential(size=legal.shape), 0.0)
    target /= target.sum(axis=1, keepdims=True)
    output = 2.0 * rng.standard_normal(legal.shape)
    columns = output, target, legal.astype(float), rng.exponential(size=ROWS)
    return [torch.from_numpy(column) for column in columns]


def with_gradient(loss, output, *rest):
    output = output.clone().requires_grad_()
    value = loss(output, *rest)
    value.backward()
    return value.item(), output.grad


@pytest.mark.parametrize(("loss", "slow"), LOSSES.items(), ids=lambda f: f.__name__)
def test_equals_a_loop_over_rows(loss, slow, rows):
    output, target, legal, weight = rows
    by_row = [slow(*row) for row in zip(output.tolist(), target.tolist(), legal.tolist(), strict=True)]
    expected = sum(w * value for w, value in zip(weight.tolist(), by_row, strict=True)) / ROWS
    assert loss(output, target, legal, weight).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
def test_gradient_equals_finite_differences(loss, rows):
    output, target, legal, weight = rows
    _, gradient = with_gradient(loss, output, target, legal, weight)
    step = 1e-6
    for row, action in np.ndindex(5, ACTIONS):
        shift = torch.zeros_like(output)
        shift[row, action] = step
        up, down = (loss(output + s, target, legal, weight).item() for s in (shift, -shift))
        assert gradient[row, action].item() == pytest.approx((up - down) / (2 * step), abs=1e-7)


def check_illegal_are_out(loss, rows):
    """Outputs at illegal actions change neither loss nor gradient, and have none themselves."""
    output, target, legal, weight = rows
    value, gradient = with_gradient(loss, output, target, legal, weight)
    other = torch.where(legal == 0, 50.0 - output, output)
    other_value, other_gradient = with_gradient(loss, other, target, legal, weight)
    assert (gradient[legal == 0] == 0).all()
    assert gradient[legal == 1].abs().min() > 0
    assert value == other_value
    assert torch.equal(gradient, other_gradient)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
def test_illegal_actions_have_no_part(loss, rows):
    check_illegal_are_out(loss, rows)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
def test_mask_left_out_is_rejected(loss, rows):
    """Named mutant: the mask left out, so that illegal actions are fitted too."""

    def mask_left_out(output, target, legal, weight):
        return loss(output, target, torch.ones_like(legal), weight)

    with pytest.raises(AssertionError):
        check_illegal_are_out(mask_left_out, rows)


def check_finite_gradient(loss):
    """Also where single precision has no room left: a legal action of probability 0 and one of 1."""
    output = torch.tensor([[200.0, -200.0, 7.0], [1e4, 0.0, -1e4], [0.0, 0.0, 3e38]])
    target = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    legal = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
    value, gradient = with_gradient(loss, output, target, legal, torch.ones(3))
    assert math.isfinite(value)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("loss", AVERAGES, ids=lambda f: f.__name__)
def test_no_nan_from_illegal_logits(loss):
    check_finite_gradient(loss)


def test_zero_times_infinity_is_rejected():
    """Named mutant: cross-entropy that multiplies target 0 with the illegal log-probability, minus infinity."""

    def zero_times_infinity(output, target, legal, weight):
        logs = torch.log_softmax(output.masked_fill(legal == 0, -torch.inf), dim=1)
        return -torch.dot(weight, (target * logs).sum(dim=1)) / len(weight)

    with pytest.raises(AssertionError):
        check_finite_gradient(zero_times_infinity)


def minimiser(loss, strategies, weight, legal):
    """The strategy that minimises the loss of one information state with these rows."""
    logits = torch.zeros(1, ACTIONS, dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS([logits], max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-16)
    count = len(weight)

    def closure():
        solver.zero_grad()
        value = loss(logits.expand(count, -1), strategies, legal.expand(count, -1), weight)
        value.backward()
        return value

    solver.step(closure)
    return torch.softmax(logits.detach().masked_fill(legal == 0, -torch.inf), dim=1)[0]


@pytest.fixture
def strategies(rng):
    """Six strategies of one information state, whose third action is illegal, and their weights."""
    legal = torch.tensor([[1.0, 1.0, 0.0, 1.0]], dtype=torch.float64)
    weights = torch.from_numpy(rng.exponential(size=(6, ACTIONS))) * legal
    return weights / weights.sum(dim=1, keepdim=True), torch.arange(1.0, 7.0, dtype=torch.float64) ** 2, legal


@pytest.mark.parametrize("loss", AVERAGES, ids=lambda f: f.__name__)
def test_average_losses_are_minimal_at_the_weighted_mean(loss, strategies):
    played, weight, legal = strategies
    mean = (weight[:, None] * played).sum(dim=0) / weight.sum()
    np.testing.assert_allclose(minimiser(loss, played, weight, legal), mean, atol=1e-6)


@pytest.mark.parametrize("loss", AVERAGES, ids=lambda f: f.__name__)
def test_weights_left_out_are_rejected(loss, strategies):
    """Named mutant: every row weighs the same."""
    played, weight, legal = strategies
    mean = (weight[:, None] * played).sum(dim=0) / weight.sum()
    wrong = minimiser(loss, played, torch.ones_like(weight), legal)
    assert (wrong - mean).abs().max() > 0.01


def slow_baseline(output, action, target, weight):
    return sum(w * (o[a] - t) ** 2 for o, a, t, w in zip(output, action, target, weight, strict=True)) / ROWS


def check_baseline(loss, rng):
    output = torch.from_numpy(rng.standard_normal((ROWS, ACTIONS)))
    action = torch.from_numpy(rng.integers(ACTIONS, size=ROWS))
    target, weight = torch.from_numpy(rng.standard_normal(ROWS)), torch.from_numpy(rng.exponential(size=ROWS))
    value, gradient = with_gradient(loss, output, action, target, weight)
    expected = slow_baseline(*(column.tolist() for column in (output, action, target, weight)))
    assert value == pytest.approx(expected, rel=1e-12)
    played = torch.zeros_like(output).scatter_(1, action[:, None], 1.0)
    wanted = 2.0 / ROWS * (weight * ((output * played).sum(dim=1) - target))[:, None] * played
    np.testing.assert_allclose(gradient, wanted, rtol=1e-12)


def test_baseline_loss_sees_only_the_action_played(rng):
    check_baseline(baseline_loss, rng)


def test_all_actions_to_one_target_is_rejected(rng):
    """Named mutant: every action's value is pulled to the target of the one played."""

    def all_actions(output, action, target, weight):
        return torch.dot(weight, ((output - target[:, None]) ** 2).sum(dim=1)) / len(weight)

    with pytest.raises(AssertionError):
        check_baseline(all_actions, rng)
