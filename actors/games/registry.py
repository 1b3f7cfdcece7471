"""From a name to a game: aliases with their units, OpenSpiel game strings, and what is refused."""

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import pyspiel

from actors.games.batch import Game
from actors.games.description import GameDescription, GameError
from actors.games.enumeration import TooLargeError
from actors.games.probe import probe
from actors.games.simulator import SimulatorGame
from actors.games.tree_cache import load_tree

Backend = Literal["auto", "tree", "simulator"]

BACKENDS: Final = ("auto", "tree", "simulator")

# A playout's product of branching factors has the number of leaves as its mean (Knuth 1975), so it exceeds
# `_HOPELESS` limits in a game within the limit with probability 1 / _HOPELESS at most.
_HOPELESS: Final = 1000
_PLAYOUTS: Final = 32

_MOST_ACTIONS: Final = 100_000
_MOST_FEATURES: Final = 1_000_000


@dataclass(frozen=True)
class Alias:
    """A short name for an OpenSpiel game, with the unit in which its exploitability is published."""

    name: str
    game_string: str
    milli_unit: str
    unit_chips: float
    summary: str


_FLOP_HOLDEM = (
    "universal_poker(betting=limit,numPlayers=2,numRounds=2,blind=100 50,firstPlayer=2 1,numSuits=4,"
    "numRanks=13,numHoleCards=2,numBoardCards=0 3,raiseSize=100 200,maxRaises=3 4)"
)


def _goofspiel(cards: int) -> str:
    return f"goofspiel(imp_info=True,num_cards={cards},points_order=descending)"


ALIASES: Final[dict[str, Alias]] = {
    alias.name: alias
    for alias in (
        Alias("kuhn", "kuhn_poker", "mA/g", 1.0, "Kuhn poker: three cards, one bet"),
        Alias("leduc", "leduc_poker", "mA/g", 1.0, "Leduc poker: six cards, two rounds"),
        Alias("liars-dice", "liars_dice(numdice=1)", "m/g", 1.0, "Liar's dice with one die each"),
        Alias("goofspiel-4", _goofspiel(4), "m/g", 1.0, "Goofspiel with four cards, bids hidden"),
        Alias("goofspiel-5", _goofspiel(5), "m/g", 1.0, "Goofspiel with five cards, bids hidden"),
        Alias("fhp", _FLOP_HOLDEM, "mbb/g", 100.0, "Flop Hold'em: limit hold'em that ends after the flop"),
    )
}

# Games whose ante of one chip is the unit of the literature.
_ANTE_ONE: Final = frozenset({"kuhn_poker", "leduc_poker"})


def load(name: str, backend: Backend = "auto", enumerate_limit: int = 2_000_000) -> Game:
    """The game called `name`, an alias or an OpenSpiel game string.

    `backend`: "tree" enumerates at most `enumerate_limit` histories, "simulator" steps OpenSpiel states,
    "auto" takes the tree where it fits. Raises `GameError`: unknown name, bad parameters, a game that cannot
    be trained, or a tree beyond the limit.
    """
    if backend not in BACKENDS:
        raise GameError(f"Unknown backend {backend!r}: allowed are {', '.join(BACKENDS)}.")
    game, description = open_game(name)
    findings = probe(game, description)
    description = replace(
        description,
        min_payoff=min(description.min_payoff, findings.min_payoff),
        max_payoff=max(description.max_payoff, findings.max_payoff),
    )
    if backend == "tree" or (backend == "auto" and _may_fit(game, enumerate_limit)):
        try:
            return load_tree(game, description, enumerate_limit)
        except TooLargeError as error:
            if backend == "tree":
                raise GameError(
                    f"{name} has more histories than enumerate_limit = {enumerate_limit:,}:"
                    " raise the limit or use backend 'simulator'."
                ) from error
    return SimulatorGame(game, description, findings)


def describe(name: str) -> GameDescription:
    """What OpenSpiel declares about `name`; plays nothing. Raises `GameError` as `load` does."""
    return open_game(name)[1]


