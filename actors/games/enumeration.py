"""Walking every history of an OpenSpiel game once, breadth first."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.games.batch import CHANCE, TERMINAL
from actors.games.description import GameDescription, GameError
from actors.games.tree import TreeGame
from actors.games.tree_arrays import TreeArrays


class TooLargeError(GameError):
    """The game has more histories than the limit."""


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
