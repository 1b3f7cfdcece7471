"""Networks made playable: where actors' strategies and learners' networks meet."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from actors.games.batch import Game
from actors.games.tree import TreeGame
from actors.strategies.regret_matching import regret_matching
from actors.strategies.strategy import (
    FromAdvantages,
    FromProbabilities,
    Predict,
    Probabilities,
    Profile,
    Strategy,
    StrategyProfile,
    TableProfile,
    Uniform,
)
from buffers.frames import Snapshot
from buffers.packing import PackedHistoryCodec, TableHistoryCodec
from dream.config import RunConfig
from learners.inputs import HistoryInputs, StateInputs, history_inputs, state_inputs
from learners.networks import NetworkSpec, Parameters
from learners.predict import Predictor

TABLE = "table"  # the one parameter of an exact fit: D(I, .) [S_p, A]


class NetworkStrategy(FromAdvantages):
    """Regret matching on an advantage network that can be told to another process by its `parameters`."""

    def __init__(self, parameters: Parameters, predict: Predict) -> None:
        super().__init__(predict)
        self.parameters = parameters


def profile_message(profile: Profile) -> Snapshot:
    """A profile as plain arrays, for `Players.profile` in another process: one table, or each player's network."""
    if isinstance(profile, TableProfile):
        return {TABLE: profile.table}
    assert isinstance(profile, StrategyProfile)
    message: Snapshot = {}
    for player, strategy in enumerate(profile.strategies):
        if isinstance(strategy, NetworkStrategy):  # uniform before the first fit: nothing to tell
            message |= {f"{player}.{name}": value for name, value in strategy.parameters.items()}
    return message


class Players:
    """Reads game keys on the learner's device and turns parameters into strategies."""

    def __init__(self, game: Game, config: RunConfig, device: torch.device) -> None:
        self.game = game
        self.device = device
        self.state_inputs: tuple[StateInputs, StateInputs] = (
            state_inputs(game.state_codec(0), device),
            state_inputs(game.state_codec(1), device),
        )
        self._config = config

    def advantage_spec(self, player: int) -> NetworkSpec:
        """Sizes of the player's advantage network."""
        return self._spec(player, self._config.advantage.network)

    def average_spec(self, player: int) -> NetworkSpec:
        """Sizes of the player's average network."""
        return self._spec(player, self._config.average.network)

    def _spec(self, player: int, network: Any) -> NetworkSpec:
        actions = self.game.description.num_actions
        return NetworkSpec(self.state_inputs[player].width, actions, network.hidden, network.layer_norm)

    def baseline_spec(self, inputs: HistoryInputs) -> NetworkSpec:
        """Sizes of the baseline network, one for both players."""
        network = self._config.baseline.network
        return NetworkSpec(inputs.width, self.game.description.num_actions, network.hidden, network.layer_norm)

    def history_inputs(self) -> HistoryInputs:
        """Reads history keys on the device."""
        return history_inputs(self.game.history_codec(), self.device)

    def from_advantages(self, player: int, parameters: Parameters) -> Strategy:
        """Regret matching on an advantage network."""
        predictor = Predictor(self.advantage_spec(player), self.device)
        predictor.load(parameters)
        inputs = self.state_inputs[player]
        return NetworkStrategy(parameters, lambda keys: predictor.advantages(inputs, keys))

    def profile(self, message: Snapshot) -> Profile:
        """The profile that `profile_message` made it from, playing the same bits."""
        if TABLE in message:
            return TableProfile(message[TABLE])
        strategies: list[Strategy] = []
        for player in (0, 1):
            prefix = f"{player}."
            own = {name.removeprefix(prefix): v for name, v in message.items() if name.startswith(prefix)}
            strategies.append(self.from_advantages(player, own) if own else Uniform())
        return StrategyProfile((strategies[0], strategies[1]))

    def from_average(self, player: int, parameters: Parameters) -> Strategy:
        """An average network's own probabilities."""
        predictor = Predictor(self.average_spec(player), self.device)
        predictor.load(parameters)
        inputs = self.state_inputs[player]
        return FromProbabilities(lambda keys: predictor.probabilities(inputs, keys))


