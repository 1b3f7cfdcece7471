"""Exact evaluation against OpenSpiel's C++, and the average of many stored networks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyspiel
import torch

from actors.games import registry
from actors.games.tree import TreeGame
from actors.strategies.bank import TreeBank
from actors.strategies.strategy import Probabilities
from benchmarks.learning import bare_network
from benchmarks.measure import Budget, Result, Target, Work, compare
from benchmarks.playing import random_tables
from dream.config import RunConfig
from dream.evaluation.exploitability import exploitability
from dream.runtime.players import TreePlayers
from dream.store.iterations import NetworkStore
from learners.networks import Network

OPENSPIEL = "OpenSpiel's nash_conv (C++)"
FORWARD = "bare forward passes over all states"
GAMES = {"leduc": 0.020, "liars-dice": 0.5}
_KINDS = ("advantage_0", "advantage_1")
_SEGMENT = 10  # networks per file, as a run that commits every 10 iterations writes them


def once(call: Callable[[], object]) -> Work:
    """One unit of work is one call."""

    def work() -> float:
        call()
        return 1

    return work


def openspiel_policy(game: TreeGame, table: Probabilities) -> pyspiel.TabularPolicy:
    """The strategy table as OpenSpiel's tabular policy."""
    names, legal = game.arrays.names, game.arrays.legal
    return pyspiel.TabularPolicy(
        {name: [(int(a), float(table[row, a])) for a in np.flatnonzero(legal[row])] for row, name in enumerate(names)}
    )


def exact_exploitability(budget: Budget, games: tuple[str, ...] = tuple(GAMES)) -> list[Result]:
    """NashConv of a random strategy. OpenSpiel takes seconds in liar's dice, so that game gets one round."""
    results = []
    for name in games:
        game = registry.load(name, "tree")
        assert isinstance(game, TreeGame)
        table = random_tables(game)[0].table
        openspiel, _ = registry.open_game(name)
        theirs = openspiel_policy(game, table)
        seconds = GAMES[name]
        results += compare(
            "exact_exploitability",
            f"{name}, {game.arrays.nodes:,} histories",
            "evaluations",
            once(partial(exploitability, game, table)),
            {OPENSPIEL: once(partial(pyspiel.nash_conv, openspiel, theirs))},
            budget if name == "leduc" else Budget(budget.slice_seconds, 1),
            {"": Target(rate=1 / seconds, words=f"< {1000 * seconds:g} ms each")},
        )
    return results


def stored_average(budget: Budget, iterations: int = 400) -> list[Result]:
    """Leduc: the average strategy of `iterations` stored iterations, both players, read from disk.

    The bare limit: forward passes of a torch network over all states, as many as there are networks.
    """
    game = registry.load("leduc", "tree")
    assert isinstance(game, TreeGame)
    players = TreePlayers(game, RunConfig(game="leduc", algorithm="sd-cfr", iterations=1), torch.device("cpu"))
    with tempfile.TemporaryDirectory() as folder:
        store = NetworkStore(Path(folder))
        _fill(store, players, iterations)

        def average() -> Probabilities:
            bank = TreeBank(game, players.advantage_table)
            stacks = [store.stack(kind, 1, iterations) for kind in _KINDS]
            for t in range(1, iterations + 1):
                for player, stack in enumerate(stacks if t > 1 else []):
                    bank.append(player, {name: values[t - 2] for name, values in stack.items()})
                bank.weigh(t)
            return bank.average()

        return compare(
            "stored_average",
            f"leduc, {iterations} iterations from disk",
            "averages",
            once(average),
            {FORWARD: _forward_passes(players, iterations)},
            Budget(budget.slice_seconds, min(budget.rounds, 3)),
            {"": Target(rate=1 / 3, words="< 3 s each")} if iterations == 400 else None,
        )


def _fill(store: NetworkStore, players: TreePlayers, iterations: int) -> None:
    for player, kind in enumerate(_KINDS):
        network = Network(players.advantage_spec(player), torch.device("cpu"))
        for first in range(1, iterations + 1, _SEGMENT):
            entries = []
            for t in range(first, min(first + _SEGMENT, iterations + 1)):
                network.reset(torch.Generator().manual_seed(t))
                entries.append(network.export())
            store.put_segment(kind, first, entries)


def _forward_passes(players: TreePlayers, iterations: int) -> Work:
    tables = [
        players.state_inputs[p].read(np.arange(s.start, s.stop, dtype=np.int32))[0]
        for p, s in enumerate((players.game.states_of(0), players.game.states_of(1)))
    ]
    networks = [bare_network(t.shape[1], players.game.description.num_actions) for t in tables]

    def work() -> float:
        with torch.inference_mode():
            for _ in range(iterations):
                for network, features in zip(networks, tables, strict=True):
                    network(features)
        return 1

    return work
