"""Small games written in Python and registered in OpenSpiel: one that trains, and broken relatives of it.

`SECRET`: both players ante 1 and get a card of three (law 0.5, 0.3, 0.2, with replacement). Player 0 plays
plain or hidden; after hidden, single or double; player 1 sees none of it. The stake is 1, 2 or 3. Player 1 folds
(loses 1), calls, or raises the stake by 1; to a raise, player 0 folds (loses the stake before it) or calls. So an
information state of player 1 is reached by histories of different lengths.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyspiel

LAW = (0.5, 0.3, 0.2)
PLAIN, HIDDEN = 0, 1
SINGLE, DOUBLE = 0, 1
FOLD, CALL, RAISE = 0, 1, 2


@dataclass(frozen=True)
class Fault:
    """What is wrong with a relative of the game."""

    players: int = 2
    utility: Any = pyspiel.GameType.Utility.ZERO_SUM
    has_tensor: bool = True
    chance_mode: Any = pyspiel.GameType.ChanceMode.EXPLICIT_STOCHASTIC
    winner_takes_double: bool = False
    law: tuple[float, ...] = LAW
    blind_tensor: bool = False
    forgets: bool = False
    early_reward: bool = False
    answers: tuple[int, ...] = (FOLD, CALL, RAISE)
    raises: type[Exception] | None = None
    refuses: bool = False


SECRET = "python_secret"
FAULTS: dict[str, Fault] = {
    SECRET: Fault(),
    "python_secret_three_players": Fault(players=3),
    "python_secret_general_sum": Fault(utility=pyspiel.GameType.Utility.GENERAL_SUM),
    "python_secret_untrue_sum": Fault(winner_takes_double=True),
    "python_secret_no_tensor": Fault(has_tensor=False),
    "python_secret_sampled": Fault(chance_mode=pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC),
    "python_secret_leaky_chance": Fault(law=(0.5, 0.3, 0.1)),
    "python_secret_zero_chance": Fault(law=(0.6, 0.0, 0.4)),
    "python_secret_colliding": Fault(blind_tensor=True),
    "python_secret_forgetful": Fault(forgets=True),
    "python_secret_rewarding": Fault(early_reward=True),
    "python_secret_mute": Fault(answers=()),
    "python_secret_beyond": Fault(answers=(FOLD, CALL, 7)),
    "python_secret_negative": Fault(answers=(-1, CALL)),
    "python_secret_raising": Fault(raises=KeyError),
    "python_secret_dividing": Fault(raises=ZeroDivisionError),
    "python_secret_refusing": Fault(refuses=True),
}


def register() -> None:
    """Register all games; a second call does nothing."""
    known = set(pyspiel.registered_names())
    for name, fault in FAULTS.items():
        if name not in known:
            pyspiel.register_game(_game_type(name, fault), _game_class(name, fault))


def _game_type(name: str, fault: Fault) -> Any:
    rewards = pyspiel.GameType.RewardModel
    return pyspiel.GameType(
        short_name=name,
        long_name=name,
        dynamics=pyspiel.GameType.Dynamics.SEQUENTIAL,
        chance_mode=fault.chance_mode,
        information=pyspiel.GameType.Information.IMPERFECT_INFORMATION,
        utility=fault.utility,
        reward_model=rewards.REWARDS if fault.early_reward else rewards.TERMINAL,
        max_num_players=fault.players,
        min_num_players=fault.players,
        provides_information_state_string=True,
        provides_information_state_tensor=fault.has_tensor,
        provides_observation_string=False,
        provides_observation_tensor=False,
    )


def _game_class(name: str, fault: Fault) -> type:
    kind = _game_type(name, fault)
    info = pyspiel.GameInfo(
        num_distinct_actions=3,
        max_chance_outcomes=3,
        num_players=fault.players,
        min_utility=-4.0,
        max_utility=4.0,
        utility_sum=0.0,
        max_game_length=4,
    )

    class Game(pyspiel.Game):
        def __init__(self, params: Any = None) -> None:
            super().__init__(kind, info, params or {})
            if fault.refuses:
                raise ZeroDivisionError("at birth")

        def new_initial_state(self) -> "SecretState":
            return SecretState(self, fault)

        def make_py_observer(self, iig_obs_type: Any = None, params: Any = None) -> "SecretObserver":
            return SecretObserver(fault)

    return Game


class SecretState(pyspiel.State):
    """Cards, player 0's first moves, player 1's answer and player 0's reply."""

    def __init__(self, game: Any, fault: Fault) -> None:
        super().__init__(game)
        self.fault = fault
        self.cards: list[int] = []
        self.opening: list[int] = []
        self.answer: int | None = None
        self.reply: int | None = None

    @property
    def opened(self) -> bool:
        return self.opening == [PLAIN] or len(self.opening) == 2

    @property
    def stake(self) -> int:
        base = 1 if self.opening[0] == PLAIN else 2 + self.opening[1]
        return base + (self.answer == RAISE)

    def current_player(self) -> int:
        if self._over():
            return pyspiel.PlayerId.TERMINAL
        if len(self.cards) < 2:
            return pyspiel.PlayerId.CHANCE
        return 1 if self.opened and self.answer is None else 0

    def _over(self) -> bool:
        return self.answer in (FOLD, CALL) or self.reply is not None

    def _legal_actions(self, player: int) -> list[int]:
        return list(self.fault.answers) if player == 1 else [0, 1]

    def chance_outcomes(self) -> list[tuple[int, float]]:
        return list(enumerate(self.fault.law))

    def _apply_action(self, action: int) -> None:
        if len(self.cards) < 2:
            self.cards.append(action)
        elif not self.opened:
            self.opening.append(action)
        elif self.answer is None:
            self.answer = action
        else:
            if self.fault.raises is not None:
                raise self.fault.raises("reply")
            self.reply = action

    def _action_to_string(self, player: int, action: int) -> str:
        return f"{player}:{action}"

    def is_terminal(self) -> bool:
        return self._over()

    def rewards(self) -> list[float]:
        if self.fault.early_reward and self.opening and not self._over():
            return [1.0, -1.0]
        return self.returns()

    def returns(self) -> list[float]:
        players = self.fault.players
        if not self._over():
            return [0.0] * players
        if self.answer == FOLD:
            won = 1.0
        elif self.reply == FOLD:
            won = -float(self.stake - 1)
        else:
            won = float(self.stake * np.sign(self.cards[0] - self.cards[1]))
        if self.fault.winner_takes_double and won > 0:
            return [2 * won, -won]
        return [won, -won] + [0.0] * (players - 2)

    def __str__(self) -> str:
        return f"{self.cards} {self.opening} {self.answer} {self.reply}"