def open_game(name: str) -> tuple[pyspiel.Game, GameDescription]:
    """The turn-based OpenSpiel game of `name` and its description, refused by what it declares.

    Raises `GameError`: unknown name, bad parameters, not two players, not zero-sum, mean-field play, sampled
    chance, or no information-state tensor.
    """
    alias = ALIASES.get(name)
    game_string = alias.game_string if alias else name
    game = _openspiel_game(game_string)
    _refuse_declared(name, game)
    if game.get_type().dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS:
        game = pyspiel.convert_to_turn_based(game)
    if not game.get_type().provides_information_state_tensor:
        raise GameError(f"{name} offers no information-state tensor, which networks need as their input.")
    unit, chips = (alias.milli_unit, alias.unit_chips) if alias else _unit(game)
    features = int(np.prod(game.information_state_tensor_shape(), dtype=np.int64))
    description = GameDescription(
        name=name,
        game_string=str(game),
        num_actions=game.num_distinct_actions(),
        state_features=(features, features),
        min_payoff=float(game.min_utility()),
        max_payoff=float(game.max_utility()),
        horizon=game.max_game_length(),
        max_chance_outcomes=game.max_chance_outcomes(),
        milli_unit=unit,
        unit_chips=chips,
    )
    _refuse_sizes(description)
    return game, description


