"""Tree and simulator are one game: driven in lockstep they agree on everything a sampler can see."""

import numpy as np
import pytest
from numpy.typing import NDArray
from oracles import python_games

from actors.games.batch import CHANCE, TERMINAL
from actors.games.registry import load
from actors.games.simulator import SimulatorBatch, SimulatorGame
from actors.games.tree import TreeGame

SMALL_POKER = (
    "universal_poker(betting=limit,numPlayers=2,numRounds=2,blind=5 10,firstPlayer=1 1,numSuits=2,numRanks=3,"
    "numHoleCards=1,numBoardCards=0 1,raiseSize=10 20,maxRaises=2 2)"
)
NO_LIMIT = "universal_poker(numRanks=2,numSuits=2,stack=300 300,blind=50 100)"
LIARS_DICE = "liars_dice(numdice=1,dice_sides=4)"
GAMES = ["kuhn", "leduc", "goofspiel-4", LIARS_DICE, python_games.SECRET, SMALL_POKER, NO_LIMIT]


@pytest.fixture(autouse=True, scope="module")
def _registered():
    python_games.register()


class Pair:
    """Both backends of one game, played with the same actions and uniforms."""

    def __init__(self, name: str, lanes: int, seed: int) -> None:
        self.games = (load(name, "tree"), load(name, "simulator"))
        self.batches = [game.start(lanes) for game in self.games]
        self.rng = np.random.default_rng(seed)
        self.decisions = 0

    def play(self) -> None:
        while len(self.batches[0]):
            self._chance()
            self._same([b.player for b in self.batches])
            self._same([b.returns() for b in self.batches])
            alive = np.flatnonzero(self.batches[0].player != TERMINAL)
            self.batches = [b.take(alive) for b in self.batches]
            if len(alive):
                self._decide()

    def _chance(self) -> None:
        while (at := np.flatnonzero(self.batches[0].player == CHANCE)).size:
            uniforms = self.rng.random(at.size)
            uniforms[:2] = (0.0, np.nextafter(1.0, 0.0))[: min(2, at.size)]
            nodes = [b.chance_nodes(at) for b in self.batches]
            # The same partition of the lanes by chance node, whatever the numbers are called.
            self._same([_first_seen(n) for n in nodes])
            self._same([b.step_chance(at, uniforms) for b in self.batches])
            self._same([b.player for b in self.batches])

    def _decide(self) -> None:
        legal = self._same([b.legal() for b in self.batches])
        player = self.batches[0].player
        self._same_states([b.information_state() for b in self.batches], player, legal)
        self._same_histories([b.history() for b in self.batches])
        if len(player) < 500 and self.decisions % 2 == 0:
            again = self.rng.integers(len(player), size=len(player) + 3)
            self.batches = [b.take(again) for b in self.batches]
            legal = legal[again]
            self._same_histories([b.history() for b in self.batches])
        self.decisions += 1
        actions = np.argmax(np.where(legal, self.rng.random(legal.shape), -1.0), axis=1)
        for batch in self.batches:
            batch.step(actions)

    def _same_states(self, keys: list[NDArray], player: NDArray, legal: NDArray) -> None:
        for p in (0, 1):
            at = np.flatnonzero(player == p)
            decoded = [_raw_state(game, p, k[at]) for game, k in zip(self.games, keys, strict=True)]
            self._same([features for features, _ in decoded])
            assert np.array_equal(self._same([mask for _, mask in decoded]), legal[at])

    def _same_histories(self, keys: list[NDArray]) -> None:
        for game, k, batch in zip(self.games, keys, self.batches, strict=True):
            assert k.dtype == game.history_column.dtype
            assert k.shape == (len(batch), *game.history_column.shape)
        decoded = [game.history_codec().decode(k) for game, k in zip(self.games, keys, strict=True)]
        self._same([d.player for d in decoded])
        self._same([d.legal for d in decoded])
        raw = [_raw_history(game, d.features) for game, d in zip(self.games, decoded, strict=True)]
        self._same(raw)
        for p in (0, 1):
            states = [d.state_keys(p) for d in decoded]
            self._same([s.index for s in states])
            self._same([_raw_state(g, p, s.keys)[0] for g, s in zip(self.games, states, strict=True)])
            own = self.batches[1].information_state()[states[1].index]
            assert np.array_equal(states[1].keys, own)

    @staticmethod
    def _same(values: list) -> NDArray:
        np.testing.assert_allclose(values[0], values[1], rtol=1e-6, atol=1e-6)
        return values[0]