class SecretObserver:
    """Player, own card, own opening, whether player 1 was asked, player 1's raise; f4[14]."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.tensor = np.zeros(14, np.float32)
        self.dict = {"observation": self.tensor}

    def set_from(self, state: SecretState, player: int) -> None:
        tensor = self.tensor
        tensor.fill(0.0)
        tensor[min(player, 1)] = 1.0
        if len(state.cards) > player and not self.fault.blind_tensor:
            tensor[2 + state.cards[player]] = 1.0
        if player == 0:
            for turn, action in enumerate(self._remembered(state)):
                tensor[5 + 2 * turn + action] = 1.0
        tensor[9] = state.opened
        if state.answer is not None:
            tensor[10 + state.answer] = 1.0
        # A number that is neither 0 nor 1: what player 0 knows of the stake, in chips.
        tensor[13] = state.stake if player == 0 and state.opened and not self.fault.forgets else 1.0

    def string_from(self, state: SecretState, player: int) -> str:
        card = state.cards[player] if len(state.cards) > player else "-"
        opening = self._remembered(state) if player == 0 else ""
        return f"p{player} {card} {opening} {state.opened} {state.answer}"

    def _remembered(self, state: SecretState) -> list[int]:
        return [] if self.fault.forgets and state.opened else state.opening
