"""The tree backend: a game enumerated once into flat arrays, breadth first. A state is an int32 node number."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.games.batch import CHANCE, TERMINAL
from actors.games.description import GameDescription, GameError
from actors.games.sequence_form import SequenceForm
from buffers.packing import TableHistoryCodec, TableStateCodec
from buffers.rows import Column


class TooLargeError(GameError):
    """The game has more histories than the limit."""


@dataclass(frozen=True)
class TreeArrays:
    """The enumerated game. N nodes, S information states (player 0's first), H decision nodes, C chance nodes.

    Node arrays are in breadth-first order, the children of a node are consecutive.
    """

    player: NDArray[np.int8]  # [N] 0, 1, CHANCE, TERMINAL
    first_child: NDArray[np.int32]  # [N] node of the first child, -1 at terminals
    state: NDArray[np.int32]  # [N] information state at decisions, -1 elsewhere
    payoff: NDArray[np.float64]  # [N] player 0's payoff at terminals, 0 elsewhere
    chance_reach: NDArray[np.float64]  # [N] product of the chance probabilities on the way
    sequence: NDArray[np.int32]  # [N, 2] each player's last own (state, action) as state * A + action, or -1
    decision: NDArray[np.int32]  # [N] row among the decision nodes, -1 elsewhere
    chance: NDArray[np.int32]  # [N] row among the chance nodes, -1 elsewhere
    cdf: NDArray[np.float64]  # [C, O] cumulative chance law, padded with 2
    legal: NDArray[np.bool_]  # [S, A]
    rank: NDArray[np.int32]  # [S, A] number of the child that an action leads to
    view: NDArray[np.int32]  # [H, 2] what each player knows at a decision node: rows of `views`
    views: tuple[NDArray[np.float32], NDArray[np.float32]]  # [V_p, F_p] information-state tensors, raw
    state_view: NDArray[np.int32]  # [S] row in the acting player's `views`
    num_states: tuple[int, int]
    names: tuple[str, ...] = field(repr=False, default=())  # [S] OpenSpiel's information-state strings

    @property
    def nodes(self) -> int:
        """Number of histories, chance and terminal ones included."""
        return len(self.player)


class TreeGame:
    """A game whose every history is known: exact tables, exact values."""

    def __init__(self, description: GameDescription, arrays: TreeArrays) -> None:
        self._description = description
        self.arrays = arrays
        first = arrays.num_states[0]
        self.offsets = (0, first)
        self._scales = [np.maximum(np.abs(v).max(axis=0, initial=0.0), 1e-9) for v in arrays.views]
        self._scales = [np.where(s < 1e-8, 1.0, s).astype(np.float32) for s in self._scales]
        self.sequences = SequenceForm.build(arrays)

    @property
    def description(self) -> GameDescription:
        """What the game is, in numbers."""
        return self._description

    @property
    def state_column(self) -> Column:
        """An information state is one int32."""
        return Column("key", np.dtype(np.int32))

    @property
    def history_column(self) -> Column:
        """A history at a decision is one int32: its row among the decision nodes."""
        return Column("history", np.dtype(np.int32))

    @property
    def num_states(self) -> int:
        """Number of information states of both players."""
        return len(self.arrays.legal)

    @property
    def num_histories(self) -> int:
        """Number of decision nodes of both players."""
        return len(self.arrays.view)

    def states_of(self, player: int) -> slice:
        """The numbers of `player`'s information states."""
        return slice(self.offsets[player], self.offsets[player] + self.arrays.num_states[player])

    def start(self, count: int) -> "TreeBatch":
        """`count` lanes at the root."""
        return TreeBatch(self.arrays, np.zeros(count, np.int32))

    def state_codec(self, player: int) -> TableStateCodec:
        """Information-state numbers to normalised tensors [n, F] and legal masks [n, A]."""
        own = self.states_of(player)
        features = self.arrays.views[player][self.arrays.state_view[own]] / self._scales[player]
        return TableStateCodec(features=features, legal=self.arrays.legal[own], offset=own.start)

    def history_codec(self) -> TableHistoryCodec:
        """Decision rows to both players' normalised tensors [n, F0 + F1]."""
        arrays = self.arrays
        at = np.flatnonzero(arrays.decision >= 0)
        return TableHistoryCodec(
            views0=arrays.views[0] / self._scales[0],
            views1=arrays.views[1] / self._scales[1],
            view=arrays.view,
            player=arrays.player[at],
            state=arrays.state[at],
            legal=arrays.legal[arrays.state[at]],
        )


class TreeBatch:
    """Lanes of a `TreeGame`: a vector of node numbers."""

    def __init__(self, arrays: TreeArrays, node: NDArray[np.int32]) -> None:
        self._arrays = arrays
        self.node = node

    @property
    def player(self) -> NDArray[np.int8]:
        """[n] who acts."""
        return self._arrays.player[self.node]

    def __len__(self) -> int:
        return len(self.node)

    def information_state(self) -> NDArray[np.int32]:
        """[n] numbers of the information states."""
        return self._arrays.state[self.node]

    def legal(self) -> NDArray[np.bool_]:
        """[n, A] legal masks."""
        return self._arrays.legal[self._arrays.state[self.node]]

    def history(self) -> NDArray[np.int32]:
        """[n] rows among the decision nodes."""
        return self._arrays.decision[self.node]

    def returns(self) -> NDArray[np.float64]:
        """[n] player 0's payoff in chips, 0 where not terminal."""
        return self._arrays.payoff[self.node]

    def step(self, actions: NDArray[np.int64]) -> None:
        """Play `actions` [n] at every lane."""
        arrays = self._arrays
        self.node = arrays.first_child[self.node] + arrays.rank[arrays.state[self.node], actions]

    def chance_nodes(self, index: NDArray[np.int64]) -> NDArray[np.uint64]:
        """[m] node numbers."""
        return self.node[index].astype(np.uint64)

    def step_chance(self, index: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw the outcomes of the chance lanes `index` by inverse CDF; returns their ordinals [m]."""
        arrays = self._arrays
        node = self.node[index]
        ordinal: NDArray[np.int64] = (arrays.cdf[arrays.chance[node]] <= uniforms[:, None]).sum(axis=1)
        self.node[index] = arrays.first_child[node] + ordinal
        return ordinal

    def take(self, index: NDArray[np.int64]) -> "TreeBatch":
        """Select and repeat lanes."""
        return TreeBatch(self._arrays, self.node[index])


class _Names:
    """Numbers for strings, in order of first sight, one sequence per player; keeps one tensor per string."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}
        self.tensors: list[NDArray[np.float32]] = []

    def get(self, name: str, tensor: Callable[[], Any]) -> int:
        number = self.number.get(name)
        if number is None:
            number = self.number[name] = len(self.number)
            self.tensors.append(np.asarray(tensor(), np.float32))
        return number


class _Growing:
    """Node columns while they grow."""

    def __init__(self) -> None:
        self.player: list[int] = []
        self.first_child: list[int] = []
        self.state: list[int] = []  # number within the player
        self.payoff: list[float] = []
        self.chance_reach: list[float] = []
        self.sequence: list[tuple[int, int]] = []
        self.view: list[tuple[int, int]] = []
        self.laws: list[list[float]] = []


class _StateTable:
    """Information states of one player: legal actions and the own past, which perfect recall makes unique."""

    def __init__(self, player: int) -> None:
        self.player = player
        self.number: dict[str, int] = {}
        self.names: list[str] = []
        self.actions: list[list[int]] = []
        self.past: list[int] = []
        self.view: list[int] = []

    def get(self, name: str, actions: list[int], past: int, view: int) -> int:
        number = self.number.get(name)
        if number is None:
            number = self.number[name] = len(self.names)
            self.names.append(name)
            self.actions.append(actions)
            self.past.append(past)
            self.view.append(view)
            return number
        if self.past[number] != past:
            raise GameError(
                f"imperfect recall: player {self.player} reaches information state {name!r} after different "
                "own actions or observations; only games of perfect recall are supported"
            )
        if self.actions[number] != actions:
            raise GameError(
                f"information state {name!r} of player {self.player} has different legal actions "
                f"({self.actions[number]} and {actions}) in different histories"
            )
        return number


def enumerate_game(game: Any, description: GameDescription, limit: int) -> TreeGame:
    """Walk every history of an OpenSpiel game (turn-based) once, breadth first.

    Raises `TooLargeError` above `limit` histories and `GameError` for imperfect recall or for two information states
    that share one tensor (a network could not tell them apart).
    """
    walker = _Walker(game, description.num_actions, limit)
    level = [(game.new_initial_state(), 1.0, -1, -1)]
    while level:
        level = walker.visit(level)
    return TreeGame(description, walker.arrays())


_Entry = tuple[Any, float, int, int]  # state, chance reach, last own sequence of player 0 and of player 1


class _Walker:
    def __init__(self, game: Any, num_actions: int, limit: int) -> None:
        self._actions = num_actions
        self._limit = limit
        self._columns = _Growing()
        self._views = (_Names(), _Names())
        self._states = (_StateTable(0), _StateTable(1))
        self._game = game

    def visit(self, level: list[_Entry]) -> list[_Entry]:
        """Record one level; return the next."""
        columns = self._columns
        following: list[_Entry] = []
        base = len(columns.player) + len(level)
        if base > self._limit:
            raise TooLargeError(f"{self._game} has more than {self._limit:,} histories")
        for state, reach, past0, past1 in level:
            columns.chance_reach.append(reach)
            columns.sequence.append((past0, past1))
            if state.is_terminal():
                columns.player.append(TERMINAL)
                columns.first_child.append(-1)
                columns.state.append(-1)
                columns.payoff.append(state.returns()[0])
                continue
            columns.first_child.append(base + len(following))
            columns.payoff.append(0.0)
            if state.is_chance_node():
                outcomes = [(action, p) for action, p in state.chance_outcomes() if p > 0.0]
                columns.player.append(CHANCE)
                columns.state.append(-1)
                columns.laws.append([p for _, p in outcomes])
                following += [(state.child(action), reach * p, past0, past1) for action, p in outcomes]
            else:
                following += self._decision(state, reach, past0, past1)
        return following

    def _decision(self, state: Any, reach: float, past0: int, past1: int) -> list[_Entry]:
        columns, width = self._columns, self._actions
        player = state.current_player()
        names = (state.information_state_string(0), state.information_state_string(1))
        views = [self._views[p].get(names[p], partial(state.information_state_tensor, p)) for p in (0, 1)]
        actions = state.legal_actions()
        number = self._states[player].get(names[player], actions, (past0, past1)[player], views[player])
        columns.player.append(player)
        columns.state.append(number)
        columns.view.append((views[0], views[1]))
        first = number * width
        if player == 0:
            return [(state.child(a), reach, first + a, past1) for a in actions]
        return [(state.child(a), reach, past0, first + a) for a in actions]

    def arrays(self) -> TreeArrays:
        """Freeze the columns."""
        columns, width = self._columns, self._actions
        tables = self._states
        counts = (len(tables[0].names), len(tables[1].names))
        player = np.array(columns.player, np.int8)
        state = np.array(columns.state, np.int32)
        state[player == 1] += counts[0]
        sequence = np.array(columns.sequence, np.int32).reshape(-1, 2)
        sequence[sequence[:, 1] >= 0, 1] += counts[0] * width
        actions = tables[0].actions + tables[1].actions
        legal = np.zeros((len(actions), width), np.bool_)
        for row, legal_actions in enumerate(actions):
            legal[row, legal_actions] = True
        views = tuple(_matrix(names.tensors) for names in self._views)
        state_view = np.array(tables[0].view + tables[1].view, np.int32)
        for p in (0, 1):
            _refuse_shared_tensors(p, tables[p].names, views[p][np.array(tables[p].view, np.int64)])
        return TreeArrays(
            player=player,
            first_child=np.array(columns.first_child, np.int32),
            state=state,
            payoff=np.array(columns.payoff, np.float64),
            chance_reach=np.array(columns.chance_reach, np.float64),
            sequence=sequence,
            decision=_number_where(player >= 0),
            chance=_number_where(player == CHANCE),
            cdf=_cumulative(columns.laws),
            legal=legal,
            rank=np.where(legal, np.cumsum(legal, axis=1) - 1, -1).astype(np.int32),
            view=np.array(columns.view, np.int32).reshape(-1, 2),
            views=(views[0], views[1]),
            state_view=state_view,
            num_states=counts,
            names=tuple(tables[0].names + tables[1].names),
        )


def _matrix(tensors: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    return np.stack(tensors) if tensors else np.zeros((0, 1), np.float32)


def _number_where(mask: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Consecutive numbers where `mask` is True, -1 elsewhere."""
    return np.where(mask, np.cumsum(mask) - 1, -1).astype(np.int32)


def _cumulative(laws: list[list[float]]) -> NDArray[np.float64]:
    """[C, O] cumulative probabilities; the last outcome and the padding hold 2, above every uniform."""
    width = max((len(law) for law in laws), default=1)
    cdf = np.full((len(laws), width), 2.0)
    for row, law in enumerate(laws):
        cdf[row, : len(law) - 1] = np.cumsum(law)[:-1]
    return cdf


def _refuse_shared_tensors(player: int, names: list[str], tensors: NDArray[np.float32]) -> None:
    seen: dict[bytes, str] = {}
    for name, tensor in zip(names, tensors, strict=True):
        other = seen.setdefault(tensor.tobytes(), name)
        if other != name:
            raise GameError(
                f"information states {other!r} and {name!r} of player {player} share one tensor: "
                "a network cannot tell them apart"
            )
