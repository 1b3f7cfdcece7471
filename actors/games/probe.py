"""What a game turns out to be when it is played: feature layouts, chance, payoffs, and faults named early.

A fixed, seeded set of episodes: uniform play, every pair of extreme policies (always the lowest, middle or
highest legal action), mixtures of both, chance drawn by its law or evenly, so that long lines and rare deals
are seen.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyspiel
from numpy.typing import NDArray
from open_spiel.python.observation import make_observation

from actors.games.description import GameDescription, GameError
from buffers.packing import HALF, SINGLE, FeatureLayout, FeatureStatistics

EPISODES: Final = 3000
DECISIONS: Final = 20_000
NUMBERS: Final = 4_000_000
_MOST_MOVES: Final = 1_000_000
_ROWS: Final = 512
_COMPARED: Final = 500

# Whole numbers beyond this are not all exact in float16, even if all that were seen are.
_EXACT_IN_HALF: Final = 2048

_Policy = tuple[str, float]
"""(which legal action, probability of a uniform one instead)"""
_UNIFORM: Final[_Policy] = ("lowest", 1.0)
_POLICIES: Final[tuple[_Policy, ...]] = (
    *((pick, epsilon) for pick in ("lowest", "middle", "highest") for epsilon in (0.0, 0.1, 0.5)),
    _UNIFORM,
)
_PICKS: Final[dict[str, Callable[[list[int]], int]]] = {
    "lowest": lambda actions: actions[0],
    "middle": lambda actions: actions[len(actions) // 2],
    "highest": lambda actions: actions[-1],
}


@dataclass(frozen=True)
class Findings:
    """What the probe saw.

    `layout` packs the information-state tensors of both players. `fast_observer`: OpenSpiel's observer wrote
    the same numbers as `information_state_tensor`. Payoffs are player 0's, in chips.
    """

    layout: FeatureLayout
    fast_observer: bool
    episodes: int
    decisions: int
    min_payoff: float
    max_payoff: float


def probe(game: pyspiel.Game, description: GameDescription, episodes: int = EPISODES) -> Findings:
    """Play up to `episodes` episodes of the turn-based `game`, fewer once enough was seen.

    Raises `GameError` naming the fault: payoffs that are not zero-sum, rewards before the end, a chance law
    that does not sum to 1, one tensor for two information states, imperfect recall, infinite tensors, legal
    actions that are none, and whatever the game itself raises.
    """
    enough = min(DECISIONS, NUMBERS // (description.state_features[0] + description.num_actions))
    try:
        play = _Probe(game, description)
        for number, choose in enumerate(itertools.islice(_choosers(), episodes)):
            if play.decisions >= enough and number >= 2 * len(_POLICIES) ** 2:
                break
            play.episode(choose)
        return play.findings()
    except (RuntimeError, ValueError) as error:
        if isinstance(error, GameError):
            raise
        raise GameError(f"{description.name} failed while it was probed: {error}") from error


class _Chooser:
    """Picks actions of one episode: a policy per player, and chance by its law or evenly."""

    def __init__(self, policies: tuple[_Policy, _Policy], even: bool, seed: int) -> None:
        self._policies = policies
        self._even = even
        self._random = random.Random(seed)  # drawn one by one: much faster than numpy's

    def action(self, player: int, actions: list[int]) -> int:
        pick, epsilon = self._policies[player]
        if epsilon and self._random.random() < epsilon:
            return self._random.choice(actions)
        return _PICKS[pick](actions)

    def outcome(self, outcomes: list[tuple[int, float]]) -> int:
        if self._even:
            return self._random.choice(outcomes)[0]
        actions, law = zip(*outcomes, strict=True)
        return int(self._random.choices(actions, law)[0])


def _choosers() -> Iterator[_Chooser]:
    pairs = [(first, second) for first in _POLICIES for second in _POLICIES]
    uniform = (_UNIFORM, _UNIFORM)
    for number in itertools.count():
        # Every pair once for each kind of chance; then every second episode is uniform.
        plain = number >= 2 * len(pairs) and number % 2 == 0
        yield _Chooser(uniform if plain else pairs[(number // 2) % len(pairs)], number % 4 < 2, number)


class _Probe:
    """Plays episodes and keeps what they showed."""

    def __init__(self, game: pyspiel.Game, description: GameDescription) -> None:
        self.decisions = 0
        self._episodes = 0
        self._game = game
        self._name = description.name
        self._num_actions = description.num_actions
        self._rewards = game.get_type().reward_model == pyspiel.GameType.RewardModel.REWARDS
        self._tolerance = 1e-6 * description.payoff_scale
        self._payoffs: list[float] = []
        self._statistics = FeatureStatistics(description.state_features[0])
        self._rows: list[Any] = []
        self._states = (_States(self._name, 0), _States(self._name, 1))
        self._observer = observer_of(game)

    def episode(self, choose: _Chooser) -> None:
        state = None
        try:
            state = self._game.new_initial_state()
            self._play(state, choose)
        except (GameError, MemoryError):
            raise
        except Exception as error:  # the game's code is the user's and may raise anything
            after = f"after {state.history()}" if state is not None else "at its start"
            what = " ".join(str(error).split())
            raise GameError(f"{self._name} failed {after}: {type(error).__name__}: {what}") from error

    def _play(self, state: pyspiel.State, choose: _Chooser) -> None:
        past: list[_Past] = [None, None]
        for _ in range(_MOST_MOVES):
            if state.is_terminal():
                self._finish(state)
                return
            if self._rewards and any(state.rewards()):
                raise GameError(f"{self._name} pays rewards before the end: only terminal payoffs are trained.")
            if state.is_chance_node():
                state.apply_action(choose.outcome(self._law(state)))
                continue
            player, actions = self._decision(state)
            action = choose.action(player, actions)
            tensor = self._observe(state, player)
            name = state.information_state_string(player)
            self._states[player].see(name, tensor, actions, past[player])
            past[player] = (name, action)
            state.apply_action(action)
        raise GameError(f"{self._name} did not end within {_MOST_MOVES:,} moves.")

    def findings(self) -> Findings:
        """Raises `GameError` for a game without any decision."""
        self._flush()
        if not self.decisions:
            raise GameError(f"{self._name} has no decisions to train.")
        return Findings(
            layout=_careful(self._statistics.layout(constant_bits=True)),
            fast_observer=self._observer is not None,
            episodes=self._episodes,
            decisions=self.decisions,
            min_payoff=min(self._payoffs),
            max_payoff=max(self._payoffs),
        )

    def _decision(self, state: pyspiel.State) -> tuple[int, list[int]]:
        """Whose turn it is, and the legal actions."""
        player = state.current_player()
        if player not in (0, 1):
            raise GameError(f"{self._name} gives the turn to player {player} after {state.history()}.")
        actions = state.legal_actions()
        if not actions or not all(0 <= action < self._num_actions for action in actions):
            raise GameError(
                f"{self._name} has legal actions {actions} after {state.history()}: a decision needs at least one, "
                f"from 0 to {self._num_actions - 1}."
            )
        return player, actions

    def _observe(self, state: pyspiel.State, player: int) -> bytes:
        """Both players' tensors into the statistics; returns the acting player's as bytes."""
        self.decisions += 1
        tensors = [np.array(state.information_state_tensor(p), np.float32) for p in (0, 1)]
        self._rows += tensors
        if self._observer is not None and self.decisions <= _COMPARED:
            for p in (0, 1):
                self._observer.set_from(state, p)
                if not np.array_equal(self._observer.tensor, tensors[p]):
                    self._observer = None
                    break
        if len(self._rows) >= _ROWS:
            self._flush()
        return tensors[player].tobytes()

    def _flush(self) -> None:
        if self._rows:
            self._statistics.observe(np.stack(self._rows))
            self._rows.clear()

    def _law(self, state: pyspiel.State) -> list[tuple[int, float]]:
        law = [(action, p) for action, p in state.chance_outcomes() if p != 0.0]
        total = sum(p for _, p in law)
        if not abs(total - 1.0) < 1e-6 or any(p < 0.0 for _, p in law):
            raise GameError(
                f"{self._name} has a chance law that is no probability: it sums to {total:g} after {state.history()}."
            )
        return law

    def _finish(self, state: pyspiel.State) -> None:
        self._episodes += 1
        payoffs = state.returns()
        if not abs(sum(payoffs)) <= self._tolerance:
            raise GameError(
                f"{self._name} is not zero-sum: it pays {payoffs[0]:g} and {payoffs[1]:g} after {state.history()}."
            )
        self._payoffs.append(payoffs[0])


_Past = tuple[str, int] | None


class _States:
    """Information states of one player by name: their tensor, legal actions and own past must be unique."""

    def __init__(self, name: str, player: int) -> None:
        self._name = name
        self._player = player
        self._facts: dict[str, tuple[bytes, list[int], _Past]] = {}
        self._owner: dict[bytes, str] = {}

    def see(self, state: str, tensor: bytes, actions: list[int], past: _Past) -> None:
        facts = self._facts.get(state)
        if facts == (tensor, actions, past):
            return
        if facts is not None:
            self._refuse(state, facts, (tensor, actions, past))
        owner = self._owner.setdefault(tensor, state)
        if owner != state:
            raise GameError(
                f"{self._name}: information states {owner!r} and {state!r} of player {self._player} share one"
                " tensor, so a network cannot tell them apart."
            )
        self._facts[state] = (tensor, actions, past)

    def _refuse(
        self, state: str, first: tuple[bytes, list[int], _Past], second: tuple[bytes, list[int], _Past]
    ) -> None:
        where = f"{self._name}: information state {state!r} of player {self._player}"
        if first[2] != second[2]:
            raise GameError(
                f"{where} follows both {_after(first[2])} and {_after(second[2])}: that is imperfect recall."
            )
        if first[1] != second[1]:
            raise GameError(f"{where} has legal actions {first[1]} in one history and {second[1]} in another.")
        raise GameError(f"{where} has two different tensors.")


def _after(past: _Past) -> str:
    return "the start" if past is None else f"action {past[1]} in {past[0]!r}"


def _careful(layout: FeatureLayout) -> FeatureLayout:
    """Numbers so large that float16 skips some get float32: not all that can occur were seen."""
    kind = np.where((layout.kind == HALF) & (layout.scale > _EXACT_IN_HALF), SINGLE, layout.kind)
    return FeatureLayout(kind.astype(np.uint8), layout.constant, layout.scale)


class Observer:
    """Writes information-state tensors into one numpy buffer."""

    def __init__(self, observation: Any) -> None:
        self.set_from: Callable[[pyspiel.State, int], None] = observation.set_from
        self.tensor: NDArray[np.float32] = observation.tensor


def observer_of(game: pyspiel.Game) -> Observer | None:
    """OpenSpiel's observer of information states, or None where the game has none of that kind."""
    kind = pyspiel.IIGObservationType(
        perfect_recall=True, public_info=True, private_info=pyspiel.PrivateInfoType.SINGLE_PLAYER
    )
    try:
        observation = make_observation(game, kind)
    except (RuntimeError, ValueError, TypeError, NotImplementedError, AttributeError):
        return None
    if observation is None or getattr(observation, "tensor", None) is None:
        return None
    return Observer(observation) if observation.tensor.dtype == np.float32 else None
