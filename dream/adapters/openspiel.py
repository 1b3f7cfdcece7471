"""The average strategy of a run as an OpenSpiel policy.

An enumerated game gives its table. A larger one gives the bank's explicit average (Steinberger 2019, Theorem 2)
at one information state at a time: entry t counts with t * pi_i^{sigma^t}(I), and since a player of perfect recall
remembers all it did, I's own past tells that reach.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from typing import Any, Final, NamedTuple

import numpy as np
import pyspiel
import torch
from numpy.typing import NDArray
from open_spiel.python import policy as openspiel_policy
from torch.func import functional_call

from actors.games import registry
from actors.games.simulator import SimulatorGame
from actors.games.tree import TreeGame
from actors.strategies.regret_matching import regret_matching
from actors.strategies.strategy import Probabilities, Strategy
from dream.evaluation.average import AverageOf
from dream.runtime.players import Players
from learners.networks import Network, Parameters

__all__ = ["AveragePolicy", "make_policy"]

_REMEMBERED_BYTES: Final = 256_000_000  # of entries' strategies at information states


def make_policy(average: AverageOf, iteration: int | None) -> AveragePolicy:
    """The average that the run's algorithm plays, after `iteration` (None: of the newest commit).

    Raises UsageError where the iteration is not stored, or where its average network cannot be fitted any more.
    """
    iteration = average.newest() if iteration is None else iteration
    players, kind = average.players, average.method.average
    game, _ = registry.open_game(players.game.description.name)
    if isinstance(players.game, TreeGame):
        ((_, table),) = average.tables([iteration], kind)
        return TreePolicy(game, players.game, table)
    assert isinstance(players.game, SimulatorGame)
    if kind == "network":
        networks = average.networks(iteration)
        return NetworkPolicy(game, players.game, [players.from_average(p, own) for p, own in enumerate(networks)])
    return BankPolicy(game, players, average.bank_stacks(iteration), iteration)


class AveragePolicy(openspiel_policy.Policy):  # type: ignore[misc]  # OpenSpiel has no types
    """What all averages share: `game` is turn-based; states of a simultaneous original are understood too.

    At a simultaneous node the policy is asked for one player, `action_probabilities(state, player_id)`; it
    replays the history in the turn-based game.
    """

    def __init__(self, game: pyspiel.Game) -> None:
        super().__init__(game, [0, 1])

    def action_probabilities(self, state: pyspiel.State, player_id: int | None = None) -> dict[int, float]:
        """Legal actions of the player to act with their probabilities, which sum to 1.

        Raises ValueError at chance nodes and terminals, for a player who is not to act, and at a simultaneous
        node without `player_id`, and for a state of another game.
        """
        _refuse_other(self.game, state.get_game())
        if state.get_game().get_type().dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS:
            state = _turn_based(self.game, state, player_id)
        player = state.current_player()
        if player < 0:
            raise ValueError(f"nobody acts after {state.history()}: a strategy exists at decisions only")
        if player_id is not None and player_id != player:
            raise ValueError(f"player {player_id} is not to act after {state.history()}, player {player} is")
        row = self._row(state, player)
        return {action: float(row[action]) for action in state.legal_actions()}

    @abstractmethod
    def _row(self, state: pyspiel.State, player: int) -> NDArray[np.float64]:
        """[A] probabilities of `player` at its decision `state` of the turn-based game."""


def _refuse_other(own: pyspiel.Game, theirs: pyspiel.Game) -> None:
    """Raise ValueError for another game than the policy's, or the same with other parameters."""
    game = theirs
    if theirs.get_type().dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS:
        game = pyspiel.convert_to_turn_based(theirs)
    if str(game) == str(own):
        return
    # The strings name the parameters that were given; one that was left out may have the same value by default.
    first, second = own.get_parameters(), game.get_parameters()
    same = all(first[name] == second[name] for name in first.keys() & second.keys())
    if own.get_type().short_name != game.get_type().short_name or not same:
        raise ValueError(f"this policy plays {own}, and the state is of {theirs}: ask it about states of its own game")


def _turn_based(game: pyspiel.Game, state: pyspiel.State, player: int | None) -> pyspiel.State:
    """The state of the turn-based `game` where `player` decides what it decides in the original's `state`."""
    if state.is_simultaneous_node() and player not in (0, 1):
        raise ValueError(f"both players act after {state.history()}: name one, player_id=0 or 1")
    turn = game.new_initial_state()
    for move in state.full_history():
        if turn.current_player() == move.player:  # a player without a choice has no turn
            turn.apply_action(move.action)
    if player == 1 and turn.current_player() == 0 and state.is_simultaneous_node():
        turn.apply_action(turn.legal_actions()[0])  # player 1 does not see it
    return turn