def _first_seen(nodes: NDArray) -> NDArray:
    """Numbers by first appearance, so that only the partition counts."""
    _, first, inverse = np.unique(nodes, return_index=True, return_inverse=True)
    return first[inverse]


def _scale(game, player: int) -> NDArray:
    if isinstance(game, TreeGame):
        largest = np.abs(game.arrays.views[player]).max(axis=0)
        return np.where(largest > 0, largest, 1)
    return game.state_codec(player).layout.scale


def _raw_state(game, player: int, keys: NDArray) -> tuple[NDArray, NDArray]:
    features, legal = game.state_codec(player).decode(keys)
    assert features.dtype == np.float32
    return features * _scale(game, player), legal


def _raw_history(game, features: NDArray) -> NDArray:
    return features * np.concatenate([_scale(game, 0), _scale(game, 1)])


@pytest.mark.parametrize("name", GAMES)
def test_backends_agree_in_lockstep(name):
    pair = Pair(name, lanes=400, seed=7)
    pair.play()
    assert pair.decisions >= 2


def _even_chance(monkeypatch):
    """Named mutant: chance drawn evenly where its law is not."""
    true = SimulatorGame.law

    def even(game, node, state):
        law = true(game, node, state)
        n = len(law.outcomes)
        return law._replace(cumulative=[(k + 1) / n for k in range(n - 1)])

    monkeypatch.setattr(SimulatorGame, "law", even)


def _shared_states(monkeypatch):
    """Named mutant: repeated lanes share one OpenSpiel state."""
    monkeypatch.setattr(SimulatorBatch, "take", _take_without_clones)


def _take_without_clones(batch, index):
    states = [batch._states[lane] for lane in index.tolist()]
    return SimulatorBatch(batch._game, states, batch.player[index], batch._node[index])


def _swapped_views(monkeypatch):
    """Named mutant: histories hold the actor's view first, not player 0's."""

    def history(batch):
        own, other = (batch._game.tensors(batch._states, p.tolist()) for p in (batch.player, 1 - batch.player))
        return batch._game.history_codec().encode(own, other, batch.legal(), batch.player)

    monkeypatch.setattr(SimulatorBatch, "history", history)


@pytest.mark.parametrize("mutate", [_even_chance, _shared_states, _swapped_views])
def test_the_lockstep_rejects_mutants(mutate, monkeypatch):
    mutate(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError)):
        Pair(python_games.SECRET, lanes=400, seed=7).play()


@pytest.mark.parametrize("name", ["leduc", python_games.SECRET])
def test_keys_name_the_same_information_states(name):
    """Two lanes share a key in one backend exactly when they do in the other."""
    games = load(name, "tree"), load(name, "simulator")
    batches = [game.start(2000) for game in games]
    rng = np.random.default_rng(3)
    while len(batches[0]):
        while (at := np.flatnonzero(batches[0].player == CHANCE)).size:
            uniforms = rng.random(at.size)
            for batch in batches:
                batch.step_chance(at, uniforms)
        alive = np.flatnonzero(batches[0].player != TERMINAL)
        batches = [batch.take(alive) for batch in batches]
        if not alive.size:
            break
        tree, packed = (batch.information_state() for batch in batches)
        joined = np.unique(np.column_stack([tree, _numbers(packed)]), axis=0)
        assert len(joined) == len(np.unique(tree)) == len(np.unique(_numbers(packed)))
        legal = batches[0].legal()
        actions = np.argmax(np.where(legal, rng.random(legal.shape), -1.0), axis=1)
        for batch in batches:
            batch.step(actions)


def _numbers(keys: NDArray) -> NDArray:
    return np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