class TreePlayers(Players):
    """The same for an enumerated game: a strategy is a table, from one forward pass over all its states."""

    game: TreeGame

    def __init__(self, game: TreeGame, config: RunConfig, device: torch.device) -> None:
        super().__init__(game, config, device)
        self._predictors = tuple(Predictor(self.advantage_spec(p), device) for p in (0, 1))
        own = (game.states_of(0), game.states_of(1))
        self._keys = [np.arange(s.start, s.stop, dtype=np.int32) for s in own]
        self._legal = [game.arrays.legal[s] for s in own]

    def advantage_table(self, player: int, parameters: Parameters) -> Probabilities:
        """[S_p, A] regret matching on the network, or on an exact fit, at every state of the player."""
        if TABLE in parameters:
            return regret_matching(parameters[TABLE], self._legal[player])
        predictor = self._predictors[player]
        predictor.load(parameters)
        return regret_matching(predictor.advantages(self.state_inputs[player], self._keys[player]), self._legal[player])

    def average_table(self, player: int, parameters: Parameters) -> Probabilities:
        """[S_p, A] the average network at every state of the player."""
        strategy = self.from_average(player, parameters)
        return strategy.probabilities(self._keys[player], self._legal[player])


class Baseline:
    """DREAM's baseline as samplers ask for it, player 0's Q(h, .) in chips: 0 before the first fit.

    An enumerated game has it as a table f8[H, A] over decision histories, any other as a network.
    """

    def __init__(self, players: Players) -> None:
        self._players = players
        self._inputs = players.history_inputs()
        self._scale = players.game.description.payoff_scale
        self._actions = players.game.description.num_actions
        self._predictor = Predictor(players.baseline_spec(self._inputs), players.device)
        self._parameters: Parameters = {}
        self.table: NDArray[np.float64] | None = None
        if isinstance(players.game, TreeGame):
            self.table = np.zeros((players.game.num_histories, self._actions))

    def values(self, keys: NDArray[Any]) -> NDArray[np.float64]:
        """[n, A] at the histories `keys`."""
        if self.table is not None:
            return self.table.take(keys, axis=0)
        if not self._parameters:
            return np.zeros((len(keys), self._actions))
        return self._predicted(keys)

    def publish(self, parameters: Parameters) -> None:
        """Play by a newly fitted network."""
        self._parameters = parameters
        self._predictor.load(parameters)
        if self.table is not None:
            self.table = self._predicted(np.arange(len(self.table), dtype=np.int32))

    def message(self) -> Snapshot:
        """The baseline as plain arrays, for `load` in another process."""
        return {TABLE: self.table} if self.table is not None else dict(self._parameters)

    def load(self, message: Snapshot) -> None:
        """Answer as the baseline that `message` came from."""
        if TABLE in message:
            self.table = message[TABLE]
        elif message:
            self.publish(message)

    def _predicted(self, keys: NDArray[Any]) -> NDArray[np.float64]:
        return self._scale * self._predictor.values(self._inputs, keys).astype(np.float64)


def next_probabilities(game: Game, profile: TableProfile | StrategyProfile, keys: NDArray[Any]) -> NDArray[np.float64]:
    """[n, A] what `profile` plays at the histories `keys`, for the baseline's targets."""
    codec = game.history_codec()
    if isinstance(codec, TableHistoryCodec) and isinstance(profile, TableProfile):
        return profile.table.take(codec.state.take(keys), axis=0)
    assert isinstance(codec, PackedHistoryCodec)
    assert isinstance(profile, StrategyProfile)
    histories = codec.decode(keys)
    result = np.zeros(histories.legal.shape)
    for strategy, states in zip(profile.strategies, histories.states, strict=True):
        if len(states.index):
            result[states.index] = strategy.probabilities(states.keys, histories.legal[states.index])
    return result