class TreePolicy(AveragePolicy):
    """A table over all information states of an enumerated game, looked up by OpenSpiel's string."""

    def __init__(self, game: pyspiel.Game, tree: TreeGame, table: Probabilities) -> None:
        super().__init__(game)
        self._table = table
        names = tree.arrays.names
        self._rows = [{names[row]: row for row in range(*tree.states_of(p).indices(len(names)))} for p in (0, 1)]

    def _row(self, state: pyspiel.State, player: int) -> NDArray[np.float64]:
        row: NDArray[np.float64] = self._table[self._rows[player][state.information_state_string(player)]]
        return row


class NetworkPolicy(AveragePolicy):
    """The average networks of both players, one forward pass per question."""

    def __init__(self, game: pyspiel.Game, simulator: SimulatorGame, strategies: list[Strategy]) -> None:
        super().__init__(game)
        self._simulator = simulator
        self._strategies = strategies

    def _row(self, state: pyspiel.State, player: int) -> NDArray[np.float64]:
        key, legal = _key(self._simulator, state, player)
        row: NDArray[np.float64] = self._strategies[player].probabilities(key, legal)[0]
        return row


class BankPolicy(AveragePolicy):
    """The explicit average of the bank of `iterations` entries, for a game without tables.

    All entries are evaluated at once. What was found at an information state is remembered, the states used
    last in a bounded memory, so that the next decision of the same game needs one more evaluation.
    """

    def __init__(self, game: pyspiel.Game, players: Players, stacks: list[Parameters], iterations: int) -> None:
        super().__init__(game)
        assert isinstance(players.game, SimulatorGame)
        self._simulator = players.game
        self._entries = [_Entries(players, p, stack) for p, stack in enumerate(stacks)]
        self._iterations = np.arange(1.0, iterations + 1)
        self._known: OrderedDict[tuple[int, bytes], _Known] = OrderedDict()
        each = 8 * iterations * (players.game.description.num_actions + 1)
        self._room = max(64, _REMEMBERED_BYTES // each)

    def _row(self, state: pyspiel.State, player: int) -> NDArray[np.float64]:
        here = self._know(state, player)
        weights = self._iterations * here.reach
        total = weights.sum()
        if total <= 0.0:
            uniform: NDArray[np.float64] = here.strategies[0]
            return uniform
        row: NDArray[np.float64] = weights @ here.strategies / total
        return row

    def _know(self, state: pyspiel.State, player: int) -> _Known:
        key, legal = _key(self._simulator, state, player)
        name = (player, key.tobytes())
        if name in self._known:
            self._known.move_to_end(name)
            return self._known[name]
        strategies = self._entries[player].probabilities(key, legal)
        known = self._known[name] = _Known(self._reach(state, player), strategies)
        if len(self._known) > self._room:
            self._known.popitem(last=False)
        return known

    def _reach(self, state: pyspiel.State, player: int) -> NDArray[np.float64]:
        """[T] probability of each entry to take the player's own actions on the way to `state`."""
        earlier, action = _last_own_decision(state, player)
        if earlier is None:
            return np.ones(len(self._iterations))
        there = self._know(earlier, player)
        reach: NDArray[np.float64] = there.reach * there.strategies[:, action]
        return reach


class _Known(NamedTuple):
    """What T entries do at an information state: their own reach [T] and their strategies [T, A]."""

    reach: NDArray[np.float64]
    strategies: NDArray[np.float64]


def _last_own_decision(state: pyspiel.State, player: int) -> tuple[pyspiel.State | None, int]:
    """The state at `player`'s decision before `state`, and the action it took there; None before the first."""
    moves = state.full_history()
    last = max((k for k, move in enumerate(moves) if move.player == player), default=None)
    if last is None:
        return None, -1
    earlier = state.get_game().new_initial_state()
    for move in moves[:last]:
        earlier.apply_action(move.action)
    return earlier, moves[last].action


def _key(game: SimulatorGame, state: pyspiel.State, player: int) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Key [1, K] and legal mask [1, A] of `player`'s decision `state`."""
    legal = np.array([state.legal_actions_mask()], np.bool_)
    return game.state_codec(player).encode(game.tensors([state], [player]), legal), legal


class _Entries:
    """All bank entries of one player: the uniform strategy, then regret matching on each stored network."""

    def __init__(self, players: Players, player: int, stack: Parameters) -> None:
        self._inputs = players.state_inputs[player]
        self._network = Network(players.advantage_spec(player), players.device)
        self._stack = {name: torch.from_numpy(values).to(players.device) for name, values in stack.items()}

    def probabilities(self, key: NDArray[Any], legal: NDArray[np.bool_]) -> NDArray[np.float64]:
        """[T, A] the entries' strategies at one information state, `key` [1, K] and `legal` [1, A]."""
        uniform: NDArray[np.float64] = legal / legal.sum(axis=1, keepdims=True)
        if not self._stack:
            return uniform
        with torch.inference_mode():
            features, _ = self._inputs.read(key)
            outputs = torch.vmap(lambda own: functional_call(self._network, own, (features,)))(self._stack)
        advantages = outputs[:, 0].cpu().numpy()
        return np.concatenate([uniform, regret_matching(advantages, legal.repeat(len(advantages), axis=0))])