def _openspiel_game(game_string: str) -> pyspiel.Game:
    """`pyspiel.load_game` with errors in one sentence, and without its crashes in universal_poker."""
    try:
        parameters = pyspiel.game_parameters_from_string(game_string)
    except (RuntimeError, ValueError) as error:
        raise GameError(f"{game_string!r} is not a game string: {_first_line(error)}") from error
    for part in _named(parameters):
        _refuse_unknown(str(part.get("name", "")))
        if part.get("name") == "universal_poker":
            _refuse_bad_poker(game_string, part)
    try:
        return pyspiel.load_game(game_string)
    except MemoryError:
        raise
    except Exception as error:  # a game written in Python may raise anything
        raise GameError(f"OpenSpiel cannot load {game_string!r}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines() or [type(error).__name__]
    return " ".join(text[:2]) if ".cc:" in text[0] else text[0]


def _named(parameters: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The game and the games it wraps."""
    yield parameters
    for value in parameters.values():
        if isinstance(value, Mapping):
            yield from _named(value)


def _refuse_unknown(short_name: str) -> None:
    if short_name.startswith("python_") and short_name not in pyspiel.registered_names():
        import open_spiel.python.games  # noqa: F401  (registers OpenSpiel's own Python games)
    known = pyspiel.registered_names()
    if short_name in known:
        return
    candidates = [*ALIASES, *known]
    nearest = difflib.get_close_matches(short_name, candidates, n=1, cutoff=0.5)
    hint = f" the nearest is {nearest[0]!r};" if nearest else ""
    raise GameError(
        f"Unknown game {short_name!r}:{hint} allowed are {', '.join(ALIASES)} and every OpenSpiel game string."
    )


def _refuse_declared(name: str, game: pyspiel.Game) -> None:
    kind = game.get_type()
    if kind.dynamics == pyspiel.GameType.Dynamics.MEAN_FIELD:
        raise GameError(f"{name} is a mean-field game: only sequential and simultaneous games are played.")
    if game.num_players() != 2:
        raise GameError(f"{name} has {game.num_players()} player(s): only two-player games are trained.")
    if kind.utility != pyspiel.GameType.Utility.ZERO_SUM:
        declared = str(kind.utility).rsplit(".", 1)[-1]
        raise GameError(f"{name} declares its payoffs {declared}: only ZERO_SUM games are trained.")
    if kind.chance_mode == pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC:
        raise GameError(f"{name} samples its chance inside: games must list chance outcomes explicitly.")


def _refuse_sizes(description: GameDescription) -> None:
    """Parameters out of range overflow inside OpenSpiel without an error; the sizes then make no sense."""
    sizes = {
        "actions": (description.num_actions, _MOST_ACTIONS),
        "information-state features": (description.state_features[0], _MOST_FEATURES),
        "moves at most": (description.horizon, 2**31 - 1),
    }
    for what, (size, most) in sizes.items():
        if not 1 <= size <= most:
            raise GameError(f"{description.name} reports {size} {what}: allowed are 1 to {most:,}.")
    if not -np.inf < description.min_payoff <= description.max_payoff < np.inf:
        bounds = f"{description.min_payoff} to {description.max_payoff}"
        raise GameError(f"{description.name} reports payoffs of {bounds}: they must be finite.")


def _poker(parameters: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((part for part in _named(parameters) if part.get("name") == "universal_poker"), None)


def _unit(game: pyspiel.Game) -> tuple[str, float]:
    """(unit, chips in it): the big blind of universal_poker, the ante of Kuhn and Leduc, otherwise one."""
    parameters = pyspiel.game_parameters_from_string(str(game))
    poker = _poker(parameters)
    if poker is not None:
        big_blind = max(_numbers(_with_defaults(poker)["blind"]), default=0)
        return ("mbb/g", float(big_blind)) if big_blind > 0 else ("m/g", 1.0)
    return ("mA/g", 1.0) if parameters.get("name") in _ANTE_ONE else ("m/g", 1.0)


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split()]


def _with_defaults(poker: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {kind.short_name: kind for kind in pyspiel.registered_games()}
    return {**kinds["universal_poker"].parameter_specification, **poker}


_CHIPS: Final = 2**31 - 1
_SUBGAME_HANDS: Final = 2652


def _refuse_bad_poker(game_string: str, poker: Mapping[str, Any]) -> None:
    """ACPC's game parser ends the process on a bad definition: check what it checks, in words."""
    defaults = _with_defaults({})
    if any(type(value) is not type(defaults.get(key)) for key, value in poker.items() if key != "name"):
        return  # an unknown key or a wrong type: OpenSpiel refuses them itself
    full = {**defaults, **poker}
    stacked = "stack" in poker or full["betting"] != "limit"
    problems = (*_poker_ranges(full), *_poker_lists(full, stacked))
    for key, allowed in problems or tuple(_poker_deals(full, stacked)):
        raise GameError(f"{game_string!r}: {key}={full[key]} is not allowed: {allowed}.")


def _poker_ranges(full: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(key, what is allowed) of whole numbers out of range."""
    if full["numPlayers"] != 2:
        yield "numPlayers", "only two-player games are trained"
    ranges = (("numRounds", 1, 4), ("numSuits", 1, 4), ("numRanks", 1, 13), ("numHoleCards", 1, 3))
    for key, low, high in (*ranges, ("potSize", 0, _CHIPS)):
        if not low <= full[key] <= high:
            yield key, f"{low} to {high}"


def _poker_lists(full: Mapping[str, Any], stacked: bool) -> Iterator[tuple[str, str]]:
    """(key, what is allowed) of lists that are too short or hold a number out of range."""
    rounds, limit = full["numRounds"], full["betting"] == "limit"
    for key, length, low, high, needed in (
        ("blind", 2, 0, _CHIPS, True),
        ("stack", 2, 1, _CHIPS, stacked),
        ("firstPlayer", rounds, 1, 2, True),
        ("numBoardCards", rounds, 0, 7, True),
        ("raiseSize", rounds, 1, _CHIPS, limit),
        ("maxRaises", rounds, 0, 255, bool(full["maxRaises"])),
    ):
        if not needed:
            continue
        words = full[key].split()
        fine = all(word.isdigit() and low <= int(word) <= high for word in words)
        if not fine or len(words) < length:
            yield key, f"{length} whole numbers of {low} to {high}, separated by spaces"


def _poker_deals(full: Mapping[str, Any], stacked: bool) -> Iterator[tuple[str, str]]:
    """(key, what is allowed) of lists that are well formed, but ask for chips or cards that are not there."""
    if stacked and any(b > s for b, s in zip(_numbers(full["blind"]), _numbers(full["stack"]), strict=False)):
        yield "blind", f"at most the stack ({full['stack']})"
    board = sum(_numbers(full["numBoardCards"])[: full["numRounds"]])
    if board > 7 or board + 2 * full["numHoleCards"] > full["numSuits"] * full["numRanks"]:
        yield "numBoardCards", "at most 7 in all, and no more cards than the deck holds"
    if not re.fullmatch(r"([2-9TJQKA][cdhs])*", full["boardCards"]):
        yield "boardCards", "cards such as 2c or Ah, without spaces"
    if len(full["handReaches"].split()) not in (0, _SUBGAME_HANDS):
        yield "handReaches", f"{_SUBGAME_HANDS} probabilities, separated by spaces"


def _may_fit(game: pyspiel.Game, limit: int) -> bool:
    """False where random playouts show that counting histories up to `limit` would be wasted time."""
    rng = np.random.default_rng(0)
    total = 0.0
    for _ in range(_PLAYOUTS):
        state, width = game.new_initial_state(), 1.0
        while not state.is_terminal():
            actions = state.legal_actions()
            width *= len(actions)
            state.apply_action(actions[int(rng.integers(len(actions)))])
        total += width
    return total / _PLAYOUTS <= _HOPELESS * limit
