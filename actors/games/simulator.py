"""The simulator backend: OpenSpiel states in lockstep, for games too large to enumerate.

One Python loop per step over the lanes; everything that can be done for all lanes at once is numpy.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from itertools import accumulate, chain
from typing import Final, NamedTuple

import numpy as np
import pyspiel
from numpy.typing import NDArray

from actors.games.batch import CHANCE, TERMINAL
from actors.games.description import GameDescription, digest
from actors.games.probe import Findings, Observer, observer_of
from buffers.packing import PackedHistoryCodec, PackedStateCodec
from buffers.rows import Column

_REMEMBERED_OUTCOMES: Final = 1_000_000  # 8 bytes each
_REMEMBERED_SUMS: Final = 1000
_ROOT: Final = 0x9E3779B97F4A7C15

# Called through `map`: no bound method is made for every lane.
_APPLY: Final = pyspiel.State.apply_action
_MASK: Final = pyspiel.State.legal_actions_mask
_PLAYER: Final = pyspiel.State.current_player


class _Law(NamedTuple):
    """Outcomes of positive probability in OpenSpiel's order; the cumulative law without its last entry."""

    outcomes: tuple[int, ...]
    cumulative: list[float]


class SimulatorGame:
    """A game played by stepping OpenSpiel states; keys are packed tensors and legal masks, uint8[K]."""

    def __init__(self, game: pyspiel.Game, description: GameDescription, findings: Findings) -> None:
        self._description = description
        self._root = game.new_initial_state()
        self._observer = observer_of(game) if findings.fast_observer else None
        self._set_from = _unwrapped(self._observer) if self._observer else None
        layout, actions = findings.layout, description.num_actions
        self._state_codec = PackedStateCodec(layout, actions)
        self._history_codec = PackedHistoryCodec(layout, layout, actions)
        self._laws: dict[int, _Law] = {}
        self._room = _REMEMBERED_OUTCOMES
        self._sums: dict[tuple[float, ...], list[float]] = {}

    @property
    def description(self) -> GameDescription:
        """What the game is, in numbers."""
        return self._description

    @property
    def fingerprint(self) -> str:
        """Digest of the layout of keys."""
        return digest(*self._state_codec.layout.arrays().values())

    @property
    def state_column(self) -> Column:
        """Keys of information states: uint8[K], the same K for both players."""
        return self._state_codec.column

    @property
    def history_column(self) -> Column:
        """Keys of histories: uint8[K']."""
        return self._history_codec.column

    def start(self, count: int) -> "SimulatorBatch":
        """`count` lanes at the root."""
        root = self._root  # clones are several times cheaper than new states
        player = np.full(count, _player(root.current_player()), np.int8)
        return SimulatorBatch(self, [root.clone() for _ in range(count)], player, np.full(count, _ROOT, np.uint64))

    def state_codec(self, player: int) -> PackedStateCodec:
        """Decodes information-state keys of `player`."""
        return self._state_codec

    def history_codec(self) -> PackedHistoryCodec:
        """Decodes history keys."""
        return self._history_codec

    def tensors(self, states: Iterable[pyspiel.State], players: Iterable[int]) -> NDArray[np.float32]:
        """[n, F] raw information-state tensors of the players in the states, pair by pair."""
        width = self._description.state_features[0]
        observer, set_from = self._observer, self._set_from
        if observer is None or set_from is None:
            rows = [state.information_state_tensor(p) for state, p in zip(states, players, strict=True)]
            return np.array(rows, np.float32).reshape(-1, width)
        tensor, copies = observer.tensor.data.cast("B"), bytearray()
        for _ in map(set_from, states, players):
            copies += tensor
        return np.frombuffer(copies, np.float32).reshape(-1, width)

    def law(self, node: int, state: pyspiel.State) -> _Law:
        """The chance law of `state`. The laws of the first nodes seen are remembered by identity."""
        law = self._laws.get(node)
        if law is None:
            law = self._new_law(state)
            if self._room >= len(law.outcomes):
                self._room -= len(law.outcomes)
                self._laws[node] = law
        return law

    def _new_law(self, state: pyspiel.State) -> _Law:
        """Sums without the last, so that rounding leads to no outcome beyond it; equal laws share a list."""
        outcomes, probabilities = zip(*state.chance_outcomes(), strict=True)
        sums = self._sums.get(probabilities)  # holds laws without zeros only
        if sums is not None:
            return _Law(outcomes, sums)
        if min(probabilities) <= 0.0:
            kept = [k for k, p in enumerate(probabilities) if p > 0.0]
            outcomes, probabilities = (tuple(x[k] for k in kept) for x in (outcomes, probabilities))
        sums = list(accumulate(probabilities))[:-1]
        if len(self._sums) < _REMEMBERED_SUMS:
            self._sums[probabilities] = sums
        return _Law(outcomes, sums)


