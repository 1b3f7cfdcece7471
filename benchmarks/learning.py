"""Learners against a bare torch loop: optimiser steps per second of one thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from actors.games import registry
from actors.games.tree import TreeGame
from benchmarks.measure import Budget, Result, Target, Work, compare
from buffers.rows import Rows
from dream.config import RunConfig
from dream.runtime.players import TreePlayers
from learners.baseline import BaselineLearner, Transitions
from learners.feed import UniformFeed
from learners.inputs import Keys, StateInputs
from learners.losses import advantage_loss
from learners.regression import OptimiserSettings, RegressionLearner

_CPU = torch.device("cpu")
SETTINGS = OptimiserSettings(learning_rate=1e-3, clip=1.0)
BARE = "bare forward, backward, clip, Adam"


def leduc() -> tuple[TreeGame, TreePlayers]:
    """Leduc's tree, and what makes its networks."""
    game = registry.load("leduc", "tree")
    assert isinstance(game, TreeGame)
    return game, TreePlayers(game, RunConfig(game="leduc", algorithm="dream", iterations=1), _CPU)


@dataclass(frozen=True)
class RowByRow:
    """The same inputs without what lets a feed merge rows."""

    inputs: StateInputs

    @property
    def width(self) -> int:
        """Number of features."""
        return self.inputs.width

    def read(self, keys: Keys) -> tuple[Tensor, Tensor]:
        """Features and legal masks."""
        return self.inputs.read(keys)


def regression_rows(game: TreeGame, count: int, seed: int = 1) -> Rows:
    """Random advantage rows of player 0."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(game.arrays.num_states[0], size=count).astype(np.int32)
    return {
        "key": keys,
        "target": rng.normal(size=(count, game.description.num_actions)).astype(np.float32),
        "weight": rng.uniform(1.0, 10.0, count).astype(np.float32),
        "priority": rng.integers(2**32, size=count, dtype=np.uint32),
    }


def transition_rows(game: TreeGame, count: int, seed: int = 1) -> Rows:
    """Random transitions."""
    rng = np.random.default_rng(seed)
    histories = rng.integers(game.num_histories, size=(2, count)).astype(np.int32)
    return {
        "history": histories[0],
        "action": rng.integers(game.description.num_actions, size=count).astype(np.int16),
        "reward": rng.normal(size=count).astype(np.float32),
        "next_history": histories[1],
        "terminal": rng.random(count) < 0.4,
    }


def bare_network(inputs: int, outputs: int) -> nn.Sequential:
    """Three hidden layers of 64 as torch users write them."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in ((inputs, 64), (64, 64), (64, 64)):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, outputs))


def bare_steps(network: nn.Sequential, loss: Callable[[], Tensor], steps: int) -> Work:
    """`steps` times: loss, backward, clip_grad_norm_, fused Adam."""
    parameters = list(network.parameters())
    adam = torch.optim.Adam(parameters, lr=1e-3, fused=True)

    def work() -> float:
        for _ in range(steps):
            adam.zero_grad()
            loss().backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(parameters, 1.0)
            adam.step()
        return steps

    return work


def advantage_learner(budget: Budget, rows: int = 1_000_000, batch: int = 2048, steps: int = 50) -> list[Result]:
    """Leduc, minibatches drawn from a full buffer: rows of a state merged, or one forward pass per row."""
    game, players = leduc()
    data, inputs = regression_rows(game, rows), players.state_inputs[0]
    scale = game.description.payoff_scale
    spec = players.advantage_spec(0)

    def ours(merged: bool) -> Work:
        feed = UniformFeed([(data, rows)], inputs if merged else RowByRow(inputs), batch, scale, _CPU)
        learner = RegressionLearner(spec, advantage_loss, SETTINGS, _CPU)
        learner.fit(feed, 1, 1, True)
        return lambda: learner.fit(feed, steps, 1, False)[1].steps

    network = bare_network(spec.inputs, spec.outputs)
    features, legal = inputs.read(data["key"][:batch])
    target = torch.from_numpy(data["target"][:batch] / scale)
    weight = torch.from_numpy(data["weight"][:batch] / data["weight"].mean())
    limit = {BARE: bare_steps(network, lambda: advantage_loss(network(features), target, legal, weight), steps)}
    goal = {BARE: Target(ratio=0.8)}
    results = []
    for case, merged in (("rows of a state merged", True), ("one forward pass per row", False)):
        name = f"leduc, batch {batch:,}, {case}"
        results += compare("advantage_learner", name, "steps", ours(merged), limit, budget, goal)
    return results


def baseline_learner(budget: Budget, rows: int = 200_000, batch: int = 512, steps: int = 50) -> list[Result]:
    """Leduc, expected SARSA: each step has a forward pass more, for the targets; so has the bare loop."""
    game, players = leduc()
    inputs = players.history_inputs()
    scale = game.description.payoff_scale
    spec = players.baseline_spec(inputs)
    learner = BaselineLearner(spec, inputs, SETTINGS, scale, _CPU)
    learner.start(1)
    data = transition_rows(game, rows)
    strategy = np.full((game.num_histories, spec.outputs), 1.0 / spec.outputs)
    transitions = Transitions(data, lambda keys: strategy.take(keys, axis=0))

    network = bare_network(spec.inputs, spec.outputs)
    here, there = (inputs.read(data[name][:batch]) for name in ("history", "next_history"))
    action = torch.from_numpy(data["action"][:batch].astype(np.int64))[:, None]
    reward = torch.from_numpy(data["reward"][:batch] / scale)
    probabilities = torch.full((batch, spec.outputs), 1.0 / spec.outputs)

    def loss() -> Tensor:
        with torch.no_grad():
            target = reward + (network(there) * probabilities).sum(dim=1)
        error = network(here).gather(1, action)[:, 0] - target
        return torch.dot(error, error) / batch

    return compare(
        "baseline_learner",
        f"leduc, batch {batch:,}",
        "steps",
        lambda: learner.fit(transitions, steps, batch, 1)[1].steps,
        {BARE: bare_steps(network, loss, steps)},
        budget,
    )
