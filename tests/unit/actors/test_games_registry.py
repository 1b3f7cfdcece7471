import subprocess
import sys

import pyspiel
import pytest
from oracles import python_games

from actors.games.description import GameError
from actors.games.probe import probe
from actors.games.registry import ALIASES, describe, load, open_game
from actors.games.simulator import SimulatorGame
from actors.games.tree import TreeGame


@pytest.fixture(autouse=True, scope="module")
def _registered():
    python_games.register()


def message(name: str, **options) -> str:
    with pytest.raises(GameError) as caught:
        load(name, **options)
    text = str(caught.value)
    assert "\n" not in text.replace("\\n", "")
    return text


@pytest.mark.parametrize(
    ("name", "unit", "chips", "low", "high", "actions"),
    [
        ("kuhn", "mA/g", 1.0, -2.0, 2.0, 2),
        ("leduc", "mA/g", 1.0, -13.0, 13.0, 3),
        ("liars-dice", "m/g", 1.0, -1.0, 1.0, 13),
        ("goofspiel-4", "m/g", 1.0, -1.0, 1.0, 4),
        ("goofspiel-5", "m/g", 1.0, -1.0, 1.0, 5),
        ("fhp", "mbb/g", 100.0, -1200.0, 1200.0, 3),
        ("leduc_poker(suit_isomorphism=True)", "mA/g", 1.0, -13.0, 13.0, 3),
        ("universal_poker", "mbb/g", 100.0, -1200.0, 1200.0, 4),
        ("universal_poker(betting=limit,blind=5 20,raiseSize=10 20,maxRaises=1 1)", "mbb/g", 20.0, -50.0, 50.0, 3),
        (python_games.SECRET, "m/g", 1.0, -4.0, 4.0, 3),
    ],
)
def test_descriptions(name, unit, chips, low, high, actions):
    d = describe(name)
    assert (d.milli_unit, d.unit_chips) == (unit, chips)
    assert (d.min_payoff, d.max_payoff, d.num_actions) == (low, high, actions)
    assert d.milli(chips) == 1000.0
    assert pyspiel.load_game(d.game_string).get_type().dynamics == pyspiel.GameType.Dynamics.SEQUENTIAL


def test_aliases_are_named_by_their_key_and_load():
    assert [alias.name for alias in ALIASES.values()] == list(ALIASES)
    assert all(describe(name).name == name for name in ALIASES)


def test_backend_auto_takes_the_tree_where_it_fits():
    assert isinstance(load("kuhn"), TreeGame)
    assert isinstance(load("kuhn", "simulator"), SimulatorGame)
    assert isinstance(load("kuhn", enumerate_limit=57), SimulatorGame)
    assert isinstance(load("kuhn", enumerate_limit=58), TreeGame)


def test_tree_beyond_the_limit_is_refused_with_the_numbers():
    assert "enumerate_limit = 1,000" in message("leduc", backend="tree", enumerate_limit=1000)


def test_unknown_backend():
    assert "auto, tree, simulator" in message("kuhn", backend="trees")


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("ledcu", "nearest is 'leduc'"),
        ("khun_poker", "nearest is 'kuhn_poker'"),
        ("leduc_poker(", "not a game string"),
        ("leduc_poker(cards=3)", "'cards'"),
        ("leduc_poker(players=two)", "players"),
        ("", "Unknown game '': allowed are kuhn"),
        ("qqqq", "Unknown game 'qqqq': allowed are kuhn"),
        ("leduc_poker(players=3)", "3 player(s)"),
        ("mfg_garnet", "mean-field"),
        ("tic_tac_toe", "no information-state tensor"),
        ("coop_box_pushing", "IDENTICAL"),
        ("goofspiel(num_cards=2000000000)", "2000000000 actions"),
        ("dark_hex(board_size=2)", "share one tensor"),
        ("goofspiel(num_cards=4)", "imperfect recall"),
    ],
)
def test_bad_names_and_games(name, part):
    assert part in message(name)


@pytest.mark.parametrize(
    ("parameters", "key"),
    [
        ("numSuits=9", "numSuits"),
        ("numRanks=0", "numRanks"),
        ("numRounds=0", "numRounds"),
        ("numHoleCards=100", "numHoleCards"),
        ("numPlayers=3", "numPlayers"),
        ("blind=x y", "blind"),
        ("blind=100 500,stack=1000 20", "blind"),
        ("firstPlayer=3 3", "firstPlayer"),
        ("numRounds=4,firstPlayer=1 1 1 1", "numBoardCards"),
        ("numBoardCards=0 5,numRanks=2,numSuits=2", "numBoardCards"),
        ("betting=limit,raiseSize=", "raiseSize"),
        ("betting=limit,raiseSize=1 2,maxRaises=1 300", "maxRaises"),
        ("stack=0 100", "stack"),
        ("boardCards=XX", "boardCards"),
        ("handReaches=1 2 3", "handReaches"),
        ("potSize=-1", "potSize"),
        ("numSuits=x", "numSuits"),
    ],
)
def test_bad_poker_parameters_are_refused_before_they_end_the_process(parameters, key):
    assert key in message(f"universal_poker({parameters})")
    assert key in message(f"turn_based_simultaneous_game(game=universal_poker({parameters}))")


def test_openspiel_really_crashes_on_what_is_checked():
    """Named mutant: no check. The process dies, so the check is not decoration."""
    code = "import pyspiel; pyspiel.load_game('universal_poker(numSuits=9)')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode < 0


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("python_secret_three_players", "3 player(s)"),
        ("python_secret_general_sum", "GENERAL_SUM"),
        ("python_secret_untrue_sum", "not zero-sum"),
        ("python_secret_no_tensor", "no information-state tensor"),
        ("python_secret_sampled", "samples its chance"),
        ("python_secret_leaky_chance", "sums to 0.9"),
        ("python_secret_colliding", "share one tensor"),
        ("python_secret_forgetful", "imperfect recall"),
        ("python_secret_rewarding", "rewards before the end"),
        ("python_secret_mute", "has legal actions [] after ["),
        ("python_secret_beyond", "has legal actions [0, 1, 7] after ["),
        ("python_secret_negative", "has legal actions [-1, 1] after ["),
        ("python_secret_raising", "failed after ["),
        ("python_secret_raising", "KeyError: 'reply'"),
        ("python_secret_dividing", "ZeroDivisionError: reply"),
        ("python_secret_refusing", "at birth"),
    ],
)
@pytest.mark.parametrize("backend", ["tree", "simulator"])
def test_broken_games_are_refused(name, part, backend):
    assert part in message(name, backend=backend)


def test_a_shared_tensor_is_named_by_both_states():
    text = message("python_secret_colliding", backend="simulator")
    first, second = text.split("information states ")[1].split(" of player")[0].split(" and ")
    assert first != second
    assert first.startswith("'p")
    assert second.startswith("'p")


def test_registering_twice_is_harmless():
    python_games.register()
    assert load(python_games.SECRET).description.name == python_games.SECRET


def test_probe_sees_the_extremes_of_flop_holdem():
    """Chips and raises of the longest lines, both ways, in every run of the probe."""
    findings = probe(*open_game("fhp"))
    assert (findings.min_payoff, findings.max_payoff) == (-1200.0, 1200.0)
    assert findings.fast_observer
    assert findings.layout.num_bytes + 1 + 4 * 3 + 4 + 4 <= 64


def test_probe_is_deterministic():
    first, second = (probe(*open_game("leduc")) for _ in range(2))
    assert (first.episodes, first.decisions) == (second.episodes, second.decisions)
    assert first.layout.kind.tolist() == second.layout.kind.tolist()