class SimulatorBatch:
    """Lanes of a `SimulatorGame`: OpenSpiel states, who acts in each, and a 64-bit hash of each history."""

    def __init__(
        self,
        game: SimulatorGame,
        states: list[pyspiel.State],
        player: NDArray[np.int8],
        node: NDArray[np.uint64],
    ) -> None:
        self.player = player
        self._game = game
        self._states = states
        self._node = node
        self._legal: NDArray[np.bool_] | None = None
        self._keys: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self._states)

    def information_state(self) -> NDArray[np.uint8]:
        """[n, K] keys of the acting players' information states. Every lane must be at a decision."""
        if self._keys is None:
            tensors = self._game.tensors(self._states, self.player.tolist())
            self._keys = self._game.state_codec(0).encode(tensors, self.legal())
        return self._keys

    def legal(self) -> NDArray[np.bool_]:
        """[n, A] legal masks. Every lane must be at a decision."""
        if self._legal is None:
            masks = map(_MASK, self._states)
            flat = np.frombuffer(bytes(chain.from_iterable(masks)), np.bool_)
            self._legal = flat.reshape(len(self._states), self._game.description.num_actions)
        return self._legal

    def history(self) -> NDArray[np.uint8]:
        """[n, K'] keys of what both players know. Every lane must be at a decision.

        The states are slow to read: ask for it before `information_state`, which then is a part of it.
        """
        twice = chain.from_iterable(zip(self._states, self._states, strict=True))
        both = self._game.tensors(twice, (0, 1) * len(self))
        codec = self._game.history_codec()
        history = codec.encode(both[::2], both[1::2], self.legal(), self.player)
        self._keys = codec.acting(history)
        return history

    def returns(self) -> NDArray[np.float64]:
        """[n] player 0's payoff in chips, 0 where not terminal."""
        payoffs = np.zeros(len(self._states))
        for lane in np.flatnonzero(self.player == TERMINAL).tolist():
            payoffs[lane] = self._states[lane].player_return(0)
        return payoffs

    def step(self, actions: NDArray[np.int64]) -> None:
        """Play `actions` [n]. Every lane must be at a decision."""
        self._forget()
        deque(map(_APPLY, self._states, actions.tolist()), maxlen=0)
        self.player = _players(list(map(_PLAYER, self._states)))
        self._node = _successors(self._node, actions)

    def chance_nodes(self, index: NDArray[np.int64]) -> NDArray[np.uint64]:
        """[m] hashes of the histories at lanes `index`, the same in every process."""
        return self._node[index]

    def step_chance(self, index: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw and play outcomes at the chance lanes `index` by inverse CDF; returns their ordinals [m]."""
        self._forget()
        nodes = self._node[index]
        states = [self._states[lane] for lane in index.tolist()]
        laws = list(map(self._game.law, nodes.tolist(), states))
        ordinals = list(map(bisect_right, [law[1] for law in laws], uniforms.tolist()))
        actions = [law[0][ordinal] for law, ordinal in zip(laws, ordinals, strict=True)]
        deque(map(_APPLY, states, actions), maxlen=0)
        self.player = self.player.copy()  # callers may hold the old array
        self.player[index] = _players(list(map(_PLAYER, states)))
        self._node[index] = _successors(nodes, np.array(actions, np.int64))
        return np.array(ordinals, np.int64)

    def take(self, index: NDArray[np.int64]) -> "SimulatorBatch":
        """Select and repeat lanes. The first use of a lane keeps its state, repeats are clones."""
        chosen, states = index.tolist(), self._states
        if len(set(chosen)) == len(chosen):
            taken = [states[lane] for lane in chosen]
        else:
            seen: set[int] = set()
            taken = []
            for lane in chosen:
                taken.append(states[lane].clone() if lane in seen else states[lane])
                seen.add(lane)
        return SimulatorBatch(self._game, taken, self.player[index], self._node[index])

    def _forget(self) -> None:
        self._legal = None
        self._keys = None


def _unwrapped(observer: Observer) -> Callable[[pyspiel.State, int], None]:
    """`set_from` of the C++ observation behind OpenSpiel's Python wrapper, where there is one."""
    wrapper = getattr(observer.set_from, "__self__", None)
    inner = getattr(wrapper, "_observation", None)
    if isinstance(inner, pyspiel._Observation):
        return inner.set_from  # type: ignore[no-any-return]
    return observer.set_from


def _player(openspiel: int) -> int:
    """OpenSpiel's player id to ours: 0 and 1 as they are."""
    if openspiel >= 0:
        return openspiel
    return CHANCE if openspiel == pyspiel.PlayerId.CHANCE else TERMINAL


def _players(openspiel: list[int]) -> NDArray[np.int8]:
    # CHANCE is -1 in both; OpenSpiel's terminal player is -4.
    return np.maximum(np.array(openspiel, np.int8), np.int8(TERMINAL))


def _successors(nodes: NDArray[np.uint64], actions: NDArray[np.int64]) -> NDArray[np.uint64]:
    """[n] hashes of the histories one action longer: SplitMix64's finaliser over (hash, action).

    Two histories collide with probability 2^-64.
    """
    z: NDArray[np.uint64] = nodes + (actions.astype(np.uint64) + np.uint64(1)) * np.uint64(_ROOT)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z
